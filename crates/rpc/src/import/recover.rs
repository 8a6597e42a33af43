//! Calls of the restart hook, over a connection that carries no other requests yet.

use sheen_wire::{Bulk, Protocol, frame::Welcome};

use super::inner::{Recovering, RecoveringRoute};
use crate::service::Response;

impl<P: Protocol> Recovering<P> {
    /// Returns the server's welcome.
    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// Returns whether the server evicted this client. If false, the server was restarted and knows
    /// no clients.
    pub fn evicted(&self) -> bool {
        self.evicted
    }

    /// Sends a request, without taking a slot. Errors: the service's own, and ENOTCONN if the
    /// connection broke. The hook is then called again over the next connection.
    pub async fn call(&self, request: impl Into<P::Request>) -> sheen_wire::Result<Response<P::Reply>> {
        let (request, bulk) = (request.into(), Bulk::new());
        match &self.route {
            RecoveringRoute::Lo(peer) => Ok(self.inner.call_lo(peer, request, bulk).await?.copied()?),
            RecoveringRoute::Tcp(connection) => {
                let mut frame = self.inner.frame(&request, &bulk)?;
                let reply = self.inner.dispatch_recovering(connection, &mut frame).await;
                self.inner.answer(reply)
            }
        }
    }
}
