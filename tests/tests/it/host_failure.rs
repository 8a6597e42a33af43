//! The failure of an OST's host, on a real mount: the OST has lost what it had answered and not
//! made durable, and the mount sends it again.

use std::{fs, io::Write, path::Path, process::Command, thread};

use rustix::thread::{UnshareFlags, unshare_unsafe};
use sheen_tests::{
    Fs, Mount, can_mount, is_root,
    mounts::{LIMIT, Watch},
    noise, run, run_command, sheen,
};

/// A network address that is not loopback: a mount retains nothing for an OST of its own host.
const SET_UP: &str = "set -e; ip link set lo up; ip addr add 10.66.0.1/32 dev lo";
const LISTEN: &str = "10.66.0.1:0";

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
/// another boot, and its objects are lost.
fn fail_host(ost: &Path) {
    let epoch = fs::read_to_string(ost.join("epoch")).unwrap();
    let mut words: Vec<&str> = epoch.split_whitespace().collect();
    assert_eq!(words[4], "0", "the OST has not committed");
    words[1] = "00000000000000aa";
    fs::write(ost.join("epoch"), words.join(" ") + "\n").unwrap();
    let mut remove = Command::new("find");
    remove.arg(ost.join("O")).args(["-type", "f", "-delete"]);
    run_command(remove).ok();
}

#[test]
fn data_that_an_ost_lost_with_its_host_is_sent_again() {
    in_a_network(|| {
        let data = noise(7, 3_000_000);
        let fs = Fs::up_at(Path::new("/dev/shm"), LISTEN);
        // The test ends the OST before its first commit.
        run(sheen(), ["lctl", "set_param", "obdfilter.*.commit_interval_ms=60000"]).ok();
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
        drop(end);
        fs.kill();
        fail_host(&fs.dir().join("ost0"));
        fs.start(&[]).ok();
        file.sync_all().expect("nothing is lost");
        let expected = [&data[..2_000_001], b"the end"].concat();
        assert!(fs::read(&path).unwrap() == expected, "the file is as it was");
        assert!(fs::read(fs.path("f")).unwrap() == expected, "also for other mounts");
    });
}
