// Runs OpenClaw for one message. OpenClaw prints nothing until it ends, so this
// program prints each entry of its transcript as soon as it is stored, one JSON
// object per line, and at the end {"type": "result", "error": {"message": …}} if
// it failed.
//
//   node openclaw.mjs ENTRY STATE AGENT SESSION ARGUMENT…
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { zstdDecompressSync } from "node:zlib";

const [entry, state, agent, session, ...args] = process.argv.slice(2);
const file = `${state}/agents/${agent}/agent/openclaw-agent.sqlite`;

// entries returns the entries of the transcript after the one with number seq. It
// returns none if the store does not exist yet or is locked.
function entries(seq) {
  if (!existsSync(file)) return [];
  let db;
  try {
    db = new DatabaseSync(file, { readOnly: true });
    return db.prepare("SELECT seq, event_json, event_zstd FROM transcript_events WHERE session_id = ? AND seq > ? ORDER BY seq").all(session, seq);
  } catch {
    return [];
  } finally {
    db?.close();
  }
}

let seq = entries(-1).at(-1)?.seq ?? -1; // of an earlier turn
function print() {
  for (const e of entries(seq)) {
    console.log(e.event_json ?? zstdDecompressSync(e.event_zstd).toString());
    seq = e.seq;
  }
}

console.log(JSON.stringify({ type: "session", id: session }));
const child = spawn(process.execPath, [entry, "agent", "--local", "--agent", agent, "--session-id", session, "--json", ...args], {
  stdio: ["ignore", "pipe", "inherit"],
});
process.on("SIGTERM", () => child.kill()); // and print what it has stored
let out = "";
child.stdout.setEncoding("utf8").on("data", (text) => (out += text));
const polling = setInterval(print, 150);
child.on("error", (err) => {
  console.error(String(err));
  process.exit(1);
});
child.on("close", (code, signal) => {
  clearInterval(polling);
  print();
  let message = out.slice(-4096);
  try {
    const result = JSON.parse(out);
    message = result.error?.message || result.meta?.error?.message;
  } catch {} // it is no JSON: its last words
  console.log(JSON.stringify({ type: "result", error: { message } }));
  if (signal) process.removeAllListeners(signal), process.kill(process.pid, signal);
  else process.exit(code);
});
