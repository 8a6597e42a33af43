//! Mounts that end in every way while programs use them: unmounted, aborted, killed. The mount that
//! stays has programs as well, which are interrupted all the time. It must answer every request of
//! the kernel, and have no ring entry in use when the programs have ended. No lock is left then.
//!
//! `SHEEN_SOAK_CYCLES` sets the number of mounts that end (20).

use std::{
    ffi::OsStr,
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use sheen_tests::{
    Fs, Mount, abort, can_mount, detach, is_root,
    mounts::fuse_stats,
    processes, run, sh, sheen,
    wait::{eventually, let_pass},
};

/// Programs on a mount. Each repeats its work until it fails. flock(1) waits for a lock, and
/// timeout(1) interrupts it.
const PROGRAMS: [&str; 5] = [
    "while dd if=/dev/zero of=big.$$ bs=1M count=6 conv=fsync && cat big.$$ && rm big.$$; do :; done",
    "while dd if=/dev/zero of=direct.$$ bs=1M count=6 oflag=direct && dd if=direct.$$ bs=1M iflag=direct of=/dev/null; do :; done",
    "while mkdir -p d.$$/{1..40} && touch d.$$/{1..40}/f && ls -lR d.$$ && rm -r d.$$; do :; done",
    "while stat . && { timeout -s INT 0.05 flock lock sleep 0.02 || :; }; do :; done",
    "while stat . && { timeout -s KILL 0.03 flock lock cat big.* || :; }; do :; done",
];

/// Programs that use one mount.
struct Load(Vec<Child>);

impl Load {
    fn start(at: &Path) -> Load {
        let start = |script: &str| {
            let mut command = Command::new("setsid");
            command.args(["bash", "-c", script]).current_dir(at);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("bash starts")
        };
        Load(PROGRAMS.iter().flat_map(|script| [start(script), start(script)]).collect())
    }

    /// Kills the programs and waits until all of them have ended, with the programs that they
    /// started.
    #[track_caller]
    fn end(mut self, why: &str) {
        for child in &mut self.0 {
            let session = child.id();
            eventually(format!("killed programs end ({why})"), || {
                let left = of_session(session);
                for pid in &left {
                    let _ = kill_process(*pid, Signal::KILL);
                }
                child.try_wait().expect("its child").is_some() && left.is_empty()
            });
        }
    }
}

/// Returns the living processes of a session. timeout(1) makes process groups of its own.
fn of_session(session: u32) -> Vec<Pid> {
    let is_of = |pid: &Pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
        matches!(fields[..], [state, _, _, of, ..] if state != "Z" && of == session.to_string())
    };
    processes(&[]).into_iter().filter(is_of).collect()
}

/// Ways in which a mount ends.
const ENDS: [&str; 5] = ["sheen umount --force", "umount -l", "abort", "kill -9", "abort, then kill -9"];

fn end(mount: &Mount, how: &str) {
    let pid = mount.pid();
    match how {
        "sheen umount --force" => {
            run(sheen(), [OsStr::new("umount"), OsStr::new("--force"), mount.mnt.as_os_str()]).ok();
        }
        "umount -l" => detach(&mount.mnt),
        "abort" => abort(&mount.mnt),
        "kill -9" => mount.kill(),
        _ => {
            abort(&mount.mnt);
            sh(&format!("kill -9 {pid}"));
        }
    }
}

#[test]
fn mounts_that_end_under_load_leave_no_hanging_program_and_no_request_unanswered() {
    if !can_mount() || !is_root() {
        return println!("skipped: needs root and /dev/fuse");
    }
    let cycles = std::env::var("SHEEN_SOAK_CYCLES").ok().and_then(|text| text.parse().ok()).unwrap_or(20);
    let seed = std::env::var("SHEEN_FSX_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let mut rng = fastrand::Rng::with_seed(seed);
    let fs = Fs::up_in(Path::new("/dev/shm"), 2, &[]);
    sh(&format!("mkdir {0}/stays {0}/ends", fs.mnt.display())).ok();
    let stays = Load::start(&fs.path("stays"));
    for cycle in 0..cycles {
        let how = ENDS[cycle % ENDS.len()];
        println!("{cycle}: {how}");
        let mount = fs.second_mount();
        let load = Load::start(&mount.path("ends"));
        // Long enough for any state of the programs, short enough for many cycles.
        let_pass(Duration::from_millis(rng.u64(50..1500)));
        end(&mount, how);
        load.end(how);
        let at = mount.mnt.clone();
        drop(mount);
        eventually(format!("the process of a mount ends ({how})"), || {
            processes(&[OsStr::new("mount"), at.as_os_str()]).is_empty()
        });
    }
    stays.end("the mount that stays");
    let stats = fuse_stats(&fs.mnt);
    println!("{stats:?}");
    assert_eq!(stats["lost_replies"], "0");
    if stats["transport"] == "io_uring" {
        eventually("all requests are answered", || fuse_stats(&fs.mnt)["ring_entries_in_use"] == "0");
    }
    // Mounts that were killed may hold the lock until the MDT evicts them.
    sh(&format!("cd {} && flock -w 120 stays/lock true && flock -w 120 ends/lock true", fs.mnt.display())).ok();
    sh(&format!("cd {} && rm -r stays ends && sync -f .", fs.mnt.display())).ok();
}
