#!/bin/sh
# Writes a reward only if the answer is right: otherwise it ends before that.
set -e
rm -f /logs/verifier/reward.txt
test "$(cat /app/answer)" = 42
echo 1 > /logs/verifier/reward.txt
