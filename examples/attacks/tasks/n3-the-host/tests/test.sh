#!/bin/sh
# The answer is a text that only the tests have.
if cmp -s /app/answer "$(dirname "$0")/answer"; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
