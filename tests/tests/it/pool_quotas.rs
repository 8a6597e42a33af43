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
fn quota_parameters_have_lustres_form() {
    Sandbox::enter("pool-quotas-params", |s| {
        up(s);
        on_mount(s, "lfs setquota -u 65534 -b 1G -B 2G -I 5000 . && lfs setquota -u 65534 --pool ssd -B 1G .").ok();
        on_mount(s, "lfs setquota -t -u --pool ssd -b 1d .").ok();
        let row = |id: u32, [hard, soft, granted, time]: [u64; 4]| {
            format!(
                "- id:      {id}\n  limits:  {{ hard: {hard:>20}, soft: {soft:>20}, granted: {granted:>20}, time: {time:>20} }}\n"
            )
        };
        let week = 7 * 24 * 3600;
        for (scope, limits, grace) in [
            ("dt-0x0", [2 << 20, 1 << 20, 0, 0], week),
            ("md-0x0", [5000, 0, 0, 0], week),
            ("dt-ssd", [1 << 20, 0, 0, 0], 24 * 3600),
        ] {
            let name = format!("qmt.lustre-QMT0000.{scope}.glb-usr");
            let title = format!("global_pool0_{}_usr\n", &scope[..2]);
            let want = format!("{name}=\n{title}{}{}", row(0, [0, 0, 0, grace]), row(65534, limits));
            eventually(format!("{name} is {want}"), || on_mount(s, &format!("lctl get_param {name}")).out == want);
        }
        by_nobody(s, "dd if=/dev/zero of=slow/b bs=1M count=2 conv=fsync").ok();
        let usage = |inodes: u64, kib: u64| {
            format!("- id:      65534\n  usage:   {{ inodes: {inodes:>20}, kbytes: {kib:>20} }}\n")
        };
        for (target, want) in [("OST0002", usage(1, 2048)), ("MDT0000", usage(1, 0))] {
            let get = format!("lctl get_param -n osd-*.lustre-{target}.quota_slave.acct_user");
            eventually(format!("{get} has {want}"), || on_mount(s, &get).out.contains(&want));
        }
        let info = "lctl get_param -n osd-*.lustre-OST0000.quota_slave.info";
        let is_ready = |text: &str| text.contains("conn to master: setup\n") && text.contains("slv[1],reint[0]");
        eventually("the OST is ready", || is_ready(&on_mount(s, info).out));
        on_mount(s, "lctl pool_destroy lustre.ssd").ok();
        let get = "lctl get_param qmt.*.dt-ssd.glb-usr";
        eventually("the pool has no parameter", || on_mount(s, get).code != 0);
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
