#!/bin/sh
cat /app/score > /logs/verifier/reward.txt
