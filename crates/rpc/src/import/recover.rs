//! Calls of the restart hook, over a connection that carries no other requests yet.

use std::sync::Arc;

use sheen_lnet::Sender;
use sheen_wire::{Bulk, Protocol, frame::Welcome};

use super::{Inner, lo::LoPeer};
use crate::service::Response;

/// A connection to a server that has forgotten this client, given to the hook of
/// [`super::Import::on_restart`].
pub struct Recovering<P: Protocol> {
    pub(super) inner: Arc<Inner<P>>,
    pub(super) way: RecoveringWay<P>,
    pub(super) welcome: Welcome,
    pub(super) evicted: bool,
}

pub(super) enum RecoveringWay<P: Protocol> {
    Lo(Arc<LoPeer<P>>),
    Tcp(Sender),
}

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
    pub async fn call(&self, request: P::Request, bulk: Bulk) -> sheen_wire::Result<Response<P::Reply>> {
        match &self.way {
            RecoveringWay::Lo(peer) => Ok(self.inner.call_lo(peer, request, bulk).await?.copied()?),
            RecoveringWay::Tcp(connection) => {
                let mut frame = self.inner.frame(&request, &bulk)?;
                let reply = self.inner.dispatch_recovering(connection, &mut frame).await;
                self.inner.answer(reply)
            }
        }
    }
}
