#!/bin/sh
# Reward: 1 if every case is right, else 0. reward.json also says how many were.
set -u
work=$(mktemp -d) cases=0 right=0
expect() { # expect TEXT N WANTED
  cases=$((cases + 1))
  printf "$1" > "$work/in.txt"
  printf "$2" > "$work/n.txt"
  printf "$3" > "$work/want.txt"
  timeout 10 /app/top-words "$work/in.txt" "$(cat "$work/n.txt")" > "$work/got.txt" 2> "$work/err.txt"
  if [ $? -eq 0 ] && cmp -s "$work/got.txt" "$work/want.txt"; then
    right=$((right + 1))
  else
    echo "case $cases: top-words of '$1' with $2 gave:"
    cat "$work/got.txt" "$work/err.txt"
  fi
}
expect 'a b a\n' 5 '2 a\n1 b\n'
expect 'Sea sea SEA sky\n' 2 '3 sea\n1 sky\n'
expect 'x x x x x x x x x x y y\n' 2 '10 x\n2 y\n'
expect 'b a, b-a; c\n' 2 '2 a\n2 b\n'
expect '' 3 ''
expect '12 34 -- !\n' 3 ''
expect 'one' 1 '1 one\n'
if [ "$right" -eq "$cases" ]; then reward=1; else reward=0; fi
echo "{\"reward\": $reward, \"cases\": $right}" > /logs/verifier/reward.json
