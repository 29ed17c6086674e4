#!/bin/sh
# Reward 1 if the report was written and everything in it holds; each line
# that does not hold is printed. The test looks for itself where it can, so a
# made-up report of a broken sandbox does not pass.
set -u
cd /app/report 2>/dev/null || { echo "no report"; echo 0 > /logs/verifier/reward.txt; exit 0; }
bad=0
holds() { # holds WHAT COMMAND...
  what=$1
  shift
  if "$@"; then echo "ok    $what"; else echo "FAIL  $what"; bad=$((bad + 1)); fi
}

# Files of /proc that belong to the machine show the host's id 0 as the owner.
# Where that id is not mapped, the kernel shows the overflow id instead.
overflow=$(cat /proc/sys/kernel/overflowuid)
owner_is_unmapped() { [ "$(stat -c %u /proc/meminfo)" = "$overflow" ]; }
map_is_own() { [ -s uid_map ] && ! grep -Eq '^ *0 +0 +4294967295$' uid_map; }
same_map() { [ "$(cat uid_map)" = "$(cat /proc/self/uid_map)" ]; } # not cmp: files of /proc say that they are empty

# Fields of a line of mountinfo: 5 is the mount point, 6 its options.
mounted() { while read -r _ _ _ _ point options _; do echo "$point $options"; done < mountinfo; }
read_only() { mounted | grep -E "^$1 " | tail -n 1 | grep -Eq ' ro(,|$)'; }
no_host_home() { ! mounted | grep -Eq '^/home/'; }

home_empty() { [ -f home ] && [ ! -s home ] && [ -z "$(ls -A /home)" ]; }
survived() { [ "$(tail -n 1 kill)" = alive ] && [ -d /proc/1 ]; }
refused() { code=$(head -n 1 "$1") && [ -n "$code" ] && [ "$code" -ne 0 ]; }
no_probe() { [ ! -e /berth/probe ]; }

holds "the host's id 0 is not mapped" owner_is_unmapped
holds "the sandbox has a user map of its own" map_is_own
holds "the report's user map is this sandbox's" same_map
holds "no home of the host is mounted" no_host_home
holds "/home is empty" home_empty
holds "/berth is mounted read-only" read_only /berth
holds "/proc/sys is mounted read-only" read_only /proc/sys
holds "process 1 outlived a signal" survived
holds "a system setting could not be written" refused sysctl
holds "nothing could be created in /berth" refused berth
holds "nothing was created in /berth" no_probe

if [ "$bad" -eq 0 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
