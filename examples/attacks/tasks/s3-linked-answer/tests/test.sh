#!/bin/sh
if cmp -s /app/answer /tests/expected; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
