//! Services, their responses, and the exports of their clients.

use std::{
    any::Any,
    fmt,
    pin::Pin,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use sheen_lnet::{Frame, Live, Nid, Sender};
use sheen_wire::{
    Bulk, Protocol,
    auth::Role,
    frame::{self, Kind},
};
use tokio::sync::Notify;

use crate::host_stats::HostStats;

/// A future on the heap, as trait objects need it.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The response of a service to a request that succeeded.
#[derive(Clone, Debug)]
pub struct Response<R> {
    /// The reply.
    pub body: R,
    /// File data of the reply.
    pub bulk: Bulk,
    /// The file data, if it still lies in files and `bulk` is empty. Over tcp it is sent from the
    /// files. Over `lo` only [`crate::ImportRequest::send_in_place`] returns it in this form.
    pub live: Option<Live>,
    /// Transaction number of the request; 0 if the request changed nothing.
    pub transno: u64,
    /// All transactions up to this one are durable. 0: [`Service::last_committed`] is used instead.
    pub last_committed: u64,
    /// Incarnation of the server that answered. Set in the responses that a client receives.
    pub incarnation: u64,
}

impl<R> From<R> for Response<R> {
    fn from(body: R) -> Response<R> {
        Response { body, bulk: Bulk::new(), live: None, transno: 0, last_committed: 0, incarnation: 0 }
    }
}

impl<R> Response<R> {
    /// Returns a reply with file data.
    pub fn with_bulk(body: R, bulk: Bulk) -> Response<R> {
        Response { bulk, ..Response::from(body) }
    }

    /// Returns a reply with file data that still lies in files.
    pub fn with_live(body: R, live: Live) -> Response<R> {
        Response { live: Some(live), ..Response::from(body) }
    }

    /// Returns the same reply with the data in memory.
    ///
    /// Errors: as pread(2).
    pub(crate) fn copied(mut self) -> std::io::Result<Response<R>> {
        if let Some(live) = self.live.take() {
            self.bulk = live.copy()?;
        }
        Ok(self)
    }

    /// Returns the reply of a transaction.
    pub fn with_transno(body: R, transno: u64) -> Response<R> {
        Response { transno, ..Response::from(body) }
    }
}

/// The number of a request over tcp.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    /// Unique among the requests of the client; the same if it is resent.
    pub xid: u64,
    /// The client has the replies to all its requests up to this xid.
    pub acknowledged: u64,
}

/// The implementation of a target.
///
/// Calls of one client and of several run concurrently, in no particular order. A call may be
/// dropped before it is done, at any `await`, if its caller is no longer there. Steps that must not
/// stay half done belong between two awaits or into a task.
pub trait Service<P: Protocol>: Send + Sync + 'static {
    /// Executes a request of the client behind `export`.
    ///
    /// Errors go to the caller unchanged.
    fn call<'a>(
        &'a self,
        export: &'a Arc<Export>,
        request: P::Request,
        bulk: Bulk,
    ) -> BoxFuture<'a, sheen_wire::Result<Response<P::Reply>>>;

    /// As [`Service::call`], for a request over tcp that must be executed once
    /// ([`Protocol::once`]). The client may resend it, also to the next life of the service.
    fn call_once<'a>(
        &'a self,
        export: &'a Arc<Export>,
        _: Origin,
        request: P::Request,
        bulk: Bulk,
    ) -> BoxFuture<'a, sheen_wire::Result<Response<P::Reply>>> {
        self.call(export, request, bulk)
    }

    /// Handles the end of a client, which disconnected or was evicted: no more requests come from
    /// it under this export. Called once, without any lock held; must not block.
    fn disconnected(&self, _export: &Export) {}

    /// Handles the reconnect of a client. Callbacks that were sent over the old connection may be
    /// lost and have to be sent again. Must not block.
    fn reconnected(&self, _export: &Arc<Export>) {}

    /// Returns the last durable transaction: all up to this one are durable.
    fn last_committed(&self) -> u64 {
        0
    }

    /// Returns a number that changes at each start of the service. By it clients notice that the
    /// service forgot what was not durable.
    fn incarnation(&self) -> u64;

    /// Returns the longest time for which new requests still wait, because the service is in
    /// recovery. `None`, the default: it executes them now.
    fn recovery_left(&self) -> Option<Duration> {
        None
    }

    /// Returns the uuid that distinguishes the target from others of its name; empty if there are
    /// none.
    fn uuid(&self) -> &str {
        ""
    }

    /// Returns the feature bits of the service. Client and service use those that both have
    /// ([`Export::features`]).
    fn features(&self) -> u64 {
        0
    }

    /// Returns whether the audit trail of the process, if it has one, gets the requests of this
    /// client that are denied.
    fn audits(&self, _: &Export) -> bool {
        true
    }

    /// Returns the maximum bytes of bulk that the reply may have, up to
    /// [`sheen_wire::bulk::BULK_BYTES_MAX`]. Over tcp they are reserved from before the execution
    /// until the reply is sent. So they bound what a client that does not read can make the server
    /// hold.
    fn reply_bytes(&self, _request: &P::Request) -> usize {
        0
    }

    /// Returns a wait that precedes the execution of the request. `None`, the default: it can be
    /// executed now. Over tcp, the request holds no room for its reply during this wait. So a
    /// postponed request does not delay the requests for which it waits, such as those of a
    /// recovery. It must have no bulk, because its bulk would be in memory without room. Over `lo`,
    /// where requests need no room, the service waits by itself.
    fn postponed(&self, _export: &Arc<Export>, _request: &P::Request) -> Option<BoxFuture<'static, ()>> {
        None
    }

    /// Returns whether the request usually takes so little time that the task which reads the
    /// connection may start it itself. If false, a task of its own executes the request over tcp,
    /// so that the reading continues on another processor. Over `lo` the caller always executes the
    /// request.
    fn inline(&self, _request: &P::Request) -> bool {
        true
    }
}

/// A target's state of one client. Survives reconnects; ends when the client disconnects or is
/// evicted.
pub struct Export {
    client: String,
    id: u64,
    features: u64,
    nid: Mutex<Nid>,
    role: Role,
    /// Where callbacks are sent; `None` while there is no connection.
    callbacks: Mutex<Option<CallbackRoute>>,
    ended: AtomicBool,
    evicted: AtomicBool,
    ending: Notify,
    /// The target to which the client is connected; `None` in tests of services.
    target: Option<Weak<dyn Evict>>,
    /// The statistics of the client's host, from its first request on. `None`: there are too many
    /// hosts.
    pub(crate) host_stats: OnceLock<Option<Arc<HostStats>>>,
}

/// A target that can evict clients.
pub(crate) trait Evict: Send + Sync {
    /// Evicts the client of `export`, if that is the client's present export. `why` is logged.
    fn evict(&self, export: &Export, why: &str);

    /// Evicts the client of this uuid, if the target knows it. `why` is logged.
    fn evict_client(&self, client: &str, why: &str);
}

/// How callbacks reach a client.
#[derive(Clone)]
pub(crate) enum CallbackRoute {
    Tcp(Sender),
    Lo {
        /// A [`Handler`] of the protocol.
        handler: Arc<dyn Any + Send + Sync>,
        /// Notifies the client that the target evicted it or was removed, as the end of its
        /// connection would over tcp.
        lost: Arc<dyn Fn() + Send + Sync>,
    },
}

/// A client's handler of callbacks.
pub(crate) struct Handler<P: Protocol>(pub(crate) Box<dyn Fn(P::Callback) + Send + Sync>);

impl Export {
    /// Creates an export. Servers do this; public for tests of services.
    pub fn new(client: &str, id: u64, features: u64, nid: Nid) -> Arc<Export> {
        Export::of(None, client, id, features, nid, Role::Server)
    }

    pub(crate) fn of(
        target: Option<Weak<dyn Evict>>,
        client: &str,
        id: u64,
        features: u64,
        nid: Nid,
        role: Role,
    ) -> Arc<Export> {
        Arc::new(Export {
            client: client.to_owned(),
            id,
            features,
            nid: Mutex::new(nid),
            role,
            callbacks: Mutex::new(None),
            ended: AtomicBool::new(false),
            evicted: AtomicBool::new(false),
            ending: Notify::new(),
            target,
            host_stats: OnceLock::new(),
        })
    }

    /// Returns the client's uuid, which is the same over reconnects.
    pub fn client(&self) -> &str {
        &self.client
    }

    /// Returns the number of the export, from 1. It is unique among all exports of the target's
    /// life.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the feature bits that client and service both have.
    pub fn features(&self) -> u64 {
        self.features
    }

    /// Returns the client's authority.
    pub fn role(&self) -> &Role {
        &self.role
    }

    /// Returns the address of the client's last connection; `0@lo` for a client in this process.
    pub fn nid(&self) -> Nid {
        *self.nid.lock()
    }

    /// Returns whether the client has disconnected or was evicted.
    pub fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Records a new attachment of the client. Callbacks are possible again once the client is
    /// welcomed.
    pub(crate) fn moved_to(&self, nid: Nid) {
        *self.nid.lock() = nid;
        *self.callbacks.lock() = None;
    }

    pub(crate) fn set_callbacks(&self, route: Option<CallbackRoute>) {
        *self.callbacks.lock() = route;
    }

    /// Sends a callback to the client. Returns false if there is no connection at the moment;
    /// [`Service::reconnected`] is called when there is one. True does not mean that the callback
    /// arrived. Never waits. Over `lo` the client's handler runs on this thread, so the caller must
    /// hold no lock that the handler could need.
    pub fn callback<P: Protocol>(&self, callback: P::Callback) -> bool {
        let route = self.callbacks.lock().clone();
        match route {
            None => false,
            Some(CallbackRoute::Lo { handler, .. }) => match handler.downcast_ref::<Handler<P>>() {
                Some(handler) => {
                    handler.0(callback);
                    true
                }
                None => false,
            },
            Some(CallbackRoute::Tcp(sender)) => {
                let body = frame::to_body(&callback);
                body.is_ok_and(|body| sender.post(Frame { body: body.into(), ..Frame::new(Kind::Callback, 0) }).is_ok())
            }
        }
    }

    /// Evicts the client: closes its connection and calls [`Service::disconnected`]. If the client
    /// reconnects, it is a new client without any state. For a client that does not do what other
    /// clients wait for; `why`, which is logged, says what that is. A second call does nothing.
    pub fn evict(&self, why: &str) {
        match self.target.as_ref().map(Weak::upgrade) {
            Some(Some(target)) => target.evict(self, why),
            Some(None) => {}
            None => self.set_ended(),
        }
    }

    /// Evicts another client of the same target, by its uuid, as [`Export::evict`].
    pub fn evict_client(&self, client: &str, why: &str) {
        if let Some(target) = self.target.as_ref().and_then(Weak::upgrade) {
            target.evict_client(client, why);
        }
    }

    /// Returns whether the client was evicted, and has not disconnected by itself.
    pub fn is_evicted(&self) -> bool {
        self.evicted.load(Ordering::Acquire)
    }

    pub(crate) fn set_evicted(&self) {
        self.evicted.store(true, Ordering::Release);
    }

    pub(crate) fn set_ended(&self) {
        self.ended.store(true, Ordering::Release);
        *self.callbacks.lock() = None;
        self.ending.notify_waiters();
    }

    /// Returns the function that notifies a client of this process that the target dropped it. To
    /// be called without any lock held.
    pub(crate) fn lost(&self) -> Option<Arc<dyn Fn() + Send + Sync>> {
        match &*self.callbacks.lock() {
            Some(CallbackRoute::Lo { lost, .. }) => Some(lost.clone()),
            _ => None,
        }
    }

    /// Resolves when the client has disconnected or was evicted: no caller waits for its requests
    /// then.
    pub async fn ended(&self) {
        let mut ending = std::pin::pin!(self.ending.notified());
        ending.as_mut().enable();
        if !self.is_ended() {
            ending.await;
        }
    }
}

impl fmt::Debug for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Export({} #{} at {})", self.client, self.id, self.nid())
    }
}
