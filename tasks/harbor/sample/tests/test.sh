#!/bin/sh
# Runs when the agent is done. Write a number: 1 passes, less does not. The agent
# cannot see this folder.
if [ "$(cat /app/hello.txt)" = 'Hello, world!' ]; then
  echo 1 > /logs/verifier/reward.txt
else
  echo 0 > /logs/verifier/reward.txt
fi
