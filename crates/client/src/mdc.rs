//! The MDT as a client sees it (Lustre's mdc): its import, the names for new files, and the second
//! try where the MDT needs to know the caller's groups.
//!
//! Invariants: a FID is handed out once; a new sequence is asked for while half of the present one
//! is left, so creating a file does not wait for one.

use std::{
    fmt,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use sheen_rpc::{Import, RPCS_IN_FLIGHT_LIMIT, Slots};
use sheen_rt::Rt;
use sheen_wire::{
    Attr, Bulk, Cred, Errno, Fid, Mds, Result, StatFs,
    fid::SEQ_WIDTH,
    ldlm::{Cookie, LockId},
    mds::{Answer, Beginning, Call, Entry, Reply, Request},
};

use crate::{
    cache::{Cache, MdtLocks},
    closed::Closes,
    file::OpenFiles,
    layouts::Layouts,
    locks::{LockRef, LockTable},
    types::{Caller, GroupSource},
};

/// Most cancels that travel with a request: few enough not to be noticed.
const CANCELS_PER_CALL: usize = 64;

/// Changes under way at a time at first (Lustre's).
const MOD_RPCS_IN_FLIGHT: usize = 7;
/// Fewest requests of any kind: one change and one that only asks.
pub const MDC_RPCS_IN_FLIGHT_MIN: usize = 2;

/// The MDT.
pub struct Mdc {
    rt: Rt,
    name: String,
    import: Arc<Import<Mds>>,
    /// Of the import's slots those that requests that change something may take: always fewer, so
    /// that who only asks gets through.
    modifying: Slots,
    /// Held while either of the limits is changed.
    limits: Mutex<()>,
    locks: Arc<LockTable>,
    /// Behind the locks, which know it weakly.
    owner: Arc<MdtLocks>,
    groups: Arc<dyn GroupSource>,
    space: Mutex<StatFs>,
    sequence: Mutex<Sequence>,
    /// Held while a sequence is asked for in the foreground.
    fetching: tokio::sync::Mutex<()>,
}

/// An answer with the locks that came with it.
#[derive(Debug)]
pub struct Kept {
    /// The answer.
    pub reply: Reply,
    /// Locks on inodes in it.
    pub locks: Vec<(Fid, LockRef)>,
    /// Inodes that the request made go. Whoever made it gives up the locks on them
    /// ([`LockTable::gone`]) when it has dropped the names.
    pub gone: Vec<Fid>,
    /// The directory in which it made or removed an entry, as it is since.
    pub dir: Option<Attr>,
    /// The inodes that it changed, where it took names away.
    pub touched: Vec<Fid>,
    /// What the MDT's data service has of the file, with the bytes.
    pub beginning: Option<(Beginning, Bulk)>,
}

/// What is said of locks with a request.
#[derive(Clone, Copy, Default)]
struct Locking<'a> {
    /// Inodes in the answer of which locks are to come.
    count: u64,
    /// Locks of which these bits are kept.
    converts: &'a [(LockId, u64)],
    /// The handle of a lock at the MDT's data service.
    beginning: Option<Cookie>,
}

/// Names that may be handed out.
#[derive(Default)]
struct Sequence {
    seq: u64,
    /// Ids handed out so far; [`SEQ_WIDTH`] when there are none left.
    used: u32,
    spare: Option<u64>,
    prefetching: bool,
}

impl Sequence {
    const EMPTY: Sequence = Sequence { seq: 0, used: SEQ_WIDTH, spare: None, prefetching: false };

    /// The next name, and whether it is time to ask for another sequence.
    fn next(&mut self) -> Option<(Fid, bool)> {
        if self.used >= SEQ_WIDTH {
            self.seq = self.spare.take()?;
            self.used = 0;
        }
        self.used += 1;
        let ask = self.used > SEQ_WIDTH / 2 && self.spare.is_none() && !self.prefetching;
        self.prefetching |= ask;
        Some((Fid::new(self.seq, self.used), ask))
    }
}

impl fmt::Debug for Mdc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Mdc").field(&self.name).finish()
    }
}

impl Mdc {
    /// An MDT behind an import. `name`: `sheen-MDT0000-mdc-ff3298de21e05800`.
    pub fn new(
        rt: Rt,
        name: String,
        import: Arc<Import<Mds>>,
        groups: Arc<dyn GroupSource>,
        cache: &Arc<Cache>,
    ) -> Mdc {
        let (space, sequence) = (Mutex::default(), Mutex::new(Sequence::EMPTY));
        let locks = LockTable::new(&rt, true);
        let owner = MdtLocks::new(cache, &import);
        let weak: Weak<MdtLocks> = Arc::downgrade(&owner);
        locks.set_owner(weak);
        let called = Arc::downgrade(&locks);
        import.on_callback(move |callback| {
            if let Some(locks) = called.upgrade() {
                locks.called_back(callback);
            }
        });
        let fetching = tokio::sync::Mutex::new(());
        let modifying = Slots::new(MOD_RPCS_IN_FLIGHT.min(import.max_rpcs_in_flight() - 1).max(1));
        Mdc { rt, name, import, modifying, limits: Mutex::default(), locks, owner, groups, space, sequence, fetching }
    }

    /// This client's locks.
    pub fn locks(&self) -> &Arc<LockTable> {
        &self.locks
    }

    /// Says which files are open, and which layouts are kept; once.
    pub fn set_open_files(&self, files: &Arc<OpenFiles>, layouts: &Arc<Layouts>) {
        self.owner.set_open_files(files.clone(), layouts.clone());
    }

    /// Says which closes wait; once.
    pub fn set_closes(&self, closes: &Arc<Closes>) {
        self.owner.set_closes(Arc::downgrade(closes));
    }

    /// Name of the device.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The connection.
    pub fn import(&self) -> &Arc<Import<Mds>> {
        &self.import
    }

    /// Most requests under way at a time that change something.
    pub fn max_mod_rpcs_in_flight(&self) -> usize {
        self.modifying.limit()
    }

    /// Changes it, and allows one request more of any kind where there would not be one more.
    ///
    /// # Errors
    /// ERANGE unless there can be one more.
    pub fn set_max_mod_rpcs_in_flight(&self, n: usize) -> Result<()> {
        let _one = self.limits.lock();
        if !(1..RPCS_IN_FLIGHT_LIMIT).contains(&n) {
            return Err(Errno::ERANGE);
        }
        if n >= self.import.max_rpcs_in_flight() {
            self.import.set_max_rpcs_in_flight(n + 1)?;
        }
        self.modifying.set_limit(n);
        Ok(())
    }

    /// Changes how many requests of any kind may be under way at a time, and lowers how many of
    /// them may change something where that is no fewer.
    ///
    /// # Errors
    /// ERANGE unless [`MDC_RPCS_IN_FLIGHT_MIN`] to [`RPCS_IN_FLIGHT_LIMIT`].
    pub fn set_max_rpcs_in_flight(&self, n: usize) -> Result<()> {
        let _one = self.limits.lock();
        if n < MDC_RPCS_IN_FLIGHT_MIN {
            return Err(Errno::ERANGE);
        }
        self.import.set_max_rpcs_in_flight(n)?;
        if n <= self.modifying.limit() {
            self.modifying.set_limit(n - 1);
        }
        Ok(())
    }

    /// Whether it can carry requests, for `lfs check`: ENOTCONN while there is no connection.
    pub fn state(&self) -> Result<()> {
        crate::osc::import_state(&self.import)
    }

    /// The space last heard of; zeros before.
    pub fn space(&self) -> StatFs {
        *self.space.lock()
    }

    /// Keeps in mind what was just heard of the space.
    pub fn note_space(&self, space: StatFs) {
        *self.space.lock() = space;
    }

    /// Sends a request that does not depend on who asks.
    pub async fn call(&self, request: Request) -> Result<Reply> {
        Ok(self.call_keeping(request, 0).await?.reply)
    }

    /// As [`Mdc::call`], for an answer about up to `count` inodes that is to be kept. The locks
    /// that come with it are in use until they are dropped: that must be before anything is waited
    /// for.
    pub async fn call_keeping(&self, request: Request, count: u64) -> Result<Kept> {
        self.send(request, Locking { count, ..Locking::default() }).await
    }

    async fn send(&self, request: Request, Locking { count, converts, beginning }: Locking<'_>) -> Result<Kept> {
        let _modifying = match request.modifies() {
            true => Some(self.modifying.acquire().await?),
            false => None,
        };
        let keeping = (count > 0).then(|| self.locks.keep(count));
        let cancels = self.locks.take_cancels(CANCELS_PER_CALL);
        let keep = keeping.as_ref().map(|k| k.cookie());
        let call = Call { request, keep, beginning, cancels, converts: converts.to_vec() };
        // In memory of its own: else every operation, also one that needs no request, has room in
        // its state for the many layers below.
        let response = Box::pin(self.import.call(call, Bulk::new())).await?;
        let Answer { reply, grants, gone, dir, touched, beginning } = response.body;
        let locks = keeping.map(|keeping| keeping.granted(&grants)).unwrap_or_default();
        Ok(Kept { reply, locks, gone, dir, touched, beginning: beginning.map(|came| (came, response.bulk)) })
    }

    /// Sends a request in somebody's name; once more with all the groups if the MDT says that they
    /// matter.
    pub async fn call_as(&self, who: &Caller, request: impl Fn(Cred) -> Request) -> Result<Reply> {
        Ok(self.call_keeping_as(who, request, 0).await?.reply)
    }

    /// [`Mdc::call_keeping`] and [`Mdc::call_as`] in one.
    pub async fn call_keeping_as(&self, who: &Caller, request: impl Fn(Cred) -> Request, count: u64) -> Result<Kept> {
        self.send_as(who, request, Locking { count, ..Locking::default() }).await
    }

    /// As [`Mdc::call_as`], for what takes names away. Of these locks only these bits are kept.
    pub async fn call_giving_up(
        &self,
        who: &Caller,
        request: impl Fn(Cred) -> Request,
        converts: &[(LockId, u64)],
    ) -> Result<Kept> {
        self.send_as(who, request, Locking { converts, ..Locking::default() }).await
    }

    /// As [`Mdc::call_keeping_as`], for an answer about one inode; with what the MDT's data service
    /// has of it, under a lock of this handle.
    pub async fn call_beginning_as(
        &self,
        who: &Caller,
        request: impl Fn(Cred) -> Request,
        count: u64,
        beginning: Option<Cookie>,
    ) -> Result<Kept> {
        self.send_as(who, request, Locking { count, beginning, ..Locking::default() }).await
    }

    async fn send_as(&self, who: &Caller, request: impl Fn(Cred) -> Request, locking: Locking<'_>) -> Result<Kept> {
        match self.send(request(who.cred.clone()), locking).await {
            Err(Errno::NEED_GROUPS) => {
                let groups = self.groups.groups(who.pid).unwrap_or_default();
                let cred = Cred { uid: who.cred.uid, gid: who.cred.gid, groups: Some(groups) };
                match self.send(request(cred), locking).await {
                    Err(Errno::NEED_GROUPS) => Err(Errno::EPROTO),
                    answer => answer,
                }
            }
            answer => answer,
        }
    }

    /// A name for a new file.
    pub async fn next_fid(self: &Arc<Self>) -> Result<Fid> {
        loop {
            let next = self.sequence.lock().next();
            if let Some((fid, ask)) = next {
                if ask {
                    self.prefetch();
                }
                return Ok(fid);
            }
            Box::pin(self.reserve_fids()).await?;
        }
    }

    /// Sees to it that there is a sequence in reserve.
    pub async fn reserve_fids(&self) -> Result<()> {
        let _one_at_a_time = self.fetching.lock().await;
        let present = self.sequence.lock().spare.is_some();
        if !present {
            let seq = self.alloc_seq().await?;
            self.sequence.lock().spare = Some(seq);
        }
        Ok(())
    }

    fn prefetch(self: &Arc<Self>) {
        let mdc = self.clone();
        drop(self.rt.spawn("alloc_seq", async move {
            let answer = mdc.alloc_seq().await;
            let mut sequence = mdc.sequence.lock();
            sequence.prefetching = false;
            // A failure shows where the names run out, to somebody who can be told.
            if let Ok(seq) = answer {
                sequence.spare.get_or_insert(seq);
            }
        }));
    }

    async fn alloc_seq(&self) -> Result<u64> {
        match self.call(Request::AllocSeq).await? {
            Reply::Seq(seq) => Ok(seq),
            _ => Err(Errno::EPROTO),
        }
    }
}

/// The reply of a request that is answered `Ok`.
pub fn done(reply: Reply) -> Result<()> {
    match reply {
        Reply::Ok => Ok(()),
        _ => Err(Errno::EPROTO),
    }
}

/// The reply of a request that is answered `Entry`.
pub fn entry(reply: Reply) -> Result<Entry> {
    match reply {
        Reply::Entry(entry) => Ok(entry),
        _ => Err(Errno::EPROTO),
    }
}

/// The reply of a request that is answered `Bytes`.
pub fn bytes(reply: Reply) -> Result<bytes::Bytes> {
    match reply {
        Reply::Bytes(bytes) => Ok(bytes),
        _ => Err(Errno::EPROTO),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_run_on_into_the_next_sequence_without_a_repeat() {
        let mut s = Sequence { spare: Some(7), ..Sequence::EMPTY };
        let mut asked = 0;
        for i in 1..=SEQ_WIDTH {
            let (fid, ask) = s.next().unwrap();
            assert_eq!(fid, Fid::new(7, i));
            if ask {
                asked += 1;
                s.prefetching = false;
                s.spare = Some(8);
            }
        }
        assert_eq!(asked, 1);
        assert_eq!(s.next().unwrap().0, Fid::new(8, 1));
        let mut dry = Sequence { seq: 8, used: SEQ_WIDTH - 1, spare: None, prefetching: true };
        assert!(dry.next().is_some() && dry.next().is_none());
    }
}
