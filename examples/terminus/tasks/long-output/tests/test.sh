#!/bin/sh
# Reward: 1 if both words are in the file, in order.
set -u
if [ "$(cat /app/words.txt)" = "anchor zenith" ]; then reward=1; else reward=0; fi
echo "$reward" > /logs/verifier/reward.txt
