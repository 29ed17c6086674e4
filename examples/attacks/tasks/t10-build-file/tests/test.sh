#!/bin/sh
if /app/check; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
