#!/usr/bin/env bash
# Runs xfstests on two file systems of Sheen, and compares the failures with tests/xfstests.txt.
#   XFSTESTS_DIR=DIR scripts/xfstests.sh [ARGUMENT...]     the arguments go to xfstests' check (-g generic/quick)
# DIR is a built checkout of xfstests. SHEEN can name another program than target/release/sheen.
# Needs root.
# Mounts and the helper of mount(8) exist only in a separate mount namespace: nothing is installed.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ -z "${XFSTESTS_INSIDE:-}" ]; then
  if ! [ -x "${XFSTESTS_DIR:-}/check" ] || ! [ -x "$XFSTESTS_DIR/src/lstat64" ] || [ "$(id -u)" != 0 ]; then
    cat >&2 <<'EOF'
xfstests.sh: run this as root, with XFSTESTS_DIR set to a built checkout of xfstests:
  git clone https://git.kernel.org/pub/scm/fs/xfs/xfstests-dev.git
  cd xfstests-dev     # its README says which packages it needs
  make
  useradd -m fsgqa; useradd 123456-fsgqa; useradd fsgqa2
EOF
    exit 2
  fi
  [ -n "${SHEEN:-}" ] || cargo build --release --quiet -p sheen
  SHEEN=$(readlink -f "${SHEEN:-target/release/sheen}")
  XFSTESTS_DIR=$(readlink -f "$XFSTESTS_DIR")
  export SHEEN XFSTESTS_DIR XFSTESTS_INSIDE=1
  exec unshare --mount --propagation private -- bash "$0" "$@"
fi

work=$(mktemp -d)
results=$PWD/target/xfstests
sbin=$(readlink -f /sbin)
clean_up() {
  local name
  for name in test scratch; do
    umount -l "$work/mnt/$name" 2>/dev/null || true
    "$SHEEN" down --force --dir "$work/$name" >/dev/null 2>&1 || true
  done
  umount -l "$sbin" "$work/sbin" 2>/dev/null || true
  rm -rf --one-file-system "$work"
}
trap clean_up EXIT

# Unprivileged users reach the mounts.
chmod 755 "$work"
mkdir -p "$results" "$work"/{bin,sbin,mnt/test,mnt/scratch}
# mount(8) looks for its helpers only in /sbin.
mount -t tmpfs none "$work/sbin"
mkdir "$work"/sbin/{upper,work}
ln -s "$SHEEN" "$work/sbin/upper/mount.sheen"
ln -s "$SHEEN" "$work/sbin/upper/mount.fuse.sheen"
mount -t overlay -o "lowerdir=$sbin,upperdir=$work/sbin/upper,workdir=$work/sbin/work" none "$sbin"
# xfstests knows only the type "fuse", and gets it from df.
printf '#!/bin/sh\n%s "$@" | sed "s/fuse\\.sheen/fuse      /"\n' "$(type -P df)" >"$work/bin/df"
chmod +x "$work/bin/df"
source_of() { # creates a file system of this name and prints its mount source
  "$SHEEN" up --dir "$work/$1" --fsname "$1" --osts 4 --listen 127.0.0.1:0 >&2
  "$SHEEN" status --json --dir "$work/$1" | sed -n 's/.*"source": *"\([^"]*\)".*/\1/p'
}
cat >"$work/config" <<EOF
export FSTYP=fuse FUSE_SUBTYP=.sheen
export TEST_DEV=$(source_of test) TEST_DIR=$work/mnt/test
export SCRATCH_DEV=$(source_of scratch) SCRATCH_MNT=$work/mnt/scratch
export MOUNT_OPTIONS="-o allow_suid,allow_dev" TEST_FS_MOUNT_OPTS="-o allow_suid,allow_dev"
export RESULT_BASE=$results
EOF
[ $# -gt 0 ] || set -- -g generic/quick
(cd "$XFSTESTS_DIR" && PATH=$work/bin:$PATH HOST_OPTIONS=$work/config ./check "$@") | tee "$results/check.out" || true
if ! grep -qE '^(Failures: |Passed all )' "$results/check.out"; then
  echo "xfstests.sh: xfstests' check did not finish; see $results/check.out" >&2
  exit 1
fi

failed=$(sed -n 's/^Failures: //p' "$results/check.out" | tail -1 | tr ' ' '\n' | sort -u)
known=$(sed -n 's/^\([a-z]*\/[0-9]*\) .*/\1/p' tests/xfstests.txt | sort -u)
echo
for name in $failed; do
  grep "^$name " tests/xfstests.txt | sed 's/^/expected: /' || true
done
new=$(comm -23 <(echo "$failed") <(echo "$known") | tr '\n' ' ')
if [ -n "${new// /}" ]; then
  echo "unexpected failures: $new(see $results)"
  exit 1
fi
