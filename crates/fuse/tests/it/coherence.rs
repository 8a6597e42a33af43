//! Caching in the kernel: its contents, its duration, and the notifications that drop entries.
//! Coherence between mounts relies on these rules.

use std::{
    ffi::c_int,
    fs,
    os::fd::AsRawFd,
    process::Command,
    sync::{Arc, atomic::Ordering::SeqCst, mpsc},
    thread,
    time::Duration,
};

use bytes::Bytes;
use sheen_fuse::{abi::flags, *};
use sheen_wire::FileKind;

use super::memfs::{MemFs, mount::*};

const LONG: Duration = Duration::from_secs(3600);

/// Configures the mount for a file system that lets the kernel cache under locks.
fn keeping(config: &mut InitConfig) {
    config.disable(flags::init::AUTO_INVAL_DATA | flags::init::DO_READDIRPLUS);
    config.enable(flags::init::EXPLICIT_INVAL_DATA | flags::init::POSIX_LOCKS | flags::init::FLOCK_LOCKS);
}

/// Mounts with unlimited caching in the kernel, and with the files `f` and `g`.
fn mounted() -> Option<Arc<Mounted>> {
    let mut fs = MemFs::new(keeping);
    fs.valid = LONG;
    fs.open_flags = flags::fopen::KEEP_CACHE;
    let m = Mounted::with(fs, SessionOptions::default())?;
    for name in ["f", "g"] {
        let id = m.fs.state().make(1, &Bytes::from(name), FileKind::Regular, 0o644).unwrap();
        m.fs.state().set_data(id, b"old!".to_vec());
    }
    Some(Arc::new(m))
}

/// Runs `act` and returns how many requests of each operation in `ops` the kernel sent meanwhile.
fn asked<T>(m: &Mounted, ops: &[&str], act: impl FnOnce() -> T) -> (T, Vec<u64>) {
    let before: Vec<u64> = ops.iter().map(|op| m.count(op)).collect();
    let result = act();
    (result, ops.iter().zip(before).map(|(op, n)| m.count(op) - n).collect())
}

/// Starts `act` in a thread, waits until its request `op` is pending, runs `meanwhile`, and then
/// lets the request be answered.
fn with_stale_reply<T: Send + 'static>(
    m: &Arc<Mounted>,
    op: &'static str,
    act: impl FnOnce(&Mounted) -> T + Send + 'static,
    meanwhile: impl FnOnce(),
) -> T {
    *m.fs.park.lock().unwrap() = Some(op);
    let thread = thread::spawn({
        let m = m.clone();
        move || act(&m)
    });
    wait_for("the request arrives", || !m.fs.parked.lock().unwrap().is_empty());
    meanwhile();
    m.fs.resume();
    thread.join().unwrap()
}

/// Returns the size by stat(2), which sends a GETATTR. The standard library also requests the birth
/// time, which sends a STATX.
fn len(m: &Mounted, name: &str) -> u64 {
    rustix::fs::stat(m.path(name)).unwrap().st_size as u64
}

#[test]
fn inc_epoch_makes_cached_names_looked_up_again() {
    let Some(m) = mounted() else { return };
    if !m.notifier().has_epochs() {
        assert_eq!(m.notifier().inc_epoch().err().map(|e| e.0), Some(38));
        return eprintln!("skipped: the kernel is older than 6.16");
    }
    assert_eq!(len(&m, "f") + len(&m, "g"), 8);
    let (_, lookups) = asked(&m, &["lookup"], || len(&m, "f") + len(&m, "g"));
    assert_eq!(lookups, [0], "the names are cached, or this test shows nothing");
    m.notifier().inc_epoch().unwrap();
    let (_, lookups) = asked(&m, &["lookup"], || len(&m, "f") + len(&m, "g"));
    assert_eq!(lookups, [2], "each name is looked up anew");
    let (_, lookups) = asked(&m, &["lookup"], || len(&m, "f") + len(&m, "g"));
    assert_eq!(lookups, [0], "and cached again");

    m.fs.state().node(1).unwrap().entries.remove(&b"f"[..]);
    assert_eq!(len(&m, "f"), 4, "the kernel uses the cached name");
    m.notifier().inc_epoch().unwrap();
    assert_eq!(errno(fs::metadata(m.path("f"))), 2);
}

#[test]
fn inc_epoch_expires_names_of_replies_in_flight() {
    let Some(m) = mounted().filter(|m| m.notifier().has_epochs()) else { return };
    let at = |m: &Mounted| fs::metadata(m.path("f")).unwrap();
    with_stale_reply(&m, "lookup", at, || m.notifier().inc_epoch().unwrap());
    assert_eq!(asked(&m, &["lookup"], || len(&m, "f")).1, [1]);
    let create = |m: &Mounted| drop(fs::File::create_new(m.path("new")).unwrap());
    with_stale_reply(&m, "create", create, || m.notifier().inc_epoch().unwrap());
    assert_eq!(asked(&m, &["lookup"], || len(&m, "new")).1, [1]);
}

#[test]
fn inc_epoch_does_not_wait_for_an_unlink_in_flight() {
    let Some(m) = mounted().filter(|m| m.notifier().has_epochs()) else { return };
    // The kernel holds the directory's lock while the unlink is pending. The notifications return
    // all the same.
    with_stale_reply(
        &m,
        "unlink",
        |m| fs::remove_file(m.path("f")).unwrap(),
        || {
            m.notifier().inc_epoch().unwrap();
            let id = m.fs.state().child(1, b"f").unwrap();
            m.notifier().inval_attr(id).unwrap();
            m.notifier().inval_attr(1).unwrap();
        },
    );
    assert_eq!(errno(fs::metadata(m.path("f"))), 2);
}

#[test]
fn attributes_are_cached_until_inval_attr() {
    let Some(m) = mounted() else { return };
    let id = m.fs.state().child(1, b"f").unwrap();
    assert_eq!(len(&m, "f"), 4);
    let (_, asks) = asked(&m, &["lookup", "getattr"], || (0..10).map(|_| len(&m, "f")).sum::<u64>());
    assert_eq!(asks, [0, 0]);
    m.fs.state().set_data(id, b"longer now".to_vec());
    m.notifier().inval_attr(id).unwrap();
    let (sizes, asks) = asked(&m, &["lookup", "getattr"], || (0..10).map(|_| len(&m, "f")).sum::<u64>());
    assert_eq!((sizes, asks), (100, vec![0, 1]), "requested once, by its node");
}

#[test]
fn inval_attr_discards_a_getattr_reply_in_flight() {
    let Some(m) = mounted() else { return };
    let id = m.fs.state().child(1, b"f").unwrap();
    assert_eq!(len(&m, "f"), 4);
    m.notifier().inval_attr(id).unwrap();
    let at = |m: &Mounted| len(m, "f");
    let old = with_stale_reply(&m, "getattr", at, || assert!(m.notifier().inval_attr(id).unwrap()));
    assert_eq!(old, 4);
    m.fs.state().set_data(id, b"longer now".to_vec());
    assert_eq!(len(&m, "f"), 10, "the stale reply is not cached");
}

#[test]
fn acls_are_cached_until_inval_attr_which_discards_replies_in_flight() {
    let mut fs = MemFs::new(|c| {
        keeping(c);
        c.enable(flags::init::POSIX_ACL);
    });
    fs.valid = LONG;
    // Another user's directory, so that permissions depend on more than the owner's bits.
    let dir = {
        let mut s = fs.state();
        let dir = s.make(1, &Bytes::from("d"), FileKind::Dir, 0o775).unwrap();
        s.make(dir, &Bytes::from("f"), FileKind::Regular, 0o644).unwrap();
        let attr = &mut s.node(dir).unwrap().attr;
        (attr.uid, attr.gid) = (4711, 4711);
        dir
    };
    let Some(m) = Mounted::with(fs, SessionOptions::default()) else { return };
    let m = Arc::new(m);
    let walk = |m: &Mounted| rustix::fs::access(m.path("d/f"), rustix::fs::Access::EXISTS).unwrap();
    walk(&m);
    if !m.saw("getxattr") {
        return eprintln!("skipped: the kernel checks only owner and mode");
    }
    assert_eq!(asked(&m, &["getxattr"], || walk(&m)).1, [0], "cached");
    m.notifier().inval_attr(dir).unwrap();
    with_stale_reply(&m, "getxattr", walk, || assert!(m.notifier().inval_attr(dir).unwrap()));
    assert_eq!(asked(&m, &["getxattr"], || walk(&m)).1, [1], "the stale reply is not cached");
    assert_eq!(asked(&m, &["getxattr"], || walk(&m)).1, [0]);
}

#[test]
fn inval_inode_makes_cached_pages_read_again() {
    let Some(m) = mounted() else { return };
    let id = m.fs.state().child(1, b"f").unwrap();
    let read = || fs::read_to_string(m.path("f")).unwrap();
    assert_eq!(read(), "old!");
    let (_, reads) = asked(&m, &["read"], read);
    assert_eq!(reads, [0], "the pages outlive the open file");
    m.fs.state().set_data(id, b"new!".to_vec());
    // Invalidating attributes does not drop pages: only the file system knows which pages are out
    // of date.
    m.notifier().inval_attr(id).unwrap();
    assert_eq!((len(&m, "f"), read()), (4, "old!".into()));
    m.notifier().inval_inode(id, 0, 0).unwrap();
    assert_eq!(read(), "new!");
    assert!(m.fs.state().cached_reads.iter().all(|cached| *cached));
}

/// Whether a thread is running or runnable. `stat` is its file in /proc.
fn runs(stat: &str) -> bool {
    // The state follows the name, which is in brackets. A thread that has ended has no file.
    fs::read_to_string(stat).is_ok_and(|stat| stat.rsplit(") ").next().is_some_and(|state| state.starts_with('R')))
}

#[test]
fn inval_inode_waits_for_pages_being_read() {
    let Some(m) = mounted() else { return };
    let id = m.fs.state().child(1, b"f").unwrap();
    let mut waiting = None;
    let read = with_stale_reply(
        &m,
        "read",
        |m| fs::read_to_string(m.path("f")).unwrap(),
        || {
            let (notifier, (send, sent)) = (m.notifier().clone(), mpsc::channel());
            waiting = Some(thread::spawn(move || {
                send.send(rustix::thread::gettid().as_raw_nonzero()).unwrap();
                notifier.inval_inode(id, 0, 0).unwrap();
            }));
            let stat = format!("/proc/self/task/{}/stat", sent.recv().unwrap());
            wait_for("the invalidation waits", || !runs(&stat));
            // The file changes while the reply is in flight. If the page is dropped before the
            // reader copies it, the reader reads again and gets the new data.
            *m.fs.park.lock().unwrap() = None;
            m.fs.state().set_data(id, b"new!".to_vec());
            for (_, reply) in std::mem::take(&mut *m.fs.parked.lock().unwrap()) {
                reply.data(&[Bytes::from_static(b"old!")]);
            }
        },
    );
    assert!(read == "old!" || read == "new!", "{read}");
    waiting.unwrap().join().unwrap();
    assert_eq!(fs::read_to_string(m.path("f")).unwrap(), "new!", "data read meanwhile is not cached");
}

/// One page of a file, mapped shared.
struct Mapping(*mut std::ffi::c_void);

impl Mapping {
    fn of(file: &fs::File, write: bool) -> Mapping {
        use rustix::mm::{MapFlags, ProtFlags, mmap};
        let prot = if write { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a new mapping at an address that the kernel chooses. Nothing else in this
        // process refers to it.
        Mapping(unsafe { mmap(std::ptr::null_mut(), 4096, prot, MapFlags::SHARED, file, 0).unwrap() })
    }

    fn first(&self) -> u8 {
        // SAFETY: the page is mapped for reading as long as `self` lives, and the file has at least
        // one byte.
        unsafe { self.0.cast::<u8>().read_volatile() }
    }

    fn set_first(&self, byte: u8) {
        // SAFETY: as for reading. The callers have mapped it for writing.
        unsafe { self.0.cast::<u8>().write_volatile(byte) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: unmaps what `of` mapped; no reference into it exists.
        unsafe { rustix::mm::munmap(self.0, 4096).unwrap() }
    }
}

#[test]
fn inval_inode_shows_new_data_in_a_mapping() {
    let Some(m) = mounted() else { return };
    let id = m.fs.state().child(1, b"f").unwrap();
    let map = Mapping::of(&fs::File::open(m.path("f")).unwrap(), false);
    assert_eq!(map.first(), b'o');
    m.fs.state().set_data(id, b"new!".to_vec());
    assert_eq!(map.first(), b'o', "the page is cached, or this test shows nothing");
    m.notifier().inval_inode(id, 0, 0).unwrap();
    assert_eq!(map.first(), b'n');
}

#[test]
fn inval_inode_first_writes_back_dirty_mapped_pages() {
    let Some(m) = mounted() else { return };
    let id = m.fs.state().child(1, b"f").unwrap();
    let file = fs::OpenOptions::new().read(true).write(true).open(m.path("f")).unwrap();
    let map = Mapping::of(&file, true);
    map.set_first(b'm');
    assert!(!m.saw("write"));
    m.notifier().inval_inode(id, 0, 0).unwrap();
    assert_eq!(m.fs.state().nodes[&id].data, b"mld!");
    assert_eq!(map.first(), b'm');
}

#[test]
fn read_reports_whether_the_page_cache_stores_it() {
    let mut fs = MemFs::new(keeping);
    fs.open_flags = flags::fopen::DIRECT_IO;
    let Some(m) = Mounted::with(fs, SessionOptions::default()) else { return };
    let id = m.fs.state().make(1, &Bytes::from("f"), FileKind::Regular, 0o644).unwrap();
    m.fs.state().set_data(id, b"data".to_vec());
    assert_eq!(fs::read(m.path("f")).unwrap(), b"data");
    assert!(m.fs.state().cached_reads.iter().all(|cached| !cached));
    if m.session.negotiated().has(flags::init::DIRECT_IO_ALLOW_MMAP) {
        m.fs.state().cached_reads.clear();
        let file = fs::File::open(m.path("f")).unwrap();
        assert_eq!(Mapping::of(&file, false).first(), b'd');
        let reads = m.fs.state().cached_reads.clone();
        assert!(!reads.is_empty() && reads.iter().all(|cached| *cached), "{reads:?}");
    }
}

#[test]
fn signal_interrupts_a_waiting_flock() {
    let Some(m) = mounted() else { return };
    fs::write(m.path("hang"), "").unwrap();
    // flock(1) waits for the lock. The test then sends it SIGTERM.
    let mut child = Command::new("flock").arg(m.path("hang")).arg("true").spawn().unwrap();
    wait_for("the lock is asked for", || !m.fs.held.lock().unwrap().is_empty());
    assert!(m.fs.state().locks.last().is_some_and(|(l, wait)| l.flock && *wait));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    wait_for("the wait ends", || child.try_wait().unwrap().is_some());
    assert!(m.fs.interrupts.load(SeqCst) >= 1);
    assert!(m.fs.held.lock().unwrap().is_empty(), "its request is answered");
}

/// fcntl(2) with a lock on the whole file; `command` is F_SETLK or F_OFD_SETLK.
fn set_lock(file: &fs::File, command: c_int) {
    let lock =
        libc::flock { l_type: libc::F_WRLCK as i16, l_whence: libc::SEEK_SET as i16, l_start: 0, l_len: 0, l_pid: 0 };
    // SAFETY: the file is open, and both commands read a `struct flock`.
    assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), command, &lock) }, 0);
}

#[test]
fn close_sends_the_owner_of_fcntl_and_flock_locks() {
    let Some(m) = mounted() else { return };
    let (f, g) = (fs::File::create(m.path("f")).unwrap(), fs::File::create(m.path("g")).unwrap());
    set_lock(&f, libc::F_SETLK);
    set_lock(&g, libc::F_OFD_SETLK);
    rustix::fs::flock(&g, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let owners: Vec<u64> = m.fs.state().locks.iter().map(|(l, _)| l.owner).collect();
    m.fs.state().flushes.clear();
    drop(f);
    assert_eq!(m.fs.state().flushes, [owners[0]], "fcntl locks end with a FLUSH of their owner");
    drop(g);
    wait_for("both are released", || m.fs.state().releases.len() >= 2);
    assert!(m.fs.state().releases.contains(&Some(owners[2])), "flock locks end with the open file");
    // Locks of an open file description end with it, without a request of their own.
    assert!(!m.fs.state().flushes.contains(&owners[1]));
    assert_eq!(m.fs.state().locks.len(), 3, "no unlock comes by itself");
}
