//! The state of an import that its handle, its calls and its connector share.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU32, AtomicU64},
    },
    time::Duration,
};

use parking_lot::{Mutex, RwLock};
use sheen_lnet::{Net, Nid, Sender};
use sheen_wire::{
    Protocol,
    frame::{FEATURE_OP_ID, Hello, Welcome},
};
use tokio::sync::Notify;

use super::{
    config::{ImportConfig, PAGES_PER_RPC_LIMIT, PATIENT_IN_FLIGHT_MAX, RPCS_IN_FLIGHT_LIMIT, URGENT_BEYOND},
    link::{Forgotten, ImportState, Link},
    lo_peer::LoPeer,
    request_error::ErrorLog,
};
use crate::{
    service::{BoxFuture, Handler},
    slots::Slots,
    stats::Stats,
    waits::Waits,
};

/// Function that is called when the server has forgotten the client.
pub(super) type Hook<P> = dyn Fn(Recovering<P>) -> BoxFuture<'static, sheen_wire::Result<()>> + Send + Sync;

pub(crate) struct Inner<P: Protocol> {
    pub(super) net: Arc<Net>,
    pub(super) client: String,
    pub(super) target: String,
    pub(super) target_uuid: String,
    pub(super) nids: Mutex<Vec<Nid>>,
    pub(super) features: u64,
    pub(super) slots: Slots,
    pub(super) urgent: Slots,
    pub(super) patient: Slots,
    pub(super) max_pages_per_rpc: AtomicU32,
    pub(super) checksums: AtomicBool,
    pub(super) hard: bool,
    pub(super) connect_timeout: Duration,
    pub(super) recovery_timeout: Duration,
    pub(super) ping_interval: Duration,
    pub(super) stats: Stats,
    pub(super) waits: Waits,
    pub(super) errors: Arc<ErrorLog>,
    pub(super) last_committed: AtomicU64,
    /// Number of frames received. It changes on a live connection and not on a silent one.
    pub(super) heard: AtomicU64,
    /// The target in this process, while calls go there.
    pub(super) lo: RwLock<Option<Arc<LoPeer<P>>>>,
    pub(super) link: Mutex<Link>,
    /// Notified when the state of the link changed.
    pub(super) changed: Notify,
    /// Notified when the MGS reported a new address or a restart of the target.
    pub(super) renewed: Notify,
    pub(super) hook: Mutex<Option<Arc<Hook<P>>>>,
    /// Handler of callbacks; `None`: callbacks are ignored.
    pub(super) callbacks: OnceLock<Arc<Handler<P>>>,
}

/// A connection to a server that has forgotten this client, given to the hook of
/// [`super::Import::on_restart`].
pub struct Recovering<P: Protocol> {
    pub(super) inner: Arc<Inner<P>>,
    pub(super) route: RecoveringRoute<P>,
    pub(super) welcome: Welcome,
    pub(super) forgotten: Forgotten,
}

/// How the calls of the restart hook reach the server.
pub(super) enum RecoveringRoute<P: Protocol> {
    Lo(Arc<LoPeer<P>>),
    Tcp(Sender),
}

impl<P: Protocol> Inner<P> {
    pub(super) fn new(net: Arc<Net>, config: ImportConfig) -> Inner<P> {
        let params = config.params;
        let ms = Duration::from_millis;
        Inner {
            errors: ErrorLog::new(&config.target, net.rt().clone()),
            waits: Waits::new(net.rt().clone()),
            stats: Stats::new(net.rt().wall()),
            net,
            client: config.client_uuid,
            target: config.target,
            target_uuid: config.target_uuid,
            nids: Mutex::new(config.nids),
            features: config.features,
            slots: Slots::new(params.max_rpcs_in_flight.clamp(1, RPCS_IN_FLIGHT_LIMIT)),
            urgent: Slots::new(params.max_rpcs_in_flight.clamp(1, RPCS_IN_FLIGHT_LIMIT) + URGENT_BEYOND),
            patient: Slots::new(PATIENT_IN_FLIGHT_MAX),
            max_pages_per_rpc: AtomicU32::new(params.max_pages_per_rpc.clamp(1, PAGES_PER_RPC_LIMIT)),
            checksums: AtomicBool::new(params.checksums),
            hard: params.hard,
            connect_timeout: ms(params.connect_timeout_ms),
            recovery_timeout: ms(params.recovery_timeout_ms),
            ping_interval: ms(params.ping_interval_ms.max(1)),
            last_committed: AtomicU64::new(0),
            heard: AtomicU64::new(0),
            lo: RwLock::new(None),
            link: Mutex::new(Link::new(config.retained)),
            changed: Notify::new(),
            renewed: Notify::new(),
            hook: Mutex::new(None),
            callbacks: OnceLock::new(),
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.link.lock().state == ImportState::Closed
    }

    /// Changes the state, unless the import is closed.
    pub(super) fn set_state(&self, state: ImportState) {
        let mut link = self.link.lock();
        if link.state != ImportState::Closed {
            link.enter_state(state, self.net.rt().wall());
        }
    }

    /// Waits for a change of the link; returns at once if `unless` already holds.
    pub(super) async fn wait_changed(&self, unless: impl Fn(&Link) -> bool) {
        let mut changed = std::pin::pin!(self.changed.notified());
        changed.as_mut().enable();
        if !unless(&self.link.lock()) {
            changed.await;
        }
    }

    pub(super) fn hello(&self, reconnect: bool) -> Hello {
        Hello {
            client: self.client.clone(),
            protocol: P::NAME.to_owned(),
            target: self.target.clone(),
            target_uuid: self.target_uuid.clone(),
            features: self.features | FEATURE_OP_ID,
            reconnect,
        }
    }
}
