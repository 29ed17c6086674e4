#!/bin/sh
# Reward 1 if the file is there and holds exactly the line that was asked for.
set -u
work=$(mktemp -d)
printf 'Hello, harbour!\n' > "$work/expected.txt"
if [ -f /app/hello.txt ] && cmp /app/hello.txt "$work/expected.txt"; then
  echo 1 > /logs/verifier/reward.txt
else
  echo 0 > /logs/verifier/reward.txt
fi
