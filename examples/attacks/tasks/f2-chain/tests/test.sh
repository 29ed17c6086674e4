#!/bin/sh
# Gives a process that works beside it time to do so.
i=0
until [ -s /app/answer ] || [ $i = 20 ]; do sleep 0.1; i=$((i + 1)); done
if [ "$(cat /app/answer)" = 42 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
