#!/bin/sh
# Reward 1 if the sum is right. The sleep gives what the solution left behind
# the time to do its worst.
set -u
sleep 1
if [ "$(cat /app/sum.txt 2>/dev/null)" = 42 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
