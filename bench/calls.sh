#!/usr/bin/env bash
# Times of single calls within Sheen: locks, requests, connections, operations of the MDT, checks and
# statistics. Runs the examples of crates that measure one each, and prints NAME, GOAL, and the
# median, minimum and maximum of five rounds in nanoseconds. Takes about a minute, once compiled.
#   [RECORD=FILE] bench/calls.sh     FILE gets the record
set -euo pipefail
root=$(dirname "$0")/..
calls=$(mktemp)
trap 'rm -f "$calls"' EXIT
while read -r package example; do
  cargo run --release --quiet --manifest-path "$root/Cargo.toml" -p "$package" --example "$example" </dev/null
done <<'EXAMPLES' | tee "$calls"
sheen-rpc echo
sheen-lnet connect
sheen-namespace metadata
sheen-ldlm enqueue
sheen-oss capability
sheen-oss counting
sheen-client accesses
sheen-mount job_ids
EXAMPLES
if [ -n "${RECORD:-}" ]; then
  python3 - "$calls" <<'PY' |
import json, sys
def cell(*times):
    unit, size = next((u, s) for u, s in [("ms", 1e6), ("µs", 1e3), ("ns", 1)] if times[0] >= s or s == 1)
    middle, low, high = (time / size for time in times)
    return {"median": middle, "range": [low, high], "decimals": 2 if middle < 10 else 0, "unit": unit}
rows = []
for line in open(sys.argv[1]):
    name, goal, *times = line.rstrip("\n").split("\t")
    rows.append([name, cell(*map(float, times)), goal])
json.dump([{"columns": ["call", "time (min–max)", "goal"], "rows": rows}], sys.stdout)
PY
    "$root/target/release/performance" store "$RECORD" --rounds 5 -- "$0"
fi
