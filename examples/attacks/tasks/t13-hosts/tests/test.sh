#!/bin/sh
if getent hosts answers.invalid > /dev/null; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
