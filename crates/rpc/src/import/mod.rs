//! A client's connection to one target.
//!
//! A request ([`Import::request`]) takes a slot and then uses the current connection. Over `lo` it
//! calls the service. Over tcp it is entered among the pending requests, its frame is posted, and
//! it waits for the reply. If there is no connection, the request waits for one.
//!
//! One task, the connector (`connect.rs`), makes the connection and restores it. It exists while
//! there is no connection; over tcp it also reads the replies. `Link` (`link.rs`) holds the
//! state that calls and the connector share, under one short lock.
//!
//! The states are Lustre's: NEW → CONNECTING → (RECOVER →) FULL → DISCONN → CONNECTING …, and
//! CLOSED.

mod budget;
mod calls;
mod config;
mod connect;
mod error;
mod inner;
mod link;
mod lo;
mod lo_peer;
mod preparation;
mod recover;
mod request;
mod request_error;
mod retained;
mod tcp;
mod waiting;

use std::{
    fmt,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use sheen_lnet::{Net, Nid};
use sheen_wire::{
    Errno, Protocol, Time,
    auth::{Flavor, Role},
};

pub use budget::RetainedBudget;
pub use config::{ImportConfig, ImportParams, PATIENT_IN_FLIGHT_MAX, RPCS_IN_FLIGHT_LIMIT, URGENT_BEYOND};
pub use error::{ConnectError, Miss};
pub use inner::Recovering;
pub use link::ImportState;
pub use preparation::Preparation;
pub use request::ImportRequest;
pub use request_error::{Cause, RequestError};
pub use retained::RetainedChange;

use crate::{
    service::{BoxFuture, Handler},
    stats::ImportStats,
};
use config::{PAGE_BYTES, PAGES_PER_RPC_LIMIT};
use inner::Inner;
use link::Link;

/// Poll interval of [`Import::guarded_requests_end`].
const GUARDED_POLL: Duration = Duration::from_millis(5);

/// A client's connection to one target. Dropping it disconnects.
pub struct Import<P: Protocol> {
    inner: Arc<Inner<P>>,
}

impl<P: Protocol> Import<P> {
    /// Creates an import. It connects at the first request or [`Import::connect`].
    pub fn new(net: Arc<Net>, config: ImportConfig) -> Arc<Import<P>> {
        Arc::new(Import { inner: Arc::new(Inner::new(net, config)) })
    }

    /// Sets the handler of callbacks. To be called once, before the first call. The handler runs on
    /// the thread that reads the connection (over `lo`: on that of the service) and must not block.
    pub fn on_callback(&self, handler: impl Fn(P::Callback) + Send + Sync + 'static) {
        if self.inner.callbacks.set(Arc::new(Handler(Box::new(handler)))).is_err() {
            tracing::error!(target_name = %self.inner.target, "ignoring a second handler of callbacks");
        }
    }

    /// Connects if there is no connection. The error has the reason, for the message of a mount.
    pub async fn connect(&self) -> Result<(), ConnectError> {
        self.inner.ready(false).await.map(|_| ())
    }

    /// Starts to connect if there is no connection, and does not wait. A target of this process is
    /// connected on return.
    pub fn begin_connect(&self) {
        if self.inner.current_route().is_none() {
            self.inner.start();
        }
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

    /// Returns the last 16 changes of the state with their times of day, the earliest first.
    pub fn state_history(&self) -> Vec<(Time, ImportState)> {
        self.inner.lo_peer();
        self.inner.link.lock().history()
    }

    /// Returns the incarnation of the server at the last connection. `None`: there was none.
    pub fn incarnation(&self) -> Option<u64> {
        self.inner.link.lock().incarnation
    }

    /// Returns the number of evictions of this client by the server.
    pub fn evictions(&self) -> u64 {
        self.inner.link.lock().evictions()
    }

    /// Returns whether the target is disconnected: its connection is lost, or it could not be
    /// reached so far. False for a target that was never needed.
    pub fn is_disconnected(&self) -> bool {
        self.inner.lo_peer();
        let link = self.inner.link.lock();
        link.state != ImportState::Full && (link.incarnation.is_some() || link.miss.is_some())
    }

    /// Returns how the last round over all addresses has failed. `None`: none has failed since the
    /// last connection.
    pub fn miss(&self) -> Option<Miss> {
        self.inner.link.lock().miss.clone()
    }

    /// Waits until a round over all addresses has failed since the last connection. Never resolves
    /// while there is a connection, or if the target is never needed.
    pub async fn missed(&self) {
        loop {
            let mut changed = std::pin::pin!(self.inner.changed.notified());
            changed.as_mut().enable();
            if self.miss().is_some() {
                return;
            }
            changed.await;
        }
    }

    /// Waits for the outcome of the attempt to connect that is under way: there is a connection, or
    /// a round over all addresses has failed since the last connection. Returns at once if there is
    /// no attempt.
    pub async fn attempt_ended(&self) {
        let is_under_way =
            |link: &Link| matches!(link.state, ImportState::Connecting | ImportState::Recover) && link.miss.is_none();
        while is_under_way(&self.inner.link.lock()) {
            self.inner.wait_changed(|link| !is_under_way(link)).await;
        }
    }

    /// Returns the longest time for which requests still wait, because the server was in recovery
    /// when this client connected. `None`: it was not, this time is over, or there is no
    /// connection.
    pub fn recovery_left(&self) -> Option<Duration> {
        self.inner.lo_peer();
        self.inner.link.lock().recovery_left(self.inner.net.rt().now())
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

    /// Waits until the guarded requests that are under way now have ended. For the restart of a
    /// server, which is rare.
    pub async fn guarded_requests_end(&self) {
        let (xid, preparation) = {
            let link = self.inner.link.lock();
            (link.xid_last(), link.preparation_last())
        };
        while self.inner.link.lock().has_guarded(xid, preparation) {
            self.inner.net.rt().sleep(GUARDED_POLL).await;
        }
    }

    /// Returns the target's name.
    pub fn target(&self) -> &str {
        &self.inner.target
    }

    /// Makes the error of a request that the caller did not send, or whose reply it cannot use.
    /// `op`: the name of the request, as in the statistics.
    pub fn failure(&self, op: &'static str, cause: Cause) -> RequestError {
        self.inner.errors.error(op, None, cause)
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
    /// reconnects, because a target that moved may have left a host that does not answer. This also
    /// ends a recovery of the client at such an address.
    pub fn set_nids(&self, nids: Vec<Nid>) {
        self.inner.nids.lock().clone_from(&nids);
        self.inner.link.lock().nid_last = None;
        self.reconnect_if(|_, nid, _| nid.is_some_and(|nid| !nids.contains(&nid)));
        self.inner.changed.notify_waiters();
    }

    /// Records that the MGS reports this incarnation of the target's server; 0: unknown. If that is
    /// news, closes a connection to an earlier one and reconnects: the host of that server may have
    /// stopped without a word. This also ends a recovery of the client at that server. A report
    /// closes at most one connection.
    pub fn set_incarnation(&self, incarnation: u64) {
        let known = std::mem::replace(&mut self.inner.link.lock().announced, incarnation);
        if incarnation != 0 && incarnation != known {
            self.reconnect_if(|link, _, present| present.is_some_and(|present| link.is_superseded(present)));
        }
    }

    /// Closes the connection if `stale` accepts its address and the server's incarnation. A present
    /// attempt to connect, or the pause before the next one, ends then as well.
    fn reconnect_if(&self, stale: impl Fn(&Link, Option<Nid>, Option<u64>) -> bool) {
        let connection = {
            let link = self.inner.link.lock();
            if link.state == ImportState::Full {
                if !stale(&link, link.nid, link.incarnation) {
                    return;
                }
                link.connection.clone()
            } else {
                let to = link.recovering.as_ref();
                to.filter(|to| stale(&link, Some(to.nid), Some(to.incarnation))).map(|to| to.sender.clone())
            }
        };
        if let Some(connection) = connection {
            connection.close();
        }
        self.inner.renewed.notify_waiters();
    }

    /// Returns the address of the current connection.
    pub fn current_nid(&self) -> Option<Nid> {
        self.inner.link.lock().nid
    }

    /// Returns the protection of the current connection. `None`: there is none, or the target is in
    /// this process.
    pub fn flavor(&self) -> Option<Flavor> {
        Some(self.inner.link.lock().connection.as_ref()?.flavor())
    }

    /// Returns the authority that this process has by the last connection. [`Role::Server`], if
    /// there was none or the target is in this process.
    pub fn role(&self) -> Role {
        self.inner.link.lock().role.clone().unwrap_or(Role::Server)
    }

    /// Returns how long requests wait for a disconnected target. `None`: without a limit.
    pub fn wait_limit(&self) -> Option<Duration> {
        (!self.inner.hard).then_some(self.inner.recovery_timeout)
    }

    /// Returns the feature bits that client and service both have, as of the last connection.
    pub fn features(&self) -> u64 {
        self.inner.link.lock().features
    }

    /// Returns the last transaction that the server reported as durable.
    pub fn last_committed(&self) -> u64 {
        self.inner.last_committed.load(Ordering::Acquire)
    }

    /// Returns the bytes of the answered changes that are retained because the target may lose
    /// them.
    pub fn retained_bytes(&self) -> usize {
        self.inner.link.lock().retained.bytes()
    }

    /// Whether so much is retained that the target should make it durable.
    pub fn retains_much(&self) -> bool {
        self.inner.link.lock().retained.are_many(P::RETAINED_BYTES_MAX)
    }

    /// Returns the statistics as of now.
    pub fn stats(&self) -> ImportStats {
        let slots = &self.inner.slots;
        let now = self.inner.net.rt().now();
        ImportStats { in_flight: slots.used(), in_flight_max: slots.used_max(), ..self.inner.stats.snapshot(now) }
    }

    /// Resets the counts of requests.
    pub fn clear_stats(&self) {
        self.inner.stats.clear(self.inner.net.rt().wall());
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
        self.inner.urgent.set_limit(n + URGENT_BEYOND);
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
