#!/bin/sh
# The part of unguarded.sh that an attack may hit: it runs each step of the task.
here=$1 VICTIM=$$
export VICTIM
. "$here/variables"
step() {
	[ ! -f /app/health ] || sh /app/health # the healthcheck of the step
	mkdir -p /tests
	cp -r "$2/." /tests
	(cd /app && "$1/solve.sh")
	cd /app && /tests/test.sh
}
if [ -d "$here/steps" ]; then
	for s in "$here"/steps/*; do step "$s/solution" "$s/tests"; done
else
	step "$here/attack" "$here/tests"
fi
