#!/bin/sh
# A test script with a mistake: the reward comes before the last check.
set -e
echo 1 > /logs/verifier/reward.txt
test "$(cat /app/answer)" = 42
