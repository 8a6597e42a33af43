//! A small in-memory file system, with a few files that misbehave on purpose.
#![allow(dead_code, reason = "not every user of this module uses all of it")]

use std::{
    collections::BTreeMap,
    os::{fd::AsFd, unix::fs::FileExt},
    sync::{
        Mutex, MutexGuard, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::Bytes;
use sheen_fuse::{abi::flags::lock_type, *};
use sheen_wire::{Errno, FileKind, Result, Time};

pub mod mount;

pub const XATTR_CREATE: u32 = 1;
pub const XATTR_REPLACE: u32 = 2;
const RENAME_NOREPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;
/// READ replies consist of pieces of this size, to exercise scattered replies.
const PIECE_BYTES: usize = 1000;

pub struct Node {
    pub attr: FileAttr,
    pub data: Vec<u8>,
    pub target: Bytes,
    pub entries: BTreeMap<Bytes, u64>,
    pub xattrs: BTreeMap<Bytes, Bytes>,
}

#[derive(Default)]
pub struct State {
    pub nodes: BTreeMap<u64, Node>,
    pub lookups: BTreeMap<u64, u64>,
    /// Number of requests of each operation.
    pub ops: BTreeMap<&'static str, u64>,
    pub locks: Vec<(LockRequest, bool)>,
    /// Lock owners of FLUSH, and of each RELEASE that drops a flock lock.
    pub flushes: Vec<u64>,
    pub releases: Vec<Option<u64>>,
    /// For each READ, whether it was for the page cache.
    pub cached_reads: Vec<bool>,
    pub read_sizes: Vec<u32>,
    pub writes: Vec<(u64, usize, bool)>,
    pub retrieved: Vec<(u64, Bytes)>,
    last: u64,
}

pub struct MemFs {
    pub state: Mutex<State>,
    /// Unanswered requests: READs and lock waits of files named `hang`.
    pub held: Mutex<BTreeMap<u64, Reply>>,
    /// The operation whose requests are parked until [`MemFs::resume`].
    pub park: Mutex<Option<&'static str>>,
    pub parked: Mutex<Vec<(Request, Reply)>>,
    pub config: fn(&mut InitConfig),
    /// How long the kernel may cache names and attributes.
    pub valid: Duration,
    pub open_flags: u32,
    pub interrupts: AtomicUsize,
    pub destroyed: AtomicBool,
    pub started: OnceLock<(Negotiated, Notifier)>,
}

impl MemFs {
    pub fn new(config: fn(&mut InitConfig)) -> MemFs {
        let mut state = State::default();
        state.add(FileKind::Dir, 0o755);
        MemFs {
            state: Mutex::new(state),
            held: Mutex::default(),
            park: Mutex::default(),
            parked: Mutex::default(),
            config,
            valid: Duration::ZERO,
            open_flags: 0,
            interrupts: AtomicUsize::new(0),
            destroyed: AtomicBool::new(false),
            started: OnceLock::new(),
        }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Answers the parked requests with the present state, and stops parking.
    pub fn resume(&self) {
        *self.park.lock().unwrap() = None;
        for (request, reply) in std::mem::take(&mut *self.parked.lock().unwrap()) {
            self.answer(request, reply);
        }
    }
}

impl State {
    pub fn add(&mut self, kind: FileKind, perm: u32) -> u64 {
        self.last += 1;
        let t = Time { sec: 1_000_000_000, nsec: 123_456_789 };
        let attr = FileAttr {
            ino: self.last,
            size: 0,
            blocks: 0,
            atime: t,
            mtime: t,
            ctime: t,
            kind,
            perm,
            nlink: if kind == FileKind::Dir { 2 } else { 1 },
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
        };
        let node =
            Node { attr, data: Vec::new(), target: Bytes::new(), entries: BTreeMap::new(), xattrs: BTreeMap::new() };
        self.nodes.insert(self.last, node);
        self.last
    }

    pub fn node(&mut self, id: u64) -> Result<&mut Node> {
        self.nodes.get_mut(&id).ok_or(Errno::ESTALE)
    }

    pub fn child(&mut self, dir: u64, name: &[u8]) -> Result<u64> {
        self.node(dir)?.entries.get(name).copied().ok_or(Errno::ENOENT)
    }

    /// Adds a new node under a name.
    pub fn make(&mut self, dir: u64, name: &Bytes, kind: FileKind, perm: u32) -> Result<u64> {
        if self.node(dir)?.entries.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        let id = self.add(kind, perm);
        self.node(dir)?.entries.insert(name.clone(), id);
        Ok(id)
    }

    pub fn set_data(&mut self, id: u64, data: Vec<u8>) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.attr.size = data.len() as u64;
            node.data = data;
        }
    }

    fn name_of(&self, id: u64) -> Option<&Bytes> {
        self.nodes.values().flat_map(|n| &n.entries).find(|(_, i)| **i == id).map(|(name, _)| name)
    }

    fn remove(&mut self, dir: u64, name: &[u8], want_dir: bool) -> Result<()> {
        let id = self.child(dir, name)?;
        let node = self.node(id)?;
        match (node.attr.kind == FileKind::Dir, want_dir) {
            (true, false) => return Err(Errno::EISDIR),
            (false, true) => return Err(Errno::ENOTDIR),
            (true, true) if !node.entries.is_empty() => return Err(Errno::ENOTEMPTY),
            _ => node.attr.nlink = if want_dir { 0 } else { node.attr.nlink - 1 },
        }
        self.node(dir)?.entries.remove(name);
        Ok(())
    }

    fn rename(&mut self, dir: u64, name: &Bytes, to: u64, new: &Bytes, flags: u32) -> Result<()> {
        let id = self.child(dir, name)?;
        let old = self.child(to, new).ok();
        match (flags, old) {
            (RENAME_NOREPLACE, Some(_)) => return Err(Errno::EEXIST),
            (RENAME_EXCHANGE, None) => return Err(Errno::ENOENT),
            (RENAME_EXCHANGE, Some(old)) => {
                self.node(dir)?.entries.insert(name.clone(), old);
            }
            _ => {
                self.node(dir)?.entries.remove(name);
            }
        }
        self.node(to)?.entries.insert(new.clone(), id);
        Ok(())
    }

    fn entry(&mut self, id: u64, valid: Duration) -> Result<EntryOut> {
        let attr = self.node(id)?.attr;
        *self.lookups.entry(id).or_default() += 1;
        Ok(EntryOut { nodeid: id, generation: 0, entry_valid: valid, attr_valid: valid, attr })
    }

    fn write(&mut self, id: u64, w: &Write) -> Result<u32> {
        let aligned = (w.data.as_ptr() as usize).is_multiple_of(4096);
        self.writes.push((w.offset, w.data.len(), aligned));
        let node = self.node(id)?;
        let (start, end) = (w.offset as usize, w.offset as usize + w.data.len());
        if node.data.len() < end {
            node.data.resize(end, 0);
        }
        node.data[start..end].copy_from_slice(&w.data);
        node.attr.size = node.data.len() as u64;
        Ok(w.data.len() as u32)
    }

    fn set_attr(&mut self, id: u64, set: &SetAttr) -> Result<FileAttr> {
        let node = self.node(id)?;
        if let Some(size) = set.size {
            node.data.resize(size as usize, 0);
            node.attr.size = size;
        }
        node.attr.perm = set.mode.map_or(node.attr.perm, |m| m & 0o7777);
        node.attr.uid = set.uid.unwrap_or(node.attr.uid);
        node.attr.gid = set.gid.unwrap_or(node.attr.gid);
        for (set, time) in [(set.atime, &mut node.attr.atime), (set.mtime, &mut node.attr.mtime)] {
            match set {
                Some(SetTime::At(t)) => *time = t,
                Some(SetTime::Now) => *time = Time { sec: 2_000_000_000, nsec: 0 },
                None => {}
            }
        }
        Ok(node.attr)
    }

    fn set_xattr(&mut self, id: u64, name: &Bytes, value: &Bytes, flags: u32) -> Result<()> {
        let xattrs = &mut self.node(id)?.xattrs;
        match (flags, xattrs.contains_key(name)) {
            (XATTR_CREATE, true) => Err(Errno::EEXIST),
            (XATTR_REPLACE, false) => Err(Errno::ENODATA),
            _ => {
                xattrs.insert(name.clone(), value.clone());
                Ok(())
            }
        }
    }

    /// Returns the entries after the first `skip`.
    fn list(&mut self, dir: u64, skip: u64) -> Result<Vec<(u64, Bytes, u64)>> {
        let entries = &self.node(dir)?.entries;
        let rest = entries.iter().enumerate().skip(skip as usize);
        Ok(rest.map(|(i, (name, id))| (i as u64 + 1, name.clone(), *id)).collect())
    }
}

/// Replies with data in two ranges of a file, whose last `missing` bytes are absent.
fn in_files(data: &[u8], missing: usize, reply: Reply) {
    let path = std::env::temp_dir().join(format!("sheen-fuse-{}-{:p}", std::process::id(), data));
    let file = std::fs::File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let (first, second) = data.split_at(data.len() / 3);
    file.write_all_at(second, 10).unwrap();
    file.set_len((second.len() + 10).saturating_sub(missing) as u64).unwrap();
    let other = file.try_clone().unwrap();
    let start = 100_000_000;
    file.write_all_at(if missing == 0 { first } else { b"" }, start).unwrap();
    let runs = [
        FileRun { file: file.as_fd(), offset: start, len: first.len() },
        FileRun { file: other.as_fd(), offset: 10, len: second.len() },
    ];
    if let Err(reply) = reply.files(&runs) {
        reply.data(&[Bytes::copy_from_slice(data)]);
    }
}

fn pieces(data: &[u8], read: &Read) -> Vec<Bytes> {
    let start = (read.offset as usize).min(data.len());
    let end = (start + read.size as usize).min(data.len());
    data[start..end].chunks(PIECE_BYTES).map(Bytes::copy_from_slice).collect()
}

/// Replies with `$ok` on success, or with the error.
macro_rules! answer {
    ($reply:ident, $result:expr, $value:pat => $ok:expr) => {
        match $result {
            Ok($value) => $ok,
            Err(e) => $reply.error(e),
        }
    };
}

impl MemFs {
    fn read_dir(&self, dir: u64, r: &Read, reply: Reply) {
        let mut buffer = DirBuffer::new(r.size);
        let mut s = self.state();
        let list = s.list(dir, r.offset);
        answer!(reply, list, list => {
            for (next, name, id) in list {
                let kind = s.nodes[&id].attr.kind;
                if buffer.add(id, next, kind, &name) {
                    break;
                }
            }
            reply.dir(&buffer)
        })
    }

    fn read_dir_plus(&self, dir: u64, r: &Read, reply: Reply) {
        let mut buffer = DirPlusBuffer::new(r.size);
        let mut s = self.state();
        let list = s.list(dir, r.offset);
        answer!(reply, list, list => {
            for (next, name, id) in list {
                let attr = s.nodes[&id].attr;
                let entry =
                    EntryOut { nodeid: id, generation: 0, entry_valid: self.valid, attr_valid: self.valid, attr };
                if buffer.add(&entry, next, &name) {
                    break;
                }
                *s.lookups.entry(id).or_default() += 1;
            }
            reply.dir_plus(&buffer)
        })
    }

    fn create(&self, dir: u64, c: &Create, named: bool, reply: Reply) {
        let mut s = self.state();
        let perm = c.mode & 0o7777 & !c.umask;
        let made = if named {
            s.make(dir, &c.name, FileKind::Regular, perm)
        } else {
            let id = s.add(FileKind::Regular, perm);
            s.node(id).map(|n| n.attr.nlink = 0).map(|()| id)
        };
        let entry = made.and_then(|id| s.entry(id, self.valid));
        answer!(reply, entry, e => _ = reply.create(&e, e.nodeid, self.open_flags))
    }

    /// Handles operations that create or look up names.
    fn names(&self, dir: u64, op: &Op, reply: Reply) {
        let mut s = self.state();
        let new = |s: &mut State, name, mode: u32, umask: u32, kind| s.make(dir, name, kind, mode & 0o7777 & !umask);
        let made = match op {
            Op::Lookup { name } => s.child(dir, name),
            Op::Mkdir { name, mode, umask } => new(&mut s, name, *mode, *umask, FileKind::Dir),
            Op::Mknod { name, mode, umask, rdev } => FileKind::from_mode(*mode).ok_or(Errno::EINVAL).and_then(|kind| {
                let id = new(&mut s, name, *mode, *umask, kind)?;
                s.node(id)?.attr.rdev = *rdev;
                Ok(id)
            }),
            Op::Symlink { name, target } => s.make(dir, name, FileKind::Symlink, 0o777).and_then(|id| {
                s.node(id)?.target = target.clone();
                Ok(id)
            }),
            Op::Link { target, name } => s.node(*target).map(|n| n.attr.nlink += 1).and_then(|()| {
                s.node(dir)?.entries.insert(name.clone(), *target);
                Ok(*target)
            }),
            _ => Err(Errno::ENOSYS),
        };
        if matches!(op, Op::Lookup { .. }) && made == Err(Errno::ENOENT) {
            return reply.negative(self.valid);
        }
        let entry = made.and_then(|id| s.entry(id, self.valid));
        answer!(reply, entry, e => _ = reply.entry(&e))
    }
}

impl Filesystem for MemFs {
    fn init(&self, config: &mut InitConfig) {
        (self.config)(config);
    }

    fn started(&self, negotiated: &Negotiated, notifier: &Notifier) {
        let _ = self.started.set((*negotiated, notifier.clone()));
    }

    fn interrupt(&self, unique: u64) -> bool {
        self.interrupts.fetch_add(1, SeqCst);
        match self.held.lock().unwrap().remove(&unique) {
            Some(reply) => {
                reply.error(Errno::EINTR);
                true
            }
            None => false,
        }
    }

    fn destroy(&self) {
        self.destroyed.store(true, SeqCst);
    }

    fn request(&self, request: Request, reply: Reply) {
        *self.state().ops.entry(request.op.name()).or_default() += 1;
        if *self.park.lock().unwrap() == Some(request.op.name()) {
            self.parked.lock().unwrap().push((request, reply));
        } else {
            self.answer(request, reply);
        }
    }
}

impl MemFs {
    fn answer(&self, Request { header, op }: Request, reply: Reply) {
        let id = header.nodeid;
        match op {
            Op::Lookup { .. } | Op::Mkdir { .. } | Op::Mknod { .. } | Op::Symlink { .. } | Op::Link { .. } => {
                self.names(id, &op, reply)
            }
            Op::Forget(nodes) => {
                let mut s = self.state();
                for f in nodes.iter() {
                    let count = s.lookups.entry(f.nodeid).or_default();
                    *count = count.saturating_sub(f.nlookup);
                }
                reply.none()
            }
            Op::GetAttr { .. } => answer!(reply, self.state().node(id), n => reply.attr(&n.attr, self.valid)),
            Op::Statx { .. } => answer!(reply, self.state().node(id), n => {
                let btime = Some(Time { sec: 42, nsec: 43 });
                reply.statx(&Statx { attr: n.attr, btime, attributes: 0, attributes_mask: 0 }, self.valid)
            }),
            Op::SetAttr(set) => answer!(reply, self.state().set_attr(id, &set), a => reply.attr(&a, self.valid)),
            Op::ReadLink => answer!(reply, self.state().node(id), n => reply.readlink(&n.target)),
            Op::Unlink { name } => answer!(reply, self.state().remove(id, &name, false), () => reply.ok()),
            Op::Rmdir { name } => answer!(reply, self.state().remove(id, &name, true), () => reply.ok()),
            Op::Rename { name, new_parent, new_name, flags } => {
                answer!(reply, self.state().rename(id, &name, new_parent, &new_name, flags), () => reply.ok())
            }
            Op::Open { .. } => reply.open(id, self.open_flags),
            Op::OpenDir { .. } => reply.open(id, 0),
            Op::Create(c) => self.create(id, &c, true, reply),
            Op::TmpFile(c) => self.create(id, &c, false, reply),
            Op::Read(r) => {
                let mut s = self.state();
                s.cached_reads.push(r.is_page_cached());
                s.read_sizes.push(r.size);
                match s.name_of(id).map(|n| &n[..]) {
                    Some(b"hang") => drop(self.held.lock().unwrap().insert(header.unique, reply)),
                    Some(b"panic") => panic!("as the test asked"),
                    Some(b"drop") => drop(reply),
                    Some(name @ (b"files" | b"cut files")) => {
                        let missing = if name == b"files" { 0 } else { 5000 };
                        answer!(reply, s.node(id), n => in_files(&pieces(&n.data, &r).concat(), missing, reply));
                    }
                    _ => answer!(reply, s.node(id), n => reply.data(&pieces(&n.data, &r))),
                }
            }
            Op::Write(w) => answer!(reply, self.state().write(id, &w), n => reply.written(n)),
            Op::StatFs => {
                let (blocks, namelen) = (1000, 255);
                reply.statfs(&StatFs {
                    blocks,
                    bfree: 500,
                    bavail: 400,
                    bsize: 4096,
                    frsize: 4096,
                    namelen,
                    files: 7,
                    ffree: 3,
                })
            }
            Op::SetXattr { name, value, flags, .. } => {
                answer!(reply, self.state().set_xattr(id, &name, &value, flags), () => reply.ok())
            }
            Op::GetXattr { name, size } => {
                let value = self.state().node(id).and_then(|n| n.xattrs.get(&name).cloned().ok_or(Errno::ENODATA));
                answer!(reply, value, v => reply.xattr(size, &v))
            }
            Op::ListXattr { size } => answer!(reply, self.state().node(id), n => {
                let names: Vec<u8> = n.xattrs.keys().flat_map(|k| k.iter().copied().chain([0])).collect();
                reply.xattr(size, &names)
            }),
            Op::RemoveXattr { name } => {
                let removed = self.state().node(id).and_then(|n| n.xattrs.remove(&name).ok_or(Errno::ENODATA));
                answer!(reply, removed, _ => reply.ok())
            }
            Op::ReadDir(r) => self.read_dir(id, &r, reply),
            Op::ReadDirPlus(r) => self.read_dir_plus(id, &r, reply),
            Op::GetLk(r) => {
                self.state().locks.push((r, false));
                reply.lock(&Lock { kind: lock_type::UNLOCK, ..r.lock })
            }
            Op::SetLk { request, wait } => {
                let mut s = self.state();
                s.locks.push((request, wait));
                match s.name_of(id).map(|n| &n[..]) {
                    Some(b"hang") if wait => drop(self.held.lock().unwrap().insert(header.unique, reply)),
                    _ => reply.ok(),
                }
            }
            Op::Lseek { offset, whence, .. } => answer!(reply, self.state().node(id), n => match whence {
                _ if offset >= n.attr.size => reply.error(Errno::ENXIO),
                3 => reply.lseek(offset),
                _ => reply.lseek(n.attr.size),
            }),
            Op::CopyFileRange(c) => {
                let mut s = self.state();
                let range = c.offset_in as usize..(c.offset_in + c.len) as usize;
                let data = s.node(id).map(|n| Bytes::copy_from_slice(n.data.get(range).unwrap_or_default()));
                let copied = data.and_then(|data| {
                    let write = Write {
                        fh: 0,
                        offset: c.offset_out,
                        flags: 0,
                        cached: false,
                        kill_suidgid: false,
                        lock_owner: None,
                        data,
                    };
                    s.write(c.nodeid_out, &write)
                });
                answer!(reply, copied, n => reply.copied(n.into()))
            }
            Op::Fallocate { offset, length, .. } => {
                let set = SetAttr { size: Some(offset + length), ..Default::default() };
                answer!(reply, self.state().set_attr(id, &set), _ => reply.ok())
            }
            Op::Ioctl(i) => match i.cmd {
                // An invented command that reverses two bytes: _IOWR('s', 1, [u8; 2]).
                0xc002_7301 => reply.ioctl(5, &i.input.iter().rev().copied().collect::<Vec<_>>()),
                _ => reply.error(Errno::ENOTTY),
            },
            Op::Poll { events, .. } => reply.poll(events & 1),
            Op::Retrieved { offset, data } => {
                self.state().retrieved.push((offset, data));
                reply.none()
            }
            Op::Bmap { block, .. } => reply.bmap(block),
            Op::Flush { lock_owner, .. } => {
                self.state().flushes.push(lock_owner);
                reply.ok()
            }
            Op::Release { flock_owner, .. } => {
                self.state().releases.push(flock_owner);
                reply.ok()
            }
            // Operations that need no action in an in-memory file system.
            Op::Access { .. } | Op::ReleaseDir { .. } | Op::Fsync { .. } | Op::FsyncDir { .. } | Op::SyncFs => {
                reply.ok()
            }
            _ => reply.error(Errno::ENOSYS),
        }
    }
}
