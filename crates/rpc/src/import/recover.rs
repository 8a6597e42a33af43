//! Calls of the restart hook, over a connection that carries no other requests yet.

use sheen_wire::{Bulk, Protocol, frame::Welcome};

use super::{
    inner::{Recovering, RecoveringRoute},
    request_error::{Cause, RequestError},
    retained::RetainedChange,
};
use crate::service::Response;

impl<P: Protocol> Recovering<P> {
    /// Returns the target's name.
    pub fn target(&self) -> &str {
        &self.inner.target
    }

    /// Returns whether the target is in this process.
    pub fn is_local(&self) -> bool {
        matches!(self.route, RecoveringRoute::Lo(_))
    }

    /// Returns the server's welcome.
    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// Returns whether the server evicted this client. If false, the server was restarted and knows
    /// no clients.
    pub fn evicted(&self) -> bool {
        self.forgotten.evicted
    }

    /// Records that the restarted server did not wait for this client. Requests that were valid
    /// only under locks of before fail, as after an eviction.
    pub fn count_as_evicted(&self) {
        self.inner.link.lock().count_as_evicted();
    }

    /// Returns whether the server was restarted. It may have evicted this client before.
    pub fn restarted(&self) -> bool {
        self.forgotten.restarted
    }

    /// Returns the changes that the target has answered, and that it may have lost, in order of
    /// transno. Empty for protocols without [`Protocol::REPLAYS`].
    pub fn retained(&self) -> Vec<RetainedChange> {
        self.inner.link.lock().retained.all()
    }

    /// Returns the highest transno of a change that is not retained because of the bounds.
    pub fn dropped(&self) -> u64 {
        self.inner.link.lock().retained.dropped()
    }

    /// Drops retained changes: they are committed, or lost for good.
    pub fn forget(&self, transnos: impl IntoIterator<Item = u64>) {
        let mut link = self.inner.link.lock();
        transnos.into_iter().for_each(|transno| link.retained.remove(transno));
    }

    /// Sends a request, without taking a slot. Errors: the service's own, and ENOTCONN if the
    /// connection broke. The hook is then called again over the next connection.
    pub async fn call(&self, request: impl Into<P::Request>) -> Result<Response<P::Reply>, RequestError> {
        self.call_with(request.into(), Bulk::new()).await
    }

    /// As [`Recovering::call`], with file data.
    pub async fn call_with(&self, request: P::Request, bulk: Bulk) -> Result<Response<P::Reply>, RequestError> {
        let (op, mut xid) = (P::op(&request), None);
        self.answer(request, bulk, &mut xid).await.map_err(|cause| self.inner.errors.error(op, xid, cause))
    }

    async fn answer(
        &self,
        request: P::Request,
        bulk: Bulk,
        xid: &mut Option<u64>,
    ) -> Result<Response<P::Reply>, Cause> {
        match &self.route {
            RecoveringRoute::Lo(peer) => {
                let response = self.inner.call_lo(peer, request, bulk).await?;
                response.copied().map_err(|e| Cause::Answered(e.into()))
            }
            RecoveringRoute::Tcp(connection) => {
                let mut frame = self.inner.frame(&request, &bulk)?;
                let waiting = self.inner.dispatch_recovering(connection, &mut frame);
                *xid = Some(frame.header.xid);
                self.inner.answer(waiting.await)
            }
        }
    }
}
