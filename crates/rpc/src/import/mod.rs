//! A client's connection to one target.
//!
//! A call takes a slot and then uses the current connection. Over `lo` it calls the service. Over
//! tcp it is entered among the pending requests, its frame is posted, and it waits for the reply.
//! If there is no connection, the call waits for one.
//!
//! One task, the connector (`connect.rs`), makes the connection and restores it. It exists while
//! there is no connection; over tcp it also reads the replies. `Link` (`link.rs`) holds the
//! state that calls and the connector share, under one short lock.
//!
//! The states are Lustre's: NEW → CONNECTING → (RECOVER →) FULL → DISCONN → CONNECTING …, and
//! CLOSED.

mod calls;
mod config;
mod connect;
mod error;
mod inner;
mod link;
mod lo;
mod lo_peer;
mod recover;
mod tcp;

use std::{
    fmt,
    sync::{Arc, atomic::Ordering},
};

use sheen_lnet::{Net, Nid};
use sheen_wire::{Bulk, Errno, Protocol};

pub use config::{ImportConfig, ImportParams, PATIENT_IN_FLIGHT_MAX, RPCS_IN_FLIGHT_LIMIT, URGENT_IN_FLIGHT_MAX};
pub use error::ConnectError;
pub use inner::Recovering;
pub use link::ImportState;

use crate::{
    service::{BoxFuture, Handler, Response},
    slots::Slots,
    slow,
    stats::ImportStats,
};
use config::{PAGE_BYTES, PAGES_PER_RPC_LIMIT};
use inner::Inner;

/// A client's connection to one target. Dropping it disconnects.
pub struct Import<P: Protocol> {
    inner: Arc<Inner<P>>,
}

impl<P: Protocol> Import<P> {
    /// Creates an import. It connects at the first call or [`Import::connect`].
    pub fn new(net: Arc<Net>, config: ImportConfig) -> Arc<Import<P>> {
        Arc::new(Import { inner: Arc::new(Inner::new(net, config)) })
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
        let answer = inner.call(request, bulk, guarded).await;
        let received = answer.as_ref().ok().map(|r| r.bulk.len() + r.live.as_ref().map_or(0, |live| live.len()));
        let took = inner.net.rt().now().since(started);
        inner.stats.record(op, sent, received, took);
        slow::client_request(&inner.target, op, took);
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
