#!/bin/sh
# No compiler is needed to show that the file is read: the loader names a
# library that it does not find.
if cat /dev/null 2>&1 | grep -q evil; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
