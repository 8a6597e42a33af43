//! A request of a client: its options, and sending it.

use std::{pin::pin, sync::Arc, time::Duration};

use sheen_wire::{Bulk, Protocol};

use super::{
    Import,
    inner::Inner,
    request_error::{Cause, RequestError},
};
use crate::{service::Response, slots::Slots, slow, waits::Awaited};

/// A request to be sent, made by [`Import::request`].
#[must_use = "a request is sent by `send`"]
pub struct ImportRequest<'a, P: Protocol> {
    inner: &'a Arc<Inner<P>>,
    body: P::Request,
    bulk: Bulk,
    slots: &'a Slots,
    guarded: bool,
    /// Number of evictions up to which a guarded request is valid. `None`: their number when it has
    /// got its slot.
    since: Option<u64>,
    /// The lock that the request may have to wait for.
    lock: Option<Awaited>,
}

impl<P: Protocol> Import<P> {
    /// Prepares a request. [`ImportRequest::send`] sends it.
    pub fn request(&self, body: impl Into<P::Request>) -> ImportRequest<'_, P> {
        let inner = &self.inner;
        let (body, bulk, slots) = (body.into(), Bulk::new(), &inner.slots);
        ImportRequest { inner, body, bulk, slots, guarded: false, since: None, lock: None }
    }
}

impl<P: Protocol> ImportRequest<'_, P> {
    /// Sets the file data that is sent with the request.
    pub fn bulk(self, bulk: Bulk) -> Self {
        ImportRequest { bulk, ..self }
    }

    /// Marks a request that is valid only under a lock of this client, such as a write at the end
    /// of file that the client looked up. An eviction drops the lock, and other clients may change
    /// the file. So the request is not resent after an eviction: it fails with EIO, executed or
    /// not.
    pub fn guarded(self) -> Self {
        ImportRequest { guarded: true, ..self }
    }

    /// Marks a guarded request whose lock was held when [`Import::evictions`] returned this number.
    pub fn guarded_since(self, evictions: u64) -> Self {
        ImportRequest { guarded: true, since: Some(evictions), ..self }
    }

    /// Marks a guarded request that does not wait for the slots of other requests. Other clients
    /// wait for it: the cancel of a lock, or the flush of the dirty data under it. At most
    /// [`super::URGENT_BEYOND`] more than `max_rpcs_in_flight` are under way at a time.
    pub fn urgent(self) -> Self {
        ImportRequest { slots: &self.inner.urgent, guarded: true, ..self }
    }

    /// Marks a request that may wait long at the server, such as for a lock. It takes no slot that
    /// the requests which end the wait need. At most [`super::PATIENT_IN_FLIGHT_MAX`] are under way
    /// at a time.
    pub fn patient(self) -> Self {
        ImportRequest { slots: &self.inner.patient, ..self }
    }

    /// Sets the lock that the request may have to wait for, for the list of waits.
    pub fn awaits(self, lock: Awaited) -> Self {
        ImportRequest { lock: Some(lock), ..self }
    }

    /// Sends the request and waits for the reply. Waits first for a slot, then, if there is no
    /// connection, for one.
    ///
    /// The request survives lost connections and restarted servers. Errors, whose reasons are in
    /// [`Cause`]: the service's own; and, unless the import waits without a limit
    /// ([`super::ImportParams::hard`]),
    /// * ENOTCONN: the target was never reached, within `connect_timeout_ms` ([`Import::connect`]
    ///   returns the reason);
    /// * ETIMEDOUT: the connection was lost and not restored within `recovery_timeout_ms`. The
    ///   request may have been executed or not. Also on an import without a limit, if the request
    ///   was resent 16 times: it may be the reason why the connections broke;
    ///
    /// and in any case
    /// * ESHUTDOWN: the import was closed;
    /// * EINVAL: a body or bulk over the wire's limits;
    /// * EPROTO: the reply could not be decoded;
    /// * EIO: see [`ImportRequest::guarded`].
    ///
    /// The future may be dropped while it waits. The request may then have been executed or not.
    pub fn send(self) -> impl Future<Output = Result<Response<P::Reply>, RequestError>> {
        self.run(false)
    }

    /// Sends the request like [`ImportRequest::send`], but file data of a server in this process
    /// may stay in its files ([`Response::live`]).
    pub fn send_in_place(self) -> impl Future<Output = Result<Response<P::Reply>, RequestError>> {
        self.run(true)
    }

    async fn run(self, in_place: bool) -> Result<Response<P::Reply>, RequestError> {
        let ImportRequest { inner, mut body, bulk, slots, guarded, since, lock } = self;
        let (op, sent, mut xid) = (P::op(&body), bulk.len(), None);
        let waits_for_change = P::waits_for_change(&body);
        let made = P::delay(&mut body, Duration::ZERO).then(|| inner.net.rt().now());
        // The slots are closed with the import.
        let slot = inner.waits.track(&Awaited::Slot(op), pin!(slots.acquire())).await;
        let slot = slot.map_err(|_| inner.errors.error(op, None, Cause::Closed))?;
        inner.stats.sending(slots.used());
        let started = inner.net.rt().now();
        if let Some(made) = made {
            P::delay(&mut body, started.since(made));
        }
        let awaited = lock.unwrap_or(Awaited::Reply(op));
        let guarded = guarded.then(|| since.unwrap_or_else(|| inner.link.lock().evictions()));
        let answer = inner.call(body, bulk, guarded, &awaited, &mut xid).await;
        let received = answer.as_ref().ok().map(|r| r.bulk.len() + r.live.as_ref().map_or(0, |live| live.len()));
        let now = inner.net.rt().now();
        let took = now.since(started);
        if matches!(answer, Ok(_) | Err(Cause::Answered(_))) {
            inner.stats.replied(now);
        }
        inner.stats.record(op, sent, received, took);
        if !waits_for_change {
            slow::client_request(&inner.target, op, took);
        }
        drop(slot);
        let answer = match answer {
            Ok(response) if !in_place => response.copied().map_err(|e| Cause::Answered(e.into())),
            answer => answer,
        };
        answer.map_err(|cause| inner.errors.error(op, xid, cause))
    }
}
