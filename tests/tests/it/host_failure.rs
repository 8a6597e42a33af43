//! The failure of an OST's host, on a real mount: the OST has lost what it had answered and not
//! made durable, and the mount sends it again.

use std::{fs, io::Write, path::Path, process::Command, thread};

use rustix::thread::{UnshareFlags, unshare_unsafe};
use sheen_tests::{
    Fs, Mount, can_mount, is_root,
    mounts::{LIMIT, Watch},
    noise, run_command,
};

/// A network address that is not loopback: a mount retains nothing for an OST of its own host.
const SET_UP: &str = "set -e; ip link set lo up; ip addr add 10.66.0.1/32 dev lo";
const LISTEN: &str = "10.66.0.1:0";
/// Attempts to end the OST before its next commit, which it makes every 5 s.
const ATTEMPTS: usize = 5;

/// Runs a test in a network of its own.
fn in_a_network(test: impl FnOnce() + Send + 'static) {
    if !can_mount() || !is_root() {
        return println!("skipped: needs root and /dev/fuse");
    }
    // A namespace belongs to a thread and to the processes that it starts.
    let thread = thread::spawn(move || {
        // SAFETY: the view of the network changes for this thread; nothing else does.
        if unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.is_err() {
            return println!("skipped: namespaces cannot be made here");
        }
        let mut set_up = Command::new("bash");
        set_up.args(["-c", SET_UP]);
        run_command(set_up).ok();
        test();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Makes the next start of an OST that was killed like one after a failure of its host: it was on
/// another boot, and its objects are lost. Returns false, and changes nothing, if the OST had
/// committed.
fn fail_host(ost: &Path) -> bool {
    let epoch = fs::read_to_string(ost.join("epoch")).unwrap();
    let words: Vec<&str> = epoch.split_whitespace().collect();
    if words[4] != "0" {
        return false;
    }
    let other = [words[0], "00000000000000aa", words[2], words[3], words[4]].join(" ");
    fs::write(ost.join("epoch"), other + "\n").unwrap();
    let mut remove = Command::new("find");
    remove.arg(ost.join("O")).args(["-type", "f", "-delete"]);
    run_command(remove).ok();
    true
}

#[test]
fn data_that_an_ost_lost_with_its_host_is_sent_again() {
    in_a_network(|| {
        let data = noise(7, 3_000_000);
        for _ in 0..ATTEMPTS {
            let fs = Fs::up_at(Path::new("/dev/shm"), LISTEN);
            let source = fs.status()["source"].as_str().expect("a source").to_owned();
            let mount = Mount::new(&source, fs.mnt.with_file_name("second"));
            let _watch = Watch::over(&[&mount.mnt, &fs.mnt], LIMIT);
            let path = mount.path("f");
            // Written, cut, and extended by an append.
            let mut file = fs::File::create(&path).unwrap();
            file.write_all(&data).unwrap();
            file.set_len(2_000_001).unwrap();
            let mut end = fs::OpenOptions::new().append(true).open(&path).unwrap();
            end.write_all(b"the end").unwrap();
            fs::write(mount.path("removed"), b"short").unwrap();
            fs::remove_file(mount.path("removed")).unwrap();
            drop(end);
            fs.kill();
            if !fail_host(&fs.dir().join("ost0")) {
                continue;
            }
            fs.start(&[]).ok();
            file.sync_all().expect("nothing is lost");
            let expected = [&data[..2_000_001], b"the end"].concat();
            assert!(fs::read(&path).unwrap() == expected, "the file is as it was");
            assert!(fs::read(fs.path("f")).unwrap() == expected, "also for other mounts");
            drop((file, mount));
            return;
        }
        println!("skipped: the OST always committed in time");
    });
}
