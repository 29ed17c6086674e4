#!/bin/sh
while read -r name; do
	echo "$name $((${#name} * 7 + 100))"
done <clawbench/sources/yonghu.txt >results/yaohao.txt
