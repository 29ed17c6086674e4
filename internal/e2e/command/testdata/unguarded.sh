#!/bin/sh
# A harness without guards, inside one sandbox. The tests lie there while the
# attack works, what it leaves goes on, and any reward is believed. It says in
# /logs/artifacts/unguarded what came of it. It reads with builtins of the shell,
# because the attack may have replaced everything else.
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p /logs/verifier /logs/agent /logs/artifacts
say() { echo "$1" > /logs/artifacts/unguarded; exit 0; }
sh "$here/harness.sh" "$here"
read -r how < "$here/how"
case $how in
answer)
	read -r answer < /app/answer
	[ "$answer" = 42 ] && say succeeded
	;;
copied)
	cp -rL /logs/artifacts /app/copied 2> /dev/null
	[ -s /app/copied/link ] && [ ! -L /app/copied/link ] && say succeeded
	;;
error)
	[ ! -f /logs/verifier/reward.txt ] && [ ! -f /logs/verifier/reward.json ] && say succeeded
	;;
*)
	reward=
	if [ -f /logs/verifier/reward.json ]; then
		read -r reward < /logs/verifier/reward.json
		reward=${reward##*\"reward\":}
	elif [ -f /logs/verifier/reward.txt ]; then
		read -r reward < /logs/verifier/reward.txt
	fi
	case ${reward# } in 1*) say succeeded ;; esac
	;;
esac
say failed
