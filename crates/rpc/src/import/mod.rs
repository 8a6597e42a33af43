//! A client's end of the way to one target.
//!
//! A call takes a slot, then goes the way that there is: over `lo` it calls the service; over tcp
//! it is entered among the pending requests and its frame is posted, and the call waits for the
//! reply. Where there is no way, the call waits until there is one.
//!
//! The way is made, kept and made again by one task, the connector (`connect.rs`), which exists
//! while there is no way, and over tcp also reads the replies. Everything that both sides must
//! agree on lies in [`Link`] under one short lock.
//!
//! The states are Lustre's: NEW → CONNECTING → (RECOVER →) FULL → DISCONN → CONNECTING …, and
//! CLOSED.

mod connect;
mod link;
mod lo;
mod recover;

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::{Mutex, RwLock};
use sheen_lnet::{Frame, Net, Nid};
use sheen_wire::{
    Bulk, Errno, Protocol,
    bulk::BULK_BYTES_MAX,
    frame::{self, BODY_BYTES_MAX, FLAG_BULK_COPY, FLAG_BULK_CRC, Header, Kind},
};
use tokio::sync::Notify;

pub use connect::ConnectError;
pub use link::ImportState;
pub use recover::Recovering;

use crate::{
    service::{BoxFuture, Handler, Response},
    slots::Slots,
    stats::{ImportStats, Stats},
};
use link::Link;
use lo::LoPeer;

/// Most requests of an import under way at a time (Lustre's OBD_MAX_RIF_MAX is 512; a reply cache
/// keeps twice this).
pub const RPCS_IN_FLIGHT_LIMIT: usize = 256;
/// Most requests of [`Import::call_urgent`] under way at a time.
pub const URGENT_IN_FLIGHT_MAX: usize = 16;
/// Most requests of [`Import::call_patient`] under way at a time.
pub const PATIENT_IN_FLIGHT_MAX: usize = 64;
/// Bytes in one of the pages that `max_pages_per_rpc` counts.
const PAGE_BYTES: usize = 4096;
/// Largest `max_pages_per_rpc`.
const PAGES_PER_RPC_LIMIT: u32 = (BULK_BYTES_MAX / PAGE_BYTES) as u32;

/// What an import is made of.
#[derive(Clone, Debug)]
pub struct ImportConfig {
    /// Names the client: the same for all imports of a mount, made anew at each mount. One import
    /// for each target.
    pub client_uuid: String,
    /// The target: `sheen-OST0000`, `MGS`.
    pub target: String,
    /// Its uuid, if it is to be this one and no other of the name; else empty.
    pub target_uuid: String,
    /// Where it may be found, in the order to try. A target of this process is called directly if
    /// one of the NIDs is `0@lo` or an own address, or if there are none.
    pub nids: Vec<Nid>,
    /// Feature bits that the client has.
    pub features: u64,
    /// Parameters at the beginning.
    pub params: ImportParams,
}

/// An import's parameters. All but the first three are fixed once the import is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImportParams {
    /// Requests under way at a time, 1 to [`RPCS_IN_FLIGHT_LIMIT`].
    pub max_rpcs_in_flight: usize,
    /// Bulk of one request, in pages of 4 KiB, up to 4096; kept for whoever builds requests.
    pub max_pages_per_rpc: u32,
    /// Whether bulk is checksummed (over tcp).
    pub checksums: bool,
    /// How long the first connection may take before the calls that wait for it fail.
    pub connect_timeout_ms: u64,
    /// How long a request waits for a lost connection to come back before it fails with ETIMEDOUT.
    pub recovery_timeout_ms: u64,
    /// How long a connection may be silent, while requests are waiting, before the server is asked
    /// whether it is there. After three questions without an answer the connection counts as
    /// broken.
    pub ping_interval_ms: u64,
}

impl Default for ImportParams {
    fn default() -> ImportParams {
        ImportParams {
            max_rpcs_in_flight: 8,
            max_pages_per_rpc: 1024,
            checksums: true,
            connect_timeout_ms: 5_000,
            // Lustre's obd_timeout.
            recovery_timeout_ms: 100_000,
            ping_interval_ms: 10_000,
        }
    }
}

impl ImportConfig {
    /// With the usual parameters and no features, for whichever target has the name.
    pub fn new(client_uuid: &str, target: &str, nids: Vec<Nid>) -> ImportConfig {
        let (client_uuid, target) = (client_uuid.to_owned(), target.to_owned());
        ImportConfig {
            client_uuid,
            target,
            target_uuid: String::new(),
            nids,
            features: 0,
            params: ImportParams::default(),
        }
    }

    /// For the target with this uuid alone.
    pub fn of(self, target_uuid: &str) -> ImportConfig {
        ImportConfig { target_uuid: target_uuid.to_owned(), ..self }
    }
}

/// A client's end of the way to one target. Dropping it says goodbye.
pub struct Import<P: Protocol> {
    inner: Arc<Inner<P>>,
}

/// What is called when the server has forgotten the client.
type Hook<P> = dyn Fn(Recovering<P>) -> BoxFuture<'static, sheen_wire::Result<()>> + Send + Sync;

pub(crate) struct Inner<P: Protocol> {
    net: Arc<Net>,
    client: String,
    target: String,
    target_uuid: String,
    nids: Mutex<Vec<Nid>>,
    features: u64,
    slots: Slots,
    urgent: Slots,
    patient: Slots,
    max_pages_per_rpc: AtomicU32,
    checksums: AtomicBool,
    connect_timeout: Duration,
    recovery_timeout: Duration,
    ping_interval: Duration,
    stats: Stats,
    last_committed: AtomicU64,
    /// Frames received; whether it changes tells a live connection from a silent one.
    heard: AtomicU64,
    /// The target in this process, while it is the way.
    lo: RwLock<Option<Arc<LoPeer<P>>>>,
    link: Mutex<Link>,
    /// The state of the link changed.
    changed: Notify,
    hook: Mutex<Option<Arc<Hook<P>>>>,
    /// What is done with callbacks; `None`: nothing.
    callbacks: OnceLock<Arc<Handler<P>>>,
}

impl<P: Protocol> Import<P> {
    /// An import. Nothing is connected before the first call, or [`Import::connect`].
    pub fn new(net: Arc<Net>, config: ImportConfig) -> Arc<Import<P>> {
        let params = config.params;
        let ms = Duration::from_millis;
        let inner = Inner {
            net,
            client: config.client_uuid,
            target: config.target,
            target_uuid: config.target_uuid,
            nids: Mutex::new(config.nids),
            features: config.features,
            slots: Slots::new(params.max_rpcs_in_flight.clamp(1, RPCS_IN_FLIGHT_LIMIT)),
            urgent: Slots::new(URGENT_IN_FLIGHT_MAX),
            patient: Slots::new(PATIENT_IN_FLIGHT_MAX),
            max_pages_per_rpc: AtomicU32::new(params.max_pages_per_rpc.clamp(1, PAGES_PER_RPC_LIMIT)),
            checksums: AtomicBool::new(params.checksums),
            connect_timeout: ms(params.connect_timeout_ms),
            recovery_timeout: ms(params.recovery_timeout_ms),
            ping_interval: ms(params.ping_interval_ms.max(1)),
            stats: Stats::default(),
            last_committed: AtomicU64::new(0),
            heard: AtomicU64::new(0),
            lo: RwLock::new(None),
            link: Mutex::default(),
            changed: Notify::new(),
            hook: Mutex::new(None),
            callbacks: OnceLock::new(),
        };
        Arc::new(Import { inner: Arc::new(inner) })
    }

    /// Sends a request with file data and waits for the answer: first for a slot, then, if there is
    /// no connection, for one.
    ///
    /// The request goes on over lost connections and restarted servers. Errors: the service's own;
    /// and
    /// * ENOTCONN: the target was never reached, within `connect_timeout_ms` ([`Import::connect`]
    ///   says why);
    /// * ETIMEDOUT: the connection was lost and did not come back within `recovery_timeout_ms`.
    ///   Whether the request was executed is unknown;
    /// * ESHUTDOWN: the import was closed;
    /// * EINVAL: a body or bulk over the wire's limits;
    /// * EPROTO: the answer could not be understood.
    ///
    /// May be dropped while it waits; the request may then have been executed or not.
    pub async fn call(&self, request: P::Request, bulk: Bulk) -> sheen_wire::Result<Response<P::Reply>> {
        Ok(self.call_in_place(request, bulk).await?.copied()?)
    }

    /// As [`Import::call`]; file data of a server in this process may be [`Response::live`], where
    /// it lies.
    pub async fn call_in_place(&self, request: P::Request, bulk: Bulk) -> sheen_wire::Result<Response<P::Reply>> {
        self.call_within(&self.inner.slots, request, bulk, false).await
    }

    /// As [`Import::call`], for what is right only under a lock that this client has, such as a
    /// write at the end that it looked up. A client that the server gave up has no locks: sent
    /// again after that it would undo what others did since, so it fails.
    ///
    /// # Errors
    /// As [`Import::call`]; EIO: the server gave this client up (evicted it) before it answered.
    /// Whether it was executed is unknown.
    pub async fn call_guarded(&self, request: P::Request, bulk: Bulk) -> sheen_wire::Result<Response<P::Reply>> {
        Ok(self.call_within(&self.inner.slots, request, bulk, true).await?.copied()?)
    }

    /// As [`Import::call_guarded`], but past the requests that wait for a slot: for what others'
    /// requests wait for, such as giving up a lock, or writing before what was kept under it. At
    /// most [`URGENT_IN_FLIGHT_MAX`] are under way at a time.
    pub async fn call_urgent(&self, request: P::Request, bulk: Bulk) -> sheen_wire::Result<Response<P::Reply>> {
        Ok(self.call_within(&self.inner.urgent, request, bulk, true).await?.copied()?)
    }

    /// As [`Import::call`], for what may wait long at the server, such as for a lock: it takes no
    /// slot that others need in order to end the wait. At most [`PATIENT_IN_FLIGHT_MAX`] are under
    /// way at a time.
    pub async fn call_patient(&self, request: P::Request, bulk: Bulk) -> sheen_wire::Result<Response<P::Reply>> {
        Ok(self.call_within(&self.inner.patient, request, bulk, false).await?.copied()?)
    }

    /// Says what is done with callbacks; before the first call, and once. The handler runs on the
    /// thread that reads the connection (over `lo`: on that of the service): it must not block.
    pub fn on_callback(&self, handler: impl Fn(P::Callback) + Send + Sync + 'static) {
        if self.inner.callbacks.set(Arc::new(Handler(Box::new(handler)))).is_err() {
            tracing::error!(target_name = %self.inner.target, "a second handler for callbacks is not used");
        }
    }

    async fn call_within(
        &self,
        slots: &Slots,
        request: P::Request,
        bulk: Bulk,
        guarded: bool,
    ) -> sheen_wire::Result<Response<P::Reply>> {
        let inner = &self.inner;
        let _slot = slots.acquire().await?;
        let started = inner.net.rt().now();
        let (op, sent) = (P::op(&request), bulk.len());
        let answer = inner.route(request, bulk, guarded).await;
        let received = answer.as_ref().ok().map(|r| r.bulk.len() + r.live.as_ref().map_or(0, |live| live.len()));
        inner.stats.record(op, sent, received, inner.net.rt().now().since(started));
        answer
    }

    /// Connects if there is no connection; so that a mount can say what is wrong.
    pub async fn connect(&self) -> Result<(), ConnectError> {
        self.inner.ready().await.map(|_| ())
    }

    /// Says what to do when the server has forgotten this client (it was restarted, or gave the
    /// client up): `hook` is called after the new connection is made and before anything else goes
    /// over it, with a handle for calls of its own. If it fails the connection is given up and made
    /// again.
    pub fn on_restart<F>(&self, hook: F)
    where
        F: Fn(Recovering<P>) -> BoxFuture<'static, sheen_wire::Result<()>> + Send + Sync + 'static,
    {
        *self.inner.hook.lock() = Some(Arc::new(hook));
    }

    /// Says goodbye. Calls that wait and later ones fail with ESHUTDOWN. Returns when the server
    /// has closed the connection, or after two seconds.
    pub async fn close(&self) {
        self.inner.shut();
        let ended = async {
            while self.inner.link.lock().connecting {
                self.inner.wait_changed(|link| !link.connecting).await;
            }
        };
        let _ = self.inner.net.rt().timeout(connect::LINGER * 2, ended).await;
    }

    /// The state of the way.
    pub fn state(&self) -> ImportState {
        self.inner.lo_peer();
        self.inner.link.lock().state
    }

    /// Whether the target is known to be away: its connection is lost, or there was none to be had
    /// so far. One that was never needed is not.
    pub fn is_away(&self) -> bool {
        self.inner.lo_peer();
        let link = self.inner.link.lock();
        link.state != ImportState::Full && (link.incarnation.is_some() || link.missed)
    }

    /// Resolves when there is no connection; at once where there is none.
    pub async fn disconnected(&self) {
        loop {
            let mut services = std::pin::pin!(self.inner.net.changed());
            services.as_mut().enable();
            let mut changed = std::pin::pin!(self.inner.changed.notified());
            changed.as_mut().enable();
            if self.state() != ImportState::Full {
                return;
            }
            tokio::select! {
                biased;
                () = changed => {}
                // A target of this process goes without a word.
                () = services => {}
            }
        }
    }

    /// The target's name.
    pub fn target(&self) -> &str {
        &self.inner.target
    }

    /// The client's uuid.
    pub fn client_uuid(&self) -> &str {
        &self.inner.client
    }

    /// Where the target may be found.
    pub fn nids(&self) -> Vec<Nid> {
        self.inner.nids.lock().clone()
    }

    /// Changes where the target may be found. A connection to any other address is closed and made
    /// anew, because a target that moved may have left a host that says nothing.
    pub fn set_nids(&self, nids: Vec<Nid>) {
        self.inner.nids.lock().clone_from(&nids);
        let stale = {
            let link = self.inner.link.lock();
            link.connection.clone().filter(|_| link.nid.is_some_and(|nid| !nids.contains(&nid)))
        };
        if let Some(connection) = stale {
            connection.close();
        }
        self.inner.changed.notify_waiters();
    }

    /// Where the target is connected now.
    pub fn current_nid(&self) -> Option<Nid> {
        self.inner.link.lock().nid
    }

    /// Feature bits that client and service both have, as of the last connection.
    pub fn features(&self) -> u64 {
        self.inner.link.lock().features
    }

    /// All transactions up to this one are durable, as far as the server has said.
    pub fn last_committed(&self) -> u64 {
        self.inner.last_committed.load(Ordering::Acquire)
    }

    /// Figures as of now.
    pub fn stats(&self) -> ImportStats {
        let slots = &self.inner.slots;
        ImportStats { in_flight: slots.used(), in_flight_max: slots.used_max(), ..self.inner.stats.snapshot() }
    }

    /// Counts of requests begin anew.
    pub fn clear_stats(&self) {
        self.inner.stats.clear();
    }

    /// Requests under way at a time.
    pub fn max_rpcs_in_flight(&self) -> usize {
        self.inner.slots.limit()
    }

    /// Changes it; ERANGE unless 1 to [`RPCS_IN_FLIGHT_LIMIT`].
    pub fn set_max_rpcs_in_flight(&self, n: usize) -> sheen_wire::Result<()> {
        if !(1..=RPCS_IN_FLIGHT_LIMIT).contains(&n) {
            return Err(Errno::ERANGE);
        }
        self.inner.slots.set_limit(n);
        Ok(())
    }

    /// Bulk of one request, in pages of 4 KiB.
    pub fn max_pages_per_rpc(&self) -> u32 {
        self.inner.max_pages_per_rpc.load(Ordering::Relaxed)
    }

    /// Bulk of one request, in bytes.
    pub fn max_bulk_bytes(&self) -> usize {
        self.max_pages_per_rpc() as usize * PAGE_BYTES
    }

    /// Changes it; ERANGE unless 1 to 4096.
    pub fn set_max_pages_per_rpc(&self, n: u32) -> sheen_wire::Result<()> {
        if !(1..=PAGES_PER_RPC_LIMIT).contains(&n) {
            return Err(Errno::ERANGE);
        }
        self.inner.max_pages_per_rpc.store(n, Ordering::Relaxed);
        Ok(())
    }

    /// Whether bulk is checksummed.
    pub fn checksums(&self) -> bool {
        self.inner.checksums.load(Ordering::Relaxed)
    }

    /// Changes it.
    pub fn set_checksums(&self, on: bool) {
        self.inner.checksums.store(on, Ordering::Relaxed);
    }
}

impl<P: Protocol> Drop for Import<P> {
    fn drop(&mut self) {
        self.inner.shut();
    }
}

impl<P: Protocol> fmt::Debug for Import<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Import({} {})", self.inner.target, self.state())
    }
}

/// The way there is.
pub(crate) enum Way<P: Protocol> {
    Lo(Arc<LoPeer<P>>),
    Tcp,
}

impl<P: Protocol> Inner<P> {
    async fn route(
        self: &Arc<Self>,
        request: P::Request,
        bulk: Bulk,
        guarded: bool,
    ) -> sheen_wire::Result<Response<P::Reply>> {
        if let Some(peer) = self.lo_peer()
            && let Some(_running) = peer.enter()
        {
            return self.call_lo(&peer, request, bulk).await;
        }
        let (guarded, mut prepared) = (guarded.then(|| self.link.lock().evictions()), None);
        loop {
            match self.ready().await.map_err(Errno::from)? {
                Way::Lo(peer) => {
                    // If the target is just going, it is known not to be there any more at the next
                    // look.
                    if let Some(_running) = peer.enter() {
                        return self.call_lo(&peer, request, bulk).await;
                    }
                }
                Way::Tcp => {
                    let frame = match &mut prepared {
                        Some(frame) => frame,
                        none => none.insert(self.frame(&request, &bulk)?),
                    };
                    if let Some(waiting) = self.dispatch(frame, guarded)? {
                        let reply = waiting.await;
                        let copied = frame.header.flags & FLAG_BULK_COPY != 0;
                        if copied || !reply.as_ref().is_ok_and(|reply| reply.damaged) {
                            return self.answer(reply);
                        }
                        // Somebody wrote to it while it was sent.
                        frame.header.flags |= FLAG_BULK_COPY;
                        continue;
                    }
                    // The connection was lost in between.
                }
            }
        }
    }

    async fn call_lo(
        &self,
        peer: &LoPeer<P>,
        request: P::Request,
        bulk: Bulk,
    ) -> sheen_wire::Result<Response<P::Reply>> {
        let response = peer.call(request, bulk).await?;
        self.last_committed.fetch_max(response.last_committed, Ordering::AcqRel);
        Ok(response)
    }

    /// A request as it goes over tcp, but for the xid.
    fn frame(&self, request: &P::Request, bulk: &Bulk) -> sheen_wire::Result<Frame> {
        let body = frame::to_body(request).map_err(|_| Errno::EINVAL)?;
        if body.len() > BODY_BYTES_MAX || bulk.len() > BULK_BYTES_MAX {
            return Err(Errno::EINVAL);
        }
        let flags = if self.checksums.load(Ordering::Relaxed) { FLAG_BULK_CRC } else { 0 };
        let header = Header { flags, ..Header::new(Kind::Request, 0) };
        Ok(Frame { body: body.into(), bulk: bulk.clone(), ..Frame::from(header) })
    }

    /// What a reply says.
    fn answer(&self, reply: sheen_wire::Result<Frame>) -> sheen_wire::Result<Response<P::Reply>> {
        let Frame { header, body, bulk, damaged, .. } = reply?;
        self.last_committed.fetch_max(header.last_committed, Ordering::AcqRel);
        match header.status {
            0 if damaged => return Err(Errno::EIO),
            0 => {}
            errno @ 1.. => return Err(Errno(errno)),
            _ => return Err(Errno::EPROTO),
        }
        let body = frame::from_body(&body).map_err(|error| {
            tracing::warn!(target_name = %self.target, xid = header.xid, %error, "cannot understand a reply");
            Errno::EPROTO
        })?;
        Ok(Response { body, bulk, live: None, transno: header.transno, last_committed: header.last_committed })
    }
}
