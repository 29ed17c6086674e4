#!/bin/sh
cd /app || exit 1
/usr/bin/python3 -c '
import json, pathlib
try:
    ok = json.loads(pathlib.Path("answer").read_text()) == 42
except Exception:
    ok = False
pathlib.Path("/logs/verifier/reward.txt").write_text("1" if ok else "0")
'
