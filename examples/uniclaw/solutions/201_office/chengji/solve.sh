#!/bin/sh
awk -F, 'NR > 1 { sum[$1] += $3 } END { for (name in sum) print name, sum[name] }' clawbench/sources/chengji.csv |
	sort -k 2 -n -r >results/zongfen.txt
