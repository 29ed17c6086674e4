#!/bin/sh
echo 'echo 1 > /logs/verifier/reward.txt; exit 0' > /app/solution.sh
