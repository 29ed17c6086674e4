#!/bin/sh
set -eu
cp /solution/server.pl /app/server.pl
setsid perl /app/server.pl > /app/server.log 2>&1 &
for _ in 1 2 3 4 5 6 7 8 9 10; do
  sleep 0.1
  if perl -MSocket -e 'socket(S, PF_INET, SOCK_STREAM, 0); connect(S, sockaddr_in(8017, INADDR_LOOPBACK)) or exit 1'; then exit 0; fi
done
cat /app/server.log
exit 1
