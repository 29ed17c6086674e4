#!/bin/sh
for article in bolts nuts washers; do
	echo "$article" >"ask/.$article" && mv "ask/.$article" "ask/$article"
	for _ in $(seq 100); do
		[ -e "reply/$article" ] && break
		sleep 0.1
	done
	echo "$article: $(cat "reply/$article")"
done >results/stock.txt
