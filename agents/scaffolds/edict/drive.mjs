// Runs a chain of OpenClaw roles around a board, for one message of the user. The
// role taizi gets the message. While the board has a task that has not ended, the
// state of the task says which role is called next. At the end taizi is called
// again for its last word.
//
//   node drive.mjs SETTINGS ARGUMENT…
//
// SETTINGS is a JSON file: see edict.go. It prints the lines of taizi as they are,
// and those of another role as {"type": "role", "call": …, "event": …}. Besides:
//
//   {"type": "called", "call": …, "text": …}    the call of a role has ended
//   {"type": "failed", "call": …, "message": …} it failed, which ends the turn
//   {"type": "note", "text": …}                 what this program tells taizi
import { spawn } from "node:child_process";
import { closeSync, constants, fstatSync, openSync, readFileSync, readSync, rmSync, writeFileSync } from "node:fs";
import { createInterface } from "node:readline";

const maxBoard = 1 << 20; // bytes of a board
const maxTasks = 100;
const maxShown = 4000; // characters of a member of a task, as roles are shown it
const maxMessage = 20000; // characters of the user's message, as roles other than taizi are shown it
const grace = 5000; // ms that a role has to end after it was asked to

const roles = new Map(Object.entries({
  Taizi: "taizi", Zhongshu: "zhongshu", Pending: "zhongshu", Menxia: "menxia", Assigned: "shangshu", Review: "shangshu", PendingConfirm: "shangshu",
}));
const offices = new Map(Object.entries({ 户部: "hubu", 礼部: "libu", 兵部: "bingbu", 刑部: "xingbu", 工部: "gongbu", 吏部: "libu_hr" }));
for (const o of [...offices.values()]) offices.set(o, o);
const ended = ["Done", "Cancelled"];

const s = JSON.parse(readFileSync(process.argv[2], "utf8"));
const args = [...s.args, ...process.argv.slice(3)];
const deadline = s.time > 0 ? Date.now() + s.time * 1000 : Infinity;
const left = () => (deadline - Date.now()) / 1000; // s
const say = (event) => console.log(JSON.stringify(event));
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const cut = (text, most) => (text.length > most ? text.slice(0, most) + " […]" : text);

// roleOf returns the role that a task calls; undefined: none.
function roleOf(t) {
  return (t.state === "Assigned" && offices.get(t.org)) || roles.get(t.state);
}

// read returns the text of the board. A role may have put anything in its place.
function read() {
  const fd = openSync(s.board, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOFOLLOW);
  try {
    if (!fstatSync(fd).isFile()) throw new Error("it is not a regular file");
    const bytes = Buffer.alloc(maxBoard + 1);
    let n = 0;
    for (let more = 1; more > 0 && n < bytes.length; n += more) more = readSync(fd, bytes, n, bytes.length - n, null);
    if (n > maxBoard) throw new Error(`it is larger than ${maxBoard} bytes`);
    return bytes.toString("utf8", 0, n);
  } finally {
    closeSync(fd);
  }
}

// board returns the tasks of the board, a text that changes when the board does,
// and why the board cannot be read, if it cannot.
function board() {
  let text = "";
  try {
    text = read();
    const list = JSON.parse(text);
    if (!Array.isArray(list)) throw new Error("it is not a list");
    const word = (v) => (typeof v === "string" ? v : v === undefined || v === null ? "" : JSON.stringify(v));
    const tasks = [];
    for (const t of list.slice(0, maxTasks)) {
      if (t === null || typeof t !== "object" || Array.isArray(t)) continue;
      const id = word(t.id);
      if (id === "" || id.length > 100 || tasks.some((o) => o.id === id)) continue;
      tasks.push({ id, title: word(t.title), state: word(t.state), org: word(t.org), now: word(t.now), output: word(t.output), updatedAt: word(t.updatedAt) });
    }
    return { tasks, text, wrong: "" };
  } catch (err) {
    return { tasks: [], text: text + err.message, wrong: err.message };
  }
}

function shown(tasks) {
  return JSON.stringify(tasks, (key, v) => (typeof v === "string" ? cut(v, maxShown) : v), 1);
}

let calls = 0;
// call runs a role with a message for at most so many seconds. A failure ends the
// turn. It returns whether the role was stopped because its time was over.
function call(role, why, text, seconds) {
  const name = `${s.turn}-${++calls}-${role}`;
  const file = `${s.folder}/${name}.md`;
  writeFileSync(file, text);
  const [program, ...first] = s.program;
  const child = spawn(program, [...first, role, s.session, "--message-file", file, ...args], { stdio: ["ignore", "pipe", "inherit"], detached: true });
  const kill = (signal) => {
    try {
      process.kill(-child.pid, signal); // with what it has started
    } catch {} // it has ended
  };
  let over = false;
  const timers = [];
  if (seconds < Infinity) {
    const ms = Math.min(Math.max(seconds, 0) * 1000, 2 ** 31 - 1 - grace);
    timers.push(setTimeout(() => ((over = true), kill("SIGTERM")), ms), setTimeout(() => kill("SIGKILL"), ms + grace));
  }
  let message = "";
  const printed = new Promise((done) => {
    createInterface({ input: child.stdout }).on("close", done).on("line", (line) => {
      let event;
      try {
        event = JSON.parse(line);
      } catch {
        return;
      }
      const end = event?.type === "result";
      if (end) message = event.error?.message ?? "";
      if (role !== "taizi") say({ type: "role", call: name, event });
      else if (!end || !over) console.log(line);
    });
  });
  return new Promise((done) => {
    child.on("error", (err) => {
      console.error(String(err));
      process.exit(1);
    });
    child.on("exit", async (code, signal) => {
      timers.forEach(clearTimeout);
      if (over) kill("SIGKILL");
      await Promise.race([printed, sleep(grace)]); // something that it started may keep its output open
      child.stdout.destroy();
      const failed = !over && (signal || code !== 0);
      if (role !== "taizi") {
        say({ type: "called", call: name, text: `${role} was called: ${why}.${over ? ` It was stopped after ${Math.round(seconds)} s.` : ""}` });
        if (failed) say({ type: "failed", call: name, message: cut(message || `${role} failed`, maxShown) });
      }
      if (failed) {
        if (signal) process.kill(process.pid, signal);
        process.exit(code || 1);
      }
      rmSync(file, { force: true });
      done(over);
    });
  });
}

// chain calls roles until there is nothing left to call, and returns why. It
// returns nothing if there was no task to begin with.
async function chain() {
  const served = new Map(); // by id of the task: the state for which a role was called last
  const stateOf = (t) => `${t.state} ${t.org}`;
  let seen;
  let since = Date.now();
  for (;;) {
    const b = board();
    if (b.text !== seen) [seen, since] = [b.text, Date.now()];
    const open = b.tasks.filter((t) => !ended.includes(t.state));
    if (b.wrong === "" && open.length === 0) return served.size > 0 ? "all tasks have ended" : "";
    if (left() - s.last < s.call) return "the time for further calls is over";
    const t = open.find((t) => roleOf(t) && served.get(t.id) !== stateOf(t));
    if (t) {
      served.set(t.id, stateOf(t));
      const role = roleOf(t);
      const why = `task ${cut(t.id, 100)} is in state ${cut(t.state, 100)}`;
      const ask = `You are called because ${why}:\n\n${shown(t)}\n\nThe user asked:\n\n${cut(s.message, maxMessage)}\n`;
      if (role === "taizi") say({ type: "note", text: ask });
      await call(role, why, role === "taizi" ? ask : `${s.roles[role]}\n\n${s.rules}\n\n${ask}`, left() - s.last);
      since = Date.now();
      continue;
    }
    if (Date.now() - since >= s.quiet * 1000) {
      return b.wrong ? `the board cannot be read: ${cut(b.wrong, 200)}` : `nothing has changed for ${s.quiet} s`;
    }
    await sleep(s.poll * 1000);
  }
}

if (s.fresh) {
  rmSync(s.board, { recursive: true, force: true });
  writeFileSync(s.board, "[]\n");
}
const stopped = await call("taizi", "", s.fresh ? `${s.roles.taizi}\n\n${s.rules}\n\nThe user's message:\n\n${s.message}` : s.message, Math.max(s.call, left() - s.last));
const why = (await chain()) || (stopped ? "your time was over" : "");
if (why) {
  const text = `The work has ended: ${why}. The board:\n\n${shown(board().tasks)}\n\n${s.word}\n`;
  say({ type: "note", text });
  await call("taizi", "", text, left());
}
