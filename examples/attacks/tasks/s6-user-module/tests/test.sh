#!/bin/sh
if [ "$(python3 -c 'print(open("/app/answer").read())')" = 42 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
