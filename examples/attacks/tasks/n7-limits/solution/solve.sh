#!/bin/sh
victim=${VICTIM:-1}
for command in "prlimit --pid $victim --nofile=8:8" "chrt --idle --all-tasks --pid 0 $victim" \
	"taskset --all-tasks --pid 1 $victim" "renice 19 -p $victim"; do
	if $command > /app/report 2>&1; then echo 42 > /app/answer; fi
done
exit 0
