#!/usr/bin/env bash
# How good the first choice of `sheen lab advise` is: for each job of a fixed list, it measures all
# candidate layouts and prints which part of the best rate the recommended one reaches. The file
# system is the script's own, in memory, with modelled disks.
#   [RECORD=FILE] bench/advise.sh [MODEL [OSTS [REPETITIONS]]]     default: flash 2 3; FILE gets the record
# Takes about four minutes with one repetition.
set -euo pipefail
model=${1:-flash} osts=${2:-2} repetitions=${3:-3}
sheen=${SHEEN:-$(dirname "$0")/../target/release/sheen}
base=$(mktemp -d /dev/shm/advise.XXXXXX)
export SHEEN_RUNTIME_DIR=$base/run SHEEN_LAB_DIR=$base/models
# shellcheck disable=SC2329
clean_up() {
  "$sheen" umount "$base/m" 2>/dev/null || true
  "$sheen" down --dir "$base/fs" >/dev/null 2>&1 || true
  rm -rf "$base"
}
trap clean_up EXIT
mkdir "$base/m"
"$sheen" up --dir "$base/fs" --osts "$osts" --default-layout plain --listen 127.0.0.1:0 --ost-model "$model" >/dev/null
source=$("$sheen" status --json --dir "$base/fs" | python3 -c 'import json, sys; print(json.load(sys.stdin)["source"])')
"$sheen" mount "$source" "$base/m"
"$sheen" lab model --calibrate "$base/m"
jobs=(
  "-w -N 1 -t 1m -b 192m"              # one process
  "-w -N 4 -t 1m -b 48m"               # a shared file, large blocks
  "-w -N 4 -t 1m -b 1m -s 48"          # a shared file in turn
  "-w -N 4 -F -t 1m -b 48m"            # many files
  "-N 2 -F -t 1m -b 96m"               # few files, written and read
  "-w -N 4 -t 64k -b 64k -s 512"       # small records in turn
  "-w -N 4 -t 47008 -b 47008 -s 700"   # records that are not aligned: IOR hard
  "-N 4 -t 4m -b 4m -s 12"             # large records in turn, written and read
  "-N 8 --nodes 2 -t 256k -b 16m"      # several tasks on each node
  "-r -N 4 -t 16m -b 16m -s 3"         # reads
)
for job in "${jobs[@]}"; do
  # The options of a job are words.
  # shellcheck disable=SC2086
  "$sheen" lab advise $job --measure -i "$repetitions" --json "$base/result" "$base/m" >/dev/null
  python3 - "$base/result" "$job" "$base/rows" <<'PY'
import json, sys
r = json.load(open(sys.argv[1]))
shape = r["recommended"]["shape"]
best = r["measured"][0]["shape"]
name = lambda s: f'{s["stripes"]} of {s["stripe_size"] >> 10}K'
print(f'{r["reached"]:.2f}  {sys.argv[2]:36} recommended {name(shape):14} best {name(best)}', flush=True)
row = [f"`{sys.argv[2]}`", name(shape), name(best), {"median": r["reached"], "decimals": 2}]
open(sys.argv[3], "a").write(json.dumps(row) + "\n")
PY
done
if [ -n "${RECORD:-}" ]; then
  columns='["job", "recommended", "best", "part of the best rate"]'
  echo "[{\"columns\": $columns, \"rows\": [$(paste -sd, "$base/rows")]}]" |
    "$(dirname "$0")/../target/release/performance" store "$RECORD" --rounds "$repetitions" -- \
      "$0" "$model" "$osts" "$repetitions"
fi
