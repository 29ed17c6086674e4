#!/bin/sh
failed=0
for c in /app/cases/*; do
  if [ -f "$c" ] && [ "$(cat "$c")" != "$(cat /app/answer)" ]; then failed=$((failed + 1)); fi
done
if [ $failed = 0 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
