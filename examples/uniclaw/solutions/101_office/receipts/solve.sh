#!/bin/sh
awk -F, 'NR > 1 { sum[$2] += $3 } END { for (kind in sum) printf "%s: %.2f\n", kind, sum[kind] }' \
	clawbench/sources/receipts.csv | sort >results/receipts.txt
