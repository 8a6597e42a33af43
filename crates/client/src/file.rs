//! Open files and directories.
//!
//! With a lock on a file's OPEN bit, the client opens the file without a request to the MDT, which
//! then has no handle for it. Such an open is *local*. Before the lock is cancelled, and whenever
//! else the MDT must know, the client registers local opens at the MDT ([`OpenFiles::register`]).
//!
//! Invariants:
//! * a file is in [`OpenFiles`] from its open to its release; all open files of one inode share one
//!   [`Inode`];
//! * for each file in it, the MDT has a handle or this client holds the OPEN lock, which is
//!   cancelled only after the MDT has a handle.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{
            AtomicBool, AtomicU32, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashSet;
use sheen_layout::Layout;
use sheen_rpc::{BoxFuture, Import, Recovering};
use sheen_wire::{
    Attr, Bulk, Errno, Fid, Mds, Result,
    mds::{NO_HANDLE, Reply, Request, flags},
};

use crate::{
    layouts::{Layouts, is_as_new, is_settled},
    llite::{
        group_lock::{Group, Groups},
        moved::Migration,
        scan::Scan,
    },
    lov::KEEP_BYTES_MAX,
    mdc::Mdc,
    read_ahead::ReadEnd,
    statahead::Listing,
};

/// Maximum number of open files in one `Reopen` request: some 400 kB.
const REOPENS_AT_ONCE: usize = 16384;

/// The client's knowledge of an inode's layout.
#[derive(Default)]
enum Place {
    #[default]
    Unknown,
    /// A layout that writes no longer change.
    Settled(Arc<Layout>),
    /// A layout that is valid as long as a LAYOUT lock is held. [`Inode::outdate`] is called before
    /// the cancel of that lock is sent.
    Held(Arc<Layout>),
    /// An outdated layout: objects may have been added since.
    Past(Arc<Layout>),
}

/// State shared by the open files of one inode.
#[derive(Default)]
pub(crate) struct Inode {
    /// Encoded layout from the MDT's reply to the first open; decoded at the first read or write.
    pub(crate) sent: OnceLock<Bytes>,
    place: RwLock<Place>,
    /// Held during a layout intent, which requests objects.
    pub(crate) intents: tokio::sync::Mutex<()>,
    /// Whether the MDT was restarted since it sent the layout.
    unsure: AtomicBool,
    /// Number of calls of [`Inode::outdate`].
    changes: AtomicU64,
    /// Permission bits from the last reply.
    pub(crate) perm: AtomicU32,
    /// Whether this client removed the last name. The data of an orphan need not be flushed at
    /// close.
    pub(crate) nameless: AtomicBool,
    /// Whether the inode was written through an open file.
    pub(crate) written: AtomicBool,
    /// Held by an append.
    pub(crate) append: tokio::sync::Mutex<()>,
    /// Whether writes bypass the write-back cache, during a migration under a group lock. Sealing
    /// does not revoke group locks, so it would not flush cached writes.
    pub(crate) through: AtomicBool,
    /// The group whose locks this client's open files hold.
    pub(crate) groups: Groups,
    /// Held shared by writes to single mirrors. A layout change holds it exclusively to wait for
    /// them, because this client's own locks do not stop them.
    pub(crate) repairs: tokio::sync::RwLock<()>,
}

/// An open file. Created by [`crate::Client::open`], [`crate::Client::create`] and
/// [`crate::Client::tmpfile`], closed by [`crate::Client::release`]. Dropping it does not close it.
pub struct OpenFile {
    fid: Fid,
    flags: u32,
    id: u64,
    pub(crate) inode: Arc<Inode>,
    /// Handle at the MDT. It changes when the MDT is restarted. [`NO_HANDLE`]: a local open.
    handle: AtomicU64,
    read: AtomicBool,
    /// End of the last read.
    pub(crate) read_end: ReadEnd,
    wrote: AtomicBool,
    /// 1 + the generation of the layout with which the file's metadata is known to be durable; 0:
    /// none.
    pub(crate) durable: AtomicU64,
    /// Whether the file cannot be used any more. Either a restarted MDT does not know it (it was
    /// never committed, or this client was evicted), or another file has its objects now.
    lost: AtomicBool,
    pub(crate) keep_cache: AtomicBool,
    /// The group lock taken through this open file.
    pub(crate) group: Mutex<Group>,
    /// Id of the mirror that this open file is restricted to; 0: the whole file. The upper half has
    /// the layout generation in which the mirror may be written.
    mirror: AtomicU64,
    /// The migration through this open file.
    pub(crate) migration: Mutex<Option<Migration>>,
    /// Whether reads leave the access time unchanged. See [`OpenFile::leave_atime`].
    unread: AtomicBool,
    /// End of the last large write through this open file; 0: none.
    large_end: AtomicU64,
}

impl Inode {
    /// Returns the layout if it is settled.
    pub(crate) fn settled(&self) -> Option<Arc<Layout>> {
        if let Place::Settled(layout) = &*self.place.read() { Some(layout.clone()) } else { None }
    }

    /// Returns the layout if it is valid under a LAYOUT lock. The caller must hold the lock from
    /// before this call.
    pub(crate) fn held(&self) -> Option<Arc<Layout>> {
        match &*self.place.read() {
            Place::Settled(layout) | Place::Held(layout) => Some(layout.clone()),
            Place::Unknown | Place::Past(_) => None,
        }
    }

    /// Returns the last known layout, valid or not.
    pub(crate) fn last(&self) -> Option<Arc<Layout>> {
        match &*self.place.read() {
            Place::Settled(layout) | Place::Held(layout) | Place::Past(layout) => Some(layout.clone()),
            Place::Unknown => None,
        }
    }

    /// Stores a layout that is settled, or that was read under a LAYOUT lock in use. Ignores it if
    /// a newer one is known.
    pub(crate) fn learn(&self, layout: &Arc<Layout>) {
        let good = if is_settled(layout) { Place::Settled } else { Place::Held };
        self.replace(layout, good);
    }

    /// Stores a layout that may be outdated.
    pub(crate) fn learn_past(&self, layout: &Arc<Layout>) {
        self.replace(layout, Place::Past);
    }

    fn replace(&self, layout: &Arc<Layout>, how: fn(Arc<Layout>) -> Place) {
        let mut place = self.place.write();
        let newer = match &*place {
            Place::Unknown => true,
            Place::Settled(known) | Place::Held(known) | Place::Past(known) => is_as_new(layout, known),
        };
        // After a restart of the MDT, `confirm` must first compare its layout with the known one.
        if newer && !self.unsure.load(Relaxed) {
            *place = how(layout.clone());
        }
    }

    /// Marks the layout as outdated: the LAYOUT lock is lost, or the layout is being edited.
    pub(crate) fn outdate(&self) {
        let mut place = self.place.write();
        self.changes.fetch_add(1, Release);
        self.doubt(&mut place);
    }

    /// Marks the known layout as outdated, or that from the open.
    fn doubt(&self, place: &mut Place) {
        let known = match &*place {
            Place::Settled(layout) | Place::Held(layout) => Some(layout.clone()),
            Place::Unknown => self.first(),
            Place::Past(_) => None,
        };
        if let Some(layout) = known {
            *place = Place::Past(layout);
        }
    }

    /// Returns how often the layout may have changed. A caller that reads this before the layout
    /// lookup, and again later, misses no change: the counter is incremented before the layout is
    /// marked as outdated.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Acquire)
    }

    /// Whether the file was mirrored according to its last known layout.
    pub(crate) fn is_mirrored(&self) -> bool {
        self.known().is_some_and(|layout| layout.is_mirrored())
    }

    /// Returns the last known layout, or that from the open.
    fn known(&self) -> Option<Arc<Layout>> {
        self.last().or_else(|| self.first())
    }

    /// Returns the layout from the open.
    fn first(&self) -> Option<Arc<Layout>> {
        Layout::decode(self.sent.get()?).ok().map(Arc::new)
    }

    /// Whether a file with this layout can be the same file.
    fn is_with(&self, layout: Option<&Bytes>) -> bool {
        if layout.is_some() && self.sent.get() == layout && !self.unsure.load(Relaxed) {
            return true;
        }
        let Some(known) = self.known() else { return true };
        let layout = layout.and_then(|bytes| Layout::decode(bytes).ok());
        layout.is_some_and(|layout| self.can_be(&known, &layout))
    }

    /// Whether the file with the layout `known` can now have `layout`. Replies may arrive out of
    /// order, and the file may have been migrated, so a different generation is accepted. It is not
    /// after a restart of the MDT, which may have lost objects.
    fn can_be(&self, known: &Layout, layout: &Layout) -> bool {
        let other = || goes_on(layout, known) || known.generation() != layout.generation();
        goes_on(known, layout) || !self.unsure.load(Relaxed) && other()
    }

    /// Marks the layout as to be requested again.
    fn distrust(&self) {
        self.doubt(&mut self.place.write());
    }
}

/// Whether the layout `from` can have become `to`: objects were added, and none was removed, except
/// together with its mirror.
fn goes_on(from: &Layout, to: &Layout) -> bool {
    if to.is_plain() {
        return from == to;
    }
    let objects: FxHashSet<Fid> = to.all_objects().map(|s| s.object).collect();
    let is_there = |layout: &Layout| layout.stripes().iter().all(|s| objects.contains(&s.object));
    if from.is_mirrored() { from.mirrors().iter().any(|m| is_there(m)) } else { is_there(from) }
}

impl fmt::Debug for OpenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpenFile({} flags {:#o} handle {})", self.fid, self.flags, self.handle())
    }
}

impl OpenFile {
    /// Returns the FID of the file.
    pub fn fid(&self) -> Fid {
        self.fid
    }

    /// Returns the flags of the open ([`flags`]).
    pub fn flags(&self) -> u32 {
        self.flags
    }

    /// Whether it was opened with O_APPEND.
    pub fn appends(&self) -> bool {
        self.flags & flags::APPEND != 0
    }

    /// Whether the kernel may cache what it reads: the file was opened only for reading, without
    /// O_DIRECT. A program that writes is served best directly. Two clients that also cache what
    /// they write could wait for each other in the kernel.
    pub fn cached(&self) -> bool {
        self.flags & (flags::ACCMODE | flags::DIRECT | flags::APPEND | flags::DIRECTORY) == flags::RDONLY
    }

    /// Whether pages that the kernel had at the open are still valid.
    pub fn keep_cache(&self) -> bool {
        self.keep_cache.load(Relaxed)
    }

    /// Whether writes are durable before they return (O_SYNC, O_DSYNC).
    pub fn syncs(&self) -> bool {
        self.flags & flags::DSYNC != 0
    }

    /// Creates an open file that exists only in this client, without a handle at the MDT.
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
            read_end: ReadEnd::default(),
            wrote: AtomicBool::new(false),
            durable: AtomicU64::new(0),
            lost: AtomicBool::new(false),
            keep_cache: AtomicBool::new(false),
            group: Mutex::default(),
            mirror: AtomicU64::new(0),
            migration: Mutex::default(),
            unread: AtomicBool::new(false),
            large_end: AtomicU64::new(0),
        }
    }

    pub(crate) fn handle(&self) -> u64 {
        self.handle.load(Relaxed)
    }

    /// Returns the id of the mirror that this open file is restricted to; 0: the whole file.
    pub(crate) fn mirror(&self) -> u16 {
        self.mirror.load(Relaxed) as u16
    }

    /// Returns the layout generation in which that mirror may be written.
    pub(crate) fn mirror_generation(&self) -> u32 {
        (self.mirror.load(Relaxed) >> 32) as u32
    }

    pub(crate) fn set_mirror(&self, id: u16, generation: u32) {
        self.mirror.store(u64::from(generation) << 32 | u64::from(id), Relaxed);
    }

    /// Fails with ESTALE if the MDT has lost the file. Its objects belong to no file then, so they
    /// must not be written, and a sync must not succeed.
    pub(crate) fn check_not_lost(&self) -> Result<()> {
        if self.lost.load(Relaxed) { Err(Errno::ESTALE) } else { Ok(()) }
    }

    /// Whether the client must ask the restarted MDT to confirm the layout.
    pub(crate) fn is_unsure(&self) -> bool {
        self.inode.unsure.load(Relaxed)
    }

    /// Compares the known layout with that of a restarted MDT. Accepts the new one if the known one
    /// can have become it. Otherwise returns the known one.
    pub(crate) fn confirm(&self, layout: Option<&Bytes>) -> Option<Arc<Layout>> {
        let now = layout.and_then(|bytes| Layout::decode(bytes).ok());
        let known = self.inode.known().filter(|known| !now.as_ref().is_some_and(|now| goes_on(known, now)));
        if known.is_none() {
            let mut place = self.inode.place.write();
            if !matches!(&*place, Place::Settled(layout) if layout.is_plain()) {
                // As outdated, not as unknown: otherwise the older layout from the open would be
                // used.
                *place = now.map_or(Place::Unknown, |now| Place::Past(Arc::new(now)));
            }
            self.inode.unsure.store(false, Relaxed);
        }
        known
    }

    /// Marks the layout as to be requested again, because the OSTs report its objects as sealed.
    pub(crate) fn confirm_moved(&self) {
        self.inode.distrust();
        self.inode.unsure.store(false, Relaxed);
    }

    /// Marks the file as lost: its objects belong to no file.
    pub(crate) fn lose(&self) {
        tracing::warn!("{}: the restarted MDT has lost its layout: operations return ESTALE", self.fid);
        self.lost.store(true, Relaxed);
    }

    pub(crate) fn note_read(&self) {
        self.read.store(true, Relaxed);
    }

    /// Makes reads leave the access time unchanged: for a migration, or if the mount or the open
    /// requested it.
    pub fn leave_atime(&self) {
        self.unread.store(true, Relaxed);
    }

    /// Marks the file as unusable, because another file has its objects now.
    pub(crate) fn leave(&self) {
        self.lost.store(true, Relaxed);
    }

    pub(crate) fn note_write(&self) {
        self.wrote.store(true, Relaxed);
    }

    /// Notes a write that is about to begin. Returns whether it is small and begins where the last
    /// large write ended.
    pub(crate) fn goes_on(&self, offset: u64, len: usize) -> bool {
        if len >= KEEP_BYTES_MAX {
            self.large_end.store(offset.saturating_add(len as u64), Relaxed);
            return false;
        }
        offset > 0 && self.large_end.load(Relaxed) == offset
    }

    pub(crate) fn was_read(&self) -> bool {
        self.read.load(Relaxed) && !self.unread.load(Relaxed)
    }

    pub(crate) fn was_written(&self) -> bool {
        self.wrote.load(Relaxed)
    }
}

/// An open directory.
#[derive(Debug)]
pub struct OpenDir {
    pub(crate) file: Arc<OpenFile>,
    /// State of [`crate::Client::list`].
    pub(crate) listing: Arc<Listing>,
    /// State of [`crate::Client::scan`].
    pub(crate) scan: Scan,
}

impl OpenDir {
    pub(crate) fn new(file: Arc<OpenFile>) -> Arc<OpenDir> {
        let listing = Listing::new(file.fid);
        Arc::new(OpenDir { file, listing, scan: Scan::default() })
    }

    /// Returns the FID of the directory.
    pub fn fid(&self) -> Fid {
        self.file.fid
    }
}

/// All open files, by FID and order of opening. Bounded by the open files of the programs on the
/// mount.
#[derive(Default)]
pub(crate) struct OpenFiles {
    last_id: AtomicU64,
    files: Mutex<BTreeMap<(Fid, u64), Arc<OpenFile>>>,
}

impl OpenFiles {
    /// Adds a file that the MDT has opened.
    pub(crate) fn insert(&self, attr: &Attr, layout: Option<Bytes>, flags: u32, handle: u64) -> Arc<OpenFile> {
        let mut files = self.files.lock();
        // An open from before a restart of the MDT may have another layout, which is no longer the
        // file's.
        let same = |inode: &Inode| inode.is_with(layout.as_ref());
        let inode = find(&files, attr.fid).map(|f| &f.inode).filter(|i| same(i)).cloned().unwrap_or_default();
        if let Some(layout) = layout {
            // If a layout is stored already, it is the same one or one that became it.
            let _ = inode.sent.set(layout);
        }
        self.enter(&mut files, attr, flags, inode, handle)
    }

    /// Adds a local open, if `may` returns true while the table is locked.
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
        let same = |inode: &Inode| match (inode.known(), &layout) {
            (None, _) => true,
            (Some(known), Some(layout)) => Arc::ptr_eq(&known, layout) || inode.can_be(&known, layout),
            (Some(_), None) => false,
        };
        let inode = find(&files, attr.fid).map(|f| &f.inode).filter(|i| same(i)).cloned().unwrap_or_default();
        // A layout that is not settled is looked up when it is needed.
        if let Some(layout) = layout.filter(|layout| is_settled(layout)) {
            inode.learn(&layout);
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

    /// Removes a file. Returns its handle if it was in the table.
    pub(crate) fn remove(&self, file: &OpenFile) -> Option<u64> {
        self.files.lock().remove(&(file.fid, file.id)).map(|file| file.handle())
    }

    /// Marks the open files of an inode whose last name this client removed.
    pub(crate) fn note_nameless(&self, fid: Fid) {
        let files = self.files.lock();
        files.range((fid, 0)..=(fid, u64::MAX)).for_each(|(_, file)| file.inode.nameless.store(true, Relaxed));
    }

    /// Runs `f` unless the file has local opens. No local open can begin meanwhile.
    pub(crate) fn unless_local<T>(&self, fid: Fid, f: impl FnOnce() -> T) -> Option<T> {
        let files = self.files.lock();
        if local(&files, fid).next().is_some() { None } else { Some(f()) }
    }

    /// Whether the file is open for writing.
    pub(crate) fn is_written(&self, fid: Fid) -> bool {
        let files = self.files.lock();
        files.range((fid, 0)..=(fid, u64::MAX)).any(|(_, file)| flags::writes(file.flags))
    }

    /// Applies [`Inode::learn`] to the inode of open files.
    pub(crate) fn learn(&self, fid: Fid, layout: &Arc<Layout>) {
        self.each(fid, |inode| inode.learn(layout));
    }

    /// Applies [`Inode::learn_past`] to the inode of open files.
    pub(crate) fn learn_past(&self, fid: Fid, layout: &Arc<Layout>) {
        self.each(fid, |inode| inode.learn_past(layout));
    }

    /// Applies [`Inode::outdate`] to the inode of open files.
    pub(crate) fn outdate(&self, fid: Fid) {
        self.each(fid, Inode::outdate);
    }

    /// Applies [`Inode::distrust`] to the inodes of all open files.
    pub(crate) fn distrust(&self) {
        self.files.lock().values().for_each(|file| file.inode.distrust());
    }

    /// Returns the last known layout of an open file, valid or not.
    pub(crate) fn last_layout(&self, fid: Fid) -> Option<Arc<Layout>> {
        find(&self.files.lock(), fid)?.inode.last()
    }

    /// Returns one of a file's open files.
    pub(crate) fn any(&self, fid: Fid) -> Option<Arc<OpenFile>> {
        find(&self.files.lock(), fid).cloned()
    }

    fn each(&self, fid: Fid, f: impl Fn(&Inode)) {
        self.files.lock().range((fid, 0)..=(fid, u64::MAX)).for_each(|(_, file)| f(&file.inode));
    }

    /// Stores the permission bits from a reply, if the file is open.
    pub(crate) fn note(&self, attr: &Attr) {
        if let Some(file) = find(&self.files.lock(), attr.fid) {
            file.inode.perm.store(attr.perm, Relaxed);
        }
    }

    /// Returns all open files.
    pub(crate) fn all(&self) -> Vec<Arc<OpenFile>> {
        self.files.lock().values().cloned().collect()
    }

    /// Returns the number of open files.
    pub(crate) fn len(&self) -> usize {
        self.files.lock().len()
    }
}

impl OpenFiles {
    /// Keeps the MDT informed of open files. All of them are opened again at an MDT that was
    /// restarted or has evicted this client, so that orphans survive. Local opens are registered
    /// before their lock is cancelled.
    pub(crate) fn stay_open(self: &Arc<Self>, mdc: &Mdc, layouts: &Arc<Layouts>) {
        mdc.set_open_files(self, layouts);
        let (files, layouts, locks) = (self.clone(), layouts.clone(), mdc.locks().clone());
        mdc.import().on_restart(move |mdt| {
            // Drop the locks before the files are listed. A local open after this needs a lock of
            // the restarted MDT, which therefore knows the file.
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

    /// Registers the local opens of a file at the MDT. `None`: there are none.
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
                // Urgent, because other clients may wait for the lock.
                let answer = import.call_urgent(reopen(files).into(), Bulk::new()).await?;
                for closed in me.opened(files, answer.body.reply, false)? {
                    import.call_urgent(closed.into(), Bulk::new()).await?;
                }
            }
            Ok(())
        }))
    }

    /// Stores the handles of files that the MDT has opened. Returns close requests for the
    /// superfluous ones: of files that were released meanwhile, and, unless `anew`, of files that
    /// already had a handle.
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
                Ok(handle) => surplus.push(Request::close(fid, handle)),
                Err(errno) if is_open => {
                    file.lost.store(true, Relaxed);
                    tracing::warn!("{fid}: the MDT cannot open the file again: {errno}: operations return ESTALE");
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

/// Returns the local opens of a file.
fn local(files: &Map, fid: Fid) -> impl Iterator<Item = &Arc<OpenFile>> {
    let of_file = files.range((fid, 0)..=(fid, u64::MAX)).map(|(_, file)| file);
    of_file.filter(|file| file.handle() == NO_HANDLE)
}

#[cfg(test)]
mod tests {
    use sheen_layout::{Asked, Defaults, Spec, Stripe, Template, TemplateComponent, resolve_asked};
    use sheen_wire::fid::ROOT;

    use super::*;

    /// Returns the layout of a file with one object, which differs in each generation.
    fn layout(generation: u32) -> Arc<Layout> {
        let stripes = vec![Stripe { object: Fid::new(7, 8 + generation), ost: 1 }];
        Arc::new(Layout::new(ROOT, 1 << 16, None, stripes).unwrap().adopted(ROOT, generation).unwrap())
    }

    fn opened_with(generation: u32) -> OpenFile {
        let file = OpenFile::new(ROOT, flags::RDWR, 1, Arc::default(), NO_HANDLE);
        file.inode.sent.set(layout(generation).encode().into()).unwrap();
        file
    }

    fn generation(layout: Option<Arc<Layout>>) -> Option<u32> {
        layout.map(|layout| layout.generation())
    }

    #[test]
    fn layout_from_open_is_ignored_after_newer_layout() {
        let file = opened_with(1);
        assert_eq!((generation(file.inode.last()), generation(file.inode.known())), (None, Some(1)));
        file.inode.learn(&layout(2));
        assert_eq!(generation(file.inode.settled()), Some(2));
        // A late reply.
        file.inode.learn(&layout(1));
        assert_eq!(generation(file.inode.settled()), Some(2));
        for _ in 0..2 {
            file.inode.outdate();
            assert_eq!((generation(file.inode.settled()), generation(file.inode.known())), (None, Some(2)));
            file.inode.learn_past(&layout(1));
            assert_eq!(generation(file.inode.last()), Some(2));
        }
    }

    #[test]
    fn layout_from_open_is_ignored_after_restarted_mdt_sent_another() {
        let stripe = |object| vec![Stripe { object: Fid::new(7, object), ost: 1 }];
        let parts = [(0, 1 << 20), (1 << 20, u64::MAX)];
        let part = |(start, end)| TemplateComponent::striped(start, end, Spec::default());
        let asked = Asked::Composite(Template::new(parts.map(part).to_vec()));
        let wanted = resolve_asked(&asked, None, None, &Defaults::default(), 0);
        let before = wanted.layout(ROOT, vec![(0, stripe(1))]).unwrap();
        let mut after = before.clone();
        after.instantiate(vec![(1, stripe(2))]).unwrap();
        let file = OpenFile::new(ROOT, flags::RDWR, 1, Arc::default(), NO_HANDLE);
        file.inode.sent.set(before.encode().into()).unwrap();
        file.inode.unsure.store(true, Relaxed);
        assert!(file.confirm(Some(&after.encode().into())).is_none(), "objects were added, none was removed");
        assert_eq!((generation(file.inode.last()), file.is_unsure()), (Some(after.generation()), false));
        // Another restarted MDT must know the accepted layout, not the one from the open.
        file.inode.unsure.store(true, Relaxed);
        let known = file.confirm(Some(&before.encode().into()));
        assert_eq!(generation(known), Some(after.generation()), "objects were removed");
    }
}
