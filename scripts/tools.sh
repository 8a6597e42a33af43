#!/usr/bin/env bash
# Installs the programs that the tests and checks use into target/tools, at fixed versions, from the
# package registry.
#   scripts/tools.sh TOOL...
# Only programs that the tests wait for are optimised: optimising the others costs more time than it
# saves.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=$PWD/target/tools
install() { # binary crate version [option...]
  local binary=$1 crate=$2 version=$3
  shift 3
  local stamp="$version $*"
  [ -x "$tools/bin/$binary" ] && [ "$(cat "$tools/$binary.version" 2>/dev/null)" = "$stamp" ] && return
  echo "installing $crate $version for the tests"
  cargo install --quiet --locked --force "$@" --root "$tools" --target-dir target/tools-build "$crate" --version "$version"
  echo "$stamp" >"$tools/$binary.version"
}
mkdir -p "$tools"
for tool in "$@"; do
  case $tool in
  nextest) install cargo-nextest cargo-nextest 0.9.151 --debug --no-default-features --features default-no-update ;;
  deny) install cargo-deny cargo-deny 0.20.2 --debug --no-default-features ;;
  pjdfstest) install pjdfstest pjdfstest 0.2.2 --debug ;;
  fsx) install fsx fsx 0.3.2 ;;
  *) echo "tools.sh: unknown tool '$tool'" >&2; exit 2 ;;
  esac
done
