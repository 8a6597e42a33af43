//! The connection to a target in the same process (`lo`).

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use sheen_lnet::Nid;
use sheen_wire::{Errno, Protocol};

use super::{
    inner::Inner,
    link::{ImportState, Link},
    lo_peer::LoPeer,
};
use crate::{
    service::CallbackRoute,
    target::{self, AnyTarget, Target},
};

impl<P: Protocol> Inner<P> {
    /// Returns the target in this process, if calls go there and it still exists.
    pub(super) fn lo_peer(&self) -> Option<Arc<LoPeer<P>>> {
        let peer = self.lo.read().clone()?;
        if peer.session.export.is_ended() {
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
        let former = lo.take();
        if link.state == ImportState::Full {
            link.enter_state(ImportState::Disconn, self.net.rt().wall());
            link.nid = None;
        }
        drop((lo, link));
        drop(former);
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

    /// Attaches to a target of this process. `lost`: the target calls it when it has evicted this
    /// client or was removed, so that a client which may hold locks learns of their loss at once.
    ///
    /// # Errors
    /// As [`AnyTarget::attach`].
    pub(super) fn attach_lo(
        &self,
        link: &Link,
        target: Arc<Target<P>>,
        lost: Arc<dyn Fn() + Send + Sync>,
    ) -> sheen_wire::Result<Arc<LoPeer<P>>> {
        self.stats.attempts.fetch_add(1, Ordering::Relaxed);
        let generation = AtomicU64::new(self.net.generation());
        let session = target.attach(&self.hello(link.incarnation.is_some()), Nid::Lo, None)?;
        let callbacks = self.callbacks.get();
        let route = callbacks.map(|handler| CallbackRoute::Lo { handler: handler.clone(), lost });
        target.welcomed(&session, route);
        Ok(Arc::new(LoPeer { target, session, generation }))
    }

    /// Says why a target of this process refused this client.
    pub(super) fn refusal(&self, target: &Target<P>, errno: Errno) -> String {
        match errno {
            Errno::ENODEV if target.has_uuid(&self.target_uuid) => "the target is being removed".to_owned(),
            Errno::ENODEV => "the target of this name has another uuid".to_owned(),
            errno => format!("refused: {errno}"),
        }
    }

    /// Sends calls to `peer` from now on.
    pub(super) fn enter_lo(&self, link: &mut Link, peer: &Arc<LoPeer<P>>) {
        let welcome = &peer.session.welcome;
        link.enter_state(ImportState::Full, self.net.rt().wall());
        link.nid = Some(Nid::Lo);
        link.features = welcome.features;
        link.recovered(welcome.incarnation);
        link.connected(welcome.recovery_secs, self.net.rt().now());
        self.last_committed.fetch_max(welcome.last_committed, Ordering::AcqRel);
        self.stats.connects.fetch_add(1, Ordering::Relaxed);
        *self.lo.write() = Some(peer.clone());
    }
}
