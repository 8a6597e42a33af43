//! One OST as seen by a client (Lustre's osc): its import, the locks held from it, whether it is
//! active, and its last known space.
//!
//! All requests that read or change data go through it, so that none reaches an OST which an
//! administrator has switched off.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;
use sheen_rpc::{Awaited, Cause, Import, ImportRequest, RequestError, Response};
use sheen_rt::Rt;
use sheen_wire::{Bulk, Errno, Ost, Protocol, Result, StatFs, ost};

use crate::{
    capabilities::{Capabilities, Missing, Presented, wanted_by},
    connection::import_state,
    failure::Failure,
    locks::LockTable,
    rpc_stats::PagesPerRpc,
};

/// Attempts of one request whose capabilities the OST does not know. Each reconnect costs one.
const PRESENTS_MAX: u32 = 8;
/// Number of refusals that a lost connection may have caused. After the next one the capabilities
/// are replaced.
const REFUSALS_BY_RECONNECTS: u32 = 2;

/// An OST.
pub struct Osc {
    index: u32,
    name: String,
    import: Arc<Import<Ost>>,
    locks: Arc<LockTable>,
    active: AtomicBool,
    removed: AtomicBool,
    space: Mutex<StatFs>,
    pages: PagesPerRpc,
    presented: Arc<Presented>,
}

impl fmt::Debug for Osc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Osc").field(&self.name).finish()
    }
}

impl Osc {
    /// Creates the client of an OST's import. `name`: `sheen-OST0000-osc-ff3298de21e05800`.
    pub fn new(rt: &Rt, index: u32, name: String, import: Arc<Import<Ost>>, capabilities: &Arc<Capabilities>) -> Osc {
        let locks = LockTable::new(rt, false);
        let called = Arc::downgrade(&locks);
        import.on_callback(move |callback| {
            if let Some(locks) = called.upgrade() {
                locks.process_callback(callback);
            }
        });
        let (active, removed, space) = (AtomicBool::new(true), AtomicBool::new(false), Mutex::default());
        let (pages, presented) = (PagesPerRpc::default(), Arc::new(Presented::new(capabilities)));
        Osc { index, name, import, locks, active, removed, space, pages, presented }
    }

    /// Returns the capabilities that the OST knows.
    pub fn presented(&self) -> &Arc<Presented> {
        &self.presented
    }

    /// Presents the capabilities that a request needs and the OST does not know yet.
    async fn present(&self, request: &ost::Request) -> Result<(), Failure> {
        if let ost::Request::Follow { objects } = request {
            // As far as possible: their present names get the same rights.
            let wanted = objects.iter().map(|object| (*object, 0)).collect();
            return Box::pin(self.send_missing(self.presented.missing_of(wanted).await.ok().flatten())).await;
        }
        self.send_missing(self.presented.missing(request).await?).await
    }

    async fn send_missing(&self, missing: Option<Missing>) -> Result<(), Failure> {
        let Some(mut missing) = missing else { return Ok(()) };
        for present in missing.requests.drain(..) {
            self.import.request(present).urgent().send().await?;
        }
        self.presented.sent(missing);
        Ok(())
    }

    /// Returns the locks that this client holds from the OST.
    pub fn locks(&self) -> &Arc<LockTable> {
        &self.locks
    }

    /// Returns the index of the OST.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Returns the name of the device.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the import.
    pub fn import(&self) -> &Arc<Import<Ost>> {
        &self.import
    }

    /// Whether the OST is active (`osc.*.active`), and not removed.
    pub fn active(&self) -> bool {
        self.active.load(Relaxed) && !self.is_removed()
    }

    /// Deactivates or activates the OST.
    pub fn set_active(&self, active: bool) {
        self.active.store(active, Relaxed);
    }

    /// Whether the OST was removed from the file system.
    pub fn is_removed(&self) -> bool {
        self.removed.load(Relaxed)
    }

    /// Records that the OST was removed from the file system. Returns whether that is news.
    pub fn set_removed(&self) -> bool {
        !self.removed.swap(true, Relaxed)
    }

    /// Checks whether the OST can take requests, for `lfs check`: ESHUTDOWN if it is inactive,
    /// ENOTCONN while it is disconnected.
    pub fn state(&self) -> Result<()> {
        if self.active() { import_state(&self.import) } else { Err(Errno::ESHUTDOWN) }
    }

    /// Whether the OST is known not to answer now: it is inactive or disconnected.
    pub fn is_unavailable(&self) -> bool {
        !self.active() || self.import.is_disconnected()
    }

    /// Returns the maximum bulk size of a request, in bytes.
    pub fn max_bytes_per_rpc(&self) -> u64 {
        self.import.max_bulk_bytes() as u64
    }

    /// Returns the space as of the last statfs reply; zeros before the first.
    pub fn space(&self) -> StatFs {
        *self.space.lock()
    }

    /// Returns the size statistics of reads and writes.
    pub fn pages(&self) -> &PagesPerRpc {
        &self.pages
    }

    /// Prepares a request. [`OstRequest::send`] sends it.
    pub fn request(&self, body: ost::Request) -> OstRequest<'_> {
        OstRequest { osc: self, body, bulk: Bulk::new(), guarded: None, urgent: false }
    }
}

/// A request to be sent to an OST.
#[derive(Clone)]
#[must_use = "a request is sent by `send`"]
pub struct OstRequest<'a> {
    osc: &'a Osc,
    body: ost::Request,
    bulk: Bulk,
    /// Number of evictions up to which the request is valid.
    guarded: Option<u64>,
    urgent: bool,
}

impl<'a> OstRequest<'a> {
    /// Sets the file data that is sent with the request.
    pub fn bulk(self, bulk: Bulk) -> Self {
        OstRequest { bulk, ..self }
    }

    /// Marks a request that is valid only under a lock which this client holds now
    /// ([`ImportRequest::guarded_since`]).
    pub fn guarded(self) -> Self {
        OstRequest { guarded: Some(self.osc.import.evictions()), ..self }
    }

    /// Marks a guarded request that does not wait for the slots of other requests. For flushes,
    /// which other clients may wait for.
    pub fn urgent(self) -> Self {
        OstRequest { urgent: true, ..self }
    }

    /// Sends the request. One that may wait for other clients' locks is sent as
    /// [`ImportRequest::patient`].
    ///
    /// # Errors
    /// EIO: the OST is inactive, or it evicted this client before it answered a guarded request.
    /// Otherwise the error of the OST.
    pub async fn send(self) -> Result<Response<ost::Reply>, Failure> {
        let osc = self.osc;
        let response = self.run(false).await?;
        if let ost::Reply::StatFs(space) = &response.body {
            *osc.space.lock() = *space;
        }
        Ok(response)
    }

    /// Sends the request like [`OstRequest::send`]. An OST in this process may return the location
    /// of the bytes ([`Response::live`]) instead of a bulk.
    ///
    /// # Errors
    /// As [`OstRequest::send`].
    pub async fn send_in_place(self) -> Result<Response<ost::Reply>, Failure> {
        self.run(true).await
    }

    async fn run(self, in_place: bool) -> Result<Response<ost::Reply>, Failure> {
        if self.osc.presented.are_needed() {
            return Box::pin(self.run_as_user(in_place)).await;
        }
        let request = self.begin()?;
        // Boxed, for the reason given in `Mdc::send`.
        let response = if in_place { Box::pin(request.send_in_place()).await } else { Box::pin(request.send()).await };
        Ok(response?)
    }

    /// Sends the request of a mount that needs capabilities.
    ///
    /// # Errors
    /// EACCES: the user may not do what is requested. MOVED: an object has left its file.
    async fn run_as_user(self, in_place: bool) -> Result<Response<ost::Reply>, Failure> {
        let guard = (self.guarded.is_some() || self.urgent).then(|| self.osc.import.prepare());
        for attempt in 0..PRESENTS_MAX {
            let presented = self.osc.present(&self.body).await;
            match (presented, &guard) {
                // The lock under which the request is valid is lost.
                (_, Some(guard)) if !guard.is_valid() => return Err(Errno::EIO.into()),
                // An eviction.
                (Err(failure), None) if failure.errno() == Some(Errno::EIO) => continue,
                (presented, _) => presented?,
            }
            let request = self.clone().begin()?;
            let answer = if in_place { request.send_in_place().await } else { request.send().await };
            match answer {
                // It does not know this client any more.
                Err(e) if e.errno() == Errno::NO_CAPABILITY && attempt < REFUSALS_BY_RECONNECTS => {
                    self.osc.presented.forget();
                }
                Err(e) if e.errno() == Errno::NO_CAPABILITY => self.osc.presented.refused(&wanted_by(&self.body)),
                Ok(answer) => {
                    if let (ost::Request::Follow { objects }, ost::Reply::Objects(names)) = (&self.body, &answer.body) {
                        self.osc.presented.followed(objects, names);
                    }
                    return Ok(answer);
                }
                Err(e) => return Err(e.into()),
            }
        }
        tracing::warn!("{}: the OST accepts no capability of the MDT; do their clocks and keys agree?", self.osc.name);
        Err(Errno::EACCES.into())
    }

    /// Checks that the OST is active, and counts the request in the statistics.
    fn begin(self) -> Result<ImportRequest<'a, Ost>, RequestError> {
        let OstRequest { osc, body, bulk, guarded, urgent } = self;
        if !osc.active() {
            let cause = Cause::NotSent { reason: "the OST is inactive on this mount", errno: Errno::EIO };
            return Err(osc.import.failure(Ost::op(&body), cause));
        }
        let lock = awaited_lock(&body);
        match &body {
            ost::Request::Read { parts } => osc.pages.read(parts.iter().map(|p| u64::from(p.len)).sum()),
            ost::Request::Write { .. } => osc.pages.write(bulk.len() as u64),
            _ => {}
        }
        let request = osc.import.request(body).bulk(bulk);
        Ok(match (urgent, guarded, lock) {
            (true, ..) => request.urgent(),
            (false, Some(evictions), _) => request.guarded_since(evictions),
            (false, None, Some(lock)) => request.patient().awaits(lock),
            (false, None, None) => request,
        })
    }
}

/// Returns the first lock for which a request may wait.
pub fn awaited_lock(request: &ost::Request) -> Option<Awaited> {
    match request {
        ost::Request::Enqueue { locks, .. } => locks.iter().find(|lock| !lock.flags.nowait).map(Awaited::lock),
        _ => None,
    }
}
