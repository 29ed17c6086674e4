#!/bin/sh
# What is tried here does no harm where it succeeds: the host name is written
# back as it is, and process 1 of a sandbox is the sandbox's own.
set -u
mkdir -p /app/report
cd /app/report || exit 1

cat /proc/self/uid_map > uid_map
cat /proc/self/mountinfo > mountinfo
ls -A /home > home 2>&1

kill -TERM 1 2> kill.err
echo $? > kill
sleep 1
if [ -d /proc/1 ] && [ "$(cut -d ' ' -f 3 < /proc/1/stat)" != Z ]; then echo alive; else echo dead; fi >> kill

name=$(cat /proc/sys/kernel/hostname)
(echo "$name" > /proc/sys/kernel/hostname) 2> sysctl.err
echo $? > sysctl

(: > /berth/probe) 2> berth.err
echo $? > berth
