#!/bin/sh
set -u
if [ "$(timeout 10 perl /tests/ask.pl)" = pong ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
