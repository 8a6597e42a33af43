#!/usr/bin/env bash
# Runs one test program in namespaces of its own, and cleans up after it.
#   scripts/jail.sh PROGRAM [ARGUMENT...]
# The program sees only its own mounts (with an empty /dev/shm, /run/sheen and /run/sheen-public),
# its own processes and its own loopback network. TMPDIR is a directory of its own on disk.
# When the program ends, or on SIGTERM or SIGINT, the script aborts its mounts and kills its
# processes. A signal means that the program hangs: the script first prints the kernel stacks of its
# processes.
# Without root the program runs without namespaces, with a runtime directory of its own.
set -u

# Commands wait this many times longer for answers of processes and mounts: a machine that runs
# several suites is slow.
export SHEEN_TIMEOUT_FACTOR=${SHEEN_TIMEOUT_FACTOR:-30}

# Aborts the FUSE connections of this mount namespace: no process then waits for a server that
# died or hangs.
abort_mounts() {
  local minor
  awk '/ - fuse\.sheen / { split($3, dev, ":"); print dev[2] }' /proc/self/mountinfo | while read -r minor; do
    echo 1 >"/sys/fs/fuse/connections/$minor/abort"
  done 2>/dev/null
}

print_stacks() { # of the processes in the namespace whose first process is $1
  local space task
  space=$(readlink "/proc/$1/ns/pid_for_children")
  for task in /proc/[0-9]*/task/[0-9]*; do
    [ "$(readlink "${task%/task/*}/ns/pid")" = "$space" ] || continue
    echo "-- $(cat "$task/comm") (${task##*/}) $(tr '\0' ' ' <"${task%/task/*}/cmdline" | cut -c1-120)"
    cat "$task/stack"
  done 2>/dev/null
}

clean_up() {
  if [ -n "${SHEEN_TEST_KEEP:-}" ]; then
    echo "the files of the test are in $TMPDIR"
  else
    rm -rf --one-file-system "$TMPDIR"
  fi
}

case ${1:-} in
--namespace)
  shift
  set -e
  mount --make-rprivate /
  awk '$3 == "fuse.sheen" { print $2 }' /proc/mounts | while read -r at; do
    umount -l "$(printf %b "$at")" 2>/dev/null || true
  done
  if [ -n "${SHEEN_TEST_KEEP:-}" ]; then
    mkdir -m 1777 "$TMPDIR/shm" && mount --bind "$TMPDIR/shm" /dev/shm
  else
    mount -t tmpfs -o mode=1777 none /dev/shm
  fi
  mkdir -p /run/sheen /run/sheen-public
  mount -t tmpfs -o mode=700 none /run/sheen
  mount -t tmpfs -o mode=755 none /run/sheen-public
  [ -d /sys/fs/fuse/connections ] && [ -z "$(ls /sys/fs/fuse/connections)" ] &&
    mount -t fusectl none /sys/fs/fuse/connections 2>/dev/null || true
  ip link set lo up
  set +e
  unshare --pid --fork --kill-child --mount-proc -- bash "$0" --first "$@" &
  child=$!
  # A process that waits on a mount cannot be killed before the mount is aborted.
  trap 'print_stacks $child; abort_mounts; kill -9 $child; exit 143' TERM INT
  trap clean_up EXIT
  wait $child
  exit $?
  ;;
--first)
  # The first process of the namespace: it reaps the processes that the test leaves, and its end
  # kills all others. The test has a process group of its own, so that a signal to the runner's
  # group does not end it before its stacks are printed.
  shift
  setsid --wait "$@"
  code=$?
  abort_mounts
  exit $code
  ;;
*)
  TMPDIR=$(mktemp -d)
  chmod 1777 "$TMPDIR"
  export TMPDIR
  # The kernel's requests come over io_uring, or over /dev/fuse with SHEEN_TEST_IO_URING=off or if the
  # kernel has no FUSE over io_uring.
  switch=/sys/module/fuse/parameters/enable_uring
  if [ "${SHEEN_TEST_IO_URING:-on}" = on ] && [ -w $switch ] && echo 1 >$switch; then
    export SHEEN_MOUNT_OPTIONS=io_uring=on
  else
    export SHEEN_MOUNT_OPTIONS=io_uring=off
  fi
  # Keys of file systems, which would otherwise be among the user's.
  export SHEEN_KEY_DIR=$TMPDIR/keys
  # Tests print the kernel stacks of all processes that they see.
  export SHEEN_TEST_JAIL=1
  if [ "$(id -u)" = 0 ] && unshare --mount --net --pid --fork true 2>/dev/null; then
    exec unshare --mount --net -- bash "$0" --namespace "$@"
  fi
  unset SHEEN_TEST_JAIL
  trap clean_up EXIT
  export SHEEN_RUNTIME_DIR=$TMPDIR/run
  mkdir -m 700 "$SHEEN_RUNTIME_DIR"
  "$@"
  ;;
esac
