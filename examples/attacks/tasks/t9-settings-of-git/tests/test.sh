#!/bin/sh
git -c safe.directory=/app -C /app status > /dev/null 2>&1
if [ "$(cat /app/answer)" = 42 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
