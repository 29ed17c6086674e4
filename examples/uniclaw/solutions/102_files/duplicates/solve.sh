#!/bin/sh
cd clawbench/sources/notes || exit
cksum * | sort -k 3 | awk '{ names[$1] = names[$1] (n[$1]++ ? " " : "") $3 } END { for (sum in n) if (n[sum] > 1) print names[sum] }' |
	sort >/tmp_workspace/results/duplicates.txt
