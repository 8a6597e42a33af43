#!/usr/bin/env bash
# How long the recovery of a killed MDT takes: mounts make changes that the MDT does not commit, the
# MDS is killed and started again, and a mount makes a directory. The file system is the script's
# own, in memory, with three servers over tcp.
#   bench/replay.sh [CHANGES [MOUNTS [create|chmod]]]     default: 100000 1 chmod
# The MDT commits a batch when it is large, whatever its parameters say, so about 50,000 creates
# remain at most.
set -euo pipefail
changes=${1:-100000} mounts=${2:-1} kind=${3:-chmod}
sheen=${SHEEN:-$(dirname "$0")/../target/release/sheen}
base=$(mktemp -d /dev/shm/replay.XXXXXX)
export SHEEN_RUNTIME_DIR=$base/run SHEEN_KEY_DIR=$base/keys
servers=()
# shellcheck disable=SC2329
clean_up() {
  for i in $(seq "$mounts"); do timeout 60 "$sheen" umount "$base/m$i" 2>/dev/null || true; done
  for ((i = ${#servers[@]} - 1; i >= 0; i--)); do
    kill "${servers[i]}" && wait "${servers[i]}" || true
  done
  rm -rf "$base"
}
trap clean_up EXIT
# Starts a server, and waits until it is ready: start NAME ARGUMENTS...
start() {
  local log=$base/$1.log
  "$sheen" "${@:2}" >"$log" 2>&1 &
  servers+=($!)
  until grep -q ready "$log"; do sleep 0.05; done
}
mds() { start "$1" mds --dir "$base/mdt" --mgs 127.0.0.1:17988@tcp --listen 127.0.0.1:17989@tcp; }
seconds() { echo "$(date +%s.%N) $1" | awk '{printf "%.2f", $1 - $2}'; }
start mgs mgs --dir "$base/mgs" --listen 127.0.0.1:17988@tcp
mds mds
start oss oss --dir "$base/ost" --mgs 127.0.0.1:17988@tcp --listen 127.0.0.1:17990@tcp
for i in $(seq "$mounts"); do
  mkdir "$base/m$i"
  "$sheen" mount 127.0.0.1:17988@tcp:/sheen "$base/m$i"
done
"$sheen" lctl set_param mdt.*.commit_interval_ms=60000 mdt.*.commit_ops_max=1048576 >/dev/null
programs=() began=$(date +%s.%N)
for i in $(seq "$mounts"); do
  python3 - "$base/m$i/d$i" $((changes / mounts)) "$kind" <<'PY' &
import os, sys
directory, count, kind = sys.argv[1], int(sys.argv[2]), sys.argv[3]
os.mkdir(directory)
for n in range(count if kind == "create" else 1000):
    os.mknod(f"{directory}/f{n}")
for n in range(count if kind == "chmod" else 0):
    os.chmod(f"{directory}/f{n % 1000}", 0o600 + n % 2)
PY
  programs+=($!)
done
wait "${programs[@]}"
echo "$changes changes of $mounts mounts took $(seconds "$began") s"
kill -9 "${servers[1]}"
wait "${servers[1]}" 2>/dev/null || true
killed=$(date +%s.%N)
unset 'servers[1]'
servers=("${servers[@]}")
mds mds2
timeout 300 mkdir "$base/m1/after"
echo "a new change ended $(seconds "$killed") s after the end of the MDS"
"$sheen" lctl get_param mdt.*.recovery_status | grep replayed_requests
