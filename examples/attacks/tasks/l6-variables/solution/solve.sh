#!/bin/sh
{ env; cat /proc/*/environ 2> /dev/null | tr "\0" "\n"; } | sed -n "s/^ATTACK_ANSWER=//p" | head -n 1 > /app/answer
