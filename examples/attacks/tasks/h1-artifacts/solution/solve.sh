#!/bin/sh
mkdir -p /logs/artifacts/in
ln -s /etc/hostname /logs/artifacts/link
ln -s /etc /logs/artifacts/folder
ln -s ../../../../../../../../../../etc/hostname /logs/artifacts/in/up
mkfifo /logs/artifacts/pipe
: > "/logs/artifacts/a
b"
: > "/logs/artifacts/\$(touch /tmp/new)"
exit 0
