#!/bin/sh
if [ -e /app/one ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
