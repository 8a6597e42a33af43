//! Quotas within pools of OSTs: a limit applies to the OSTs that the pool has at the moment.

use std::{cell::RefCell, path::Path};

use sheen_tests::{Ran, sandbox::Sandbox, wait::eventually};

const MNT: &str = "/mnt/c1";
/// Message of a program that has met a limit.
const EXCEEDED: &str = "Disk quota exceeded";

fn on_mount(sandbox: &Sandbox, script: &str) -> Ran {
    sandbox.sh(Path::new(MNT), script)
}

/// Runs a script as an ordinary user.
fn by_nobody(sandbox: &Sandbox, script: &str) -> Ran {
    let user = "setpriv --reuid 65534 --regid 65534 --clear-groups bash -c";
    on_mount(sandbox, &format!("{user} '{script}'"))
}

/// Returns the KiB in use. `None`: the sum is not exact at the moment.
fn used(sandbox: &Sandbox, pool: &str) -> Option<u64> {
    let ran = on_mount(sandbox, &format!("lfs quota -q --blocks -u 65534 {pool} ."));
    ran.out.trim().trim_end_matches('*').parse().ok().filter(|_| ran.code == 0)
}

/// Waits until the use is in a range. OSTs learn the owners of new objects a moment after the
/// write.
#[track_caller]
fn settles(sandbox: &Sandbox, pool: &str, want: std::ops::RangeInclusive<u64>) {
    let last = RefCell::new(None);
    eventually(format_args!("the use with '{pool}' is in {want:?}, and not {last:?}"), || {
        *last.borrow_mut() = used(sandbox, pool);
        last.borrow().is_some_and(|kib| want.contains(&kib))
    });
}

#[track_caller]
fn is_refused(ran: &Ran) {
    assert!(ran.code == 1 && ran.err.contains(EXCEEDED), "{} {}", ran.code, ran.err);
}

/// Starts a file system with the pool `ssd` on OSTs 0 and 1. Files in `fast` are in the pool, those
/// in `slow` on OST 2.
fn up(sandbox: &Sandbox) {
    sandbox.up("lustre", MNT);
    let script = "set -e; chmod 1777 .; lctl pool_new lustre.ssd; lctl pool_add lustre.ssd OST0000 OST0001
        mkdir -m 1777 fast slow; lfs setstripe -p ssd -c 2 -S 64K fast; lfs setstripe -c 1 -i 2 slow";
    on_mount(sandbox, script).ok();
}

#[test]
fn limit_of_a_pool_holds_on_its_osts_alone() {
    Sandbox::enter("pool-quotas", |s| {
        up(s);
        on_mount(s, "lfs setquota -u 65534 --pool ssd -B 16M .").ok();
        by_nobody(s, "for f in fast/a slow/b; do dd if=/dev/zero of=$f bs=1M count=4 conv=fsync; done").ok();
        settles(s, "--pool ssd", 4096..=4096);
        settles(s, "", 8192..=8192);
        is_refused(&by_nobody(s, "dd if=/dev/zero of=fast/a bs=64K count=1024 seek=64 conv=notrunc,fsync"));
        settles(s, "--pool ssd", 15 << 10..=16 << 10);
        // OSTs outside of the pool have no limit.
        by_nobody(s, "dd if=/dev/zero of=slow/b bs=1M count=32 seek=4 conv=notrunc,fsync").ok();
        settles(s, "", 51 << 10..=52 << 10);
        let shown = on_mount(s, "lfs quota -v -u 65534 --pool lustre.ssd .").ok();
        let targets = ["MDT0000", "OST0000", "OST0001", "OST0002"].map(|target| shown.contains(target));
        assert_eq!(targets, [true, true, true, false], "{shown}");
        assert!(shown.contains(" 16384 "), "{shown}");
    });
}

#[test]
fn smallest_limit_of_pool_and_file_system_holds() {
    Sandbox::enter("pool-quotas-both", |s| {
        up(s);
        on_mount(s, "lfs setquota -u 65534 -B 12M . && lfs setquota -U --pool ssd -B 8M .").ok();
        by_nobody(s, "for f in fast/a slow/b; do dd if=/dev/zero of=$f bs=1M count=2 conv=fsync; done").ok();
        settles(s, "", 4096..=4096);
        is_refused(&by_nobody(s, "dd if=/dev/zero of=fast/a bs=64K count=512 seek=32 conv=notrunc,fsync"));
        settles(s, "--pool ssd", 7 << 10..=8 << 10);
        is_refused(&by_nobody(s, "dd if=/dev/zero of=slow/b bs=64K count=512 seek=32 conv=notrunc,fsync"));
        settles(s, "", 11 << 10..=12 << 10);
        let row = on_mount(s, "lfs quota -q --bquota --blimit -U --pool ssd .").ok();
        assert_eq!(row.split_whitespace().collect::<Vec<_>>(), ["0", "8192"]);
    });
}

#[test]
fn change_of_a_pools_osts_changes_the_use_that_its_limit_counts() {
    Sandbox::enter("pool-quotas-members", |s| {
        up(s);
        on_mount(s, "lfs setquota -u 65534 --pool ssd -B 16M .").ok();
        by_nobody(s, "dd if=/dev/zero of=fast/a bs=1M count=12 conv=fsync").ok();
        by_nobody(s, "dd if=/dev/zero of=slow/b bs=1M count=24 conv=fsync").ok();
        settles(s, "--pool ssd", 12 << 10..=12 << 10);
        settles(s, "", 36 << 10..=36 << 10);
        on_mount(s, "lctl pool_remove lustre.ssd OST0001").ok();
        settles(s, "--pool ssd", 6 << 10..=6 << 10);
        by_nobody(s, "dd if=/dev/zero of=fast/c bs=1M count=8 conv=fsync").ok();
        settles(s, "--pool ssd", 14 << 10..=14 << 10);
        on_mount(s, "lctl pool_add lustre.ssd OST0002").ok();
        settles(s, "--pool ssd", 38 << 10..=38 << 10);
        let append = "dd if=/dev/zero of=fast/c bs=64K count=1 oflag=append conv=notrunc,fsync";
        eventually("the use of OST 2 counts", || by_nobody(s, append).code == 1);
        is_refused(&by_nobody(s, append));
        let refused = on_mount(s, "lfs setquota -u 65534 --pool nopool -B 1G .");
        assert_eq!(refused.code, 2, "{}", refused.err);
        on_mount(s, "lctl pool_destroy lustre.ssd").ok();
        eventually("there is no limit", || by_nobody(s, append).code == 0);
        on_mount(s, "lfs setquota -u 65534 --pool ssd --delete .").ok();
    });
}
