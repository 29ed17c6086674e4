#!/bin/sh
"$(dirname "$0")/attacker" limits "${VICTIM:-1}" > /app/report 2>&1
if grep -q "^+ \(prlimit\|sched_\|setpriority\)" /app/report; then echo 42 > /app/answer; fi
exit 0
