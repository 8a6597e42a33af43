//! The MDT as seen by a client (Lustre's mdc): its import, the FIDs for new files, and the second
//! attempt with supplementary groups.
//!
//! Invariants:
//! * a FID is handed out once;
//! * the client requests the next FID sequence while half of the present one is left, so a create
//!   does not wait for it.

use std::{collections::VecDeque, fmt, pin::pin, sync::Arc, time::Duration};

use parking_lot::Mutex;
use sheen_rpc::{Awaited, Import, RPCS_IN_FLIGHT_LIMIT, Recovering, Response, Slots};
use sheen_rt::Rt;
use sheen_wire::{
    Attr, Bulk, Cred, Errno, Fid, Mds, Result, StatFs,
    ast::Callback,
    auth::Proof,
    fid::SEQ_WIDTH,
    ldlm::{Cookie, LockId},
    mds::{Answer, Call, Entry, InlineDom, Reply, Request},
};
use tokio::sync::{Notify, Semaphore};

use crate::{
    capabilities::Capabilities,
    connection::import_state,
    failure::Failure,
    locks::{LockRef, LockTable},
    types::{Caller, GroupSource},
    uncommitted::{Transaction, Uncommitted, changed_by},
};

/// Maximum number of cancels that travel with a request: few enough to cost nothing noticeable.
const CANCELS_PER_CALL: usize = 64;

/// Time after which a request that needs new objects is sent again, while all OSTs that could take
/// them are disconnected.
const OSTS_RETRY: Duration = Duration::from_millis(500);

/// Default number of modifying requests in flight (Lustre's).
const MOD_RPCS_IN_FLIGHT: usize = 7;
/// Minimum number of requests in flight: one that modifies and one that does not.
pub const MDC_RPCS_IN_FLIGHT_MIN: usize = 2;

/// Number of sequences that a restarted MDT is shown: the present one, the next one, and those of
/// requests that are not answered yet.
const OWN_MAX: usize = 8;

/// Maximum number of readers that wait for records of the changelog.
const CHANGELOG_WAITS_MAX: usize = 64;

/// Readers that wait for records of the changelog.
#[derive(Debug)]
pub struct ChangelogReaders {
    /// Notified at a callback of the MDT, and after its restart.
    pub news: Notify,
    /// Permits for readers that wait.
    pub seats: Semaphore,
}

/// The MDT.
pub struct Mdc {
    rt: Rt,
    name: String,
    import: Arc<Import<Mds>>,
    /// Those of the import's slots that modifying requests may take. Always fewer than all, so that
    /// read-only requests get through.
    modifying: Slots,
    /// Held while either limit is changed.
    limits: Mutex<()>,
    locks: Arc<LockTable>,
    changelog_readers: Arc<ChangelogReaders>,
    uncommitted: Uncommitted,
    groups: Arc<dyn GroupSource>,
    capabilities: Arc<Capabilities>,
    space: Mutex<StatFs>,
    sequence: Mutex<Sequence>,
    /// The last sequences of a mount with a host's or user's key, with their proofs.
    own: Mutex<VecDeque<(u64, Proof)>>,
    /// Held while an operation waits for a new sequence.
    fetching: tokio::sync::Mutex<()>,
}

/// A reply of the MDT with the locks that came with it.
#[derive(Debug)]
pub struct MdtReply {
    /// The reply itself.
    pub reply: Reply,
    /// Locks on inodes in the reply.
    pub locks: Vec<(Fid, LockRef)>,
    /// Whether locks of this reply are missing in `locks`, because they were revoked or lost before
    /// the reply arrived. Then a layout in the reply may be outdated, and no callback reports it.
    pub revoked: bool,
    /// Inodes that the request deleted. The caller drops their names from the cache, and then
    /// cancels the locks on them ([`LockTable::cancel_deleted`]).
    pub deleted: Vec<Fid>,
    /// Attributes of the directory in which the request added or removed an entry, as of after the
    /// change.
    pub dir: Option<Attr>,
    /// Invalidations: the inodes that the request changed, for requests that remove or replace
    /// names.
    pub invalidations: Vec<Fid>,
    /// Inline DoM data: the object at the MDT's data service, with its bytes.
    pub inline_dom: Option<(InlineDom, Bulk)>,
}

/// A request to be sent to the MDT.
#[must_use = "a request is sent by `send` or `reply`"]
pub struct MdtRequest<'a, B> {
    mdc: &'a Mdc,
    body: B,
    locking: Locking<'a>,
}

/// A request with a caller's credentials.
pub struct WithCred<'a, F> {
    who: &'a Caller,
    request: F,
}

impl<'a, B> MdtRequest<'a, B> {
    /// Asks for locks on up to `count` inodes of the reply, so that it can be cached. The returned
    /// locks are in use until they are dropped. Drop them before the next wait.
    pub fn with_locks(mut self, count: u64) -> Self {
        self.locking.count = count;
        self
    }

    /// Reduces locks to these bits together with the request.
    pub fn with_converts(mut self, converts: &'a [(LockId, u64)]) -> Self {
        self.locking.converts = converts;
        self
    }

    /// Sets the handle for a lock at the MDT's data service, under which a reply about one inode
    /// brings inline DoM data.
    pub fn with_inline_dom(mut self, handle: Option<Cookie>) -> Self {
        self.locking.inline_dom = handle;
        self
    }
}

impl MdtRequest<'_, Request> {
    /// Sends the request.
    pub async fn send(self) -> Result<MdtReply> {
        let MdtRequest { mdc, body, locking } = self;
        let places_objects = matches!(body, Request::LayoutIntent { .. } | Request::SetXattr { .. });
        let sent = match places_objects {
            true => mdc.send_until_placed(|| body.clone(), locking).await,
            false => mdc.send(body, locking).await,
        };
        sent.map_err(Failure::into_errno)
    }

    /// Sends the request, and returns the reply without locks.
    pub async fn reply(self) -> Result<Reply> {
        Ok(self.send().await?.reply)
    }
}

impl<F: Fn(Cred) -> Request> MdtRequest<'_, WithCred<'_, F>> {
    /// Sends the request.
    pub async fn send(self) -> Result<MdtReply> {
        let MdtRequest { mdc, body: WithCred { who, request }, locking } = self;
        mdc.send_as(who, request, locking).await
    }

    /// Sends the request, and returns the reply without locks.
    pub async fn reply(self) -> Result<Reply> {
        Ok(self.send().await?.reply)
    }
}

/// The lock-related fields of a request.
#[derive(Clone, Copy, Default)]
struct Locking<'a> {
    /// Number of inodes in the reply for which the client wants locks.
    count: u64,
    /// Locks that are reduced to these bits.
    converts: &'a [(LockId, u64)],
    /// Handle for a lock at the MDT's data service.
    inline_dom: Option<Cookie>,
}

/// FIDs that may be handed out.
#[derive(Default)]
struct Sequence {
    seq: u64,
    /// Number of ids handed out so far; [`SEQ_WIDTH`] if none is left.
    used: u32,
    spare: Option<u64>,
    prefetching: bool,
}

impl Sequence {
    const EMPTY: Sequence = Sequence { seq: 0, used: SEQ_WIDTH, spare: None, prefetching: false };

    /// Returns the next FID, and whether it is time to request another sequence.
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

    /// Stops the use of the other sequences.
    fn retain(&mut self, keep: impl Fn(u64) -> bool) {
        self.spare = self.spare.filter(|seq| keep(*seq));
        if !keep(self.seq) {
            self.used = SEQ_WIDTH;
        }
    }
}

impl fmt::Debug for Mdc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Mdc").field(&self.name).finish()
    }
}

impl Mdc {
    /// Creates the MDT client of an import. `name`: `sheen-MDT0000-mdc-ff3298de21e05800`.
    pub fn new(
        rt: Rt,
        name: String,
        import: Arc<Import<Mds>>,
        groups: Arc<dyn GroupSource>,
        capabilities: Arc<Capabilities>,
    ) -> Mdc {
        let (space, sequence) = (Mutex::default(), Mutex::new(Sequence::EMPTY));
        let locks = LockTable::new(&rt, true);
        let called = Arc::downgrade(&locks);
        let (news, seats) = (Notify::new(), Semaphore::new(CHANGELOG_WAITS_MAX));
        let changelog_readers = Arc::new(ChangelogReaders { news, seats });
        let readers = changelog_readers.clone();
        import.on_callback(move |callback| match callback {
            Callback::Changelog => readers.news.notify_waiters(),
            callback => {
                if let Some(locks) = called.upgrade() {
                    locks.process_callback(callback);
                }
            }
        });
        let fetching = tokio::sync::Mutex::new(());
        let modifying = Slots::new(MOD_RPCS_IN_FLIGHT.min(import.max_rpcs_in_flight() - 1).max(1));
        Mdc {
            rt,
            name,
            import,
            modifying,
            limits: Mutex::default(),
            locks,
            changelog_readers,
            uncommitted: Uncommitted::new(),
            groups,
            capabilities,
            space,
            sequence,
            own: Mutex::default(),
            fetching,
        }
    }

    /// Returns the locks that this client holds from the MDT.
    pub fn locks(&self) -> &Arc<LockTable> {
        &self.locks
    }

    /// Returns the readers that wait for records of the changelog.
    pub fn changelog_readers(&self) -> &ChangelogReaders {
        &self.changelog_readers
    }

    /// Returns the mount's capabilities.
    pub fn capabilities(&self) -> &Arc<Capabilities> {
        &self.capabilities
    }

    /// Returns the changes that the MDT has answered but not committed.
    pub fn uncommitted(&self) -> &Uncommitted {
        &self.uncommitted
    }

    /// Returns the name of the device.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the import.
    pub fn import(&self) -> &Arc<Import<Mds>> {
        &self.import
    }

    /// Returns the maximum number of modifying requests in flight.
    pub fn max_mod_rpcs_in_flight(&self) -> usize {
        self.modifying.limit()
    }

    /// Sets the maximum number of modifying requests in flight. Raises the limit for all requests
    /// if it is not at least one larger.
    ///
    /// # Errors
    /// ERANGE unless `n` is at least 1 and less than [`RPCS_IN_FLIGHT_LIMIT`].
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

    /// Sets the maximum number of requests in flight. Lowers the limit for modifying requests if it
    /// is not at least one smaller.
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

    /// Checks whether the import can carry requests, for `lfs check`: ENOTCONN while disconnected.
    pub fn state(&self) -> Result<()> {
        import_state(&self.import)
    }

    /// Returns the space as of the last statfs reply; zeros before the first.
    pub fn space(&self) -> StatFs {
        *self.space.lock()
    }

    /// Stores the space of a statfs reply.
    pub fn note_space(&self, space: StatFs) {
        *self.space.lock() = space;
    }

    /// Prepares a request whose result does not depend on the caller's credentials.
    pub fn request(&self, request: Request) -> MdtRequest<'_, Request> {
        MdtRequest { mdc: self, body: request, locking: Locking::default() }
    }

    /// Prepares a request with a caller's credentials. It is sent again with all supplementary
    /// groups if the MDT replies that they matter.
    pub fn request_as<'a, F: Fn(Cred) -> Request>(
        &'a self,
        who: &'a Caller,
        request: F,
    ) -> MdtRequest<'a, WithCred<'a, F>> {
        MdtRequest { mdc: self, body: WithCred { who, request }, locking: Locking::default() }
    }

    async fn send(
        &self,
        mut request: Request,
        Locking { count, converts, inline_dom }: Locking<'_>,
    ) -> Result<MdtReply, Failure> {
        let made = request.delay(Duration::ZERO).then(|| self.rt.now());
        let _modifying = match request.modifies() {
            true => {
                let slot = pin!(self.modifying.acquire());
                Some(self.import.waits().track(&Awaited::Slot(request.op()), slot).await?)
            }
            false => None,
        };
        if let Some(made) = made {
            request.delay(self.rt.now().since(made));
        }
        let changed = changed_by(&request);
        let keeping = (count > 0).then(|| self.locks.keep(count));
        let cancels = self.locks.take_cancels(CANCELS_PER_CALL);
        let keep = keeping.as_ref().map(|k| k.cookie());
        let call = Call { request, keep, inline_dom, cancels, converts: converts.to_vec() };
        // Boxed. Otherwise the future of every operation, even one that needs no request, would
        // include the state of the many layers below.
        let response = Box::pin(self.import.request(call).send()).await?;
        let Response { transno, incarnation, last_committed: committed, .. } = response;
        let Answer { reply, grants, deleted, dir, invalidations, inline_dom, capabilities, .. } = response.body;
        self.capabilities.note(&reply, capabilities);
        let inodes = changed.into_iter().flatten().chain(invalidations.iter().copied());
        self.uncommitted.changed(Transaction { transno, incarnation, committed }, inodes);
        let (locks, revoked) = keeping.map(|keeping| keeping.granted(&grants)).unwrap_or_default();
        Ok(MdtReply {
            reply,
            locks,
            revoked,
            deleted,
            dir,
            invalidations,
            inline_dom: inline_dom.map(|came| (came, response.bulk)),
        })
    }

    /// Sends a request, again and again while all OSTs that could take its objects are
    /// disconnected: for as long as requests wait for a disconnected target. It occupies no slot
    /// between two attempts. If the MDT does not know the sequence of the FID in it, shows the
    /// sequences and sends it once more.
    async fn send_until_placed(
        &self,
        request: impl Fn() -> Request,
        locking: Locking<'_>,
    ) -> Result<MdtReply, Failure> {
        let (mut waited, mut shown) = (Duration::ZERO, false);
        loop {
            match self.send(request(), locking).await {
                Err(Failure::UnknownSequence) if !shown => {
                    shown = true;
                    Box::pin(self.show_sequences_again()).await?;
                }
                Err(Failure::OstsDisconnected) if self.import.wait_limit().is_none_or(|limit| waited < limit) => {
                    Box::pin(self.rt.sleep(OSTS_RETRY)).await;
                    waited += OSTS_RETRY;
                }
                answer => return answer,
            }
        }
    }

    async fn send_as(&self, who: &Caller, request: impl Fn(Cred) -> Request, locking: Locking<'_>) -> Result<MdtReply> {
        let answer = match self.send_until_placed(|| request(who.cred.clone()), locking).await {
            Err(Failure::NeedGroups) => {
                let groups = self.groups.groups(who.pid).unwrap_or_default();
                let cred = Cred { uid: who.cred.uid, gid: who.cred.gid, groups: Some(groups) };
                self.send_until_placed(|| request(cred.clone()), locking).await
            }
            answer => answer,
        };
        answer.map_err(Failure::into_errno)
    }

    /// Returns the FID for a new file.
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

    /// Ensures that there is a sequence in reserve.
    pub async fn reserve_fids(&self) -> Result<()> {
        let _one_at_a_time = self.fetching.lock().await;
        let present = self.sequence.lock().spare.is_some();
        if !present {
            let seq = self.alloc_seq().await?;
            self.sequence.lock().spare = Some(seq);
        }
        Ok(())
    }

    /// Shows a restarted MDT the sequences from which this mount names files, if it acts as one
    /// user. Those that the MDT does not know are no longer used: their key was replaced.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn show_sequences(&self, mdt: &Recovering<Mds>) -> Result<()> {
        let sequences = self.own_sequences();
        if sequences.is_empty() {
            return Ok(());
        }
        let shown = mdt.call(Request::OwnSequences { sequences }).await.map_err(|e| e.errno())?;
        self.note_sequences(&shown.body.reply);
        Ok(())
    }

    fn own_sequences(&self) -> Vec<(u64, Proof)> {
        self.own.lock().iter().copied().collect()
    }

    /// As [`Mdc::show_sequences`], to an MDT that was not restarted.
    async fn show_sequences_again(&self) -> Result<(), Failure> {
        let sequences = self.own_sequences();
        let shown = self.import.request(Call::from(Request::OwnSequences { sequences })).send().await?;
        self.note_sequences(&shown.body.reply);
        Ok(())
    }

    /// Stops the use of sequences that the MDT does not accept.
    fn note_sequences(&self, reply: &Reply) {
        if let Reply::Sequences(accepted) = reply {
            self.own.lock().retain(|(seq, _)| accepted.contains(seq));
            self.sequence.lock().retain(|seq| accepted.contains(&seq));
        }
    }

    fn prefetch(self: &Arc<Self>) {
        let mdc = self.clone();
        drop(self.rt.spawn("alloc_seq", async move {
            let answer = mdc.alloc_seq().await;
            let mut sequence = mdc.sequence.lock();
            sequence.prefetching = false;
            // Ignore a failure here. The next create that runs out of FIDs retries, and reports the
            // error to its caller.
            if let Ok(seq) = answer {
                sequence.spare.get_or_insert(seq);
            }
        }));
    }

    async fn alloc_seq(&self) -> Result<u64> {
        match self.request(Request::AllocSeq).reply().await? {
            Reply::Seq(seq) => Ok(seq),
            Reply::OwnSeq(seq, proof) => {
                let mut own = self.own.lock();
                own.push_back((seq, proof));
                if own.len() > OWN_MAX {
                    own.pop_front();
                }
                Ok(seq)
            }
            _ => Err(Errno::EPROTO),
        }
    }
}

/// Checks that the reply is `Ok`.
pub fn done(reply: Reply) -> Result<()> {
    match reply {
        Reply::Ok => Ok(()),
        _ => Err(Errno::EPROTO),
    }
}

/// Returns the content of an `Entry` reply.
pub fn entry(reply: Reply) -> Result<Entry> {
    match reply {
        Reply::Entry(entry) => Ok(entry),
        _ => Err(Errno::EPROTO),
    }
}

/// Returns the content of a `Bytes` reply.
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
    fn fids_continue_in_next_sequence_without_repeats() {
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
