#!/bin/sh
yes 'a line of a test that prints far too much' | head -c 1000000000
if [ -e /app/done ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
