#!/bin/sh
grep -o -E '20[0-9]{2}-[0-9]{2}-[0-9]{2}' clawbench/sources/riji.txt | sort -u >results/riqi.txt
