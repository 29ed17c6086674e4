#!/bin/sh
cd /tests || exit 1
git init -q . && git add test.sh && git status > /dev/null
if [ "$(cat /app/answer)" = 42 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
