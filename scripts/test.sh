#!/usr/bin/env bash
# The whole test suite, fast parts first. `make test` calls it; it wants what scripts/deps.sh test installs.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=target/tools
mkdir -p "$tools"
for tool in pjdfstest fsx; do
  [ -x "$tools/bin/$tool" ] || cargo install --quiet --root "$tools" --target-dir target/tools-build "$tool"
done
echo "== crates: units, properties, doc examples"
cargo test --quiet --workspace --exclude sheen-tests
echo "== the program"
cargo build --quiet -p sheen -p sheen-llapi
echo "== on the mount and in the simulator"
cargo test --quiet -p sheen-tests -- --test-threads 2
