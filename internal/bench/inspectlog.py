"""Writes trajectories (ATIF, as `berth export --to atif` writes them) as a log of Inspect.

    inspectlog.py FOLDER LOGDIR
"""

import json
import pathlib
import sys

from inspect_ai.log import EvalConfig, EvalDataset, EvalLog, EvalSample, EvalSpec, write_eval_log
from inspect_ai.model import ChatMessageAssistant, ChatMessageTool
from inspect_ai.tool import ToolCall

folder, logs = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
files = sorted(p for p in folder.rglob("*.json") if '"steps"' in p.read_text()[:2000])
longest = max(files, key=lambda p: p.stat().st_size)
samples = []
for n, path in enumerate(files):
    messages = []
    for step in json.loads(path.read_text())["steps"]:
        calls = [
            ToolCall(id=c["tool_call_id"], function=c["function_name"], arguments=c["arguments"])
            for c in step.get("tool_calls", [])
        ]
        messages.append(ChatMessageAssistant(content=step["message"], tool_calls=calls or None))
        for result in step.get("observation", {}).get("results", []):
            messages.append(ChatMessageTool(content=result["content"], tool_call_id=result["source_call_id"]))
    name = "longest" if path == longest else f"bench/task-{n:03d}"
    samples.append(EvalSample(id=name, epoch=1, input="Do it.", target="", messages=messages))
log = EvalLog(
    status="success",
    eval=EvalSpec(
        created="2026-01-01T00:00:00+00:00", task="shared", dataset=EvalDataset(samples=len(samples)), model="m", config=EvalConfig()
    ),
    samples=samples,
)
logs.mkdir(parents=True)
write_eval_log(log, str(logs / "shared.eval"))
