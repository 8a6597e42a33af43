//! Failover: a server on another host takes over a target whose directory lies on shared storage.
//!
//! The shared storage is a Sheen file system of its own. Its two mounts are the two hosts: they
//! share data, and have their own file locks. A mount namespace with another boot id makes the
//! kernel look like another host.
//!
//! The simulation of `sheen-failover` tests the leases themselves. Here they are so long that a
//! machine that stalls ends no server. The waits of a new owner are short, because each test knows
//! when the former owner does not serve.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use rustix::process::Signal;
use sheen_tests::{
    Fs, Mount, can_mount,
    cluster::{Cluster, bash},
    is_root,
    mounts::{LIMIT, Watch},
    noise,
    posix::layout,
    sandbox::Sandbox,
    sheen,
    wait::eventually,
};

const LOCAL_LOCKS: [&str; 2] = ["-o", "localflock"];
const OTHER_BOOT: &str = "5c1b9e5e-0000-4000-8000-0123456789ab\n";

/// Two hosts that can serve one target.
struct Pair {
    cluster: Cluster,
    kind: &'static str,
    /// The target's directory, as each host sees it.
    dirs: [PathBuf; 2],
    nids: [String; 2],
    _second: Mount,
    storage: Fs,
}

/// Names of the two servers.
const FIRST: &str = "first";
const SECOND: &str = "second";
/// Lease, claim and observe in seconds: no server of a host that hangs takes part. A live owner is
/// watched until its next beat, however late it comes.
const CALM: &str = "600,1,600";
/// For a server whose host will hang.
const WILL_HANG: &str = "15,1,600";
/// For a server that takes over from such a host. Its two waits are longer than that lease.
const OF_HUNG: &str = "600,8,8";
/// For a server that takes over from a dead process.
const OF_DEAD: &str = "600,2,2";

impl Pair {
    /// Moves the target of a cluster to shared storage, and serves it on the first host.
    fn start(kind: &'static str, times: &str) -> Pair {
        let mut cluster = Cluster::start();
        let storage = Fs::up_in(Path::new("/dev/shm"), 1, &LOCAL_LOCKS);
        let source = storage.status()["source"].as_str().expect("a source").to_owned();
        let second = Mount::with(&source, storage.mnt.with_file_name("second"), &LOCAL_LOCKS);
        cluster.stop(kind);
        bash(&storage.mnt, &format!("cp -a {} .", cluster.base.join(kind).display())).ok();
        fs::write(storage.mnt.join("boot"), OTHER_BOOT).unwrap();
        let dirs = [storage.path(kind), second.path(kind)];
        // The ports of the cluster end with that of a second OSS.
        let nid = cluster.nid(kind);
        let other = cluster.second_oss();
        let mut pair = Pair { cluster, kind, dirs, nids: [nid, other], _second: second, storage };
        pair.spawn(FIRST, times, &[]);
        pair
    }

    fn spawn(&mut self, name: &'static str, times: &str, options: &[&str]) {
        let host = usize::from(name == SECOND);
        let mut program = Command::new(sheen());
        if host == 1 {
            let boot = "/proc/sys/kernel/random/boot_id";
            let script = format!("mount --bind {}/boot {boot} && exec \"$@\"", self.storage.mnt.display());
            program = Command::new("unshare");
            program.args(["--mount", "sh", "-ec", &script, "sh"]).arg(sheen());
        }
        program.env("SHEEN_FAILOVER_TIMES", times);
        let [one, two] = self.nids.clone();
        let mut all = vec!["--servicenode", &one, "--servicenode", &two];
        all.extend(options);
        self.cluster.spawn_as(name, self.kind, &self.dirs[host], &self.nids[host], &all, program);
    }

    fn lines(&self, of: &str) -> usize {
        self.cluster.log().matches(of).count()
    }
}

/// Whether this process can do what the tests need.
fn can_run() -> bool {
    can_mount() && is_root()
}

#[test]
fn mds_on_another_host_takes_over_and_the_former_one_ends() {
    if !can_run() {
        return println!("skipped: needs root and /dev/fuse");
    }
    let mut pair = Pair::start("mds", WILL_HANG);
    let mount = pair.cluster.mount();
    let _watch = Watch::over(&[&mount.mnt], LIMIT);
    let data = noise(1, 300_000);
    bash(&mount.mnt, "mkdir d && echo one > d/f").ok();
    fs::write(mount.path("data"), &data).unwrap();

    // While the first one serves, no second one starts.
    pair.spawn(SECOND, CALM, &[]);
    assert!(!pair.cluster.ended(SECOND));
    assert!(pair.cluster.log().contains(" is served by process "), "{}", pair.cluster.log());

    // The first host hangs. These changes may not be committed yet.
    bash(&mount.mnt, "mkdir uncommitted && mv d/f d/g").ok();
    pair.cluster.signal(FIRST, Signal::STOP);
    pair.spawn(SECOND, OF_HUNG, &[]);
    bash(&mount.mnt, "cat d/g && ls -d uncommitted && echo two > d/two && sync d/two d .").ok();
    assert!(fs::read(mount.path("data")).unwrap() == data);
    pair.cluster.signal(FIRST, Signal::CONT);
    assert!(!pair.cluster.ended(FIRST), "it ends by itself");
    assert!(pair.cluster.log().contains("ending at once"), "{}", pair.cluster.log());
    assert_eq!(bash(&mount.mnt, "cat d/two").ok(), "two\n");

    // Back to the first host, in order.
    pair.spawn(FIRST, CALM, &["--takeover"]);
    assert!(pair.cluster.ended(SECOND), "it stops in order");
    assert_eq!(
        bash(&mount.mnt, "echo three > d/three && sync d/three && cat d/g d/two d/three").ok(),
        "one\ntwo\nthree\n"
    );
    let logs = pair.cluster.log();
    assert!(logs.contains("asks for the directory: stopping"), "{logs}");
}

#[test]
fn oss_that_is_taken_over_in_order_loses_no_written_data() {
    if !can_run() {
        return println!("skipped: needs root and /dev/fuse");
    }
    let mut pair = Pair::start("oss", CALM);
    eventually("the OSTs are served", || pair.lines("OSTs of many ready") == 2);
    let mount = pair.cluster.mount();
    let _watch = Watch::over(&[&mount.mnt], LIMIT);
    eventually("the MDT places objects on both OSTs", || {
        let script = format!("rm -f f; {} lfs setstripe -c 2 -S 64K f", sheen().display());
        bash(&mount.mnt, &script).code == 0 && layout(&mount.path("f")).stripe_count() == 2
    });
    let data = noise(1, 3 << 20);
    // Not synced: the first host has some of it, the mount has the rest.
    fs::write(mount.path("f"), &data).unwrap();
    pair.spawn(SECOND, CALM, &["--takeover"]);
    assert!(pair.cluster.ended(FIRST), "it stops in order");
    bash(&mount.mnt, "sync f && echo more >> f && sync f && echo new > g && sync g").ok();
    assert!(fs::read(mount.path("f")).unwrap() == [data.as_slice(), b"more\n"].concat());
}

/// Restarts the MDS and the OSS of a cluster with both NIDs of the MGS.
fn restart_with_both_nids(pair: &mut Pair) {
    let mgs = pair.nids.join(":");
    for kind in ["mds", "oss"] {
        pair.cluster.stop(kind);
        let mut command = Command::new(sheen());
        command.arg(kind).arg("--dir").arg(pair.cluster.base.join(kind));
        command.args(["--listen", &pair.cluster.nid(kind), "--mgs", &mgs, "--fsname", "many"]);
        let log = fs::OpenOptions::new().append(true).open(pair.cluster.base.join("log")).expect("the log");
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a descriptor")).stderr(log);
        pair.cluster.children.push((kind, command.spawn().expect("the server starts")));
    }
}

#[test]
fn mgs_failover_serves_mounts_new_mounts_and_later_permanent_settings() {
    // A sandbox, so that lctl finds only the processes of this test.
    Sandbox::enter("mgs-failover", |sandbox| {
        let mut pair = Pair::start("mgs", CALM);
        // The cluster's own MGS printed this line as well.
        eventually("the MGS is served", || pair.lines("MGS ready at") == 2);
        let served = ["OSTs of many ready at", "many-MDT0000 ready at"];
        eventually("the targets are served", || served.iter().all(|line| pair.lines(line) == 1));
        restart_with_both_nids(&mut pair);
        eventually("the targets are served again", || served.iter().all(|line| pair.lines(line) == 2));
        let source = format!("{}:/many", pair.nids.join(":"));
        let at = pair.cluster.base.clone();
        let mount = Mount::new(&source, at.join("mnt"));
        let _watch = Watch::over(&[&mount.mnt], LIMIT);
        bash(&mount.mnt, "echo before > before; sync before").ok();
        // Sets a parameter of each mount, of the MDT and of both OSTs permanently.
        let arrives = |value: u32, mounts: usize| {
            let lctl = |words: &str| sandbox.sh(Path::new("/"), &format!("lctl {words}"));
            let params = [
                "llite.many-*.statahead_max",
                "mdt.many-MDT0000.commit_interval_ms",
                "obdfilter.many-OST*.commit_interval_ms",
            ];
            let all = params.map(|param| format!("{param}={value}")).join(" ");
            eventually("the MGS stores the settings", || lctl(&format!("set_param -P {all}")).code == 0);
            let (get, want) = (format!("get_param -n {}", params.join(" ")), format!("{value}\n").repeat(mounts + 3));
            eventually(format!("{all} has arrived"), || lctl(&get).out == want);
        };
        arrives(101, 1);

        // The host of the MGS dies. The mount needs no MGS meanwhile.
        pair.cluster.kill(FIRST);
        bash(&mount.mnt, "cat before; echo during > during; sync during").ok();
        pair.spawn(SECOND, OF_DEAD, &[]);
        eventually("the MGS is served by the second host", || pair.lines("MGS ready at") == 3);
        let later = Mount::new(&source, at.join("later"));
        assert_eq!(bash(&later.mnt, "cat before during").ok(), "before\nduring\n");
        arrives(102, 2);

        // Back to the first host, in order.
        pair.spawn(FIRST, CALM, &["--takeover"]);
        assert!(pair.cluster.ended(SECOND), "it stops in order");
        eventually("the MGS is served by the first host", || pair.lines("MGS ready at") == 4);
        let last = Mount::new(&source, at.join("last"));
        assert_eq!(bash(&last.mnt, "echo after > after; cat before during after").ok(), "before\nduring\nafter\n");
        arrives(103, 3);
        assert_eq!(bash(&mount.mnt, "cat after").ok(), "after\n");
    });
}
