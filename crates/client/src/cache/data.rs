//! The kernel's cached pages of files, guarded by PR locks on their objects.
//!
//! **Invalidation**: the kernel cannot tell which lock guards a page, so an invalidation drops all
//! pages of a file. It waits for pages that reads in flight have locked. So a read that arrives
//! while a lock of its file is being cancelled must not wait for a new lock. It is served
//! *unlocked*, that is, under the lock that is being cancelled. The invalidation is repeated until
//! no read was served unlocked since it began. Two measures let it end: reads that arrive meanwhile
//! are delayed by up to [`PATIENCE`], and an invalidation leaves out the pages that delayed reads
//! are to fill ([`super::stalls`]). Those pages have no content yet.
//!
//! **Holes**: some pages are holes because the file has no objects there (yet). They are cached
//! under the LAYOUT lock of the file, and are dropped with it in the same way.
//!
//! **Sealed objects**: a read that meets a sealed object waits until this client has cancelled its
//! locks on the file's other objects. Its pages are left out as well. If an invalidation was
//! already running, another thread repeats it without these pages.
//!
//! **Lost locks**: programs may have stored into pages under locks that an eviction has dropped.
//! Other clients may have written the same bytes since. So the writes of such pages fail until the
//! kernel has dropped them all ([`FileData::discards_page`]). The kernel then reports EIO at
//! msync(2) and fsync(2). A lock that is being cancelled may be lost as well, before its pages are
//! written. So each such invalidation is registered with the OST of the locks ([`Losing`]).
//!
//! Two clients that write pages which they also cache could wait for each other in the kernel,
//! where this module has no control. So an invalidation that takes longer than [`INVALIDATE_MAX`]
//! no longer delays the cancel of the lock, and continues in the background.

use std::{fmt, sync::Arc, time::Duration};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use sheen_rpc::BoxFuture;
use sheen_rt::Rt;
use sheen_wire::Fid;
use tokio::sync::Notify;

use super::stalls::Stalls;
use crate::{invalidate::Invalidate, locks::LockRef, lov::LockedObjects};

/// How long a read waits, once, for an invalidation to end. Much longer than dropping pages takes,
/// even on a busy machine. With 2 ms, two programs that read all the time delayed the end of an
/// invalidation by half a second.
pub const PATIENCE: Duration = Duration::from_millis(50);
/// Pause before an invalidation is repeated.
const AGAIN_PAUSE: Duration = Duration::from_micros(500);
/// How long an invalidation delays the cancel of a lock at most. Well below the time after which a
/// server evicts a client.
#[cfg(not(test))]
const INVALIDATE_MAX: Duration = Duration::from_secs(2);
/// Unit tests run on threads of their own; no busy machine delays them for this long.
#[cfg(test)]
const INVALIDATE_MAX: Duration = Duration::from_secs(120);
/// Maximum number of times that an invalidation is repeated because of concurrent reads.
const ROUNDS_MAX: usize = 64;
/// Maximum number of threads for one invalidation. Each further stalled read starts it again on a
/// new thread, and leaves the previous thread waiting for the pages of that read. Somewhat more
/// than the number of concurrent readahead requests of the kernel.
const THREADS_MAX: usize = 8;

/// The files of which the kernel may have pages.
pub struct DataCache {
    files: Mutex<FxHashMap<Fid, Arc<FileData>>>,
    objects: Arc<LockedObjects>,
}

/// Cache state of a file's data.
pub struct FileData {
    fid: Fid,
    state: Mutex<State>,
    /// Signals that an invalidation began or ended, that a read stalled, or that an unlocked read
    /// ended.
    changed: Notify,
}

#[derive(Default)]
struct State {
    /// Number of running invalidations.
    flushing: u32,
    /// Number of reads into pages: in flight, and begun so far.
    reading: u32,
    begun: u64,
    /// Number of unlocked reads: in flight, and ended so far.
    unlocked: u32,
    served: u64,
    /// Whether the kernel may have pages.
    pages: bool,
    /// Whether some of these pages are cached under the LAYOUT lock, such as holes without objects.
    holes: bool,
    /// Invalidations of pages whose locks are lost, or will be, in order of their numbers.
    losing: Vec<Loss>,
    /// Number of such invalidations begun so far.
    losses: u64,
    /// Whether one of these has discarded pages that programs stored into.
    discarded: bool,
    /// Reads that wait for invalidations or for a new layout.
    stalls: Stalls,
}

/// An invalidation of pages whose locks are lost, or will be.
struct Loss {
    number: u64,
    /// Index of the OST of the locks. `None`: they are locks of the MDT.
    ost: Option<u32>,
    /// Whether pages that programs stored into are discarded.
    discards: bool,
}

impl State {
    fn discards(&self) -> bool {
        self.losing.iter().any(|loss| loss.discards)
    }
}

/// References to the locks under which data was read; for pages of the kernel, also the registered
/// read.
#[derive(Default)]
pub struct ReadRefs {
    locks: Vec<LockRef>,
    reading: Option<Reading>,
}

impl fmt::Debug for ReadRefs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReadRefs({} locks)", self.locks.len())
    }
}

impl ReadRefs {
    pub(crate) fn new(locks: Vec<LockRef>, reading: Reading) -> ReadRefs {
        ReadRefs { locks, reading: Some(reading) }
    }

    /// Adds the LAYOUT lock under which the pages are cached (holes without objects).
    pub(crate) fn add_layout(&mut self, lock: LockRef) {
        if let Some(reading) = &self.reading {
            reading.file.state.lock().holes = true;
        }
        self.locks.push(lock);
    }

    /// Whether no lock is referenced.
    pub(crate) fn is_empty(&self) -> bool {
        self.locks.is_empty()
    }

    /// Drops the references to the locks.
    pub(crate) fn release(&mut self) {
        self.locks.clear();
    }

    /// Returns the registered read into pages, unless it is unlocked.
    pub(crate) fn reading(&mut self) -> Option<&mut Reading> {
        self.reading.as_mut().filter(|reading| !reading.unlocked)
    }
}

/// A read into the kernel's pages, in flight.
pub struct Reading {
    /// The file.
    pub file: Arc<FileData>,
    unlocked: bool,
}

impl Reading {
    /// Whether the read is served unlocked.
    pub fn is_unlocked(&self) -> bool {
        self.unlocked
    }

    /// Marks the read as unlocked.
    pub fn unlock(&mut self) {
        if !std::mem::replace(&mut self.unlocked, true) {
            self.file.state.lock().unlocked += 1;
        }
    }

    /// Marks the read as unlocked if an invalidation is running. Returns whether it is unlocked.
    pub fn unlock_if_flushing(&mut self) -> bool {
        let mut state = self.file.state.lock();
        if state.flushing > 0 && !std::mem::replace(&mut self.unlocked, true) {
            state.unlocked += 1;
        }
        self.unlocked
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let mut state = self.file.state.lock();
        state.reading -= 1;
        if self.unlocked {
            state.unlocked -= 1;
            state.served += 1;
            drop(state);
            self.file.changed.notify_waiters();
        }
    }
}

/// An invalidation of pages whose locks are lost, or will be, until it is dropped. Drop it once the
/// kernel has dropped the pages.
pub struct Losing {
    /// The file.
    pub file: Arc<FileData>,
    number: u64,
}

impl Losing {
    /// Whether pages that programs stored into are discarded, because their OST has evicted this
    /// client.
    pub fn discards(&self) -> bool {
        self.file.state.lock().losing.iter().any(|loss| loss.number == self.number && loss.discards)
    }
}

impl Drop for Losing {
    fn drop(&mut self) {
        let mut state = self.file.state.lock();
        state.losing.retain(|loss| loss.number != self.number);
        let discards = state.discards();
        state.discarded &= discards;
    }
}

/// A stalled read into the kernel's pages. Dropping it ends the stall.
pub struct Stalled {
    file: Arc<FileData>,
    number: u64,
}

impl Drop for Stalled {
    fn drop(&mut self) {
        self.file.state.lock().stalls.end(self.number);
    }
}

impl DataCache {
    /// Creates an empty cache of data under locks on `objects`.
    pub fn new(objects: &Arc<LockedObjects>) -> DataCache {
        DataCache { files: Mutex::default(), objects: objects.clone() }
    }

    /// Returns the state of a file, if there is any.
    pub fn get(&self, fid: Fid) -> Option<Arc<FileData>> {
        self.files.lock().get(&fid).cloned()
    }

    /// Registers a read of `len` bytes at `offset` into the kernel's pages.
    pub fn reading(&self, fid: Fid, offset: u64, len: u64) -> Reading {
        let mut files = self.files.lock();
        let file = entry(&mut files, fid);
        let mut state = file.state.lock();
        state.stalls.overtake(offset, offset.saturating_add(len));
        state.reading += 1;
        state.begun += 1;
        state.pages = true;
        drop(state);
        Reading { file, unlocked: false }
    }

    /// Marks a read into pages as stalled. The caller must not have a lock in use.
    pub fn stall(&self, fid: Fid, offset: u64, len: u64) -> Stalled {
        let mut files = self.files.lock();
        let file = entry(&mut files, fid);
        let number = file.state.lock().stalls.begin(offset, offset.saturating_add(len));
        file.changed.notify_waiters();
        Stalled { file, number }
    }

    /// Whether all pages that the kernel may have of a file are guarded by locks. False if nothing
    /// is known of the file.
    pub fn is_guarded(&self, fid: Fid) -> bool {
        self.get(fid).map_or_else(|| self.objects.has_any(fid), |file| file.is_guarded())
    }

    /// Discards what programs have stored into pages of the files whose locks of this OST were lost
    /// ([`FileData::lose`]): other clients may have written since.
    pub fn discard_stored(&self, ost: u32) {
        for file in self.files.lock().values() {
            let mut state = file.state.lock();
            state.losing.iter_mut().filter(|loss| loss.ost == Some(ost)).for_each(|loss| loss.discards = true);
        }
    }

    /// Removes the state of a file if it holds no information.
    pub fn tidy(&self, fid: Fid) {
        let mut files = self.files.lock();
        let Some(file) = files.get(&fid) else { return };
        let state = file.state.lock();
        let is_idle = state.flushing == 0 && state.reading == 0 && state.losing.is_empty() && state.stalls.is_empty();
        let is_spare = is_idle && !state.holes && !self.objects.has_any(fid);
        drop(state);
        if is_spare {
            files.remove(&fid);
        }
    }
}

fn entry(files: &mut FxHashMap<Fid, Arc<FileData>>, fid: Fid) -> Arc<FileData> {
    let new = || Arc::new(FileData { fid, state: Mutex::default(), changed: Notify::new() });
    files.entry(fid).or_insert_with(new).clone()
}

/// Numbers of reads into the kernel's pages, at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reads {
    /// In flight.
    pub under_way: u32,
    begun: u64,
}

/// How an invalidation ended.
pub enum Flushed {
    /// All pages that no lock guards are dropped.
    Complete,
    /// Reads do not pause. Unlocked ones may still fill pages, which must be dropped once these
    /// reads have ended ([`FileData::unlocked_reads_end`]).
    Unlocked,
    /// The kernel has not dropped the pages in time. The future resolves when it has.
    Blocked(BoxFuture<'static, ()>),
}

/// The reads of a file at the begin of a round of an invalidation.
#[derive(Clone, Copy)]
struct Round {
    served: u64,
    begun: u64,
    /// Whether none was in flight.
    is_quiet: bool,
}

impl FileData {
    /// Returns the file.
    pub fn fid(&self) -> Fid {
        self.fid
    }

    /// Returns the present numbers of reads.
    pub fn reads(&self) -> Reads {
        let state = self.state.lock();
        Reads { under_way: state.reading, begun: state.begun }
    }

    /// Whether the kernel may have pages.
    pub fn has_pages(&self) -> bool {
        self.state.lock().pages
    }

    /// Whether all pages of the kernel are guarded by locks.
    pub fn is_guarded(&self) -> bool {
        let state = self.state.lock();
        state.flushing == 0 && state.unlocked == 0
    }

    /// Whether the kernel has pages that are cached under the LAYOUT lock.
    pub fn has_holes(&self) -> bool {
        self.state.lock().holes
    }

    /// Registers the invalidation of pages whose locks of this OST are lost, or will be. `None`:
    /// the locks are those of the MDT, whose loss discards no pages.
    pub fn lose(self: &Arc<Self>, ost: Option<u32>) -> Losing {
        let mut state = self.state.lock();
        let number = state.losses;
        state.losses += 1;
        state.losing.push(Loss { number, ost, discards: false });
        Losing { file: self.clone(), number }
    }

    /// Whether a page that the kernel writes back is discarded, because a program may have stored
    /// into it under a lost lock. The first one after the loss is logged.
    pub fn discards_page(&self) -> bool {
        let mut state = self.state.lock();
        let discards = state.discards();
        if discards && !std::mem::replace(&mut state.discarded, true) {
            tracing::error!(
                "{}: evicted by an OST: discarded stores of programs through mappings; msync and fsync return EIO",
                self.fid
            );
        }
        discards
    }

    /// Begins an invalidation. Returns `false` if the kernel has no pages.
    pub fn begin_flush(&self) -> bool {
        let mut state = self.state.lock();
        if !state.pages {
            return false;
        }
        state.flushing += 1;
        drop(state);
        self.changed.notify_waiters();
        true
    }

    /// Resolves when an invalidation is running.
    pub async fn flush_begins(&self) {
        self.until(|state| state.flushing > 0).await;
    }

    /// Resolves when no invalidation is running.
    pub async fn flush_ends(&self) {
        self.until(|state| state.flushing == 0).await;
    }

    async fn until(&self, is: impl Fn(&State) -> bool) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if is(&self.state.lock()) {
                return;
            }
            changed.await;
        }
    }

    /// Drops the kernel's pages, repeatedly if necessary. Call [`FileData::begin_flush`] first.
    pub async fn flush(self: &Arc<FileData>, rt: &Rt, kernel: Option<&Arc<dyn Invalidate>>) -> Flushed {
        for _ in 0..ROUNDS_MAX {
            let before = self.round();
            if let Some(kernel) = kernel {
                let mut dropping = Box::pin(self.clone().drop_pages(rt.clone(), kernel.clone()));
                if rt.timeout(INVALIDATE_MAX, dropping.as_mut()).await.is_err() {
                    tracing::warn!(
                        "{}: the kernel did not drop the pages in time: cancelling their lock now",
                        self.fid
                    );
                    self.end_early();
                    return Flushed::Blocked(dropping);
                }
            }
            if self.end_round(before) {
                return Flushed::Complete;
            }
            rt.sleep(AGAIN_PAUSE).await;
        }
        tracing::debug!("{}: reads do not pause: a lock may be cancelled before their pages are dropped", self.fid);
        self.end_early();
        Flushed::Unlocked
    }

    fn end_early(&self) {
        self.state.lock().flushing -= 1;
        self.changed.notify_waiters();
    }

    /// Resolves when no unlocked read is in flight.
    pub async fn unlocked_reads_end(&self) {
        self.until(|state| state.unlocked == 0).await;
    }

    /// Returns the state of the reads at the begin of a round of an invalidation.
    fn round(&self) -> Round {
        let state = self.state.lock();
        Round { served: state.served, begun: state.begun, is_quiet: state.reading == 0 }
    }

    /// Ends an invalidation, unless a read was unlocked since `before`, the begin of the round.
    /// Returns whether it ended.
    fn end_round(&self, before: Round) -> bool {
        let mut state = self.state.lock();
        if state.unlocked > 0 || state.served != before.served {
            return false;
        }
        // A read under locks may have filled pages after the kernel dropped them.
        state.pages = !before.is_quiet || state.begun != before.begun;
        state.holes &= state.pages;
        // In the same critical section: a read that goes unlocked from now on must not rely on this
        // invalidation.
        state.flushing -= 1;
        drop(state);
        self.changed.notify_waiters();
        true
    }

    /// Drops the kernel's pages once, except those that stalled reads are to fill.
    async fn drop_pages(self: Arc<FileData>, rt: Rt, kernel: Arc<dyn Invalidate>) {
        let mut threads = 0;
        loop {
            threads += 1;
            let (stalls, others) = {
                let state = self.state.lock();
                (state.stalls.begun(), state.stalls.others())
            };
            let (kernel, fid) = (kernel.clone(), self.fid);
            let dropping = rt.run_blocking(move || match others[..] {
                [(0, u64::MAX)] => kernel.data(fid),
                _ => others.iter().for_each(|(start, end)| kernel.part(fid, *start, *end)),
            });
            tokio::select! {
                biased;
                () = dropping => return,
                () = self.until(|state| state.stalls.begun() != stalls), if threads < THREADS_MAX => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        atomic::{AtomicU32, Ordering::Relaxed},
        mpsc,
    };

    use sheen_rt::{
        RealOptions,
        sim::{Sim, SimConfig},
    };

    use super::*;

    const FILE: Fid = Fid::new(0x2_0000_0401, 1);

    fn cache(rt: &Rt) -> DataCache {
        DataCache::new(&Arc::new(LockedObjects::new(rt)))
    }

    #[derive(Default)]
    struct Kernel(AtomicU32);

    impl Invalidate for Kernel {
        fn names(&self) {}
        fn attr(&self, _: Fid) -> bool {
            true
        }
        fn data(&self, _: Fid) {
            self.0.fetch_add(1, Relaxed);
        }
        fn part(&self, _: Fid, _: u64, _: u64) {}
        fn keeps_names(&self) -> bool {
            true
        }
    }

    /// Starts an invalidation. The task returns whether it was complete.
    fn spawn_flush(rt: &Rt, file: &Arc<FileData>, kernel: Arc<dyn Invalidate>) -> sheen_rt::JoinHandle<bool> {
        let (file, rt) = (file.clone(), rt.clone());
        rt.clone().spawn("flush", async move { is_complete(file.flush(&rt, Some(&kernel)).await) })
    }

    fn is_complete(flushed: Flushed) -> bool {
        matches!(flushed, Flushed::Complete)
    }

    #[test]
    fn invalidation_repeats_until_no_read_was_unlocked() {
        let sim = Sim::new(1, SimConfig::default());
        let rt = sim.rt(1);
        let run = async {
            let (cache, kernel) = (cache(&rt), Arc::new(Kernel::default()));
            let mut reading = cache.reading(FILE, 0, 4096);
            let file = cache.get(FILE).expect("it is read");
            assert!(!reading.unlock_if_flushing(), "nothing is under way");
            assert!(file.begin_flush());
            assert!(reading.unlock_if_flushing());
            let flush = spawn_flush(&rt, &file, kernel.clone());
            rt.sleep(Duration::from_millis(5)).await;
            let rounds = kernel.0.load(Relaxed);
            assert!(rounds > 1 && !file.is_guarded(), "{rounds}");
            drop(reading);
            assert!(flush.await.expect("no panic"), "it ends");
            assert!(kernel.0.load(Relaxed) > rounds, "once more after the last read");
            assert!(file.is_guarded());
            assert!(!file.begin_flush(), "the kernel has no pages");
            cache.tidy(FILE);
            assert!(cache.get(FILE).is_none());
        };
        sim.run(run).expect("the simulation ends");
    }

    #[test]
    fn invalidation_ends_after_its_maximum_of_rounds() {
        let sim = Sim::new(1, SimConfig::default());
        let rt = sim.rt(1);
        let run = async {
            let cache = cache(&rt);
            let mut reading = cache.reading(FILE, 0, 4096);
            reading.unlock();
            let file = cache.get(FILE).expect("it is read");
            assert!(file.begin_flush());
            let (kernel, patience) = (Arc::new(Kernel::default()), INVALIDATE_MAX);
            let flush = spawn_flush(&rt, &file, kernel.clone());
            let ended = rt.timeout(patience, flush).await.expect("it ends after its last round");
            assert!(!ended.expect("no panic"), "a read is still unlocked");
            let ends = rt.spawn("ends", {
                let file = file.clone();
                async move { file.unlocked_reads_end().await }
            });
            rt.sleep(Duration::from_millis(5)).await;
            assert!(!ends.is_finished(), "the read is in flight");
            drop(reading);
            ends.await.expect("the read has ended");
            assert!(file.begin_flush(), "the kernel has the pages of that read");
            assert!(spawn_flush(&rt, &file, kernel).await.expect("no panic"));
            assert!(!file.begin_flush());
        };
        sim.run(run).expect("the simulation ends");
    }

    /// A kernel in which a read under locks fills a page after the pages were dropped.
    struct ReadDuringDrop(Arc<DataCache>, AtomicU32);

    impl Invalidate for ReadDuringDrop {
        fn names(&self) {}
        fn attr(&self, _: Fid) -> bool {
            true
        }
        fn data(&self, fid: Fid) {
            if self.1.fetch_add(1, Relaxed) == 0 {
                drop(self.0.reading(fid, 0, 4096));
            }
        }
        fn part(&self, _: Fid, _: u64, _: u64) {}
        fn keeps_names(&self) -> bool {
            true
        }
    }

    #[test]
    fn page_read_during_invalidation_is_dropped_by_the_next_one() {
        let sim = Sim::new(1, SimConfig::default());
        let rt = sim.rt(1);
        let run = async {
            let cache = Arc::new(cache(&rt));
            drop(cache.reading(FILE, 0, 4096));
            let file = cache.get(FILE).expect("it is read");
            let kernel: Arc<dyn Invalidate> = Arc::new(ReadDuringDrop(cache.clone(), AtomicU32::new(0)));
            assert!(file.begin_flush());
            assert!(is_complete(file.flush(&rt, Some(&kernel)).await));
            assert!(file.begin_flush(), "the kernel has the page that was read during the invalidation");
            assert!(is_complete(file.flush(&rt, Some(&kernel)).await));
            assert!(!file.begin_flush(), "the kernel has no pages");
            // A read that was stalled at the begin is filled after its pages were left out.
            let reading = cache.reading(FILE, 0, 4096);
            assert!(file.begin_flush());
            let before = file.round();
            drop(reading);
            assert!(file.end_round(before));
            assert!(file.begin_flush(), "the kernel has the page of the stalled read");
        };
        sim.run(run).expect("the simulation ends");
    }

    #[test]
    fn pages_are_discarded_while_the_invalidation_after_an_eviction_runs() {
        let sim = Sim::new(1, SimConfig::default());
        let cache = cache(&sim.rt(1));
        drop(cache.reading(FILE, 0, 4096));
        let file = cache.get(FILE).expect("it is read");
        cache.discard_stored(0);
        assert!(!file.discards_page(), "no lock was lost");
        let (first, second) = (file.lose(Some(0)), file.lose(Some(0)));
        let (other, layout) = (file.lose(Some(1)), file.lose(None));
        assert!(!file.discards_page(), "a restarted OST waits for this client");
        cache.discard_stored(2);
        assert!(!file.discards_page(), "that OST had no locks on the file");
        cache.discard_stored(0);
        cache.tidy(FILE);
        assert!(cache.get(FILE).is_some() && first.discards() && file.discards_page());
        drop(first);
        assert!(file.discards_page());
        drop(second);
        assert!(!file.discards_page(), "the other invalidations are after losses without evictions");
        drop((other, layout));
        cache.tidy(FILE);
        assert!(cache.get(FILE).is_none());
    }

    /// A kernel that has one page locked, and drops other pages.
    struct Locked {
        asked: mpsc::Sender<()>,
        unlocked: Mutex<mpsc::Receiver<()>>,
        parts: Mutex<Vec<(u64, u64)>>,
    }

    impl Invalidate for Locked {
        fn names(&self) {}
        fn attr(&self, _: Fid) -> bool {
            true
        }
        fn data(&self, _: Fid) {
            self.asked.send(()).expect("the test waits");
            // Also where the test has failed.
            let _ = self.unlocked.lock().recv();
        }
        fn part(&self, _: Fid, start: u64, end: u64) {
            self.parts.lock().push((start, end));
        }
        fn keeps_names(&self) -> bool {
            true
        }
    }

    #[test]
    fn invalidation_does_not_wait_for_stalled_read() {
        let (runtime, rt) = Rt::real(RealOptions { worker_threads: 2, ..RealOptions::default() }).expect("a runtime");
        let (asked, is_asked) = mpsc::channel();
        let (unlock, unlocked) = mpsc::channel();
        let kernel = Arc::new(Locked { asked, unlocked: Mutex::new(unlocked), parts: Mutex::default() });
        let cache = cache(&rt);
        let flush = |file: &Arc<FileData>| {
            assert!(file.begin_flush());
            spawn_flush(&rt, file, kernel.clone())
        };
        let ends = |flush: sheen_rt::JoinHandle<bool>| {
            let ended = rt.block_on_thread(rt.timeout(INVALIDATE_MAX / 2, flush)).expect("a thread");
            assert!(ended.expect("nobody waits").expect("no panic"), "it ends");
        };
        drop(cache.reading(FILE, 8192, 4096));
        let file = cache.get(FILE).expect("it is read");
        let under_way = flush(&file);
        is_asked.recv().expect("it is under way");
        let stalled = cache.stall(FILE, 8192, 4096);
        ends(under_way);
        let others = [(0, 8192), (12288, u64::MAX)];
        assert_eq!(std::mem::take(&mut *kernel.parts.lock()), others);
        assert!(file.is_guarded());

        // A later invalidation leaves the stalled pages out at once. It does not if another read
        // asks for them.
        let other = cache.reading(FILE, 0, 4096);
        ends(flush(&file));
        assert_eq!(std::mem::take(&mut *kernel.parts.lock()), others);
        let again = cache.reading(FILE, 8192, 4096);
        let waiting = flush(&file);
        is_asked.recv().expect("it waits for the page");
        drop((other, again, stalled));
        unlock.send(()).expect("the first waits");
        unlock.send(()).expect("the second waits");
        ends(waiting);
        assert!(kernel.parts.lock().is_empty() && file.is_guarded());
        drop(unlock);
        runtime.shutdown(INVALIDATE_MAX);
    }
}
