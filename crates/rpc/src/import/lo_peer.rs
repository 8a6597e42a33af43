//! A target in the same process, to which an import is connected (`lo`).

use std::sync::{Arc, atomic::AtomicU64};

use sheen_wire::{Bulk, Protocol, frame::Welcome};

use crate::{
    gate::Pass,
    service::Response,
    target::{AnyTarget, Ended, Session, Target},
};

/// A target of this process and this client's session there. Dropping it disconnects.
pub(crate) struct LoPeer<P: Protocol> {
    pub(super) target: Arc<Target<P>>,
    pub(super) session: Session,
    /// Generation of the process's registry in which the target was last found there.
    pub(super) generation: AtomicU64,
}

impl<P: Protocol> LoPeer<P> {
    pub(super) async fn call(&self, request: P::Request, bulk: Bulk) -> sheen_wire::Result<Response<P::Reply>> {
        self.target.execute(&self.session.export, None, request, bulk).await
    }

    /// Returns a pass, to be held during a call. `None`: the target is being removed.
    pub(super) fn enter(&self) -> Option<Pass> {
        self.target.gate.enter()
    }

    pub(super) fn welcome(&self) -> &Welcome {
        &self.session.welcome
    }

    /// Disconnects. A second call does nothing.
    pub(super) fn detach(&self) {
        self.target.clone().detach(&self.session, Ended::Goodbye);
    }
}

impl<P: Protocol> Drop for LoPeer<P> {
    fn drop(&mut self) {
        self.detach();
    }
}
