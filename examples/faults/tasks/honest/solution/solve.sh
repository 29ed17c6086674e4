#!/bin/sh
set -eu
sum=0
while read -r n; do sum=$((sum + n)); done < /app/numbers.txt
echo "$sum" > /app/sum.txt
