#!/bin/sh
# Writes its reward early, and continues as long as something beside it may need to
# act.
echo 0 > /logs/verifier/reward.txt
i=0
until grep -q 1 /logs/verifier/reward.txt || [ $i = 20 ]; do sleep 0.1; i=$((i + 1)); done
