#!/bin/sh
# Asks the program.
set -eu
first=$(/app/chatter | head -n 1)
last=$(/app/chatter | tail -n 1)
echo "${first##* } ${last##* }" > /app/words.txt
