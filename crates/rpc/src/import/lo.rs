//! The connection to a target in the same process (`lo`).

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use sheen_lnet::Nid;
use sheen_wire::{
    Bulk, Protocol,
    frame::{Hello, Welcome},
};

use super::{ImportState, Inner, link::Link};
use crate::{
    gate::Pass,
    service::{CallbackWay, Response},
    target::{self, AnyTarget, Session, Target},
};

/// A target of this process and this client's session there. Dropping it disconnects.
pub(crate) struct LoPeer<P: Protocol> {
    target: Arc<Target<P>>,
    session: Session,
    /// Generation of the process's registry in which the target was last found there.
    generation: AtomicU64,
}

impl<P: Protocol> LoPeer<P> {
    pub(super) async fn call(&self, request: P::Request, bulk: Bulk) -> sheen_wire::Result<Response<P::Reply>> {
        self.target.execute(&self.session.export, request, bulk).await
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
        self.target.clone().detach(&self.session, true);
    }
}

impl<P: Protocol> Drop for LoPeer<P> {
    fn drop(&mut self) {
        self.detach();
    }
}

impl<P: Protocol> Inner<P> {
    /// Returns the target in this process, if calls go there and it still exists.
    pub(super) fn lo_peer(&self) -> Option<Arc<LoPeer<P>>> {
        let peer = self.lo.read().clone()?;
        if peer.session.export.is_gone() {
            // The target has evicted this client.
            self.lost_lo(&peer);
            return None;
        }
        let generation = self.net.generation();
        if peer.generation.load(Ordering::Relaxed) == generation {
            return Some(peer);
        }
        if target::find::<P>(&self.net, &self.target).is_some_and(|now| Arc::ptr_eq(&now, &peer.target)) {
            peer.generation.store(generation, Ordering::Relaxed);
            return Some(peer);
        }
        self.lost_lo(&peer);
        None
    }

    /// Ends the connection: the target was removed, or does not know this client any more.
    fn lost_lo(&self, peer: &Arc<LoPeer<P>>) {
        let mut link = self.link.lock();
        let mut lo = self.lo.write();
        if !lo.as_ref().is_some_and(|now| Arc::ptr_eq(now, peer)) {
            return;
        }
        let gone = lo.take();
        if link.state == ImportState::Full {
            (link.state, link.nid) = (ImportState::Disconn, None);
        }
        drop((lo, link));
        drop(gone);
        self.changed.notify_waiters();
    }

    /// Returns the target, if it lives in this process and one of the NIDs means this process.
    pub(super) fn local_target(&self) -> Option<Arc<Target<P>>> {
        let own = {
            let nids = self.nids.lock();
            nids.is_empty() || nids.iter().any(|nid| self.net.is_own(nid))
        };
        if own { target::find(&self.net, &self.target) } else { None }
    }

    /// Attaches to a target of this process. `None`: the target is being removed, or refuses the
    /// client.
    pub(super) fn attach_lo(self: &Arc<Self>, link: &Link, target: Arc<Target<P>>) -> Option<Arc<LoPeer<P>>> {
        let generation = AtomicU64::new(self.net.generation());
        let session = target.attach(&self.hello(link.incarnation.is_some()), Nid::Lo, None).ok()?;
        let inner = Arc::downgrade(self);
        let way = self.callbacks.get().map(|handler| CallbackWay::Lo {
            handler: handler.clone(),
            // A client with a callback handler may hold locks. It must learn of their loss at once.
            lost: Arc::new(move || {
                if let Some(inner) = inner.upgrade().filter(|inner| inner.lo_peer().is_none()) {
                    inner.start();
                }
            }),
        });
        target.welcomed(&session, way);
        Some(Arc::new(LoPeer { target, session, generation }))
    }

    /// Sends calls to `peer` from now on.
    pub(super) fn enter_lo(&self, link: &mut Link, peer: &Arc<LoPeer<P>>) {
        let welcome = &peer.session.welcome;
        link.state = ImportState::Full;
        link.nid = Some(Nid::Lo);
        link.features = welcome.features;
        link.recovered(welcome.incarnation);
        self.last_committed.fetch_max(welcome.last_committed, Ordering::AcqRel);
        self.stats.connects.fetch_add(1, Ordering::Relaxed);
        *self.lo.write() = Some(peer.clone());
    }

    pub(super) fn hello(&self, reconnect: bool) -> Hello {
        Hello {
            client: self.client.clone(),
            protocol: P::NAME.to_owned(),
            target: self.target.clone(),
            target_uuid: self.target_uuid.clone(),
            features: self.features,
            reconnect,
        }
    }
}
