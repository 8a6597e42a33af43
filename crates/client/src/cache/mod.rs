//! The client's caches, and how they are emptied when locks are cancelled.
//!
//! * `meta`: attributes, names, link targets and extended attributes, under inodebits locks of the
//!   MDT;
//! * `data`: the kernel's pages and the file sizes, under extent locks of the OSTs;
//! * [`MdtLocks`], [`OstLocks`]: owners of the lock tables of the MDT and of an OST;
//! * [`Change`]: a change by this client itself, which its own locks do not stop.
//!
//! No MDT lock is in use while a request to the MDT is in flight. The request may wait for a change
//! by another client, and that change waits for this lock.

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

/// How long nothing is cached after a change with unknown outcome, whose request may still be in
/// transit. Somewhat longer than a request may live (the import's recovery timeout).
const UNSURE_FOR: Duration = Duration::from_secs(120);
/// Poll interval, and maximum wait, for a reply that is in transit to the kernel. The kernel thread
/// processes its reply as soon as it runs.
const ATTR_PAUSE: Duration = Duration::from_millis(1);
const ATTR_WAIT_MAX: Duration = Duration::from_secs(2);
/// Maximum number of files noted as contended.
const CONTENDED_MAX: std::num::NonZeroUsize = std::num::NonZeroUsize::new(4096).unwrap();
/// Poll interval, and maximum number of polls, for the end of the reads that began under lost
/// locks.
const LOST_READS_POLL: Duration = Duration::from_millis(200);
const LOST_READS_POLLS: u32 = 150;
/// Time limit for contention. A file whose lock was revoked this soon after the grant is contended;
/// the client requests no further locks on it for the same time.
const CONTENDED_FOR: Duration = Duration::from_secs(1);

/// The caches of a mount.
pub struct Cache {
    rt: Rt,
    kernel: OnceLock<Arc<dyn Invalidate>>,
    pub(crate) meta: Mutex<Meta>,
    pub(crate) data: DataCache,
    /// Contended files: time of the last grant, and end of the time without lock requests.
    contended: Mutex<lru::LruCache<Fid, (Instant, Instant), rustc_hash::FxBuildHasher>>,
    /// Time until which nothing is cached.
    unsure_until: Mutex<Option<Instant>>,
    pub(crate) hits: Hits,
}

/// Hit counters of the caches.
#[derive(Default)]
pub struct Hits {
    /// Attributes: complete, or with only the size missing.
    pub attr: AtomicU64,
    /// Names found.
    pub name: AtomicU64,
    /// Names known to be absent.
    pub absent: AtomicU64,
    /// Files opened without a request.
    pub open: AtomicU64,
    /// Replies of the MDT to lookup or getattr.
    pub miss: AtomicU64,
}

impl Hits {
    /// Increments a counter.
    pub fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Relaxed);
    }

    /// Resets all counters.
    pub fn clear(&self) {
        [&self.attr, &self.name, &self.absent, &self.open, &self.miss].iter().for_each(|count| count.store(0, Relaxed));
    }

    /// Returns the text of the parameter.
    pub fn render(&self) -> String {
        let get = |counter: &AtomicU64| counter.load(Relaxed);
        let (attr, name, absent) = (get(&self.attr), get(&self.name), get(&self.absent));
        let (open, miss) = (get(&self.open), get(&self.miss));
        format!("attr_hits {attr}\nname_hits {name}\nabsent_hits {absent}\nopen_hits {open}\nmisses {miss}\n")
    }
}

/// A change by this client, in progress. If it is dropped before its end, its outcome is unknown.
pub struct Change<'a> {
    cache: &'a Cache,
    begun: Option<Begun>,
    data: bool,
}

impl Cache {
    /// Creates empty caches for at most `inodes_max` inodes.
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

    /// Sets the kernel, whose caches are to be invalidated; call it once.
    pub fn set_kernel(&self, kernel: Arc<dyn Invalidate>) {
        if self.kernel.set(kernel).is_err() {
            tracing::error!("a mount can have only one kernel: ignored a second one, which is not invalidated");
        }
    }

    /// Returns the kernel whose caches are invalidated.
    pub fn kernel(&self) -> Option<&Arc<dyn Invalidate>> {
        self.kernel.get()
    }

    /// Returns a token to cache the reply of a request. Take it before the request is sent. `None`:
    /// nothing may be cached at present.
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

    /// Begins a change of these inodes. `data`: the change affects only the data in their objects.
    pub fn change(&self, fids: &[Fid], data: bool) -> Change<'_> {
        let begun = self.meta.lock().begin(fids);
        Change { cache: self, begun: Some(begun), data }
    }

    /// Begins a change that adds a name to a directory. `also`: the existing inode that gets the
    /// name.
    pub fn change_adding(&self, dir: Fid, name: &Bytes, also: Option<Fid>) -> Change<'_> {
        let change = match also {
            Some(fid) => self.change(&[fid, dir], false),
            None => self.change(&[dir], false),
        };
        // After the change has begun, `Meta::put_empty` stores nothing. If the directory was marked
        // as empty before, `adds` notes the name.
        self.adds(dir, name);
        change
    }

    /// Begins a change that removes or replaces names in directories. It also changes the inodes
    /// behind the names (link counts, times), whose locks the MDT does not revoke. The reply lists
    /// these inodes, because the cached names may be outdated.
    pub fn change_names(&self, names: &[(Fid, &Bytes)]) -> Change<'_> {
        let dirs: Vec<Fid> = names.iter().map(|(dir, _)| *dir).collect();
        let change = self.change(&dirs, false);
        // No name is cached again until the change has ended.
        let mut meta = self.meta.lock();
        names.iter().for_each(|(dir, name)| meta.drop_name(*dir, name));
        change
    }

    /// Notes that this client is about to add a name to a directory.
    pub fn adds(&self, dir: Fid, name: &Bytes) {
        self.meta.lock().adds(dir, name);
    }

    /// Handles a change with unknown outcome: drops all metadata, and caches nothing for a while.
    fn unsure(&self) {
        *self.unsure_until.lock() = Some(self.rt.now() + UNSURE_FOR);
        self.meta.lock().clear();
    }

    /// Drops all cached metadata.
    pub fn clear_meta(&self) {
        self.meta.lock().clear();
    }

    /// Whether the file is contended, so that locks on it are not worth a request now.
    pub fn is_contended(&self, fid: Fid) -> bool {
        let now = self.rt.now();
        self.contended.lock().peek(&fid).is_some_and(|(_, until)| now < *until)
    }

    /// Notes that a lock of a file was granted.
    pub fn locked(&self, fid: Fid) {
        let now = self.rt.now();
        let mut contended = self.contended.lock();
        contended.get_or_insert_mut(fid, || (now, now)).0 = now;
    }

    /// Notes that a lock of a file was revoked.
    fn taken_away(&self, fid: Fid) {
        let now = self.rt.now();
        if let Some((locked, until)) = self.contended.lock().get_mut(&fid)
            && now.since(*locked) < CONTENDED_FOR
        {
            *until = now + CONTENDED_FOR;
        }
    }

    /// Drops the kernel's pages of a file, unless it has none. Returns the invalidation to await.
    pub fn flush_pages(&self, file: &Arc<FileData>) -> Option<BoxFuture<'static, ()>> {
        if !file.begin_flush() {
            return None;
        }
        Some(Box::pin(file.clone().flush(self.rt.clone(), self.kernel().cloned())))
    }

    /// Drops the kernel's pages of a file like [`Cache::flush_pages`], if some are cached under the
    /// LAYOUT lock.
    pub fn flush_holes(&self, file: &Arc<FileData>) -> Option<BoxFuture<'static, ()>> {
        if file.has_holes() { self.flush_pages(file) } else { None }
    }

    /// Drops the merged attributes of a file, which include those of its objects, and invalidates
    /// the kernel's as [`Cache::drop_attr`] does.
    fn drop_sizes(&self, fid: Fid) -> Option<BoxFuture<'static, ()>> {
        self.meta.lock().unmerge(fid);
        self.drop_attr(fid)
    }

    /// Invalidates a file's attributes in the kernel. Returns a future if a reply with these
    /// attributes may still be in transit to the kernel; it repeats the invalidation until it
    /// succeeds.
    pub fn drop_attr(&self, fid: Fid) -> Option<BoxFuture<'static, ()>> {
        let kernel = self.kernel().filter(|kernel| !kernel.attr(fid))?.clone();
        let rt = self.rt.clone();
        Some(Box::pin(async move {
            let until = rt.now() + ATTR_WAIT_MAX;
            while !kernel.attr(fid) {
                if rt.now() >= until {
                    tracing::warn!("{fid}: the kernel did not process a reply in time: its attributes may be outdated");
                    break;
                }
                rt.sleep(ATTR_PAUSE).await;
            }
        }))
    }

    /// Invalidates a file's attributes like [`Cache::drop_attr`], in the background.
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
    /// Ends the change after its reply, and drops what it changed. Returns a token to cache the
    /// reply.
    pub fn end<T>(self, answer: &Result<T, Errno>) -> Option<Token> {
        self.ended(answer.as_ref().err(), &[])
    }

    /// Ends the change like [`Change::end`], with a reply that lists further changed inodes.
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

/// Owner of the MDT's lock table.
pub struct MdtLocks {
    cache: Arc<Cache>,
    import: Weak<Import<Mds>>,
    opened: OnceLock<(Arc<OpenFiles>, Arc<Layouts>)>,
    closes: OnceLock<Weak<Closes>>,
}

impl MdtLocks {
    /// Creates the owner for the MDT behind this import.
    pub fn new(cache: &Arc<Cache>, import: &Arc<Import<Mds>>) -> Arc<MdtLocks> {
        let (opened, closes) = (OnceLock::new(), OnceLock::new());
        Arc::new(MdtLocks { cache: cache.clone(), import: Arc::downgrade(import), opened, closes })
    }

    /// Sets the tables of open files and of cached layouts; call it once.
    pub fn set_open_files(&self, files: Arc<OpenFiles>, layouts: Arc<Layouts>) {
        // A second call would be a bug in this crate; the first value stays.
        let _ = self.opened.set((files, layouts));
    }

    /// Sets the queue of pending closes; call it once.
    pub fn set_closes(&self, closes: Weak<Closes>) {
        // As above.
        let _ = self.closes.set(closes);
    }

    /// Before LAYOUT is cancelled: sends the pending closes of the file's handles.
    fn tell_closes(&self, flush: &Flush) -> Option<BoxFuture<'static, ()>> {
        if flush.bits() & bits::LAYOUT == 0 {
            return None;
        }
        self.closes.get()?.upgrade()?.give_back(flush.resource.fid)
    }

    /// Before OPEN is cancelled: registers the file at the MDT if it is open only under this lock.
    /// If that fails, the MDT has dropped this client.
    fn tell_opens(&self, flush: &Flush) -> Option<BoxFuture<'static, ()>> {
        if flush.bits() & bits::OPEN == 0 {
            return None;
        }
        let (fid, told) = (flush.resource.fid, self.opened.get()?.0.register(&self.import, flush.resource.fid)?);
        Some(Box::pin(async move {
            if let Err(errno) = told.await {
                tracing::debug!("{fid}: cannot register the open file at the MDT: {errno}");
            }
        }))
    }
}

impl MdtLocks {
    /// Before LAYOUT is cancelled: drops what it guards. Afterwards another client may give the
    /// file mirrors, or objects where it has none now. So the kernel's pages under this lock are
    /// dropped (holes without objects, pages of mirrored files). If the file is open and its layout
    /// is settled, all its pages are dropped. Until then, reads use the old layout; the MDT gets
    /// the cancel only afterwards.
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

/// Combines two futures into one that ends when both have ended.
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
                // On a task, as in `OstLocks`.
                drop(self.cache.rt.spawn("ldlm_invalidate", drop_lost_pages(self.cache.clone(), data)));
            }
        }
    }

    fn cancel(&self, ids: Vec<LockId>, converts: Vec<(LockId, u64)>) -> BoxFuture<'static, ()> {
        let import = self.import.upgrade();
        Box::pin(async move {
            let Some(import) = import else { return };
            let call = mds::Call { cancels: ids, converts, ..mds::Request::Cancel.into() };
            // If the request fails, the MDT has dropped this client and its locks.
            let _ = import.call_urgent(call, Bulk::new()).await;
        })
    }
}

/// Owner of an OST's lock table.
pub struct OstLocks {
    cache: Arc<Cache>,
    import: Weak<Import<Ost>>,
    table: Weak<LockTable>,
    writeback: Arc<Writeback>,
}

impl OstLocks {
    /// Creates the owner for the OST behind this import.
    pub fn new(
        cache: &Arc<Cache>,
        import: &Arc<Import<Ost>>,
        table: &Arc<LockTable>,
        writeback: &Arc<Writeback>,
    ) -> Arc<OstLocks> {
        let (import, table) = (Arc::downgrade(import), Arc::downgrade(table));
        Arc::new(OstLocks { cache: cache.clone(), import, table, writeback: writeback.clone() })
    }

    /// Drops the size and the pages that a lock on a whole object guards.
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
            // Flush dirty data while the kernel drops its pages.
            let written = self.writeback.flush_later(flush.resource.fid, flush.policy.range());
            // Sizes and pages are cached only under locks on whole objects.
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
            // If the request fails, the OST repeats the glimpse.
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
                    // On a task: the kernel may wait for reads that wait for this OST.
                    drop(self.cache.rt.spawn("ldlm_invalidate", drop_lost_pages(self.cache.clone(), file)));
                }
            }
            self.cache.data.disown(resource.fid);
        }
    }

    // Extent locks have no bits, so there are no converts.
    fn cancel(&self, ids: Vec<LockId>, _: Vec<(LockId, u64)>) -> BoxFuture<'static, ()> {
        let import = self.import.upgrade();
        Box::pin(async move {
            let Some(import) = import else { return };
            // If the request fails, the OST has dropped this client and its locks.
            let _ = import.call_urgent(ost::Request::Cancel { locks: ids }, Bulk::new()).await;
        })
    }
}

/// Drops the kernel's pages of a file whose locks were lost. Repeats it after the end of the reads
/// that began under these locks.
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
