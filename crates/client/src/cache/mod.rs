//! What this client keeps under locks, and how it lets go of it.
//!
//! * `meta`: attributes, names, link targets, extended attributes, under inodebits locks of the
//!   MDT;
//! * `data`: the kernel's pages, and with them sizes, under extent locks of the OSTs;
//! * [`MdtLocks`], [`OstLocks`]: what stands behind the lock table of a target;
//! * [`Change`]: a change by this client itself, which its own locks do not hinder.
//!
//! No lock of the MDT is held in use while a request to the MDT is under way: the request may wait
//! for a change by another client, which waits for this lock.

pub mod data;
pub mod meta;
mod stalls;

use std::{
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use sheen_rpc::{BoxFuture, Import};
use sheen_rt::{Instant, Rt};
use sheen_wire::{
    Bulk, Errno, Fid, Mds, Ost,
    ldlm::{Kind, LockId, Policy, Resource, bits},
    mds, ost,
};

use crate::{
    Invalidate,
    closed::Closes,
    file::OpenFiles,
    layouts::{Layouts, is_settled},
    locks::{Flush, LockTable, Owner},
    mdc::Kept,
    writeback::Writeback,
};
pub use data::ReadRefs;
use data::{DataCache, FileData};
use meta::{Begun, Meta, Token};

/// How long nothing is put in after a change of which it is not known whether it was executed: its
/// request may still be on its way. As long as a request may live (the import's recovery timeout),
/// and some.
const UNSURE_FOR: Duration = Duration::from_secs(120);
/// How often an answer that is on its way to the kernel is looked after, and how long at most: a
/// thread that was answered takes the answer apart as soon as it runs.
const ATTR_PAUSE: Duration = Duration::from_millis(1);
const ATTR_WAIT_MAX: Duration = Duration::from_secs(2);
/// Files noted as contended.
const CONTENDED_MAX: std::num::NonZeroUsize = std::num::NonZeroUsize::new(4096).unwrap();
/// How often, and how many times, it is looked whether reads are over that began under locks lost
/// since.
const LOST_READS_POLL: Duration = Duration::from_millis(200);
const LOST_READS_POLLS: u32 = 150;
/// A lock that was asked for so soon after it was granted is not worth having for a while.
const CONTENDED_FOR: Duration = Duration::from_secs(1);

/// The caches of a mount.
pub struct Cache {
    rt: Rt,
    kernel: OnceLock<Arc<dyn Invalidate>>,
    pub(crate) meta: Mutex<Meta>,
    pub(crate) data: DataCache,
    /// Files whose locks were taken away soon, and until when they are left alone.
    contended: Mutex<lru::LruCache<Fid, (Instant, Instant), rustc_hash::FxBuildHasher>>,
    /// Until when nothing is put in.
    unsure_until: Mutex<Option<Instant>>,
    pub(crate) hits: Hits,
}

/// How often the caches were of use.
#[derive(Default)]
pub struct Hits {
    /// Attributes, with and without a request for the size.
    pub attr: AtomicU64,
    /// Names.
    pub name: AtomicU64,
    /// Names that are missing.
    pub absent: AtomicU64,
    /// Files opened.
    pub open: AtomicU64,
    /// Answers of the MDT to a lookup or getattr.
    pub miss: AtomicU64,
}

impl Hits {
    /// Counts.
    pub fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Relaxed);
    }

    /// Back to nothing.
    pub fn clear(&self) {
        [&self.attr, &self.name, &self.absent, &self.open, &self.miss].iter().for_each(|count| count.store(0, Relaxed));
    }

    /// For a parameter.
    pub fn render(&self) -> String {
        let get = |counter: &AtomicU64| counter.load(Relaxed);
        let (attr, name, absent) = (get(&self.attr), get(&self.name), get(&self.absent));
        let (open, miss) = (get(&self.open), get(&self.miss));
        format!("attr_hits {attr}\nname_hits {name}\nabsent_hits {absent}\nopen_hits {open}\nmisses {miss}\n")
    }
}

/// A change by this client under way. Dropped before its end it is not known whether it was done.
pub struct Change<'a> {
    cache: &'a Cache,
    begun: Option<Begun>,
    data: bool,
}

impl Cache {
    /// Nothing, of at most so many inodes.
    pub fn new(rt: &Rt, inodes_max: usize) -> Arc<Cache> {
        Arc::new(Cache {
            rt: rt.clone(),
            kernel: OnceLock::new(),
            meta: Mutex::new(Meta::new(inodes_max)),
            data: DataCache::default(),
            contended: Mutex::new(lru::LruCache::with_hasher(CONTENDED_MAX, rustc_hash::FxBuildHasher)),
            unsure_until: Mutex::new(None),
            hits: Hits::default(),
        })
    }

    /// Who else caches; once.
    pub fn set_kernel(&self, kernel: Arc<dyn Invalidate>) {
        if self.kernel.set(kernel).is_err() {
            tracing::error!("a mount has one kernel; the second is not told of changes");
        }
    }

    /// Who else caches.
    pub fn kernel(&self) -> Option<&Arc<dyn Invalidate>> {
        self.kernel.get()
    }

    /// To be taken before something is asked for that is to be put in. `None`: nothing is put in at
    /// present.
    pub fn token(&self) -> Option<Token> {
        let mut until = self.unsure_until.lock();
        if let Some(at) = *until {
            if self.rt.now() < at {
                return None;
            }
            *until = None;
        }
        drop(until);
        Some(self.meta.lock().token())
    }

    /// Begins a change of these inodes; `data`: of what is in their objects alone.
    pub fn change(&self, fids: &[Fid], data: bool) -> Change<'_> {
        let begun = self.meta.lock().begin(fids);
        Change { cache: self, begun: Some(begun), data }
    }

    /// As [`Cache::change`], of a directory into which a name is put, and of what gets it.
    pub fn change_adding(&self, dir: Fid, name: &Bytes, also: Option<Fid>) -> Change<'_> {
        let change = match also {
            Some(fid) => self.change(&[fid, dir], false),
            None => self.change(&[dir], false),
        };
        // From here on nobody learns that the directory is empty ([`Meta::put_empty`]); whoever did
        // before has it noted.
        self.adds(dir, name);
        change
    }

    /// Begins a change that takes away or replaces names in directories. What is behind them
    /// changes, too (links, times), under locks that the MDT does not call back; which inodes those
    /// are its answer says, as what is believed here need not be so any more.
    pub fn change_names(&self, names: &[(Fid, &Bytes)]) -> Change<'_> {
        let dirs: Vec<Fid> = names.iter().map(|(dir, _)| *dir).collect();
        let change = self.change(&dirs, false);
        // Until the change has ended none is put in.
        let mut meta = self.meta.lock();
        names.iter().for_each(|(dir, name)| meta.drop_name(*dir, name));
        change
    }

    /// This client is about to put a name into a directory.
    pub fn adds(&self, dir: Fid, name: &Bytes) {
        self.meta.lock().adds(dir, name);
    }

    /// It is not known what becomes of a change: drops everything, and keeps nothing for a while.
    fn unsure(&self) {
        *self.unsure_until.lock() = Some(self.rt.now() + UNSURE_FOR);
        self.meta.lock().clear();
    }

    /// Drops everything that is known of inodes.
    pub fn clear_meta(&self) {
        self.meta.lock().clear();
    }

    /// Whether the locks of a file are not worth asking for at the moment.
    pub fn is_contended(&self, fid: Fid) -> bool {
        let now = self.rt.now();
        self.contended.lock().peek(&fid).is_some_and(|(_, until)| now < *until)
    }

    /// A file got locks.
    pub fn locked(&self, fid: Fid) {
        let now = self.rt.now();
        let mut contended = self.contended.lock();
        contended.get_or_insert_mut(fid, || (now, now)).0 = now;
    }

    /// Locks of a file were asked for.
    fn taken_away(&self, fid: Fid) {
        let now = self.rt.now();
        if let Some((locked, until)) = self.contended.lock().get_mut(&fid)
            && now.since(*locked) < CONTENDED_FOR
        {
            *until = now + CONTENDED_FOR;
        }
    }

    /// Drops the kernel's pages of a file, unless it has none.
    pub fn flush_pages(&self, file: &Arc<FileData>) -> Option<BoxFuture<'static, ()>> {
        if !file.begin_flush() {
            return None;
        }
        Some(Box::pin(file.clone().flush(self.rt.clone(), self.kernel().cloned())))
    }

    /// As [`Cache::flush_pages`], unless none of them is a hole for want of objects.
    pub fn flush_holes(&self, file: &Arc<FileData>) -> Option<BoxFuture<'static, ()>> {
        if file.has_holes() { self.flush_pages(file) } else { None }
    }

    /// The attributes of a file that were kept with its objects' are to be asked for again. As
    /// [`Cache::drop_attr`].
    fn drop_sizes(&self, fid: Fid) -> Option<BoxFuture<'static, ()>> {
        self.meta.lock().unmerge(fid);
        self.drop_attr(fid)
    }

    /// Has the kernel ask for a file's attributes again. What is returned is over when it does: an
    /// answer that has them may be on its way.
    pub fn drop_attr(&self, fid: Fid) -> Option<BoxFuture<'static, ()>> {
        let kernel = self.kernel().filter(|kernel| !kernel.attr(fid))?.clone();
        let rt = self.rt.clone();
        Some(Box::pin(async move {
            let until = rt.now() + ATTR_WAIT_MAX;
            while !kernel.attr(fid) {
                if rt.now() >= until {
                    tracing::warn!("{fid}: the kernel takes long to take an answer apart");
                    break;
                }
                rt.sleep(ATTR_PAUSE).await;
            }
        }))
    }

    /// As [`Cache::drop_attr`], for who cannot wait: it goes on by itself.
    pub fn begin_drop_attr(&self, fid: Fid) {
        self.go_on(self.drop_attr(fid));
    }

    fn go_on(&self, dropped: Option<BoxFuture<'static, ()>>) {
        if let Some(dropped) = dropped {
            drop(self.rt.spawn("ldlm_invalidate", dropped));
        }
    }
}

impl Change<'_> {
    /// It is done, or refused: what it changed is dropped. The token is for what its answer says.
    pub fn end<T>(self, answer: &Result<T, Errno>) -> Option<Token> {
        self.ended(answer.as_ref().err(), &[])
    }

    /// As [`Change::end`], of a change whose answer says what else it changed.
    pub fn end_told(self, answer: &Result<Kept, Errno>) -> Option<Token> {
        match answer {
            Ok(kept) => self.ended(None, &kept.touched),
            Err(errno) => self.ended(Some(errno), &[]),
        }
    }

    fn ended(mut self, errno: Option<&Errno>, also: &[Fid]) -> Option<Token> {
        let begun = self.begun.take()?;
        let token = self.cache.meta.lock().end(&begun, self.data, also);
        if matches!(errno, Some(&(Errno::ETIMEDOUT | Errno::ESHUTDOWN))) {
            self.cache.unsure();
        }
        self.cache.token().map(|_| token)
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        if let Some(begun) = self.begun.take() {
            self.cache.meta.lock().end(&begun, self.data, &[]);
            self.cache.unsure();
        }
    }
}

/// Behind the locks of the MDT.
pub struct MdtLocks {
    cache: Arc<Cache>,
    import: Weak<Import<Mds>>,
    opened: OnceLock<(Arc<OpenFiles>, Arc<Layouts>)>,
    closes: OnceLock<Weak<Closes>>,
}

impl MdtLocks {
    /// For the MDT behind this import.
    pub fn new(cache: &Arc<Cache>, import: &Arc<Import<Mds>>) -> Arc<MdtLocks> {
        let (opened, closes) = (OnceLock::new(), OnceLock::new());
        Arc::new(MdtLocks { cache: cache.clone(), import: Arc::downgrade(import), opened, closes })
    }

    /// Says which files are open, and which layouts are kept; once.
    pub fn set_open_files(&self, files: Arc<OpenFiles>, layouts: Arc<Layouts>) {
        // A second one would be a mistake of this crate; the first stays.
        let _ = self.opened.set((files, layouts));
    }

    /// Says which closes wait; once.
    pub fn set_closes(&self, closes: Weak<Closes>) {
        // As above.
        let _ = self.closes.set(closes);
    }

    /// Where LAYOUT of a file goes, handles of it that wait to be given back are.
    fn tell_closes(&self, flush: &Flush) -> Option<BoxFuture<'static, ()>> {
        if flush.bits() & bits::LAYOUT == 0 {
            return None;
        }
        self.closes.get()?.upgrade()?.give_back(flush.resource.fid)
    }

    /// Where OPEN of a file goes, the MDT must know of what is open of it under that lock alone.
    /// Should it not be told, it does not know this client any more.
    fn tell_opens(&self, flush: &Flush) -> Option<BoxFuture<'static, ()>> {
        if flush.bits() & bits::OPEN == 0 {
            return None;
        }
        let (fid, told) = (flush.resource.fid, self.opened.get()?.0.register(&self.import, flush.resource.fid)?);
        Some(Box::pin(async move {
            if let Err(errno) = told.await {
                tracing::debug!("{fid} is open, which the MDT was not told: {errno}");
            }
        }))
    }
}

impl MdtLocks {
    /// Where LAYOUT of a file goes, others may give it objects where there are none now, or
    /// mirrors. The kernel's pages go that are holes for want of objects or of a mirror; and all of
    /// an open file of whose layout nobody thought that it could change. Who reads them meanwhile
    /// still reads by the layout of before, for the MDT hears only afterwards.
    fn drop_layout(&self, flush: &Flush) -> Option<BoxFuture<'static, ()>> {
        if flush.bits() & bits::LAYOUT == 0 || flush.gone {
            return None;
        }
        let ((files, layouts), fid) = (self.opened.get()?, flush.resource.fid);
        layouts.forget(fid);
        let data = self.cache.data.get(fid);
        let settled = files.last_layout(fid).is_some_and(|layout| is_settled(&layout));
        let flush =
            |data: &Arc<FileData>| if settled { self.cache.flush_pages(data) } else { self.cache.flush_holes(data) };
        let Some((data, dropped)) = data.and_then(|data| Some((data.clone(), flush(&data)?))) else {
            files.outdate(fid);
            return None;
        };
        let (files, cache) = (files.clone(), self.cache.clone());
        Some(Box::pin(async move {
            dropped.await;
            files.outdate(fid);
            cache.data.tidy(&data);
        }))
    }
}

/// What is over when both are.
fn both(one: Option<BoxFuture<'static, ()>>, other: Option<BoxFuture<'static, ()>>) -> Option<BoxFuture<'static, ()>> {
    match (one, other) {
        (Some(one), Some(other)) => Some(Box::pin(async move {
            tokio::join!(one, other);
        })),
        (one, other) => one.or(other),
    }
}

impl Owner for MdtLocks {
    fn drop_cached(&self, flushes: &[Flush]) -> Vec<Option<BoxFuture<'static, ()>>> {
        {
            let mut meta = self.cache.meta.lock();
            flushes.iter().for_each(|flush| meta.drop_bits(flush.resource.fid, flush.bits()));
        }
        let known = |flush: &&Flush| flush.bits() != 0 && !flush.gone;
        if let Some(kernel) = self.cache.kernel() {
            let lookup = |flush: &Flush| flush.bits() & bits::LOOKUP != 0;
            if kernel.keeps_names() && flushes.iter().filter(known).any(lookup) {
                kernel.names();
            }
        }
        let waits = |flush: &Flush| {
            let attr = if known(&flush) { self.cache.drop_attr(flush.resource.fid) } else { None };
            both(both(attr, self.tell_closes(flush)), both(self.tell_opens(flush), self.drop_layout(flush)))
        };
        flushes.iter().map(waits).collect()
    }

    fn forgotten(&self, resources: &[Resource]) {
        self.cache.clear_meta();
        if let Some(kernel) = self.cache.kernel() {
            if kernel.keeps_names() && !resources.is_empty() {
                kernel.names();
            }
            resources.iter().for_each(|resource| self.cache.begin_drop_attr(resource.fid));
        }
        let Some((files, layouts)) = self.opened.get() else { return };
        for fid in resources.iter().filter(|resource| resource.kind == Kind::Bits).map(|resource| resource.fid) {
            files.outdate(fid);
            layouts.forget(fid);
            if let Some(data) = self.cache.data.get(fid).filter(|data| data.has_holes()) {
                // As with those of an OST.
                drop(self.cache.rt.spawn("ldlm_invalidate", drop_lost_pages(self.cache.clone(), data)));
            }
        }
    }

    fn cancel(&self, ids: Vec<LockId>, converts: Vec<(LockId, u64)>) -> BoxFuture<'static, ()> {
        let import = self.import.upgrade();
        Box::pin(async move {
            let Some(import) = import else { return };
            let call = mds::Call { cancels: ids, converts, ..mds::Request::Cancel.into() };
            // Should it fail, the MDT does not know this client any more.
            let _ = import.call_urgent(call, Bulk::new()).await;
        })
    }
}

/// Behind the locks of an OST.
pub struct OstLocks {
    cache: Arc<Cache>,
    import: Weak<Import<Ost>>,
    table: Weak<LockTable>,
    writeback: Arc<Writeback>,
}

impl OstLocks {
    /// For the OST behind this import.
    pub fn new(
        cache: &Arc<Cache>,
        import: &Arc<Import<Ost>>,
        table: &Arc<LockTable>,
        writeback: &Arc<Writeback>,
    ) -> Arc<OstLocks> {
        let (import, table) = (Arc::downgrade(import), Arc::downgrade(table));
        Arc::new(OstLocks { cache: cache.clone(), import, table, writeback: writeback.clone() })
    }

    /// One object's lock goes.
    fn drop_object(&self, resource: Resource) -> Option<BoxFuture<'static, ()>> {
        let fid = self.cache.data.owner(resource.fid)?;
        let sizes = self.cache.drop_sizes(fid);
        self.cache.taken_away(fid);
        let file = self.cache.data.get(fid);
        let waits = file.as_ref().and_then(|file| self.cache.flush_pages(file));
        let all = Policy::extent(0, u64::MAX);
        if !self.table.upgrade().is_some_and(|table| table.covered(resource, &all)) {
            self.cache.data.disown(resource.fid);
        }
        let Some((file, waits)) = file.zip(waits) else { return sizes };
        let cache = self.cache.clone();
        let dropped: BoxFuture<'static, ()> = Box::pin(async move {
            waits.await;
            cache.data.tidy(&file);
        });
        both(sizes, Some(dropped))
    }
}

impl Owner for OstLocks {
    fn drop_cached(&self, flushes: &[Flush]) -> Vec<Option<BoxFuture<'static, ()>>> {
        let drop_one = |flush: &Flush| {
            // What was written is written back while the kernel drops what was read.
            let written = self.writeback.flush_later(flush.resource.fid, flush.policy.range());
            // Sizes and pages are kept under locks on all of an object alone.
            let whole = flush.policy.contains(&Policy::extent(0, u64::MAX));
            let dropped = if whole { self.drop_object(flush.resource) } else { None };
            both(written, dropped)
        };
        flushes.iter().map(drop_one).collect()
    }

    fn doomed(&self, resource: Resource) {
        self.writeback.discard(resource.fid);
    }

    fn glimpsed(&self, id: LockId, resource: Resource) -> BoxFuture<'static, ()> {
        let (import, answers) = (self.import.upgrade(), vec![(id, self.writeback.attr(resource.fid))]);
        Box::pin(async move {
            let Some(import) = import else { return };
            // Should it fail, the OST asks again.
            let _ = import.call_urgent(ost::Request::Glimpsed { answers }, Bulk::new()).await;
        })
    }

    fn forgotten(&self, resources: &[Resource]) {
        let mut told = FxHashSet::default();
        for resource in resources.iter().filter(|r| r.kind == Kind::Extent) {
            let Some(fid) = self.cache.data.owner(resource.fid) else { continue };
            if told.insert(fid) {
                self.cache.go_on(self.cache.drop_sizes(fid));
                if let Some(file) = self.cache.data.get(fid) {
                    // On a task: the kernel may wait for reads that wait for this target.
                    drop(self.cache.rt.spawn("ldlm_invalidate", drop_lost_pages(self.cache.clone(), file)));
                }
            }
            self.cache.data.disown(resource.fid);
        }
    }

    // There is nothing to convert: no bits.
    fn cancel(&self, ids: Vec<LockId>, _: Vec<(LockId, u64)>) -> BoxFuture<'static, ()> {
        let import = self.import.upgrade();
        Box::pin(async move {
            let Some(import) = import else { return };
            // As with the MDT.
            let _ = import.call_urgent(ost::Request::Cancel { locks: ids }, Bulk::new()).await;
        })
    }
}

/// Drops the kernel's pages of a file whose locks are lost; once more when the reads are over that
/// took them to be there.
async fn drop_lost_pages(cache: Arc<Cache>, file: Arc<FileData>) {
    if let Some(waits) = cache.flush_pages(&file) {
        waits.await;
    }
    for _ in 0..LOST_READS_POLLS {
        if file.reads().under_way == 0 {
            break;
        }
        cache.rt.sleep(LOST_READS_POLL).await;
    }
    if let Some(waits) = cache.flush_pages(&file) {
        waits.await;
    }
    cache.data.tidy(&file);
}
