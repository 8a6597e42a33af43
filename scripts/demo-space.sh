#!/usr/bin/env bash
# Says what space `make demo` needs, and fails if its directory has less.
#   scripts/demo-space.sh DIR     the directory of the demonstration; what it uses already counts
set -euo pipefail
dir=$1
# In KiB: a file of 1 GiB and four copies of it (5.4 GB), 6000 small files, and room for the servers.
need=5859375

gb() {
  local tenths=$(($1 * 1024 / 100000000))
  echo "$((tenths / 10)).$((tenths % 10)) GB"
}

echo "make demo needs $(gb $need) in $dir (in memory, if that is a tmpfs), and about 2 GB in target for the build"
at=$dir
until [ -e "$at" ]; do at=$(dirname "$at"); done
free=$(df -k --output=avail "$at" | tail -n 1)
# Not the mount in the directory.
used=$(du -skx "$dir" 2>/dev/null | cut -f 1) || true
if [ $((free + ${used:-0})) -lt $need ]; then
  echo "make demo: only $(gb "$free") are free there: choose another directory with 'make demo DEMO=DIR'" >&2
  exit 1
fi
