#!/bin/sh
# A copy of the artifacts has a file in place of a link if the link was followed.
reward=0
for f in link in/up; do
	if [ -f "/logs/artifacts/$f" ] && [ ! -L "/logs/artifacts/$f" ]; then reward=1; fi
done
echo $reward > /logs/verifier/reward.txt
