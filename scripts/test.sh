#!/usr/bin/env bash
# The gate: the tests that must pass before a change lands. docs/testing.md says which belong here.
#   scripts/test.sh [ARGUMENT...]     the arguments go to `cargo nextest run`, e.g. -E 'test(rename)'
# Seeds are fixed, so that a failure is due to the code and not to chance.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/tools.sh nextest pjdfstest fsx
export PATH=$PWD/target/tools/bin:$PATH
export PROPTEST_RNG_SEED=${PROPTEST_RNG_SEED:-1}
# Build the whole workspace at once: a package that is built alone has other features, and would be
# built twice.
cargo build --quiet --workspace
code=0
cargo nextest run --workspace "$@" || code=$?
# A part of the tests on mounts once more, with the kernel's requests over /dev/fuse instead of
# io_uring.
[ $# -gt 0 ] || SHEEN_TEST_IO_URING=off cargo nextest run --workspace --cargo-quiet --profile device || code=$?
# Doc tests, which nextest does not run. They run after a failure as well.
[ $# -gt 0 ] || cargo test --quiet --workspace --doc || code=$?
exit "$code"
