#!/bin/sh
# Writes its reward early, and takes a while to end.
if [ "$(cat /app/answer)" = 42 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
i=0
while [ $i -lt 5 ]; do sleep 0.1; i=$((i + 1)); done
