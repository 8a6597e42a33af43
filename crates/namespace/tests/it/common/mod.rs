//! A namespace with four OSTs, a clock that advances with every request, and short request
//! functions.

use std::sync::Arc;

use bytes::Bytes;
use sheen_layout::{Asked, Component, Count, Defaults, Layout, LayoutError, Wanted, WantedLayout, resolve_asked};
use sheen_namespace::{
    Batch, Check, ClientId, Config, Done, Env, LayoutRequest, MemStore, Namespace, OpError, Permitted, Store,
};
use sheen_wire::{
    Attr, Cred, Errno, Fid, FileKind, Result, StatFs, Time,
    fid::ROOT,
    mds::{DirEntry, Entry, NewNode, Reply, Request, SetAttr, flags},
};

pub const OSTS: u32 = 4;
pub const ME: ClientId = ClientId(7);
pub const ROOT_CRED: Cred = Cred::ROOT;

pub fn user(uid: u32) -> Cred {
    Cred { uid, gid: uid, groups: Some(Vec::new()) }
}

pub fn user_in(uid: u32, groups: &[u32]) -> Cred {
    Cred { groups: Some(groups.to_vec()), ..user(uid) }
}

/// Creates a directory in which all users may write.
pub fn open_dir(fs: &mut Fs) -> Fid {
    let dir = fs.mkdir(&ROOT_CRED, ROOT, "d", 0o777).unwrap();
    fs.chmod(&ROOT_CRED, dir, 0o777).unwrap();
    dir
}

pub struct TestEnv {
    pub now: Time,
    /// Clients may have files open locally.
    pub may_be_open: bool,
    /// OSTs without space.
    pub full: Vec<u32>,
    /// Disconnected OSTs.
    pub down: Vec<u32>,
    /// Locks that clients hold.
    pub locks: Vec<(ClientId, u64)>,
    /// Besides the superuser.
    pub project_changers: Permitted,
    pub directory_stripers: Permitted,
    next_ost: u32,
}

impl Env for TestEnv {
    fn now(&self) -> Time {
        self.now
    }

    fn check(&mut self, asked: &Asked) -> Result<()> {
        if asked.osts().any(|ost| ost >= OSTS) { Err(Errno::EINVAL) } else { Ok(()) }
    }

    fn resolve(&mut self, ask: &LayoutRequest) -> Result<WantedLayout> {
        Ok(resolve_asked(
            &ask.own,
            ask.dir.as_ref(),
            ask.root.as_ref(),
            &Defaults::default(),
            sheen_layout::MDT_BYTES_DEFAULT,
        ))
    }

    fn place(&mut self, wanted: &Wanted) -> Result<Vec<u32>> {
        if !wanted.osts.is_empty() {
            return Ok(wanted.osts.clone());
        }
        let good: Vec<u32> = (0..OSTS).filter(|ost| !self.full.contains(ost)).collect();
        if good.is_empty() {
            return Err(LayoutError::NoSpace.errno());
        }
        let count = match wanted.count {
            Count::Stripes(n) if wanted.overstripe => usize::from(n),
            Count::Stripes(n) => usize::from(n).min(good.len()),
            Count::All => good.len(),
            Count::PerOst(n) => usize::from(n) * good.len(),
        };
        self.next_ost += 1;
        let start = wanted.start.unwrap_or(self.next_ost) as usize;
        Ok((0..count).map(|i| good[(start + i) % good.len()]).collect())
    }

    fn has_room(&self, component: &Component, _: u64) -> bool {
        !component.stripes.iter().any(|s| self.full.contains(&s.ost))
    }

    fn is_up(&self, ost: u32) -> bool {
        !self.down.contains(&ost)
    }

    fn locks(&self, _: Fid) -> Vec<(ClientId, u64)> {
        self.locks.clone()
    }

    fn project_changers(&self) -> Permitted {
        self.project_changers
    }

    fn directory_stripers(&self) -> Permitted {
        self.directory_stripers
    }

    fn statfs(&self, files: u64) -> StatFs {
        StatFs { files, ..StatFs::default() }
    }

    fn may_be_open(&self, _: Fid) -> bool {
        self.may_be_open
    }
}

pub struct Fs {
    pub ns: Namespace<MemStore>,
    pub store: Arc<MemStore>,
    pub env: TestEnv,
    pub client: ClientId,
    /// The batch being committed.
    pub sealed: Option<Batch>,
    /// Invalidations of the last request.
    pub invalidations: Vec<(Fid, u64)>,
    seq: u64,
    oid: u32,
    lives: u64,
}

impl Default for Fs {
    fn default() -> Fs {
        Fs::new()
    }
}

impl Fs {
    pub fn new() -> Fs {
        Fs::on(Arc::new(MemStore::new()), Config::default())
    }

    pub fn on(store: Arc<MemStore>, config: Config) -> Fs {
        let env = TestEnv {
            now: Time { sec: 1000, nsec: 0 },
            may_be_open: false,
            full: vec![],
            down: vec![],
            locks: vec![],
            project_changers: Permitted::Nobody,
            directory_stripers: Permitted::Nobody,
            next_ost: 0,
        };
        let ns = Namespace::open(store.clone(), config, env.now, 1 << 32).unwrap();
        Fs { ns, store, env, client: ME, sealed: None, invalidations: vec![], seq: 0, oid: 0, lives: 1 }
    }

    /// Simulates a crash of the process: uncommitted changes are lost.
    pub fn crash(self) -> Fs {
        let lives = self.lives + 1;
        let ns = Namespace::open(self.store.clone(), Config::default(), self.env.now, lives << 32).unwrap();
        Fs { ns, sealed: None, invalidations: vec![], seq: 0, oid: 0, lives, ..self }
    }

    pub fn seal(&mut self) {
        if self.sealed.is_none() {
            if let Some(unneeded) = self.ns.unneeded_records() {
                self.ns.delete_unneeded(unneeded.read(&*self.store).unwrap());
            }
            self.sealed = self.ns.seal();
        }
    }

    /// Makes the sealed batch durable.
    pub fn land(&mut self) {
        if let Some(batch) = self.sealed.take() {
            self.store.commit(&batch).unwrap();
            self.ns.committed(batch.last());
            let check = Check::of(&*self.store, &mut |_, _| {}).unwrap();
            assert_eq!(check.problems(), [], "a committed state is consistent");
        }
    }

    pub fn commit(&mut self) {
        self.land();
        self.seal();
        self.land();
    }

    pub fn execute(&mut self, request: &Request) -> Result<Done> {
        self.env.now.sec += 1;
        loop {
            match self.ns.execute(self.client, request, &mut self.env) {
                Err(OpError::CommitFirst) if self.sealed.is_some() => self.land(),
                Err(OpError::CommitFirst) => self.commit(),
                Err(OpError::Errno(errno)) => return Err(errno),
                Ok(done) => return Ok(done),
            }
        }
    }

    pub fn call(&mut self, request: Request) -> Result<Reply> {
        let done = self.execute(&request)?;
        self.invalidations = done.invalidations;
        Ok(done.reply)
    }

    /// Returns a FID for a new file.
    pub fn fid(&mut self) -> Fid {
        if self.seq == 0 || self.oid == sheen_wire::fid::SEQ_WIDTH {
            let Ok(Reply::Seq(seq)) = self.call(Request::AllocSeq) else { panic!("no sequence") };
            (self.seq, self.oid) = (seq, 0);
        }
        self.oid += 1;
        Fid::new(self.seq, self.oid)
    }

    fn entry(&mut self, request: Request) -> Result<Entry> {
        match self.call(request)? {
            Reply::Entry(entry) => Ok(entry),
            other => panic!("{other:?}"),
        }
    }

    pub fn lookup(&mut self, cred: &Cred, parent: Fid, name: &str) -> Result<Attr> {
        let name = Bytes::copy_from_slice(name.as_bytes());
        self.entry(Request::Lookup { cred: cred.clone(), parent, name }).map(|e| e.attr)
    }

    pub fn attr(&mut self, fid: Fid) -> Attr {
        self.entry(Request::GetAttr { fid, layout_known: false }).unwrap().attr
    }

    pub fn layout(&mut self, fid: Fid) -> Option<Bytes> {
        self.entry(Request::GetAttr { fid, layout_known: false }).unwrap().layout
    }

    pub fn make(&mut self, cred: &Cred, parent: Fid, name: &str, node: NewNode, mode: u32) -> Result<Fid> {
        let (name, fid) = (Bytes::copy_from_slice(name.as_bytes()), self.fid());
        let cred = cred.clone();
        self.entry(Request::Create { cred, parent, name, fid, node, mode, umask: 0o022 }).map(|e| e.attr.fid)
    }

    pub fn mkdir(&mut self, cred: &Cred, parent: Fid, name: &str, mode: u32) -> Result<Fid> {
        self.make(cred, parent, name, NewNode::Dir, mode)
    }

    pub fn mknod(&mut self, cred: &Cred, parent: Fid, name: &str, mode: u32) -> Result<Fid> {
        self.make(cred, parent, name, NewNode::Node { kind: FileKind::Regular, rdev: 0 }, mode)
    }

    pub fn symlink(&mut self, cred: &Cred, parent: Fid, name: &str, target: &str) -> Result<Fid> {
        self.make(cred, parent, name, NewNode::Symlink(Bytes::copy_from_slice(target.as_bytes())), 0)
    }

    /// Opens a file; returns it with its handle.
    pub fn open(&mut self, cred: &Cred, fid: Fid, flags: u32) -> Result<(Fid, u64)> {
        self.opened(Request::Open { cred: cred.clone(), fid, flags })
    }

    pub fn opened(&mut self, request: Request) -> Result<(Fid, u64)> {
        match self.call(request)? {
            Reply::Opened { handle, entry, .. } => Ok((entry.attr.fid, handle)),
            other => panic!("{other:?}"),
        }
    }

    pub fn create(&mut self, cred: &Cred, parent: Fid, name: &str, flags: u32, mode: u32) -> Result<(Fid, u64)> {
        let (name, fid) = (Bytes::copy_from_slice(name.as_bytes()), self.fid());
        let (cred, flags) = (cred.clone(), flags | flags::CREAT);
        self.opened(Request::OpenCreate { cred, parent, name, fid, flags, mode, umask: 0o022 })
    }

    pub fn close(&mut self, (fid, handle): (Fid, u64)) -> Result<()> {
        self.call(Request::close(fid, handle)).map(drop)
    }

    /// Creates and closes a file.
    pub fn touch(&mut self, cred: &Cred, parent: Fid, name: &str, mode: u32) -> Result<Fid> {
        let open = self.create(cred, parent, name, flags::RDWR, mode)?;
        self.close(open)?;
        Ok(open.0)
    }

    pub fn remove(&mut self, cred: &Cred, parent: Fid, name: &str, dir: bool) -> Result<()> {
        let name = Bytes::copy_from_slice(name.as_bytes());
        self.call(Request::Unlink { cred: cred.clone(), parent, name, dir }).map(drop)
    }

    pub fn unlink(&mut self, cred: &Cred, parent: Fid, name: &str) -> Result<()> {
        self.remove(cred, parent, name, false)
    }

    pub fn rmdir(&mut self, cred: &Cred, parent: Fid, name: &str) -> Result<()> {
        self.remove(cred, parent, name, true)
    }

    pub fn link(&mut self, cred: &Cred, fid: Fid, parent: Fid, name: &str) -> Result<Attr> {
        let name = Bytes::copy_from_slice(name.as_bytes());
        self.entry(Request::Link { cred: cred.clone(), fid, parent, name }).map(|e| e.attr)
    }

    pub fn rename(&mut self, cred: &Cred, from: (Fid, &str), to: (Fid, &str), flags: u32) -> Result<()> {
        let request = Request::Rename {
            cred: cred.clone(),
            parent: from.0,
            name: Bytes::copy_from_slice(from.1.as_bytes()),
            new_parent: to.0,
            new_name: Bytes::copy_from_slice(to.1.as_bytes()),
            flags,
            whiteout: None,
        };
        self.call(request).map(drop)
    }

    pub fn setattr(&mut self, cred: &Cred, fid: Fid, set: SetAttr) -> Result<Attr> {
        self.entry(Request::SetAttr { cred: cred.clone(), fid, set, handle: None }).map(|e| e.attr)
    }

    pub fn chmod(&mut self, cred: &Cred, fid: Fid, perm: u32) -> Result<Attr> {
        self.setattr(cred, fid, SetAttr { perm: Some(perm), ..SetAttr::default() })
    }

    pub fn chown(&mut self, cred: &Cred, fid: Fid, uid: Option<u32>, gid: Option<u32>) -> Result<Attr> {
        self.setattr(cred, fid, SetAttr { uid, gid, ..SetAttr::default() })
    }

    pub fn truncate(&mut self, cred: &Cred, fid: Fid, size: u64) -> Result<Attr> {
        self.setattr(cred, fid, SetAttr { size: Some(size), ..SetAttr::default() })
    }

    pub fn access(&mut self, cred: &Cred, fid: Fid, mask: u32) -> Result<()> {
        self.call(Request::Access { cred: cred.clone(), fid, mask }).map(drop)
    }

    pub fn get(&mut self, cred: &Cred, fid: Fid, name: &str) -> Result<Bytes> {
        let name = Bytes::copy_from_slice(name.as_bytes());
        match self.call(Request::GetXattr { cred: cred.clone(), fid, name })? {
            Reply::Bytes(bytes) => Ok(bytes),
            other => panic!("{other:?}"),
        }
    }

    pub fn set(&mut self, cred: &Cred, fid: Fid, name: &str, value: &[u8], flags: u32) -> Result<()> {
        let (name, value) = (Bytes::copy_from_slice(name.as_bytes()), Bytes::copy_from_slice(value));
        self.call(Request::SetXattr { cred: cred.clone(), fid, name, value, flags }).map(drop)
    }

    pub fn unset(&mut self, cred: &Cred, fid: Fid, name: &str) -> Result<()> {
        let name = Bytes::copy_from_slice(name.as_bytes());
        self.call(Request::RemoveXattr { cred: cred.clone(), fid, name }).map(drop)
    }

    pub fn names(&mut self, cred: &Cred, fid: Fid) -> Vec<String> {
        match self.call(Request::ListXattr { cred: cred.clone(), fid }).unwrap() {
            Reply::Names(names) => names.iter().map(|n| String::from_utf8(n.to_vec()).unwrap()).collect(),
            other => panic!("{other:?}"),
        }
    }

    pub fn readdir(&mut self, fid: Fid, cookie: u64, max_bytes: u32) -> Result<(Vec<DirEntry>, bool)> {
        match self.call(Request::ReadDir { fid, cookie, max_bytes, attrs: false })? {
            Reply::Entries { entries, eof } => Ok((entries, eof)),
            other => panic!("{other:?}"),
        }
    }

    /// Returns all names of a directory, sorted.
    pub fn ls(&mut self, fid: Fid) -> Vec<String> {
        let (mut names, mut cookie) = (Vec::new(), 0);
        loop {
            let (entries, eof) = self.readdir(fid, cookie, 4096).unwrap();
            cookie = entries.last().map_or(cookie, |e| e.cookie);
            names.extend(entries.into_iter().map(|e| String::from_utf8(e.name.to_vec()).unwrap()));
            if eof {
                names.sort();
                return names;
            }
        }
    }

    /// Checks what must hold after any crash: every entry has its inode, links count names,
    /// directories count entries, objects are unique. Returns the objects of all files.
    pub fn check(&mut self) -> Vec<Fid> {
        let mut objects = std::collections::BTreeSet::new();
        let mut names = std::collections::BTreeMap::<Fid, u32>::new();
        let mut layouts = std::collections::BTreeMap::new();
        let (mut dirs, mut reached) = (vec![ROOT], 1);
        while let Some(dir) = dirs.pop() {
            let (mut cookie, mut subdirs) = (0, 0);
            loop {
                let (entries, eof) = self.readdir(dir, cookie, 65536).unwrap();
                cookie = entries.last().map_or(cookie, |e| e.cookie);
                for e in entries {
                    let entry =
                        self.entry(Request::GetAttr { fid: e.fid, layout_known: false }).expect("entry without inode");
                    assert_eq!(entry.attr.kind, e.kind);
                    if e.kind == FileKind::Dir {
                        subdirs += 1;
                        dirs.push(e.fid);
                    }
                    reached += u64::from(!names.contains_key(&e.fid));
                    *names.entry(e.fid).or_default() += 1;
                    layouts.extend(entry.layout.map(|l| (e.fid, l)));
                }
                if eof {
                    break;
                }
            }
            assert_eq!(self.attr(dir).nlink, 2 + subdirs, "{dir}");
        }
        for (fid, count) in names {
            let attr = self.attr(fid);
            assert_eq!(attr.nlink, if attr.kind == FileKind::Dir { attr.nlink } else { count }, "{fid}");
        }
        assert_eq!(self.ns.files(), reached, "unreachable inodes");
        for layout in layouts.values() {
            for stripe in Layout::decode(layout).unwrap().stripes() {
                assert!(objects.insert(stripe.object), "object {} is in two files", stripe.object);
            }
        }
        objects.into_iter().collect()
    }
}
