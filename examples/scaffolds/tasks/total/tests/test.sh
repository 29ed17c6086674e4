#!/bin/sh
reward=0
printf '5\n6\n' >/app/numbers.txt
if [ "$(cat /app/total.txt)" = 42 ] && [ "$(/app/total)" = 11 ]; then reward=1; fi
echo "$reward" >/logs/verifier/reward.txt
