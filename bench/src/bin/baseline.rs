//! The baseline: a minimal FUSE file system on fuser. Names are in a hash map and file data is in
//! memory. The kernel caches nothing, except for names and attributes with `--cache`. Its cost is
//! the cost of FUSE itself. Results of Sheen are given as ratios to it.
//!
//! `baseline MOUNTPOINT [--threads N] [--cache]` serves until it is unmounted.

use std::{
    collections::{BTreeMap, HashMap},
    ffi::{OsStr, OsString},
    sync::{Arc, Mutex, RwLock},
    time::{Duration, SystemTime},
};

use clap::Parser;
use fuser::{
    BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};

#[derive(Parser)]
struct Args {
    mountpoint: std::path::PathBuf,
    #[arg(long, default_value_t = 4)]
    threads: usize,
    /// Lets the kernel cache names and attributes.
    #[arg(long)]
    cache: bool,
}

/// Time for which the kernel may cache names and attributes with `--cache`.
const TTL: Duration = Duration::from_secs(3600);

struct Node {
    attr: Mutex<FileAttr>,
    data: RwLock<Vec<u8>>,
    children: Mutex<BTreeMap<OsString, u64>>,
    target: OsString,
}

#[derive(Default)]
struct Tables {
    names: HashMap<(u64, OsString), u64>,
    nodes: HashMap<u64, Arc<Node>>,
    next: u64,
}

struct Memory {
    tables: RwLock<Tables>,
    ttl: Duration,
}

impl Memory {
    fn new(ttl: Duration) -> Memory {
        let memory = Memory { tables: RwLock::new(Tables { next: 1, ..Tables::default() }), ttl };
        memory.make(FileType::Directory, 0o755, 0, 0, OsString::new());
        memory
    }

    fn make(&self, kind: FileType, perm: u16, uid: u32, gid: u32, target: OsString) -> (u64, Arc<Node>) {
        let now = SystemTime::now();
        let mut tables = self.tables.write().unwrap();
        let ino = tables.next;
        tables.next += 1;
        let attr = FileAttr {
            ino: INodeNo(ino),
            size: target.len() as u64,
            blocks: 0,
            atime: now,
            mtime: now,
            ctime: now,
            crtime: now,
            kind,
            perm,
            nlink: 1,
            uid,
            gid,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        };
        let node =
            Arc::new(Node { attr: Mutex::new(attr), data: RwLock::default(), children: Mutex::default(), target });
        tables.nodes.insert(ino, node.clone());
        (ino, node)
    }

    fn node(&self, ino: INodeNo) -> Option<Arc<Node>> {
        self.tables.read().unwrap().nodes.get(&ino.0).cloned()
    }

    fn find(&self, parent: INodeNo, name: &OsStr) -> Option<Arc<Node>> {
        let tables = self.tables.read().unwrap();
        let ino = tables.names.get(&(parent.0, name.to_owned()))?;
        tables.nodes.get(ino).cloned()
    }

    fn enter(&self, parent: INodeNo, name: &OsStr, ino: u64) {
        self.tables.write().unwrap().names.insert((parent.0, name.to_owned()), ino);
        if let Some(dir) = self.node(parent) {
            dir.children.lock().unwrap().insert(name.to_owned(), ino);
        }
    }

    fn remove(&self, parent: INodeNo, name: &OsStr) -> Option<u64> {
        let ino = {
            let mut tables = self.tables.write().unwrap();
            let ino = tables.names.remove(&(parent.0, name.to_owned()))?;
            tables.nodes.remove(&ino);
            ino
        };
        if let Some(dir) = self.node(parent) {
            dir.children.lock().unwrap().remove(name);
        }
        Some(ino)
    }
}

impl Node {
    fn attr(&self) -> FileAttr {
        *self.attr.lock().unwrap()
    }
}

impl Filesystem for Memory {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        let _ = config.set_max_write(1 << 20);
        let _ = config.set_max_background(64);
        let _ = config.add_capabilities(InitFlags::FUSE_PARALLEL_DIROPS);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.find(parent, name) {
            Some(node) => reply.entry(&self.ttl, &node.attr(), Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.node(ino) {
            Some(node) => reply.attr(&self.ttl, &node.attr()),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let Some(node) = self.node(ino) else { return reply.error(Errno::ENOENT) };
        let mut attr = node.attr.lock().unwrap();
        attr.perm = mode.map_or(attr.perm, |m| m as u16 & 0o7777);
        attr.uid = uid.unwrap_or(attr.uid);
        attr.gid = gid.unwrap_or(attr.gid);
        match mtime {
            Some(TimeOrNow::SpecificTime(t)) => attr.mtime = t,
            Some(TimeOrNow::Now) => attr.mtime = SystemTime::now(),
            None => {}
        }
        if let Some(size) = size {
            node.data.write().unwrap().resize(size as usize, 0);
            attr.size = size;
        }
        reply.attr(&self.ttl, &attr);
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        match self.node(ino) {
            Some(node) => reply.data(node.target.as_encoded_bytes()),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn mkdir(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, _: u32, reply: ReplyEntry) {
        let (ino, node) = self.make(FileType::Directory, mode as u16 & 0o7777, req.uid(), req.gid(), OsString::new());
        self.enter(parent, name, ino);
        reply.entry(&self.ttl, &node.attr(), Generation(0));
    }

    fn symlink(&self, req: &Request, parent: INodeNo, name: &OsStr, target: &std::path::Path, reply: ReplyEntry) {
        let (ino, node) = self.make(FileType::Symlink, 0o777, req.uid(), req.gid(), target.as_os_str().to_owned());
        self.enter(parent, name, ino);
        reply.entry(&self.ttl, &node.attr(), Generation(0));
    }

    fn link(&self, _: &Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.enter(parent, name, ino.0);
        match self.node(ino) {
            Some(node) => reply.entry(&self.ttl, &node.attr(), Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        match self.remove(parent, name) {
            Some(_) => reply.ok(),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.unlink(req, parent, name, reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let Some(node) = self.find(parent, name) else { return reply.error(Errno::ENOENT) };
        self.remove(new_parent, new_name);
        let ino = node.attr().ino.0;
        self.remove(parent, name);
        self.tables.write().unwrap().nodes.insert(ino, node);
        self.enter(new_parent, new_name, ino);
        reply.ok();
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES);
    }

    fn create(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, _: u32, _: i32, reply: ReplyCreate) {
        let (ino, node) = self.make(FileType::RegularFile, mode as u16 & 0o7777, req.uid(), req.gid(), OsString::new());
        self.enter(parent, name, ino);
        let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        reply.created(&self.ttl, &node.attr(), Generation(0), FileHandle(0), flags);
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let Some(node) = self.node(ino) else { return reply.error(Errno::ENOENT) };
        let data = node.data.read().unwrap();
        let start = data.len().min(offset as usize);
        let end = data.len().min(start + size as usize);
        reply.data(&data[start..end]);
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        bytes: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let Some(node) = self.node(ino) else { return reply.error(Errno::ENOENT) };
        let mut data = node.data.write().unwrap();
        let (start, end) = (offset as usize, offset as usize + bytes.len());
        if start == data.len() {
            data.extend_from_slice(bytes);
        } else {
            if data.len() < end {
                data.resize(end, 0);
            }
            data[start..end].copy_from_slice(bytes);
        }
        let size = data.len() as u64;
        drop(data);
        let mut attr = node.attr.lock().unwrap();
        attr.size = size;
        attr.blocks = size.div_ceil(512);
        reply.written(bytes.len() as u32);
    }

    fn readdir(&self, _: &Request, ino: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let Some(node) = self.node(ino) else { return reply.error(Errno::ENOENT) };
        let children = node.children.lock().unwrap();
        for (i, (name, child)) in children.iter().enumerate().skip(offset as usize) {
            let kind = self.node(INodeNo(*child)).map_or(FileType::RegularFile, |n| n.attr().kind);
            if reply.add(INodeNo(*child), i as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn getxattr(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, reply: fuser::ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        reply.statfs(1 << 30, 1 << 29, 1 << 29, 1 << 30, 1 << 29, 4096, 255, 4096);
    }
}

fn main() -> std::io::Result<()> {
    let args = Args::parse();
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName("baseline".into()), MountOption::Subtype("baseline".into())];
    config.n_threads = Some(args.threads);
    config.clone_fd = true;
    let ttl = if args.cache { TTL } else { Duration::ZERO };
    fuser::mount(Memory::new(ttl), &args.mountpoint, &config)
}
