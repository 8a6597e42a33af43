//! Fences: a client that the MDT has evicted is evicted by all OSTs as well, before another client
//! sees a change that the evicted one does not know. Otherwise it could write by an old layout, for
//! example to a mirror that was copied meanwhile.
//!
//! A client that an OST has evicted asks the MDT before it uses a LAYOUT lock again. It learns then
//! that it has none.
//!
//! An OST that does not answer gets the request when it is back. Meanwhile a client that reaches
//! it, and not the MDT, may still use it.

use std::{sync::Arc, time::Duration};

use sheen_wire::ost::Request;
use tracing::warn;

use crate::{mdt::Mdt, state::osp::Osp};

/// Time in which an OST should answer. Changes of layouts wait that long.
const FENCE_MAX: Duration = Duration::from_secs(5);

impl Mdt {
    /// Lets all OSTs evict a client that was just evicted, in the background.
    pub(crate) fn fence(&self, client: &str) {
        self.fences.begin(client);
        let Some(mdt) = self.me.upgrade() else { return };
        let client = client.to_owned();
        drop(self.rt.spawn("mdt-fence", async move {
            let osts = mdt.osts.all().into_iter().chain(mdt.osts.data()).filter(|osp| osp.connected());
            let tasks: Vec<_> =
                osts.map(|osp| mdt.rt.spawn("fence", evict(mdt.clone(), osp, client.clone()))).collect();
            for task in tasks {
                let _ = task.await;
            }
            mdt.fences.end();
        }));
    }

    /// Lets an OST that is back evict the clients that were evicted meanwhile.
    pub(crate) async fn fence_on(self: &Arc<Mdt>, osp: &Arc<Osp>) {
        for client in self.fences.clients() {
            if !evict(self.clone(), osp.clone(), client).await {
                return;
            }
        }
    }
}

/// Returns whether the OST has evicted the client.
async fn evict(mdt: Arc<Mdt>, osp: Arc<Osp>, client: String) -> bool {
    let request = Request::Evict { client };
    let op = request.op();
    let sent = mdt.rt.timeout(FENCE_MAX, osp.run(request)).await;
    match sent.unwrap_or_else(|_| Err(osp.no_reply(op, FENCE_MAX))) {
        Ok(()) => true,
        Err(e) => {
            warn!("{}: {e}: a client that was evicted may still use {}", mdt.name, osp.target);
            osp.lost();
            false
        }
    }
}
