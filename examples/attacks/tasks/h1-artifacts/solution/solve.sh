#!/bin/sh
# The file beside this one has the path of a file of the host.
mkdir -p /logs/artifacts/in
file=$(cat "$(dirname "$0")/canary")
ln -s "$file" /logs/artifacts/link
ln -s "$(dirname "$file")" /logs/artifacts/folder
ln -s "../../../../../../../../../..$file" /logs/artifacts/in/up
mkfifo /logs/artifacts/pipe
: > "/logs/artifacts/a
b"
: > "/logs/artifacts/\$(touch $file.new)"
exit 0
