//! Open files and directories.
//!
//! Who has a lock on a file's OPEN bit opens the file without asking the MDT, which then knows of
//! no handle. When the lock goes, and whenever else the MDT must know, the file is opened there
//! after the fact ([`OpenFiles::register`]).
//!
//! Invariants:
//! * a file is in [`OpenFiles`] from its open to its release; all open files of one inode share one
//!   [`Inode`];
//! * of each file in it the MDT knows a handle, or this client has the lock on OPEN, which is given
//!   back after the MDT knows.

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

/// Open files in one request to a restarted MDT: some 400 kB.
const REOPENS_AT_ONCE: usize = 16384;

/// Where an inode's bytes are, as far as is known.
#[derive(Default)]
enum Place {
    #[default]
    Unknown,
    /// There, and they stay there.
    Settled(Arc<Layout>),
    /// There, as long as a lock on LAYOUT is held: [`Inode::outdate`] comes before the MDT hears
    /// that it is given up.
    Held(Arc<Layout>),
    /// They were there: objects may have come since.
    Past(Arc<Layout>),
}

/// What the open files of one inode have in common.
#[derive(Default)]
pub(crate) struct Inode {
    /// The layout as the MDT sent it at the first open, decoded at the first read or write.
    pub(crate) sent: OnceLock<Bytes>,
    place: RwLock<Place>,
    /// Held by who asks for objects.
    pub(crate) intents: tokio::sync::Mutex<()>,
    /// The MDT was restarted since it sent the layout.
    unsure: AtomicBool,
    /// How often [`Inode::outdate`] was called.
    changes: AtomicU64,
    /// Permission bits as last heard of.
    pub(crate) perm: AtomicU32,
    /// This client took its last name away: nobody needs what is written to it.
    pub(crate) nameless: AtomicBool,
    /// It was written through an open file.
    pub(crate) written: AtomicBool,
    /// Held by a write that appends.
    pub(crate) append: tokio::sync::Mutex<()>,
    /// Nothing that is written is kept: a group that moves the file does not hear of it otherwise.
    pub(crate) through: AtomicBool,
    /// Which group's lock open files of this client have.
    pub(crate) groups: Groups,
    /// Shared by writes to single mirrors; whoever edits the layout waits for them, whom this
    /// client's own locks do not stop.
    pub(crate) repairs: tokio::sync::RwLock<()>,
}

/// An open file. Made by [`crate::Client::open`], [`crate::Client::create`] and
/// [`crate::Client::tmpfile`]; ends with [`crate::Client::release`] (dropping it does not close
/// it).
pub struct OpenFile {
    fid: Fid,
    flags: u32,
    id: u64,
    pub(crate) inode: Arc<Inode>,
    /// Names the open file at the MDT; another one after the MDT was restarted. [`NO_HANDLE`]: it
    /// was opened under a lock.
    handle: AtomicU64,
    read: AtomicBool,
    /// Where it was read last.
    pub(crate) read_end: ReadEnd,
    wrote: AtomicBool,
    /// 1 + the generation of the layout with which the file is known to be durable; 0: it is not.
    pub(crate) durable: AtomicU64,
    /// A restarted MDT does not know the file: it was never committed, or its client was given up.
    lost: AtomicBool,
    pub(crate) keep_cache: AtomicBool,
    /// The group's lock that was taken through it.
    pub(crate) group: Mutex<Group>,
    /// The mirror that it is, and in the upper half the generation of the layout in which it may be
    /// written; 0: it is the file.
    mirror: AtomicU64,
    /// It is being moved through this open file.
    pub(crate) migration: Mutex<Option<Migration>>,
    /// To be moved: who reads it does so for nobody.
    unread: AtomicBool,
    /// Where the last large write through it ended; 0: there was none.
    large_end: AtomicU64,
}

impl Inode {
    /// The layout, if it stays as it is.
    pub(crate) fn settled(&self) -> Option<Arc<Layout>> {
        if let Place::Settled(layout) = &*self.place.read() { Some(layout.clone()) } else { None }
    }

    /// The layout, if it is good as long as a lock on LAYOUT is in use that was taken before.
    pub(crate) fn held(&self) -> Option<Arc<Layout>> {
        match &*self.place.read() {
            Place::Settled(layout) | Place::Held(layout) => Some(layout.clone()),
            Place::Unknown | Place::Past(_) => None,
        }
    }

    /// The layout last heard of, good or not.
    pub(crate) fn last(&self) -> Option<Arc<Layout>> {
        match &*self.place.read() {
            Place::Settled(layout) | Place::Held(layout) | Place::Past(layout) => Some(layout.clone()),
            Place::Unknown => None,
        }
    }

    /// Takes a layout in: one that is settled, or one that is so under a lock on LAYOUT in use. Not
    /// if a newer one is known.
    pub(crate) fn learn(&self, layout: &Arc<Layout>) {
        let good = if is_settled(layout) { Place::Settled } else { Place::Held };
        self.replace(layout, good);
    }

    /// Takes a layout in that need not be so any more.
    pub(crate) fn learn_past(&self, layout: &Arc<Layout>) {
        self.replace(layout, Place::Past);
    }

    fn replace(&self, layout: &Arc<Layout>, how: fn(Arc<Layout>) -> Place) {
        let mut place = self.place.write();
        let newer = match &*place {
            Place::Unknown => true,
            Place::Settled(known) | Place::Held(known) | Place::Past(known) => is_as_new(layout, known),
        };
        // What a restarted MDT says is compared with what is known first.
        if newer && !self.unsure.load(Relaxed) {
            *place = how(layout.clone());
        }
    }

    /// The lock on LAYOUT is lost, or somebody edits the layout.
    pub(crate) fn outdate(&self) {
        let mut place = self.place.write();
        self.changes.fetch_add(1, Release);
        self.doubt(&mut place);
    }

    /// What is known of the layout is not good any more; nor is what came with the open.
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

    /// How often the layout may have become another one. Who asks before it looks the layout up,
    /// and again later, has missed nothing: it is counted before the layout can be seen to be
    /// outdated.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Acquire)
    }

    /// Whether the file was mirrored when it was last heard of.
    pub(crate) fn is_mirrored(&self) -> bool {
        self.known().is_some_and(|layout| layout.is_mirrored())
    }

    /// The layout by which the inode is known again.
    fn known(&self) -> Option<Arc<Layout>> {
        self.last().or_else(|| self.first())
    }

    /// The layout that came with the open.
    fn first(&self) -> Option<Arc<Layout>> {
        Layout::decode(self.sent.get()?).ok().map(Arc::new)
    }

    /// Whether a file with this layout can be the same.
    fn is_with(&self, layout: Option<&Bytes>) -> bool {
        if layout.is_some() && self.sent.get() == layout && !self.unsure.load(Relaxed) {
            return true;
        }
        let Some(known) = self.known() else { return true };
        let layout = layout.and_then(|bytes| Layout::decode(bytes).ok());
        layout.is_some_and(|layout| self.can_be(&known, &layout))
    }

    /// Whether the file whose layout was known can be one with this layout: what was asked before
    /// may be told later, and somebody may have moved it, but not after a restart of the MDT, which
    /// may have forgotten objects.
    fn can_be(&self, known: &Layout, layout: &Layout) -> bool {
        let other = || goes_on(layout, known) || known.generation() != layout.generation();
        goes_on(known, layout) || !self.unsure.load(Relaxed) && other()
    }

    /// What is known of the layout is to be asked for again.
    fn distrust(&self) {
        self.doubt(&mut self.place.write());
    }
}

/// Whether a file's layout can have become another one: objects have come, and none has gone, but
/// with their mirrors.
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

    /// Whether the kernel may read it through its page cache: opened for reading alone, and not
    /// past the caches. (A program that writes is served best directly; two that also keep what
    /// they write could wait for each other in the kernel.)
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

    /// The mirror that it is; 0: it is the file.
    pub(crate) fn mirror(&self) -> u16 {
        self.mirror.load(Relaxed) as u16
    }

    /// The generation of the layout as long as which that mirror may be written.
    pub(crate) fn mirror_generation(&self) -> u32 {
        (self.mirror.load(Relaxed) >> 32) as u32
    }

    pub(crate) fn set_mirror(&self, id: u16, generation: u32) {
        self.mirror.store(u64::from(generation) << 32 | u64::from(id), Relaxed);
    }

    /// ESTALE if the MDT has lost the file: its objects belong to nobody, so nothing may be written
    /// to them and nothing be promised.
    pub(crate) fn check_not_lost(&self) -> Result<()> {
        if self.lost.load(Relaxed) { Err(Errno::ESTALE) } else { Ok(()) }
    }

    /// Whether the MDT must be asked whether the layout is still the file's.
    pub(crate) fn is_unsure(&self) -> bool {
        self.inode.unsure.load(Relaxed)
    }

    /// What a restarted MDT says of the layout: whether it can have become that of the one known.
    /// The latter, if not.
    pub(crate) fn confirm(&self, layout: Option<&Bytes>) -> Option<Arc<Layout>> {
        let now = layout.and_then(|bytes| Layout::decode(bytes).ok());
        let known = self.inode.known().filter(|known| !now.as_ref().is_some_and(|now| goes_on(known, now)));
        if known.is_none() {
            let mut place = self.inode.place.write();
            if !matches!(&*place, Place::Settled(layout) if layout.is_plain()) {
                // Not unknown: what came with the open may be older than what was heard since.
                *place = now.map_or(Place::Unknown, |now| Place::Past(Arc::new(now)));
            }
            self.inode.unsure.store(false, Relaxed);
        }
        known
    }

    /// Of the layout known the OSTs say that the file has left it: it is to be asked for.
    pub(crate) fn confirm_moved(&self) {
        self.inode.distrust();
        self.inode.unsure.store(false, Relaxed);
    }

    /// The file's bytes lie in objects that are nobody's.
    pub(crate) fn lose(&self) {
        tracing::warn!("{} lost its layout in a restart of the MDT", self.fid);
        self.lost.store(true, Relaxed);
    }

    pub(crate) fn note_read(&self) {
        self.read.store(true, Relaxed);
    }

    /// Its close moves no access time, whatever was read through it: the mount or the open says so,
    /// or only a migration read.
    pub fn leave_atime(&self) {
        self.unread.store(true, Relaxed);
    }

    /// Its objects went over to another file: through this open file nothing is done any more.
    pub(crate) fn leave(&self) {
        self.lost.store(true, Relaxed);
    }

    pub(crate) fn note_write(&self) {
        self.wrote.store(true, Relaxed);
    }

    /// Notes a write that is about to be done. Whether it is a small one that goes on where a large
    /// one ended.
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
    /// For [`crate::Client::list`].
    pub(crate) listing: Arc<Listing>,
    /// For [`crate::Client::scan`].
    pub(crate) scan: Scan,
}

impl OpenDir {
    pub(crate) fn new(file: Arc<OpenFile>) -> Arc<OpenDir> {
        let listing = Listing::new(file.fid);
        Arc::new(OpenDir { file, listing, scan: Scan::default() })
    }

    /// Which directory.
    pub fn fid(&self) -> Fid {
        self.file.fid
    }
}

/// All open files, by file and order of opening. Bounded by the open files of the programs on the
/// mount.
#[derive(Default)]
pub(crate) struct OpenFiles {
    last_id: AtomicU64,
    files: Mutex<BTreeMap<(Fid, u64), Arc<OpenFile>>>,
}

impl OpenFiles {
    /// Takes a file in that the MDT has opened.
    pub(crate) fn insert(&self, attr: &Attr, layout: Option<Bytes>, flags: u32, handle: u64) -> Arc<OpenFile> {
        let mut files = self.files.lock();
        // An open from before a restart of the MDT may have another layout, which is not the file's
        // any more.
        let same = |inode: &Inode| inode.is_with(layout.as_ref());
        let inode = find(&files, attr.fid).map(|f| &f.inode).filter(|i| same(i)).cloned().unwrap_or_default();
        if let Some(layout) = layout {
            // Where it was known already it was the same, or one that became it.
            let _ = inode.sent.set(layout);
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
        let same = |inode: &Inode| match (inode.known(), &layout) {
            (None, _) => true,
            (Some(known), Some(layout)) => Arc::ptr_eq(&known, layout) || inode.can_be(&known, layout),
            (Some(_), None) => false,
        };
        let inode = find(&files, attr.fid).map(|f| &f.inode).filter(|i| same(i)).cloned().unwrap_or_default();
        // One that is not is looked for where it is known, when it is needed.
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

    /// Says of the inode of an open file what [`Inode::learn`] is told.
    pub(crate) fn learn(&self, fid: Fid, layout: &Arc<Layout>) {
        self.each(fid, |inode| inode.learn(layout));
    }

    /// As [`OpenFiles::learn`], with [`Inode::learn_past`].
    pub(crate) fn learn_past(&self, fid: Fid, layout: &Arc<Layout>) {
        self.each(fid, |inode| inode.learn_past(layout));
    }

    /// As [`OpenFiles::learn`], with [`Inode::outdate`].
    pub(crate) fn outdate(&self, fid: Fid) {
        self.each(fid, Inode::outdate);
    }

    /// Says of all of them [`Inode::distrust`].
    pub(crate) fn distrust(&self) {
        self.files.lock().values().for_each(|file| file.inode.distrust());
    }

    /// The layout of an open file, good or not.
    pub(crate) fn last_layout(&self, fid: Fid) -> Option<Arc<Layout>> {
        find(&self.files.lock(), fid)?.inode.last()
    }

    /// One of a file's open files.
    pub(crate) fn any(&self, fid: Fid) -> Option<Arc<OpenFile>> {
        find(&self.files.lock(), fid).cloned()
    }

    fn each(&self, fid: Fid, f: impl Fn(&Inode)) {
        self.files.lock().range((fid, 0)..=(fid, u64::MAX)).for_each(|(_, file)| f(&file.inode));
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
    /// Sees to it that the MDT is told of all open files when it has forgotten them, so that what
    /// is unlinked lives on for them, and of those that it does not know before their lock is given
    /// up.
    pub(crate) fn stay_open(self: &Arc<Self>, mdc: &Mdc, layouts: &Arc<Layouts>) {
        mdc.set_open_files(self, layouts);
        let (files, layouts, locks) = (self.clone(), layouts.clone(), mdc.locks().clone());
        mdc.import().on_restart(move |mdt| {
            // Before the files are looked through: one that is opened under a lock from now on is
            // known to be there.
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

    /// The MDT has opened these files. Returns how to close what is not needed: of files that were
    /// released meanwhile, and, unless it is `anew`, of those that it knows already.
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

#[cfg(test)]
mod tests {
    use sheen_layout::{Asked, Defaults, Spec, Stripe, Template, TemplateComponent, resolve_asked};
    use sheen_wire::fid::ROOT;

    use super::*;

    /// Of a file with one object, another one in each generation.
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
    fn what_came_with_the_open_is_not_believed_after_a_newer_layout() {
        let file = opened_with(1);
        assert_eq!((generation(file.inode.last()), generation(file.inode.known())), (None, Some(1)));
        file.inode.learn(&layout(2));
        assert_eq!(generation(file.inode.settled()), Some(2));
        // A late answer.
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
    fn what_came_with_the_open_is_not_believed_after_a_restarted_mdt_told_of_another_layout() {
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
        assert!(file.confirm(Some(&after.encode().into())).is_none(), "objects have come, none has gone");
        assert_eq!((generation(file.inode.last()), file.is_unsure()), (Some(after.generation()), false));
        // And it is not that one which the next MDT must know of, but this.
        file.inode.unsure.store(true, Relaxed);
        let known = file.confirm(Some(&before.encode().into()));
        assert_eq!(generation(known), Some(after.generation()), "objects have gone");
    }
}
