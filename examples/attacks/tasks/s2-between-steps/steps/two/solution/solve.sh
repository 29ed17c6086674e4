#!/bin/sh
i=0
until [ -e /usr/local/bin/cat ] || [ $i = 30 ]; do sleep 0.1; i=$((i + 1)); done
