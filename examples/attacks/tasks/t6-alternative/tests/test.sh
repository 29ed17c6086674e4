#!/bin/sh
if awk 'BEGIN { exit 1 }'; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
