//! The limits of ids, read from the namespace, and helpers of the other modules.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use sheen_wire::quota::Id;

use crate::mdt::Mdt;
use crate::state::core::Core;
use crate::state::osp::Osp;
use crate::state::quota::{Rule, Rules, Scope};

/// Pause after a failed request to an OST.
pub(super) const RETRY: Duration = Duration::from_secs(1);
/// Ids whose limits are read at once; the MDT executes nothing else meanwhile.
pub(super) const IDS_AT_ONCE: usize = 1024;

/// Runs futures at the same time, and returns their outputs in the same order.
pub(super) async fn all<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut running: Vec<_> = futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    poll_fn(|context| {
        let mut is_done = true;
        for (future, output) in running.iter_mut().filter(|(_, output)| output.is_none()) {
            match future.as_mut().poll(context) {
                Poll::Ready(ready) => *output = Some(ready),
                Poll::Pending => is_done = false,
            }
        }
        if is_done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    running.into_iter().filter_map(|(_, output)| output).collect()
}

/// Returns the limits of space of an id, within all targets and within pools.
pub(super) fn rules(core: &Core, id: Id) -> Rules {
    let scopes = std::iter::once(None).chain(core.ns.limiting_pools(id).into_iter().map(Some));
    scopes.filter_map(|scope| Some((scope, rule(core, id, scope)?))).collect()
}

fn rule(core: &Core, id: Id, scope: Scope) -> Option<Rule> {
    let limits = core.ns.quota_setting(id, scope).0.space;
    let (grace, since) = (core.ns.quota_grace(id.kind, scope).space, core.ns.space_since(id, scope));
    (!limits.is_none()).then_some(Rule { limits, grace, since })
}

impl Mdt {
    /// Returns the targets with objects: the MDT's own data service, and the OSTs by index.
    pub(crate) fn quota_targets(&self) -> Vec<Arc<Osp>> {
        self.osts.data().into_iter().chain(self.osts.all()).collect()
    }

    /// Reads the limits of ids, and lets them apply.
    pub(super) fn read_rules(&self, ids: &[Id]) {
        for some in ids.chunks(IDS_AT_ONCE) {
            let core = self.core.lock();
            // With the core lock held: otherwise, older limits could replace newer ones.
            self.quotas.set_rules(some.iter().map(|id| (*id, rules(&core, *id))).collect());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    fn poll<F: Future>(future: F) -> Option<F::Output> {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    #[test]
    fn all_waits_for_every_future_and_returns_outputs_in_order() {
        assert_eq!(poll(all([1, 2, 3].map(ready).to_vec())), Some(vec![1, 2, 3]));
        assert_eq!(poll(all(Vec::<std::future::Ready<u8>>::new())), Some(vec![]));
        assert_eq!(poll(all(vec![pending::<u8>(), pending()])), None);
    }
}
