//! Ring entries: requests that are answered late, and the end of a mount that has such requests.

use std::{
    fs,
    io::Read as _,
    process::{Command, Stdio},
    sync::Arc,
    thread::{self, JoinHandle},
};

use bytes::Bytes;
use rustix::fs::{AtFlags, Mode, OFlags, openat, unlinkat};
use sheen_fuse::{abi::flags, *};
use sheen_wire::FileKind;

use super::memfs::{MemFs, mount::*};

/// More requests than a queue has entries at first.
const MANY: usize = 100;

/// Mounts with a file whose READs are held, and starts `MANY` of them.
fn with_held_reads() -> Option<(Mounted, Vec<JoinHandle<std::io::Result<usize>>>)> {
    let mut fs = MemFs::new(plain);
    // Otherwise the readers would wait for one page, which the kernel requests once.
    fs.open_flags = flags::fopen::DIRECT_IO;
    let m = Mounted::with(fs, SessionOptions::default())?;
    let hang = m.fs.state().make(1, &Bytes::from("hang"), FileKind::Regular, 0o644).unwrap();
    m.fs.state().set_data(hang, vec![0; 10]);
    let read = |path| move || fs::File::open(path).and_then(|mut f| f.read(&mut [0; 4]));
    let readers = (0..MANY).map(|_| thread::spawn(read(m.path("hang")))).collect();
    wait_for("the reads arrive", || m.fs.held.lock().unwrap().len() == MANY);
    Some((m, readers))
}

#[test]
fn held_requests_do_not_keep_others_from_being_served() {
    let Some((m, readers)) = with_held_reads() else { return };
    assert!(m.session.negotiated().is_over_io_uring());
    assert_eq!(m.session.stats().ring_entries_in_use, MANY as u64);
    for i in 0..200 {
        let path = m.path(&format!("f{i}"));
        fs::write(&path, "x").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"x");
    }
    let held = std::mem::take(&mut *m.fs.held.lock().unwrap());
    held.into_values().for_each(|reply| reply.data(&[Bytes::from_static(b"late")]));
    for reader in readers {
        assert_eq!(reader.join().unwrap().unwrap(), 4);
    }
    wait_for("every entry is free again", || m.session.stats().ring_entries_in_use == 0);
    assert_eq!(m.session.stats().lost_replies, 0);
}

#[test]
fn abort_frees_the_entries_of_held_requests() {
    let Some((m, readers)) = with_held_reads() else { return };
    m.session.abort().unwrap();
    for reader in readers {
        reader.join().unwrap().unwrap_err();
    }
    assert!(m.session.join_timeout(SOON));
    assert_eq!(m.session.stats().ring_entries_in_use, MANY as u64, "their replies are still possible");
    m.fs.held.lock().unwrap().clear();
    let stats = m.session.stats();
    assert_eq!((stats.ring_entries_in_use, stats.lost_replies), (0, MANY as u64));
}

/// Creates, writes and removes files in a directory until an operation fails or `count` are done.
fn churn(dir: &fs::File, name: &str, count: usize) -> rustix::io::Result<()> {
    for i in 0..count {
        let name = format!("{name}-{i}");
        let file = openat(dir, &name, OFlags::CREATE | OFlags::WRONLY, Mode::from(0o600))?;
        rustix::io::write(&file, b"data")?;
        drop(file);
        unlinkat(dir, &name, AtFlags::empty())?;
    }
    Ok(())
}

#[test]
fn lazy_unmount_under_load_loses_no_reply() {
    let Some(m) = Mounted::new(plain) else { return };
    let dir = Arc::new(fs::File::open(&m.root).unwrap());
    let start = |t: usize, dir: Arc<fs::File>| thread::spawn(move || churn(&dir, &t.to_string(), 300));
    let threads: Vec<_> = (0..4).map(|t| start(t, dir.clone())).collect();
    wait_for("they run", || m.count("unlink") > 10);
    m.session.unmount().unwrap();
    threads.into_iter().for_each(|t| t.join().unwrap().unwrap());
    drop(dir);
    assert!(m.session.join_timeout(SOON));
    assert_eq!(m.session.stats().ring_entries_in_use, 0);
}

#[test]
fn abort_under_load_ends_every_thread() {
    let Some(m) = Mounted::new(plain) else { return };
    let dir = Arc::new(fs::File::open(&m.root).unwrap());
    let start = |t: usize, dir: Arc<fs::File>| thread::spawn(move || churn(&dir, &t.to_string(), usize::MAX));
    let threads: Vec<_> = (0..4).map(|t| start(t, dir.clone())).collect();
    wait_for("they run", || m.count("unlink") > 10);
    m.session.abort().unwrap();
    assert!(threads.into_iter().all(|t| t.join().unwrap().is_err()));
    assert!(m.session.join_timeout(SOON));
    assert_eq!(m.session.stats().ring_entries_in_use, 0);
}

/// Directory on which [`serve_until_killed`] mounts.
const MOUNT_AT: &str = "SHEEN_FUSE_TEST_MOUNT_AT";

#[test]
#[ignore = "it is the server of kill_of_the_server_ends_every_request"]
fn serve_until_killed() {
    let Some(at) = std::env::var_os(MOUNT_AT) else { return };
    let mut fs = MemFs::new(plain);
    fs.open_flags = flags::fopen::DIRECT_IO;
    let hang = fs.state().make(1, &Bytes::from("hang"), FileKind::Regular, 0o644).unwrap();
    fs.state().set_data(hang, vec![0; 10]);
    let options = SessionOptions { io_uring: super::TRANSPORT, ..Default::default() };
    Session::mount(MountOptions::new(at, "memfs"), options, Arc::new(fs)).unwrap().join();
}

#[test]
fn kill_of_the_server_ends_every_request() {
    // Shows whether mounts over io_uring are possible here.
    let Some(m) = Mounted::new(plain) else { return };
    drop(m);
    let dir = tempfile::tempdir().unwrap();
    let mut server = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "ring::entries::serve_until_killed", "--ignored"])
        .env(MOUNT_AT, dir.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let hang = dir.path().join("hang");
    wait_for("the server mounts", || hang.exists());
    let mount = Arc::new(fs::File::open(dir.path()).unwrap());
    let start = |t: usize| {
        let mount = mount.clone();
        thread::spawn(move || churn(&mount, &t.to_string(), usize::MAX))
    };
    let churning: Vec<_> = (0..4).map(start).collect();
    let read = |path| move || fs::File::open(path).and_then(|mut f: fs::File| f.read(&mut [0; 4]));
    let reading: Vec<_> = (0..MANY).map(|_| thread::spawn(read(hang.clone()))).collect();
    wait_for("some files are written", || fs::read_dir(dir.path()).is_ok_and(|entries| entries.count() > 1));
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(churning.into_iter().all(|t| t.join().unwrap().is_err()));
    assert!(reading.into_iter().all(|t| t.join().unwrap().is_err()));
    drop(mount);
    unmount(dir.path(), true).unwrap();
}
