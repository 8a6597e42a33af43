#!/usr/bin/env bash
# The cost of quotas: creates, small and large writes, and unlinks of an ordinary user, without and
# with a limit of this user in turn. With OLD=PATH of another build, also compares with that one. The
# file systems are the script's own, in memory. Needs root.
#   [OLD=PATH] [RECORD=FILE] bench/quotas.sh [ROUNDS]     default: 7; FILE gets the record
set -euo pipefail
rounds=${1:-7}
new=${SHEEN:-$(dirname "$0")/../target/release/sheen}
base=$(mktemp -d /dev/shm/quotas.XXXXXX)
chmod 755 "$base"
# Runs a build: of NAME PATH ARGUMENTS...
of() {
  SHEEN_RUNTIME_DIR=$base/$1/run SHEEN_KEY_DIR=$base/$1/keys "${@:2}"
}
begin() {
  mkdir -p "$base/$1/m"
  of "$1" "$2" up --dir "$base/$1/fs" --osts 2 --default-layout plain --listen 127.0.0.1:0 --mount "$base/$1/m" >/dev/null
  mkdir -m 777 "$base/$1/m/w"
}
# shellcheck disable=SC2329
clean_up() {
  for name in new old; do
    if [ -d "$base/$name" ]; then
      of "$name" "$([ "$name" = new ] && echo "$new" || echo "$OLD")" umount "$base/$name/m" || true
      of "$name" "$([ "$name" = new ] && echo "$new" || echo "$OLD")" down --dir "$base/$name/fs" >/dev/null || true
    fi
  done
  rm -rf "$base"
}
trap clean_up EXIT
cat >"$base/run.py" <<'PY'
import mmap, os, sys, time
directory, files = sys.argv[1], 4000
os.setgid(65534); os.setuid(65534); os.mkdir(directory)
def create(): [os.close(os.open(f"{directory}/f{n}", os.O_CREAT | os.O_WRONLY)) for n in range(files)]
def write():
    for n in range(files):
        file = os.open(f"{directory}/g{n}", os.O_CREAT | os.O_WRONLY)
        os.write(file, bytes(4096)); os.close(file)
def large():
    file, data = os.open(f"{directory}/large", os.O_CREAT | os.O_WRONLY), bytes(1 << 20)
    for _ in range(768): os.write(file, data)
    os.fsync(file); os.close(file)
def direct():
    file, data = os.open(f"{directory}/large", os.O_WRONLY | os.O_DIRECT), mmap.mmap(-1, 4096)
    for n in range(8000): os.pwrite(file, data, n * 4096)
    os.close(file)
def unlink(): [os.unlink(f"{directory}/{kind}{n}") for n in range(files) for kind in "fg"]
for work in create, write, large, direct, unlink:
    began = time.monotonic(); work(); print(time.monotonic() - began, end=" ")
os.unlink(f"{directory}/large")
PY
begin new "$new"
if [ -n "${OLD:-}" ]; then begin old "$OLD"; fi
for round in $(seq 0 "$rounds"); do # the first one warms up
  for kind in old new limit; do
    name=$([ "$kind" = old ] && echo old || echo new)
    if [ ! -d "$base/$name" ]; then continue; fi
    if [ "$kind" = limit ]; then of new "$new" lfs setquota -u 65534 -B 1T -I 100000000 "$base/new/m"; fi
    echo "$round $kind $(python3 "$base/run.py" "$base/$name/m/w/$kind$round")"
    if [ "$kind" = limit ]; then of new "$new" lfs setquota -u 65534 -B 0 -I 0 "$base/new/m"; fi
  done
done >"$base/times"
python3 - "$base/times" "$base/tables" <<'PY'
import json, statistics, sys
works = ["create", "create and write 4 KiB", "write 1 MiB", "overwrite 4 KiB, `O_DIRECT`", "unlink"]
columns, rows, times = ["work"], [[work] for work in works], {}
for line in open(sys.argv[1]):
    number, kind, *row = line.split()
    if number != "0": times.setdefault(kind, []).append([float(x) for x in row])
for name, base in ("limit", "new"), ("new", "old"):
    if base not in times: continue
    print(f"speed of '{name}' as a part of '{base}': median (range)")
    columns.append({"limit": "with the limit, of that without", "new": "of the other build"}[name] + " (min–max)")
    for n, work in enumerate(works):
        ratios = sorted(b[n] / a[n] for a, b in zip(times[name], times[base]))
        print(f"  {work:28} {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")
        rows[n].append({"median": statistics.median(ratios), "range": [ratios[0], ratios[-1]], "decimals": 2})
json.dump([{"columns": columns, "rows": rows}], open(sys.argv[2], "w"))
PY
if [ -n "${RECORD:-}" ]; then
  "$(dirname "$0")/../target/release/performance" store "$RECORD" --rounds "$rounds" -- "$0" "$rounds" <"$base/tables"
fi
