#!/bin/sh
setsid "$(dirname "$0")/attacker" agree > /tmp/up 2>&1 < /dev/null &
until [ -s /tmp/up ]; do sleep 0.01; done
