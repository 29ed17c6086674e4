// Shows and changes the board, which is beside this program.
//
//   node board.mjs list | add TITLE [KEY=VALUE…] | set ID KEY=VALUE…
import { closeSync, openSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";

const file = import.meta.dirname + "/board.json";
const states = ["Taizi", "Zhongshu", "Pending", "Menxia", "Assigned", "Review", "PendingConfirm", "Done", "Cancelled"];
const keys = ["title", "state", "org", "now", "output"];

function fail(text) {
  console.error(text);
  process.exit(1);
}

// lock waits until no other command changes the board. One that was killed leaves
// its lock, which counts for ten seconds.
async function lock() {
  for (;;) {
    try {
      closeSync(openSync(file + ".lock", "wx"));
      process.on("exit", () => rmSync(file + ".lock", { force: true }));
      return;
    } catch (err) {
      if (err.code !== "EEXIST") throw err;
    }
    const age = Date.now() - (statSync(file + ".lock", { throwIfNoEntry: false })?.mtimeMs ?? Date.now());
    if (age > 10000) rmSync(file + ".lock", { force: true });
    await new Promise((done) => setTimeout(done, 20));
  }
}

function tasks() {
  let list;
  try {
    list = JSON.parse(readFileSync(file, "utf8"));
  } catch (err) {
    if (err.code === "ENOENT") return [];
    fail(`the board cannot be read: ${err.message}. Write a JSON list into ${file}.`);
  }
  return Array.isArray(list) ? list : fail(`the board is not a list. Write a JSON list into ${file}.`);
}

function change(task, pairs) {
  for (const pair of pairs) {
    const at = pair.indexOf("=");
    const [key, value] = [pair.slice(0, at), pair.slice(at + 1)];
    if (at < 0 || !keys.includes(key)) fail(`"${pair}": write KEY=VALUE, with one of ${keys.join(", ")}`);
    if (key === "state" && !states.includes(value)) fail(`there is no state "${value}": write one of ${states.join(", ")}`);
    task[key] = value;
  }
  task.updatedAt = new Date().toISOString();
}

const [verb, what, ...pairs] = process.argv.slice(2);
if (verb !== "list") {
  if (what === undefined || !["add", "set"].includes(verb)) fail("write: list | add TITLE [KEY=VALUE…] | set ID KEY=VALUE…");
  await lock();
}
const list = tasks();
let task = list;
if (verb === "add") {
  const highest = Math.max(0, ...list.map((t) => Number(t?.id) || 0));
  task = { id: String(highest + 1), title: what, state: "Zhongshu", org: "zhongshu", now: "", output: "" };
  list.push(task);
} else if (verb === "set") {
  task = list.find((t) => t?.id === what) ?? fail(`the board has no task "${what}"`);
}
if (verb !== "list") {
  change(task, pairs);
  writeFileSync(file + ".new", JSON.stringify(list, null, 1) + "\n");
  renameSync(file + ".new", file);
}
console.log(JSON.stringify(task, null, 1));
