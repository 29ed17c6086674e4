#!/bin/sh
# Reward: 1 if the file is as the wizard writes it.
set -u
want="name = berth
port = 8080
sign = $(printf 'berth:8080:wizard\n' | cksum | cut -d ' ' -f 1)"
if [ "$(cat /app/service.conf)" = "$want" ]; then reward=1; else reward=0; fi
echo "$reward" > /logs/verifier/reward.txt
