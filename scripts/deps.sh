#!/usr/bin/env bash
# Installs the packages of the distribution that Sheen needs, and prints each with its reason. For
# Debian and Ubuntu.
#   scripts/deps.sh [run|test]      run: for mounts (default); test: also for the tests
set -euo pipefail
want=${1:-run}
need=()
have() { command -v "$1" >/dev/null 2>&1; }
check() { # program package why
  if ! have "$1"; then echo "needs $2: $3"; need+=("$2"); fi
}
check fusermount3 fuse3 "mounting as an ordinary user goes through its fusermount3"
check cc gcc "the Rust compiler links with it"
if [ "$want" = test ]; then
  check setfattr attr "tests read and set extended attributes with it"
  check setfacl acl "tests set access control lists with it"
  check fio fio "tests verify data with it"
  check sqlite3 sqlite3 "tests run a database on the mount"
  check git git "tests clone a repository on the mount"
  check attr attr "tests list extended attributes with it"
  check xxd xxd "tests read binary layouts with it"
  check python3 python3 "tests use it for system calls that no command makes"
  check filefrag e2fsprogs "tests ask for extents and flags of files with it"
  check ip iproute2 "tests make network namespaces with it"
  check groff groff-base "a test formats the manual pages with it"
  check munged munge "tests prove with it as which user a mount runs"
  [ -e /usr/include/sys/acl.h ] || { echo "needs libacl1-dev: pjdfstest links with it"; need+=(libacl1-dev); }
fi
[ ${#need[@]} -eq 0 ] && exit 0
sudo=
[ "$(id -u)" = 0 ] || sudo=sudo
if [ -n "$sudo" ] && ! have sudo; then
  echo "please install as root: apt-get install ${need[*]}" >&2
  exit 1
fi
$sudo apt-get update -qq
DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq "${need[@]}" >/dev/null
echo "installed: ${need[*]}"
