#!/bin/sh
if sh /app/solution.sh 2> /dev/null | grep -q "test_answer PASSED"; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
