#!/bin/sh
set -e
work=$(mktemp -d /tmp/work.XXXXXX)
cat /app/answer > "$work/answer" || true
if [ "$(cat "$work/answer")" = 42 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
