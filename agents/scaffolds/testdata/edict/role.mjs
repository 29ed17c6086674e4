// Stands in for OpenClaw in the tests of EDICT's driver. plan.json beside the board
// says what each call of a role does. calls.jsonl has what each was told.
//
//   node role.mjs FOLDER ROLE SESSION --message-file FILE ARGUMENT…
import { execFileSync, spawn } from "node:child_process";
import { appendFileSync, existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";

const [folder, role, session, , file, ...args] = process.argv.slice(2);
const log = `${folder}/calls.jsonl`;
const before = existsSync(log) ? readFileSync(log, "utf8").split("\n").filter((l) => l && JSON.parse(l).role === role).length : 0;
appendFileSync(log, JSON.stringify({ role, session, args, text: readFileSync(file, "utf8") }) + "\n");
const does = JSON.parse(readFileSync(`${folder}/plan.json`, "utf8"))[role]?.[before] ?? {};
const board = `${folder}/board.json`;

const say = (event) => console.log(JSON.stringify(event));
const usage = { input: 10, output: 5, cacheRead: 0, cacheWrite: 0 };
say({ type: "session", id: session });
say({ type: "message", message: { role: "user", content: "asked " + role } });
if (does.raw !== undefined) writeFileSync(board, does.raw);
if (does.huge) writeFileSync(board, JSON.stringify([{ id: "1", state: "Menxia", output: "x".repeat(does.huge) }]));
if (does.gone || does.fifo || does.folder) rmSync(board, { recursive: true, force: true });
if (does.fifo) execFileSync("mkfifo", [board]);
if (does.folder) execFileSync("mkdir", [board]);
if (does.later) spawn("sh", ["-c", `sleep ${does.later[0]}; printf '%s' "$1" >"$2"`, "sh", does.later[1], board], { detached: true, stdio: "ignore" }).unref();
if (does.holds) spawn("sleep", ["30"], { stdio: ["ignore", "inherit", "inherit"] }).unref(); // and so the output
if (does.noise) console.log(does.noise);
if (does.sleep) await new Promise((done) => setTimeout(done, does.sleep));
const stop = does.error ? { stopReason: "error", errorMessage: does.error } : { stopReason: "stop" };
say({ type: "message", message: { role: "assistant", content: [{ type: "text", text: does.say ?? `${role} ${before + 1}` }], usage, ...stop } });
say({ type: "result", error: { message: does.error && "it failed somehow" } });
if (does.signal) process.kill(process.pid, does.signal);
process.exit(does.exit ?? 0);
