//! Open files and directories.
//!
//! Who has a lock on a file's OPEN bit opens the file without asking the MDT, which then knows of no handle. When the lock goes, and
//! whenever else the MDT must know, the file is opened there after the fact ([`OpenFiles::register`]).
//!
//! Invariants:
//! * a file is in [`OpenFiles`] from its open to its release; all open files of one inode share one [`Inode`];
//! * of each file in it the MDT knows a handle, or this client has the lock on OPEN, which is given back after the MDT knows.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_layout::Layout;
use sheen_rpc::{BoxFuture, Import, Recovering};
use sheen_wire::{
    Attr, Bulk, Errno, Fid, Mds, Result,
    mds::{NO_HANDLE, Reply, Request, flags},
};

use crate::{
    layouts::Layouts,
    llite::group_lock::{Group, Groups},
    mdc::Mdc,
    statahead::Listing,
};

/// Open files in one request to a restarted MDT: some 400 kB.
const REOPENS_AT_ONCE: usize = 16384;

/// What the open files of one inode have in common.
#[derive(Default)]
pub(crate) struct Inode {
    /// The layout as the MDT sent it, decoded at the first read or write.
    pub(crate) encoded: OnceLock<Bytes>,
    pub(crate) layout: OnceLock<Arc<Layout>>,
    /// The MDT was restarted since it sent the layout.
    unsure: AtomicBool,
    /// Permission bits as last heard of.
    pub(crate) perm: AtomicU32,
    /// This client took its last name away: nobody needs what is written to it.
    pub(crate) nameless: AtomicBool,
    /// It was written through an open file.
    pub(crate) written: AtomicBool,
    /// Held by a write that appends.
    pub(crate) append: tokio::sync::Mutex<()>,
    /// Which group's lock open files of this client have.
    pub(crate) groups: Groups,
}

/// An open file. Made by [`crate::Client::open`], [`crate::Client::create`] and [`crate::Client::tmpfile`]; ends with
/// [`crate::Client::release`] (dropping it does not close it).
pub struct OpenFile {
    fid: Fid,
    flags: u32,
    id: u64,
    pub(crate) inode: Arc<Inode>,
    /// Names the open file at the MDT; another one after the MDT was restarted. [`NO_HANDLE`]: it was opened under a lock.
    handle: AtomicU64,
    read: AtomicBool,
    wrote: AtomicBool,
    /// Whether the file's creation is known to be durable.
    pub(crate) durable: AtomicBool,
    /// A restarted MDT does not know the file: it was never committed, or its client was given up.
    lost: AtomicBool,
    pub(crate) keep_cache: AtomicBool,
    /// The group's lock that was taken through it.
    pub(crate) group: Mutex<Group>,
}

impl Inode {
    /// The layout as the MDT sent it, if it is known.
    fn encoded(&self) -> Option<Bytes> {
        self.encoded.get().cloned().or_else(|| self.layout.get().map(|layout| layout.encode().into()))
    }
}

impl fmt::Debug for OpenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpenFile({} flags {:#o} handle {})", self.fid, self.flags, self.handle())
    }
}

impl OpenFile {
    /// Which file.
    pub fn fid(&self) -> Fid {
        self.fid
    }

    /// The flags of the open ([`flags`]).
    pub fn flags(&self) -> u32 {
        self.flags
    }

    /// Whether it was opened with O_APPEND.
    pub fn appends(&self) -> bool {
        self.flags & flags::APPEND != 0
    }

    /// Whether the kernel may read it through its page cache: opened for reading alone, and not past the caches. (A program that
    /// writes is served best directly; two that also keep what they write could wait for each other in the kernel.)
    pub fn cached(&self) -> bool {
        self.flags & (flags::ACCMODE | flags::DIRECT | flags::APPEND | flags::DIRECTORY) == flags::RDONLY
    }

    /// Whether pages that the kernel had at the open are still the file's.
    pub fn keep_cache(&self) -> bool {
        self.keep_cache.load(Relaxed)
    }

    /// Whether writes are durable before they return (O_SYNC, O_DSYNC).
    pub fn syncs(&self) -> bool {
        self.flags & flags::DSYNC != 0
    }

    /// A file that is open nowhere but here: no MDT knows it.
    pub(crate) fn detached(attr: &Attr) -> Arc<OpenFile> {
        Arc::new(OpenFile::new(attr.fid, flags::DIRECTORY, 0, Arc::default(), NO_HANDLE))
    }

    fn new(fid: Fid, flags: u32, id: u64, inode: Arc<Inode>, handle: u64) -> OpenFile {
        OpenFile {
            fid,
            flags,
            id,
            inode,
            handle: AtomicU64::new(handle),
            read: AtomicBool::new(false),
            wrote: AtomicBool::new(false),
            durable: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            keep_cache: AtomicBool::new(false),
            group: Mutex::default(),
        }
    }

    pub(crate) fn handle(&self) -> u64 {
        self.handle.load(Relaxed)
    }

    /// ESTALE if the MDT has lost the file: its objects belong to nobody, so nothing may be written to them and nothing be promised.
    pub(crate) fn check_not_lost(&self) -> Result<()> {
        if self.lost.load(Relaxed) { Err(Errno::ESTALE) } else { Ok(()) }
    }

    /// Whether the MDT must be asked whether the layout is still the file's.
    pub(crate) fn is_unsure(&self) -> bool {
        self.inode.unsure.load(Relaxed)
    }

    /// What a restarted MDT says of the layout. Where it is not the one known, the file's bytes lie in objects that are nobody's.
    pub(crate) fn confirm(&self, layout: Option<&Bytes>) {
        let known = self.inode.encoded();
        if known.is_some() && known.as_ref() != layout {
            tracing::warn!("{} lost its layout in a restart of the MDT", self.fid);
            self.lost.store(true, Relaxed);
        } else {
            self.inode.unsure.store(false, Relaxed);
        }
    }

    pub(crate) fn note_read(&self) {
        self.read.store(true, Relaxed);
    }

    pub(crate) fn note_write(&self) {
        self.wrote.store(true, Relaxed);
    }

    pub(crate) fn was_read(&self) -> bool {
        self.read.load(Relaxed)
    }

    pub(crate) fn was_written(&self) -> bool {
        self.wrote.load(Relaxed)
    }
}

/// An open directory.
#[derive(Debug)]
pub struct OpenDir {
    pub(crate) file: Arc<OpenFile>,
    /// For [`crate::Client::list`].
    pub(crate) listing: Arc<Listing>,
}

impl OpenDir {
    pub(crate) fn new(file: Arc<OpenFile>) -> Arc<OpenDir> {
        let listing = Listing::new(file.fid);
        Arc::new(OpenDir { file, listing })
    }

    /// Which directory.
    pub fn fid(&self) -> Fid {
        self.file.fid
    }
}

/// All open files, by file and order of opening. Bounded by the open files of the programs on the mount.
#[derive(Default)]
pub(crate) struct OpenFiles {
    last_id: AtomicU64,
    files: Mutex<BTreeMap<(Fid, u64), Arc<OpenFile>>>,
}

impl OpenFiles {
    /// Takes a file in that the MDT has opened.
    pub(crate) fn insert(&self, attr: &Attr, layout: Option<Bytes>, flags: u32, handle: u64) -> Arc<OpenFile> {
        let mut files = self.files.lock();
        // An open from before a restart of the MDT may have another layout, which is not the file's any more.
        let same = |inode: &Inode| inode.encoded().is_none_or(|known| layout.as_ref() == Some(&known));
        let inode = find(&files, attr.fid).map(|f| &f.inode).filter(|i| same(i)).cloned().unwrap_or_default();
        if let Some(layout) = layout {
            // Where it was known already it was the same.
            let _ = inode.encoded.set(layout);
        }
        self.enter(&mut files, attr, flags, inode, handle)
    }

    /// Takes a file in that this client opens by itself, if at that moment it `may`.
    pub(crate) fn insert_local(
        &self,
        attr: &Attr,
        layout: Option<Arc<Layout>>,
        flags: u32,
        may: impl FnOnce() -> bool,
    ) -> Option<Arc<OpenFile>> {
        let mut files = self.files.lock();
        if !may() {
            return None;
        }
        let same = |inode: &Inode| match (inode.layout.get(), &layout) {
            (Some(known), Some(layout)) => Arc::ptr_eq(known, layout) || known == layout,
            _ => inode.encoded().is_none_or(|known| layout.as_ref().is_some_and(|l| l.encode() == known)),
        };
        let inode = find(&files, attr.fid).map(|f| &f.inode).filter(|i| same(i)).cloned().unwrap_or_default();
        if let Some(layout) = layout {
            // As above.
            let _ = inode.layout.set(layout);
        }
        Some(self.enter(&mut files, attr, flags, inode, NO_HANDLE))
    }

    fn enter(&self, files: &mut Map, attr: &Attr, flags: u32, inode: Arc<Inode>, handle: u64) -> Arc<OpenFile> {
        inode.perm.store(attr.perm, Relaxed);
        let (fid, id) = (attr.fid, self.last_id.fetch_add(1, Relaxed) + 1);
        let file = Arc::new(OpenFile::new(fid, flags, id, inode, handle));
        files.insert((fid, id), file.clone());
        file
    }

    /// Forgets a file. Its handle, if it was there.
    pub(crate) fn remove(&self, file: &OpenFile) -> Option<u64> {
        self.files.lock().remove(&(file.fid, file.id)).map(|file| file.handle())
    }

    /// This client took a file's last name away.
    pub(crate) fn note_nameless(&self, fid: Fid) {
        let files = self.files.lock();
        files.range((fid, 0)..=(fid, u64::MAX)).for_each(|(_, file)| file.inode.nameless.store(true, Relaxed));
    }

    /// Does `f`, unless the file is open here unknown to the MDT. It cannot be opened so meanwhile.
    pub(crate) fn unless_local<T>(&self, fid: Fid, f: impl FnOnce() -> T) -> Option<T> {
        let files = self.files.lock();
        if local(&files, fid).next().is_some() { None } else { Some(f()) }
    }

    /// Whether a file is open for writing.
    pub(crate) fn is_written(&self, fid: Fid) -> bool {
        let files = self.files.lock();
        files.range((fid, 0)..=(fid, u64::MAX)).any(|(_, file)| flags::writes(file.flags))
    }

    /// Keeps in mind what was just heard of a file, if it is open.
    pub(crate) fn note(&self, attr: &Attr) {
        if let Some(file) = find(&self.files.lock(), attr.fid) {
            file.inode.perm.store(attr.perm, Relaxed);
        }
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Arc<OpenFile>> {
        self.files.lock().values().cloned().collect()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.files.lock().len()
    }
}

impl OpenFiles {
    /// Sees to it that the MDT is told of all open files when it has forgotten them, so that what is unlinked lives on for them, and of
    /// those that it does not know before their lock is given up.
    pub(crate) fn stay_open(self: &Arc<Self>, mdc: &Mdc, layouts: &Arc<Layouts>) {
        mdc.set_open_files(self);
        let (files, layouts, locks) = (self.clone(), layouts.clone(), mdc.locks().clone());
        mdc.import().on_restart(move |mdt| {
            // Before the files are looked through: one that is opened under a lock from now on is known to be there.
            locks.forget();
            layouts.clear();
            let files = files.clone();
            files.all().iter().for_each(|f| f.inode.unsure.store(true, Relaxed));
            Box::pin(async move { files.reopen(&mdt).await })
        });
    }

    async fn reopen(&self, mdt: &Recovering<Mds>) -> Result<()> {
        for files in self.all().chunks(REOPENS_AT_ONCE) {
            let answer = mdt.call(reopen(files).into(), Bulk::new()).await?;
            for closed in self.opened(files, answer.body.reply, true)? {
                mdt.call(closed.into(), Bulk::new()).await?;
            }
        }
        Ok(())
    }

    /// Has the MDT open what is open here of a file unknown to it. `None`: nothing is.
    pub(crate) fn register(
        self: &Arc<Self>,
        import: &Weak<Import<Mds>>,
        fid: Fid,
    ) -> Option<BoxFuture<'static, Result<()>>> {
        let files: Vec<_> = local(&self.files.lock(), fid).cloned().collect();
        if files.is_empty() {
            return None;
        }
        let (me, import) = (self.clone(), import.clone());
        Some(Box::pin(async move {
            let import = import.upgrade().ok_or(Errno::ESHUTDOWN)?;
            for files in files.chunks(REOPENS_AT_ONCE) {
                // Others may wait for the lock.
                let answer = import.call_urgent(reopen(files).into(), Bulk::new()).await?;
                for closed in me.opened(files, answer.body.reply, false)? {
                    import.call_urgent(closed.into(), Bulk::new()).await?;
                }
            }
            Ok(())
        }))
    }

    /// The MDT has opened these files. Returns how to close what is not needed: of files that were released meanwhile, and, unless it
    /// is `anew`, of those that it knows already.
    fn opened(&self, files: &[Arc<OpenFile>], reply: Reply, anew: bool) -> Result<Vec<Request>> {
        let Reply::Handles(handles) = reply else { return Err(Errno::EPROTO) };
        if handles.len() != files.len() {
            return Err(Errno::EPROTO);
        }
        let mut surplus = Vec::new();
        let open = self.files.lock();
        for (file, handle) in files.iter().zip(handles) {
            let (fid, is_open) = (file.fid, open.contains_key(&(file.fid, file.id)));
            match handle {
                Ok(handle) if is_open && (anew || file.handle() == NO_HANDLE) => file.handle.store(handle, Relaxed),
                Ok(handle) => surplus.push(Request::Close { fid, handle, read: false, wrote: false }),
                Err(errno) if is_open => {
                    file.lost.store(true, Relaxed);
                    tracing::warn!("{fid} could not be opened again: {errno}");
                }
                Err(_) => {}
            }
        }
        Ok(surplus)
    }
}

fn reopen(files: &[Arc<OpenFile>]) -> Request {
    Request::Reopen { files: files.iter().map(|f| (f.fid, f.flags, f.handle())).collect() }
}

type Map = BTreeMap<(Fid, u64), Arc<OpenFile>>;

fn find(files: &Map, fid: Fid) -> Option<&Arc<OpenFile>> {
    if files.is_empty() {
        return None;
    }
    files.range((fid, 0)..=(fid, u64::MAX)).next().map(|(_, f)| f)
}

/// What is open of a file unknown to the MDT.
fn local(files: &Map, fid: Fid) -> impl Iterator<Item = &Arc<OpenFile>> {
    let of_file = files.range((fid, 0)..=(fid, u64::MAX)).map(|(_, file)| file);
    of_file.filter(|file| file.handle() == NO_HANDLE)
}
