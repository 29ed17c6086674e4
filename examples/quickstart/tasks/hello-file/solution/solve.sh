#!/bin/sh
set -eu
echo 'Hello, harbour!' > /app/hello.txt
