#!/usr/bin/env bash
# The soak: all tests with random seeds, longer runs, and counts that need a warm page cache. No
# failed test is repeated.
#   SOAK_MINUTES=60 scripts/soak.sh [ARGUMENT...]     the arguments go to `cargo nextest run`
# With XFSTESTS_DIR set it ends with xfstests (scripts/xfstests.sh).
# Runs rounds until the time is over, each with its own seed. Prints the seeds, and writes
# target/soak/report.md. A round that has started is always completed.
set -uo pipefail
cd "$(dirname "$0")/.."
scripts/deps.sh test && scripts/tools.sh nextest pjdfstest fsx || exit 1
export PATH=$PWD/target/tools/bin:$PATH
minutes=${SOAK_MINUTES:-60}
out=target/soak
mkdir -p "$out"
report=$out/report.md
cargo build --quiet --workspace && cargo nextest run --workspace --no-run --cargo-quiet || exit 1
{
  echo "# Soak of $(git rev-parse --short HEAD 2>/dev/null || echo 'an unknown commit'), $(date -u +%F)"
  echo
  echo "$(nproc) processors, Linux $(uname -r), $minutes minutes requested."
  echo
  echo "| round | seed | io_uring | seconds | result |"
  echo "|---|---|---|---|---|"
} >"$report"
export SHEEN_SOAK=1
failed=0
for ((round = 1; round == 1 || SECONDS < minutes * 60; round++)); do
  seed=${SOAK_SEED:-$((RANDOM << 15 | RANDOM))}
  echo "== round $round: SOAK_SEED=$seed (${SECONDS} s of $((minutes * 60)))"
  export PROPTEST_RNG_SEED=$seed SHEEN_FSX_SEED=$seed SHEEN_SIM_FROM=$seed
  # The transport of the kernel's requests: io_uring and /dev/fuse in turns.
  transport=${SOAK_IO_URING:-$([ $((round % 2)) = 1 ] && echo on || echo off)}
  export SHEEN_TEST_IO_URING=$transport
  begun=$SECONDS
  cargo nextest run --workspace --profile soak "$@" 2>&1 | tee "$out/round-$round.log"
  if [ "${PIPESTATUS[0]}" -ne 0 ]; then failed=$((failed + 1)); fi
  summary=$(grep -E '^ +Summary' "$out/round-$round.log" | tail -1 | sed 's/^ *Summary *//')
  echo "| $round | $seed | $transport | $((SECONDS - begun)) | ${summary:-did not run} |" >>"$report"
  grep -hoE '^ +(FAIL|TIMEOUT|SIG[A-Z]+) .*' "$out/round-$round.log" | sort -u | sed 's/^ */* /' >>"$out/failed.$$"
done
if [ -s "$out/failed.$$" ]; then
  { echo; echo "Failed (to repeat a round: SOAK_SEED=<its seed> SOAK_IO_URING=<on|off> SOAK_MINUTES=0 scripts/soak.sh):"; echo; cat "$out/failed.$$"; } >>"$report"
fi
rm -f "$out/failed.$$"
if [ -n "${XFSTESTS_DIR:-}" ]; then
  begun=$SECONDS
  if scripts/xfstests.sh >"$out/xfstests.log" 2>&1; then result=passed; else result=failed failed=$((failed + 1)); fi
  { echo; echo "xfstests: $result in $((SECONDS - begun)) s"; tail -n 20 "$out/xfstests.log" | sed 's/^/    /'; } >>"$report"
fi
echo
cat "$report"
[ $failed -eq 0 ]
