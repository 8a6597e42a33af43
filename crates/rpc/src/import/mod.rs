//! A client's connection to one target.
//!
//! A call takes a slot and then uses the current connection. Over `lo` it calls the service. Over
//! tcp it is entered among the pending requests, its frame is posted, and it waits for the reply.
//! If there is no connection, the call waits for one.
//!
//! One task, the connector (`connect.rs`), makes the connection and restores it. It exists while
//! there is no connection; over tcp it also reads the replies. [`Link`] holds the state that calls
//! and the connector share, under one short lock.
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

/// Maximum number of requests of an import under way (Lustre's OBD_MAX_RIF_MAX is 512; a reply
/// cache stores twice as many replies as this).
pub const RPCS_IN_FLIGHT_LIMIT: usize = 256;
/// Maximum number of requests of [`Import::call_urgent`] under way.
pub const URGENT_IN_FLIGHT_MAX: usize = 16;
/// Maximum number of requests of [`Import::call_patient`] under way.
pub const PATIENT_IN_FLIGHT_MAX: usize = 64;
/// Bytes in one of the pages that `max_pages_per_rpc` counts.
const PAGE_BYTES: usize = 4096;
/// Largest `max_pages_per_rpc`.
const PAGES_PER_RPC_LIMIT: u32 = (BULK_BYTES_MAX / PAGE_BYTES) as u32;

/// Configuration of an import.
#[derive(Clone, Debug)]
pub struct ImportConfig {
    /// Uuid of the client: the same for all imports of a mount, a new one at each mount. A client
    /// has one import for each target.
    pub client_uuid: String,
    /// Name of the target: `sheen-OST0000`, `MGS`.
    pub target: String,
    /// Uuid of the target, if no other target of the name will do; else empty.
    pub target_uuid: String,
    /// Addresses of the target, in the order to try. A target of this process is called directly if
    /// one of the NIDs is `0@lo` or an own address, or if there are none.
    pub nids: Vec<Nid>,
    /// Feature bits of the client.
    pub features: u64,
    /// Initial parameters.
    pub params: ImportParams,
}

/// An import's parameters. Only the first three can be changed later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImportParams {
    /// Maximum number of requests under way, 1 to [`RPCS_IN_FLIGHT_LIMIT`].
    pub max_rpcs_in_flight: usize,
    /// Maximum bulk of one request, in pages of 4 KiB, up to 4096. Stored for the code that builds
    /// requests.
    pub max_pages_per_rpc: u32,
    /// Whether bulk is checksummed (over tcp).
    pub checksums: bool,
    /// Time that the first connection may take before the calls that wait for it fail.
    pub connect_timeout_ms: u64,
    /// Time that a request waits for a lost connection to be restored before it fails with
    /// ETIMEDOUT.
    pub recovery_timeout_ms: u64,
    /// Time without a frame, while requests wait, after which the client pings the server. After
    /// three unanswered pings the connection counts as broken.
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
    /// Returns a configuration with default parameters and no features, for any target of the name.
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

    /// Restricts the configuration to the target with this uuid.
    pub fn of(self, target_uuid: &str) -> ImportConfig {
        ImportConfig { target_uuid: target_uuid.to_owned(), ..self }
    }
}

/// A client's connection to one target. Dropping it disconnects.
pub struct Import<P: Protocol> {
    inner: Arc<Inner<P>>,
}

/// Function that is called when the server has forgotten the client.
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
    /// Number of frames received. It changes on a live connection and not on a silent one.
    heard: AtomicU64,
    /// The target in this process, while calls go there.
    lo: RwLock<Option<Arc<LoPeer<P>>>>,
    link: Mutex<Link>,
    /// Notified when the state of the link changed.
    changed: Notify,
    hook: Mutex<Option<Arc<Hook<P>>>>,
    /// Handler of callbacks; `None`: callbacks are ignored.
    callbacks: OnceLock<Arc<Handler<P>>>,
}

impl<P: Protocol> Import<P> {
    /// Creates an import. It connects at the first call or [`Import::connect`].
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

    /// Sends a request with file data and waits for the reply. Waits first for a slot, then, if
    /// there is no connection, for one.
    ///
    /// The request survives lost connections and restarted servers. Errors: the service's own; and
    /// * ENOTCONN: the target was never reached, within `connect_timeout_ms` ([`Import::connect`]
    ///   returns the reason);
    /// * ETIMEDOUT: the connection was lost and not restored within `recovery_timeout_ms`. The
    ///   request may have been executed or not;
    /// * ESHUTDOWN: the import was closed;
    /// * EINVAL: a body or bulk over the wire's limits;
    /// * EPROTO: the reply could not be decoded.
    ///
    /// The call may be dropped while it waits. The request may then have been executed or not.
    pub async fn call(&self, request: P::Request, bulk: Bulk) -> sheen_wire::Result<Response<P::Reply>> {
        Ok(self.call_in_place(request, bulk).await?.copied()?)
    }

    /// As [`Import::call`], but file data of a server in this process may stay in its files
    /// ([`Response::live`]).
    pub async fn call_in_place(&self, request: P::Request, bulk: Bulk) -> sheen_wire::Result<Response<P::Reply>> {
        self.call_within(&self.inner.slots, request, bulk, false).await
    }

    /// As [`Import::call`], for a request that is valid only under a lock of this client, such as a
    /// write at the end of file that the client looked up. An evicted client has no locks. If the
    /// request were resent after an eviction, it would overwrite what other clients did since. So
    /// it fails instead.
    ///
    /// # Errors
    /// As [`Import::call`]; EIO: the server evicted this client before it replied. The request may
    /// have been executed or not.
    pub async fn call_guarded(&self, request: P::Request, bulk: Bulk) -> sheen_wire::Result<Response<P::Reply>> {
        Ok(self.call_within(&self.inner.slots, request, bulk, true).await?.copied()?)
    }

    /// As [`Import::call_guarded`], but without waiting for the slots of other requests. For
    /// requests that other clients wait for, such as cancelling a lock, or flushing the dirty data
    /// under it. At most [`URGENT_IN_FLIGHT_MAX`] are under way at a time.
    pub async fn call_urgent(&self, request: P::Request, bulk: Bulk) -> sheen_wire::Result<Response<P::Reply>> {
        Ok(self.call_within(&self.inner.urgent, request, bulk, true).await?.copied()?)
    }

    /// As [`Import::call`], for a request that may wait long at the server, such as for a lock. It
    /// takes no slot that the requests which end the wait need. At most [`PATIENT_IN_FLIGHT_MAX`]
    /// are under way at a time.
    pub async fn call_patient(&self, request: P::Request, bulk: Bulk) -> sheen_wire::Result<Response<P::Reply>> {
        Ok(self.call_within(&self.inner.patient, request, bulk, false).await?.copied()?)
    }

    /// Sets the handler of callbacks. To be called once, before the first call. The handler runs on
    /// the thread that reads the connection (over `lo`: on that of the service) and must not block.
    pub fn on_callback(&self, handler: impl Fn(P::Callback) + Send + Sync + 'static) {
        if self.inner.callbacks.set(Arc::new(Handler(Box::new(handler)))).is_err() {
            tracing::error!(target_name = %self.inner.target, "ignoring a second handler of callbacks");
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

    /// Connects if there is no connection. The error has the reason, for the message of a mount.
    pub async fn connect(&self) -> Result<(), ConnectError> {
        self.inner.ready().await.map(|_| ())
    }

    /// Sets the restart hook, for a server that has forgotten this client because it was restarted
    /// or evicted the client. The hook runs on the new connection before any other request goes
    /// over it, and gets a handle for calls of its own. If the hook fails, the connection is closed
    /// and made again.
    pub fn on_restart<F>(&self, hook: F)
    where
        F: Fn(Recovering<P>) -> BoxFuture<'static, sheen_wire::Result<()>> + Send + Sync + 'static,
    {
        *self.inner.hook.lock() = Some(Arc::new(hook));
    }

    /// Disconnects. Waiting and later calls fail with ESHUTDOWN. Returns when the server has closed
    /// the connection, or after two seconds.
    pub async fn close(&self) {
        self.inner.shut();
        let ended = async {
            while self.inner.link.lock().connecting {
                self.inner.wait_changed(|link| !link.connecting).await;
            }
        };
        let _ = self.inner.net.rt().timeout(connect::LINGER * 2, ended).await;
    }

    /// Returns the state of the connection.
    pub fn state(&self) -> ImportState {
        self.inner.lo_peer();
        self.inner.link.lock().state
    }

    /// Returns whether the target is disconnected: its connection is lost, or it could not be
    /// reached so far. False for a target that was never needed.
    pub fn is_away(&self) -> bool {
        self.inner.lo_peer();
        let link = self.inner.link.lock();
        link.state != ImportState::Full && (link.incarnation.is_some() || link.missed)
    }

    /// Resolves when there is no connection; at once if there is none now.
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
                // A target of this process is removed without notice.
                () = services => {}
            }
        }
    }

    /// Returns the target's name.
    pub fn target(&self) -> &str {
        &self.inner.target
    }

    /// Returns the client's uuid.
    pub fn client_uuid(&self) -> &str {
        &self.inner.client
    }

    /// Returns the addresses of the target.
    pub fn nids(&self) -> Vec<Nid> {
        self.inner.nids.lock().clone()
    }

    /// Changes the addresses of the target. Closes a connection to any other address and
    /// reconnects, because a target that moved may have left a host that does not answer.
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

    /// Returns the address of the current connection.
    pub fn current_nid(&self) -> Option<Nid> {
        self.inner.link.lock().nid
    }

    /// Returns the feature bits that client and service both have, as of the last connection.
    pub fn features(&self) -> u64 {
        self.inner.link.lock().features
    }

    /// Returns the last transaction that the server reported as durable.
    pub fn last_committed(&self) -> u64 {
        self.inner.last_committed.load(Ordering::Acquire)
    }

    /// Returns the statistics as of now.
    pub fn stats(&self) -> ImportStats {
        let slots = &self.inner.slots;
        ImportStats { in_flight: slots.used(), in_flight_max: slots.used_max(), ..self.inner.stats.snapshot() }
    }

    /// Resets the counts of requests.
    pub fn clear_stats(&self) {
        self.inner.stats.clear();
    }

    /// Returns the maximum number of requests under way.
    pub fn max_rpcs_in_flight(&self) -> usize {
        self.inner.slots.limit()
    }

    /// Sets it; ERANGE unless 1 to [`RPCS_IN_FLIGHT_LIMIT`].
    pub fn set_max_rpcs_in_flight(&self, n: usize) -> sheen_wire::Result<()> {
        if !(1..=RPCS_IN_FLIGHT_LIMIT).contains(&n) {
            return Err(Errno::ERANGE);
        }
        self.inner.slots.set_limit(n);
        Ok(())
    }

    /// Returns the maximum bulk of one request, in pages of 4 KiB.
    pub fn max_pages_per_rpc(&self) -> u32 {
        self.inner.max_pages_per_rpc.load(Ordering::Relaxed)
    }

    /// Returns the maximum bulk of one request, in bytes.
    pub fn max_bulk_bytes(&self) -> usize {
        self.max_pages_per_rpc() as usize * PAGE_BYTES
    }

    /// Sets it; ERANGE unless 1 to 4096.
    pub fn set_max_pages_per_rpc(&self, n: u32) -> sheen_wire::Result<()> {
        if !(1..=PAGES_PER_RPC_LIMIT).contains(&n) {
            return Err(Errno::ERANGE);
        }
        self.inner.max_pages_per_rpc.store(n, Ordering::Relaxed);
        Ok(())
    }

    /// Returns whether bulk is checksummed.
    pub fn checksums(&self) -> bool {
        self.inner.checksums.load(Ordering::Relaxed)
    }

    /// Sets it.
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

/// The current connection of an import.
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
                    // The target is being removed. The next `ready` does not find it any more.
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
                        // The data was changed while it was sent: request a copy.
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

    /// Encodes a request for tcp, without the xid.
    fn frame(&self, request: &P::Request, bulk: &Bulk) -> sheen_wire::Result<Frame> {
        let body = frame::to_body(request).map_err(|_| Errno::EINVAL)?;
        if body.len() > BODY_BYTES_MAX || bulk.len() > BULK_BYTES_MAX {
            return Err(Errno::EINVAL);
        }
        let flags = if self.checksums.load(Ordering::Relaxed) { FLAG_BULK_CRC } else { 0 };
        let header = Header { flags, ..Header::new(Kind::Request, 0) };
        Ok(Frame { body: body.into(), bulk: bulk.clone(), ..Frame::from(header) })
    }

    /// Decodes a reply.
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
            tracing::warn!(target_name = %self.target, xid = header.xid, %error, "cannot decode a reply: its request fails");
            Errno::EPROTO
        })?;
        Ok(Response { body, bulk, live: None, transno: header.transno, last_committed: header.last_committed })
    }
}
