#!/bin/sh
if [ -z "$(wrong-answer 2>/dev/null)" ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
