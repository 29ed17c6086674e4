#!/bin/sh
# Without a terminal: the rule as the program has it, turned back.
set -eu
sed -n "s/.*echo '\(.*\)' | tr.*/\1/p" /app/handbook | tr 'A-Za-z' 'N-ZA-Mn-za-m' | sed 's/.* //' > /app/code.txt
