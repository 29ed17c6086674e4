#!/bin/sh
if [ "$(cat /app/answer)" = quartz-lantern-7731 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
