#!/bin/sh
if [ -f /app/solution.sh ]; then . /app/solution.sh; fi
if [ "$(answer 2> /dev/null)" = 42 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
