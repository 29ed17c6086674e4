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

# What root is in here. Files of /proc that belong to the machine show the host's
# id 0 as the owner. Where that id is not mapped, the kernel shows the overflow id
# instead, and root in here is nobody outside. Where it is mapped, as in a daemon's
# container without a user namespace, root in here is the host's, and must be
# without each capability that reaches beyond the sandbox (numbers as in
# linux/capability.h), and without a way to get one.
overflow=$(cat /proc/sys/kernel/overflowuid)
owner_is_unmapped() { [ "$(stat -c %u /proc/meminfo)" = "$overflow" ]; }
map_is_own() { [ -s uid_map ] && ! grep -Eq '^ *0 +0 +4294967295$' uid_map; }
beyond=0
for c in 2 9 12 16 17 19 21 22 24 25 32 33 34 35 36 37 38 39; do beyond=$((beyond | 1 << c)); done
bounded() { # by the bounding set, which no program in here can widen
  for set in Bnd Prm Eff; do
    have=$(sed -n "s/^Cap$set:[[:space:]]*//p" /proc/self/status)
    [ -n "$have" ] && [ $((0x$have & beyond)) -eq 0 ] || return 1
  done
}
root_is_harmless() { if owner_is_unmapped; then map_is_own; else bounded; fi; }
no_machine() { # neither its kernel's switches nor its disks
  [ ! -w /proc/sysrq-trigger ] || ! (: >> /proc/sysrq-trigger) 2>/dev/null || return 1
  for disk in /dev/sd* /dev/vd* /dev/nvme* /dev/dm-* /dev/mem /dev/kmsg; do
    if [ -b "$disk" ] || (head -c 1 "$disk" > /dev/null) 2>/dev/null; then return 1; fi
  done
  if mount -t proc proc /mnt 2>/dev/null; then umount /mnt; owner_is_unmapped || return 1; fi
}
# The second column, the ids outside, differs between two sandboxes: a report may be
# verified in another one than it was written in.
ids() { while read -r inside _ count; do echo "$inside $count"; done < "$1"; }
same_map() { [ "$(ids uid_map)" = "$(ids /proc/self/uid_map)" ]; }

# Fields of a line of mountinfo: 5 is the mount point, 6 its options.
mounted() { while read -r _ _ _ _ point options _; do echo "$point $options"; done < mountinfo; }
read_only() { mounted | grep -E "^$1 " | tail -n 1 | grep -Eq ' ro(,|$)'; }
no_host_home() { ! mounted | grep -Eq '^/home/'; }

home_empty() { [ -f home ] && [ ! -s home ] && [ -z "$(ls -A /home)" ]; }
survived() { [ "$(tail -n 1 kill)" = alive ] && [ -d /proc/1 ]; }
refused() { code=$(head -n 1 "$1") && [ -n "$code" ] && [ "$code" -ne 0 ]; }
no_probe() { [ ! -e /berth/probe ]; }

holds "root in here is not root of the machine" root_is_harmless
holds "no disk, no switch and no mount of the machine is in reach" no_machine
holds "the report's user map is that of such a sandbox" same_map
holds "no home of the host is mounted" no_host_home
holds "/home is empty" home_empty
holds "/berth is mounted read-only" read_only /berth
holds "/proc/sys is mounted read-only" read_only /proc/sys
holds "process 1 outlived a signal" survived
holds "a system setting could not be written" refused sysctl
holds "nothing could be created in /berth" refused berth
holds "nothing was created in /berth" no_probe

if [ "$bad" -eq 0 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
