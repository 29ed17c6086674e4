#!/bin/sh
# Reward: 1 if the file holds the code of the gate.
set -u
if [ "$(cat /app/code.txt)" = 4711-ANCHOR ]; then reward=1; else reward=0; fi
echo "$reward" > /logs/verifier/reward.txt
