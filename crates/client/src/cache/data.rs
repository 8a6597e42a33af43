//! What the kernel keeps of files' data, under PR locks on their objects.
//!
//! The kernel's pages cannot be asked for one lock: they go all at once, per file. An invalidation
//! waits for pages that reads under way have locked. So a read that comes while a lock of its file
//! is being given up never waits for a new one: it is served *unlocked*, under the lock that is on
//! its way out, and the invalidation is done again until no read was served so since it began. To
//! let it come to an end reads that arrive meanwhile are held back for a moment ([`PATIENCE`]), and
//! the pages that they are to fill, in which there is nothing yet, are left out of it
//! ([`super::stalls`]).
//!
//! Pages may also be holes because the file has no objects there (yet): they are kept under the
//! lock on its LAYOUT, and go with it in the same way.
//!
//! A read that finds its file leaving its objects waits for just these locks to be given up, and
//! its pages are left out as well, also of an invalidation that had begun before: it is done by
//! another thread once more, without them.
//!
//! Two clients that write to pages which they also keep could wait for each other in the kernel,
//! out of reach of all this. So an invalidation that takes longer than [`INVALIDATE_MAX`] holds up
//! the lock no longer, and goes on by itself.

use std::{fmt, sync::Arc, time::Duration};

use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use sheen_rt::Rt;
use sheen_wire::{Fid, ldlm::Cookie};
use tokio::sync::Notify;

use super::stalls::Stalls;
use crate::{Invalidate, locks::LockRef};

/// How long a read waits for an invalidation to end, once: far more than dropping pages takes, also
/// on a busy machine. (With 2 ms, and pages that an invalidation had to wait for, two programs that
/// read all the time kept one from ending for half a second.)
pub const PATIENCE: Duration = Duration::from_millis(50);
/// Pause before an invalidation is done again.
const AGAIN_PAUSE: Duration = Duration::from_micros(500);
/// Longest that an invalidation holds up a lock. Well below the time after which a server gives up
/// a client.
#[cfg(not(test))]
const INVALIDATE_MAX: Duration = Duration::from_secs(2);
/// A unit test has threads of its own, which no busy machine holds up for so long.
#[cfg(test)]
const INVALIDATE_MAX: Duration = Duration::from_secs(120);
/// Times that an invalidation is done because reads went on meanwhile.
const ROUNDS_MAX: usize = 64;
/// Times that it is begun anew because further reads wait for it. Each time but the last leaves a
/// thread with the pages that the first of them waits for: as many as reads ahead that the kernel
/// has under way, and some.
const THREADS_MAX: usize = 8;

/// Files of whose objects locks are held or were asked for.
#[derive(Default)]
pub struct DataCache {
    state: Mutex<Files>,
}

#[derive(Default)]
struct Files {
    files: FxHashMap<Fid, Arc<FileData>>,
    /// Locked objects, and whose they are.
    objects: FxHashMap<Fid, Fid>,
}

/// A file's data.
pub struct FileData {
    fid: Fid,
    state: Mutex<State>,
    /// An invalidation began or ended.
    changed: Notify,
}

#[derive(Default)]
struct State {
    /// Objects that are locked.
    objects: FxHashSet<Fid>,
    /// Invalidations under way.
    flushing: u32,
    /// Reads for pages under way, and begun so far.
    reading: u32,
    begun: u64,
    /// Of these, those without a lock, and how many ended.
    unlocked: u32,
    served: u64,
    /// The kernel may have pages.
    pages: bool,
    /// Of these, some that are holes for want of objects.
    holes: bool,
    /// How much of objects there was, seen under a lock: as long as it is held there is no less,
    /// but by this client itself.
    seen: FxHashMap<Fid, (Cookie, u64)>,
    /// Cuts by this client itself: under way, and begun so far.
    cutting: u32,
    cuts: u64,
    /// Reads that wait for invalidations.
    stalls: Stalls,
}

/// The locks under which data was read, in use; and, for pages of the kernel, the reading itself.
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

    /// What was read are holes for want of objects, which is so under this lock.
    pub(crate) fn add_layout(&mut self, lock: LockRef) {
        if let Some(reading) = &self.reading {
            reading.file.state.lock().holes = true;
        }
        self.locks.push(lock);
    }

    /// Whether no lock is in use.
    pub(crate) fn is_empty(&self) -> bool {
        self.locks.is_empty()
    }

    /// The locks are not in use any more.
    pub(crate) fn release(&mut self) {
        self.locks.clear();
    }

    /// The reading for pages, if it is one that has its locks.
    pub(crate) fn reading(&mut self) -> Option<&mut Reading> {
        self.reading.as_mut().filter(|reading| !reading.unlocked)
    }
}

/// A read for the kernel's pages under way.
pub struct Reading {
    /// The file.
    pub file: Arc<FileData>,
    unlocked: bool,
}

impl Reading {
    /// Whether it goes on without a lock.
    pub fn is_unlocked(&self) -> bool {
        self.unlocked
    }

    /// It goes on without a lock.
    pub fn unlock(&mut self) {
        if !std::mem::replace(&mut self.unlocked, true) {
            self.file.state.lock().unlocked += 1;
        }
    }

    /// Goes on without a lock if an invalidation is under way.
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
        }
    }
}

/// A read for the kernel's pages that waits until its file is elsewhere, until this is dropped.
pub struct Stalled {
    file: Arc<FileData>,
    number: u64,
}

impl Drop for Stalled {
    fn drop(&mut self) {
        self.file.state.lock().stalls.end(self.number);
    }
}

/// This client cuts a file, until it is dropped: nothing that is seen meanwhile is remembered.
pub struct Cutting(Arc<FileData>);

impl Drop for Cutting {
    fn drop(&mut self) {
        self.0.state.lock().cutting -= 1;
    }
}

impl DataCache {
    /// A file, if something is known of it.
    pub fn get(&self, fid: Fid) -> Option<Arc<FileData>> {
        self.state.lock().files.get(&fid).cloned()
    }

    /// A read for the kernel's pages begins, of `len` bytes at `offset`.
    pub fn reading(&self, fid: Fid, offset: u64, len: u64) -> Reading {
        let mut files = self.state.lock();
        let file = files.file(fid);
        let mut state = file.state.lock();
        state.stalls.overtake(offset, offset.saturating_add(len));
        state.reading += 1;
        state.begun += 1;
        state.pages = true;
        drop(state);
        Reading { file, unlocked: false }
    }

    /// Such a read begins to wait until the file is elsewhere. No lock is in use for it.
    pub fn stall(&self, fid: Fid, offset: u64, len: u64) -> Stalled {
        let mut files = self.state.lock();
        let file = files.file(fid);
        let number = file.state.lock().stalls.begin(offset, offset.saturating_add(len));
        file.changed.notify_waiters();
        Stalled { file, number }
    }

    /// An object of a file is about to be locked.
    pub fn own(&self, object: Fid, fid: Fid) {
        let mut files = self.state.lock();
        if files.objects.insert(object, fid) != Some(fid) {
            files.file(fid).state.lock().objects.insert(object);
        }
    }

    /// Whose an object is.
    pub fn owner(&self, object: Fid) -> Option<Fid> {
        self.state.lock().objects.get(&object).copied()
    }

    /// Objects go over to another file, with the locks on them.
    pub fn hand_over(&self, objects: impl Iterator<Item = Fid>, fid: Fid) {
        for object in objects {
            if self.owner(object).is_some() {
                self.disown(object);
                self.own(object, fid);
            }
        }
    }

    /// An object is not locked any more.
    pub fn disown(&self, object: Fid) {
        let mut files = self.state.lock();
        let Some(fid) = files.objects.remove(&object) else { return };
        if let Some(file) = files.files.get(&fid).cloned() {
            let mut state = file.state.lock();
            state.objects.remove(&object);
            state.seen.remove(&object);
            drop(state);
            files.tidy(&file);
        }
    }

    /// Forgets a file of which there is nothing to know.
    pub fn tidy(&self, file: &Arc<FileData>) {
        self.state.lock().tidy(file);
    }
}

impl Files {
    fn file(&mut self, fid: Fid) -> Arc<FileData> {
        let new = || Arc::new(FileData { fid, state: Mutex::default(), changed: Notify::new() });
        self.files.entry(fid).or_insert_with(new).clone()
    }

    fn tidy(&mut self, file: &Arc<FileData>) {
        let state = file.state.lock();
        let is_idle = state.flushing == 0 && state.reading == 0 && state.stalls.is_empty();
        if state.objects.is_empty() && !state.holes && is_idle {
            self.files.remove(&file.fid);
        }
    }
}

/// Reads for the kernel's pages, at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reads {
    /// Under way.
    pub under_way: u32,
    begun: u64,
}

impl FileData {
    /// Reads at the moment.
    pub fn reads(&self) -> Reads {
        let state = self.state.lock();
        Reads { under_way: state.reading, begun: state.begun }
    }

    /// Whether the kernel may have pages.
    pub fn has_pages(&self) -> bool {
        self.state.lock().pages
    }

    /// Whether the kernel's pages are all under locks.
    pub fn is_guarded(&self) -> bool {
        let state = self.state.lock();
        state.flushing == 0 && state.unlocked == 0
    }

    /// Whether the kernel has pages that are holes for want of objects.
    pub fn has_holes(&self) -> bool {
        self.state.lock().holes
    }

    /// How much of an object there is at least if this lock is held still.
    pub fn seen(&self, object: Fid) -> Option<(Cookie, u64)> {
        self.state.lock().seen.get(&object).copied()
    }

    /// To be taken before an object is looked at; `None`: this client is cutting the file.
    pub fn cuts(&self) -> Option<u64> {
        let state = self.state.lock();
        (state.cutting == 0).then_some(state.cuts)
    }

    /// An object was seen to have `size` bytes, under a lock that was held before. `cuts`:
    /// [`FileData::cuts`] of before.
    pub fn see(&self, object: Fid, lock: Cookie, size: u64, cuts: u64) {
        let mut state = self.state.lock();
        // Of locked objects alone, which are forgotten with their locks.
        if state.cutting == 0 && state.cuts == cuts && state.objects.contains(&object) {
            state.seen.insert(object, (lock, size));
        }
    }

    /// This client begins to cut the file.
    pub fn cutting(self: &Arc<Self>) -> Cutting {
        let mut state = self.state.lock();
        state.cutting += 1;
        state.cuts += 1;
        state.seen.clear();
        drop(state);
        Cutting(self.clone())
    }

    /// Begins an invalidation, unless the kernel has no pages.
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

    /// Resolves when an invalidation begins; at once if one is under way.
    pub async fn flush_begins(&self) {
        self.until(|state| state.flushing > 0).await;
    }

    /// Resolves when no invalidation is under way.
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

    /// Drops the kernel's pages, as often as it takes. [`FileData::begin_flush`] comes first.
    pub async fn flush(self: Arc<Self>, rt: Rt, kernel: Option<Arc<dyn Invalidate>>) {
        let mut rounds = 0;
        while rounds < ROUNDS_MAX {
            rounds += 1;
            let served = self.state.lock().served;
            if let Some(kernel) = &kernel
                && rt.timeout(INVALIDATE_MAX, self.drop_pages(&rt, kernel)).await.is_err()
            {
                tracing::warn!("{}: the kernel takes long to drop pages; their lock is given up before", self.fid);
                break;
            }
            {
                let mut state = self.state.lock();
                if state.unlocked == 0 && state.served == served {
                    // Reads under way are under locks that are held, or have not got theirs yet.
                    state.pages = state.reading > 0;
                    state.holes &= state.pages;
                    // In the same step: who reads without a lock from now on must not count on it.
                    state.flushing -= 1;
                    drop(state);
                    self.changed.notify_waiters();
                    return;
                }
            }
            rt.sleep(AGAIN_PAUSE).await;
        }
        if rounds == ROUNDS_MAX {
            tracing::debug!("{}: reads do not pause; a lock may be given up before their pages are dropped", self.fid);
        }
        self.state.lock().flushing -= 1;
        self.changed.notify_waiters();
    }

    /// Drops the kernel's pages, once, but those that stalled reads are to fill.
    async fn drop_pages(&self, rt: &Rt, kernel: &Arc<dyn Invalidate>) {
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

    #[test]
    fn an_invalidation_is_done_again_until_no_read_went_on_without_a_lock() {
        let sim = Sim::new(1, SimConfig::default());
        let rt = sim.rt(1);
        let run = async {
            let (cache, kernel) = (DataCache::default(), Arc::new(Kernel::default()));
            let mut reading = cache.reading(FILE, 0, 4096);
            let file = cache.get(FILE).expect("it is read");
            assert!(!reading.unlock_if_flushing(), "nothing is under way");
            assert!(file.begin_flush());
            assert!(reading.unlock_if_flushing());
            let flush = rt.spawn("flush", file.clone().flush(rt.clone(), Some(kernel.clone())));
            rt.sleep(Duration::from_millis(5)).await;
            let rounds = kernel.0.load(Relaxed);
            assert!(rounds > 1 && !file.is_guarded(), "{rounds}");
            drop(reading);
            flush.await.expect("it ends");
            assert!(kernel.0.load(Relaxed) > rounds, "once more after the last read");
            assert!(file.is_guarded());
            assert!(!file.begin_flush(), "the kernel has no pages");
            cache.tidy(&file);
            assert!(cache.get(FILE).is_none());
        };
        sim.run(run).expect("the simulation ends");
    }

    #[test]
    fn an_invalidation_without_end_is_not_waited_for() {
        let sim = Sim::new(1, SimConfig::default());
        let rt = sim.rt(1);
        let run = async {
            let cache = DataCache::default();
            let mut reading = cache.reading(FILE, 0, 4096);
            reading.unlock();
            let file = cache.get(FILE).expect("it is read");
            assert!(file.begin_flush());
            let flush = file.clone().flush(rt.clone(), Some(Arc::new(Kernel::default())));
            rt.timeout(INVALIDATE_MAX, flush).await.expect("it gives up");
        };
        sim.run(run).expect("the simulation ends");
    }

    /// A kernel that has a page locked, and drops others.
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
    fn an_invalidation_does_not_wait_for_a_read_that_waits_for_it() {
        let (runtime, rt) = Rt::real(RealOptions { worker_threads: 2, ..RealOptions::default() }).expect("a runtime");
        let (asked, is_asked) = mpsc::channel();
        let (unlock, unlocked) = mpsc::channel();
        let kernel = Arc::new(Locked { asked, unlocked: Mutex::new(unlocked), parts: Mutex::default() });
        let cache = DataCache::default();
        let flush = |file: &Arc<FileData>| {
            assert!(file.begin_flush());
            rt.spawn("flush", file.clone().flush(rt.clone(), Some(kernel.clone())))
        };
        let ends = |flush: sheen_rt::JoinHandle<()>| {
            let ended = rt.block_on_thread(rt.timeout(INVALIDATE_MAX / 2, flush)).expect("a thread");
            ended.expect("nobody waits").expect("it ends");
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

        // One that begins later leaves them out at once; none does when somebody asks for them
        // anew.
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
