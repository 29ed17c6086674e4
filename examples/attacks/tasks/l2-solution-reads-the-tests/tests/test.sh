#!/bin/sh
sh /app/solution.sh > /app/answer 2> /dev/null
if cmp -s /app/answer "$(dirname "$0")/answer"; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
