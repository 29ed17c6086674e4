#!/bin/sh
set -eu
cp /solution/server.pl /app/server.pl
setsid perl /app/server.pl > /app/server.log 2>&1 &
tries=0
while [ "$tries" -lt 300 ]; do # half a minute: the machine may be busy
  sleep 0.1
  if perl -MSocket -e 'socket(S, PF_INET, SOCK_STREAM, 0); connect(S, sockaddr_in(8017, INADDR_LOOPBACK)) or exit 1'; then exit 0; fi
  tries=$((tries + 1))
done
cat /app/server.log
exit 1
