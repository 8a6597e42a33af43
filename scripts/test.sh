#!/usr/bin/env bash
# The gate: everything that must hold before a change lands. docs/testing.md says what belongs here.
#   scripts/test.sh [ARGUMENT...]     the arguments go to `cargo nextest run`, e.g. -E 'test(rename)'
# Seeds are fixed, so that a failure is a fault of the code and not of the draw.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/tools.sh nextest pjdfstest fsx
export PATH=$PWD/target/tools/bin:$PATH
export PROPTEST_RNG_SEED=${PROPTEST_RNG_SEED:-1}
# Everything at once: what is built for one package alone has other features, and would be built twice.
cargo build --quiet --workspace
cargo nextest run --workspace "$@"
# Examples in comments, which nextest does not run.
[ $# -gt 0 ] || cargo test --quiet --workspace --doc
