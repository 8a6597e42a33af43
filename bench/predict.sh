#!/usr/bin/env bash
# How good the model's predictions are: calibrates a model, runs IOR with random parameters, and
# prints the errors. The seed fixes the parameters. The file system is the script's own, in memory.
#   [RECORD=FILE] bench/predict.sh [MODEL [OSTS [RUNS [SEED]]]]     default: flash 2 30 1
# FILE gets the record.
# MODEL none: OSTs without a disk model. Takes about five minutes.
set -euo pipefail
model=${1:-flash} osts=${2:-2} runs=${3:-30} seed=${4:-1}
sheen=${SHEEN:-$(dirname "$0")/../target/release/sheen}
base=$(mktemp -d /dev/shm/predict.XXXXXX)
export SHEEN_RUNTIME_DIR=$base/run SHEEN_LAB_DIR=$base/models
mounts=("$base"/m{0..3})
# shellcheck disable=SC2329
clean_up() {
  for mount in "${mounts[@]}"; do "$sheen" umount "$mount" 2>/dev/null || true; done
  "$sheen" down --dir "$base/fs" >/dev/null 2>&1 || true
  rm -rf "$base"
}
trap clean_up EXIT
mkdir "${mounts[@]}"
disk=(--ost-model "$model")
if [ "$model" = none ]; then disk=(); fi
"$sheen" up --dir "$base/fs" --osts "$osts" --default-layout plain --listen 127.0.0.1:0 "${disk[@]}" >/dev/null
source=$("$sheen" status --json --dir "$base/fs" | python3 -c 'import json, sys; print(json.load(sys.stdin)["source"])')
for mount in "${mounts[@]}"; do "$sheen" mount "$source" "$mount" --fuse-threads 4; done
"$sheen" lab model --calibrate "${mounts[0]}"
python3 - "$osts" "$runs" "$seed" <<'PY' |
import random, sys
osts, runs, seed = map(int, sys.argv[1:])
random.seed(seed)
for _ in range(runs):
    mounts, each = random.randint(1, 4), random.randint(1, 3)
    tasks = mounts * each
    transfer = random.choice([4 << 10, 16 << 10, 47008, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 8 << 20])
    size = max((192 << 20) // tasks // transfer, 1)
    pattern = random.choice(["-F", "blocks", "turns"])
    part = f"-b {transfer} -s {size}" if pattern == "turns" else f"-b {transfer * size} -s 1"
    count = random.choice([f"-c {random.randint(1, osts)}", f"-C {osts * random.choice([2, 4, 8])}"])
    stripe = random.choice(["64K", "1M", "4M"])
    print(f"{count} -S {stripe}|{mounts}|-N {tasks} {'-F' if pattern == '-F' else ''} -t {transfer} {part}")
PY
  while IFS='|' read -r layout nodes job; do
    mkdir "${mounts[0]}/d"
    # Options are words.
    # shellcheck disable=SC2086
    "$sheen" lfs setstripe $layout "${mounts[0]}/d"
    list=$(IFS=,; echo "${mounts[*]:0:nodes}")
    # shellcheck disable=SC2086
    "$sheen" lab ior -w -r -C -e -i 3 $job --mounts "$list" -o d/f </dev/null >/dev/null || touch "$base/failed"
    rmdir "${mounts[0]}/d" 2>/dev/null || rm -r "${mounts[0]:?}/d"
    echo "$layout, $nodes nodes, $job"
  done
"$sheen" lab model "${mounts[0]}" --json "$base/model"
if [ -n "${RECORD:-}" ]; then
  python3 - "$base/model" "$seed" <<'PY' |
import json, sys
errors = json.load(open(sys.argv[1]))["summary"]
percent = lambda part: {"median": part * 100, "decimals": 1, "unit": "%"}
row = [sys.argv[2], str(errors["runs"]), percent(errors["median"]), percent(errors["most"])]
json.dump([{"columns": ["seed", "predictions", "median error", "nine of ten within"], "rows": [row]}], sys.stdout)
PY
    "$(dirname "$0")/../target/release/performance" store "$RECORD" --rounds 3 -- \
      "$0" "$model" "$osts" "$runs" "$seed"
fi
if [ -e "$base/failed" ]; then
  echo "predict.sh: runs have failed, see above; the errors are those of the others" >&2
  exit 1
fi
