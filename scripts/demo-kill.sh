#!/usr/bin/env bash
# Demonstration: servers are killed with SIGKILL under a running copy, and the copy only pauses.
#   scripts/demo-kill.sh SHEEN [SOURCE]     the program, and a directory to copy (default: this tree's crates)
# The servers run as separate processes in a directory of its own, which is removed at the end.
set -euo pipefail
sheen=$(realpath "$1")
source=$(realpath "${2:-$(dirname "$0")/../crates}")
base=$(mktemp -d)
mnt=$base/mnt
declare -A pid=()

say() {
  local tenths=$((($(date +%s%N) - began) / 100000000))
  printf '%3d.%d s  %s\n' $((tenths / 10)) $((tenths % 10)) "$*"
}

# Starts the servers of a kind, and waits until they are ready. Only the MGS needs a fixed port.
serve() {
  local kind=$1
  shift
  local lines
  touch "$base/$kind.log"
  lines=$(wc -l <"$base/$kind.log")
  "$sheen" "$kind" --dir "$base/$kind" --listen 127.0.0.1:0 "$@" >>"$base/$kind.log" 2>&1 &
  pid[$kind]=$!
  until tail -n "+$((lines + 1))" "$base/$kind.log" | grep -q 'ready at'; do
    kill -0 "${pid[$kind]}" || { cat "$base/$kind.log"; exit 1; }
    sleep 0.05
  done
}

cleanup() {
  "$sheen" umount --force "$mnt" 2>/dev/null || true
  kill "${pid[@]}" 2>/dev/null || true
  wait
  rm -rf "$base"
}
trap cleanup EXIT

began=$(date +%s%N)
serve mgs
mgs=$(grep -om1 '127.0.0.1:[0-9]*@tcp' "$base/mgs.log")
serve mds --mgs "$mgs" --fsname demo
serve oss --mgs "$mgs" --fsname demo --osts 2
"$sheen" mount "$mgs:/demo" "$mnt"
say "an MDS, an OSS with 2 OSTs and a mount run; copying $(find "$source" -type f | wc -l) files, again and again"

(
  for round in 1 2 3 4 5 6; do
    cp -r "$source" "$mnt/copy$round"
    [ "$round" -eq 1 ] || rm -r "$mnt/copy$((round - 1))"
  done
) &
copy=$!

for kind in mds oss mds; do
  sleep 0.7
  kill -0 $copy 2>/dev/null || break
  kill -KILL "${pid[$kind]}"
  wait "${pid[$kind]}" 2>/dev/null || true
  say "the ${kind^^} was killed (SIGKILL); the copy waits"
  sleep 1
  serve "$kind" --mgs "$mgs" --fsname demo
  say "the ${kind^^} is back; the copy goes on"
done

wait $copy && say "the copy ended without an error"
diff -r "$source" "$mnt/copy6" && say "the last copy is identical to its source"
