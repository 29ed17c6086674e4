#!/bin/sh
# The agent "oracle" runs this, and no other role sees it: proof that the task can
# be solved.
set -eu
echo 'Hello, world!' > /app/hello.txt
