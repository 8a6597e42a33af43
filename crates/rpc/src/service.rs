//! What a service is to those who call it.

use std::{
    any::Any,
    fmt,
    pin::Pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::Mutex;
use sheen_lnet::{Frame, Live, Nid, Sender};
use sheen_wire::{
    Bulk, Protocol,
    frame::{self, Kind},
};
use tokio::sync::Notify;

/// A future on the heap, as trait objects need it.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a service answers when it succeeds.
#[derive(Clone, Debug)]
pub struct Response<R> {
    /// The reply.
    pub body: R,
    /// File data that goes with it.
    pub bulk: Bulk,
    /// The file data, if it lies in files still and `bulk` is empty: over tcp it is sent from
    /// there, over `lo` it is for those who ask by [`crate::Import::call_in_place`].
    pub live: Option<Live>,
    /// The transaction that the request became, 0 for one that changed nothing.
    pub transno: u64,
    /// All transactions up to this one are durable. A service may leave it 0: then
    /// [`Service::last_committed`] is asked.
    pub last_committed: u64,
}

impl<R> From<R> for Response<R> {
    fn from(body: R) -> Response<R> {
        Response { body, bulk: Bulk::new(), live: None, transno: 0, last_committed: 0 }
    }
}

impl<R> Response<R> {
    /// A reply with file data.
    pub fn with_bulk(body: R, bulk: Bulk) -> Response<R> {
        Response { bulk, ..Response::from(body) }
    }

    /// A reply with file data that lies in files still.
    pub fn with_live(body: R, live: Live) -> Response<R> {
        Response { live: Some(live), ..Response::from(body) }
    }

    /// The same with the data in memory.
    ///
    /// Errors: as pread(2).
    pub(crate) fn copied(mut self) -> std::io::Result<Response<R>> {
        if let Some(live) = self.live.take() {
            self.bulk = live.copy()?;
        }
        Ok(self)
    }

    /// A reply of a transaction.
    pub fn with_transno(body: R, transno: u64) -> Response<R> {
        Response { transno, ..Response::from(body) }
    }
}

/// What stands behind a target.
///
/// Calls of one client and of several run concurrently, in no particular order. A call may be
/// dropped before it is done, at any `await`, when the one who waits for it has gone; what must not
/// stay half done belongs between two awaits or into a task.
pub trait Service<P: Protocol>: Send + Sync + 'static {
    /// Executes a request of the client behind `export`.
    ///
    /// Errors go to the caller as they are.
    fn call<'a>(
        &'a self,
        export: &'a Arc<Export>,
        request: P::Request,
        bulk: Bulk,
    ) -> BoxFuture<'a, sheen_wire::Result<Response<P::Reply>>>;

    /// The client said goodbye or was given up (evicted): nothing comes from it under this export
    /// any more. Called once, without any lock held; must not block.
    fn disconnected(&self, _export: &Export) {}

    /// The client came back over a new connection: callbacks that the old one may have swallowed
    /// are to be made again. Must not block.
    fn reconnected(&self, _export: &Arc<Export>) {}

    /// All transactions up to this one are durable.
    fn last_committed(&self) -> u64 {
        0
    }

    /// Changes whenever the service is started, so that clients notice that it forgot what was not
    /// durable.
    fn incarnation(&self) -> u64;

    /// What tells the target from any other of its name; empty: there is no other.
    fn uuid(&self) -> &str {
        ""
    }

    /// Feature bits that the service has. Client and service use those that both have
    /// ([`Export::features`]).
    fn features(&self) -> u64 {
        0
    }

    /// Most bytes of bulk that the reply may have, up to [`sheen_wire::bulk::BULK_BYTES_MAX`]. Over
    /// tcp they are reserved before the request is executed, until they are sent: what a client
    /// that does not read can make the server hold.
    fn reply_bytes(&self, _request: &P::Request) -> usize {
        0
    }

    /// Whether the request usually takes so little that the task which reads the connection may
    /// begin it itself. False: it is executed in a task of its own (over tcp; over `lo` the caller
    /// always executes it), so that the reading goes on meanwhile on another processor.
    fn inline(&self, _request: &P::Request) -> bool {
        true
    }
}

/// A target's end of the way to one client. Lives over reconnects, until the client says goodbye or
/// is given up.
pub struct Export {
    client: String,
    id: u64,
    features: u64,
    nid: Mutex<Nid>,
    /// Where callbacks go; `None` while there is no connection.
    callbacks: Mutex<Option<CallbackWay>>,
    gone: AtomicBool,
    going: Notify,
    /// Whose client it is; none in tests of services.
    target: Option<Weak<dyn Evict>>,
}

/// What gives clients up.
pub(crate) trait Evict: Send + Sync {
    /// Gives up the client behind `export`, if that is its present one.
    fn evict(&self, export: &Export);
}

/// How a client of some protocol is called back.
#[derive(Clone)]
pub(crate) enum CallbackWay {
    Tcp(Sender),
    Lo {
        /// A [`Handler`] of the protocol.
        handler: Arc<dyn Any + Send + Sync>,
        /// Tells the client that the target has given it up, or is gone itself: as the end of its
        /// connection would over tcp.
        lost: Arc<dyn Fn() + Send + Sync>,
    },
}

/// What a client does with callbacks.
pub(crate) struct Handler<P: Protocol>(pub(crate) Box<dyn Fn(P::Callback) + Send + Sync>);

impl Export {
    /// An export. Servers make them; public for tests of services.
    pub fn new(client: &str, id: u64, features: u64, nid: Nid) -> Arc<Export> {
        Export::of(None, client, id, features, nid)
    }

    pub(crate) fn of(target: Option<Weak<dyn Evict>>, client: &str, id: u64, features: u64, nid: Nid) -> Arc<Export> {
        Arc::new(Export {
            client: client.to_owned(),
            id,
            features,
            nid: Mutex::new(nid),
            callbacks: Mutex::new(None),
            gone: AtomicBool::new(false),
            going: Notify::new(),
            target,
        })
    }

    /// The client's uuid: the same over reconnects.
    pub fn client(&self) -> &str {
        &self.client
    }

    /// Unique among the exports that a target ever had while it ran, from 1.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Feature bits that client and service both have.
    pub fn features(&self) -> u64 {
        self.features
    }

    /// Where the client was last heard from; `0@lo` for one in this process.
    pub fn nid(&self) -> Nid {
        *self.nid.lock()
    }

    /// Whether the client has said goodbye or was given up.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// The client is attached anew; callbacks are not possible before it was welcomed.
    pub(crate) fn moved_to(&self, nid: Nid) {
        *self.nid.lock() = nid;
        *self.callbacks.lock() = None;
    }

    pub(crate) fn set_callbacks(&self, way: Option<CallbackWay>) {
        *self.callbacks.lock() = way;
    }

    /// Tells the client something unasked. False: there is no connection at the moment;
    /// [`Service::reconnected`] will tell when there is one. True does not mean that it arrived.
    /// Never waits; over `lo` the client's handler runs on this thread, so no lock may be held that
    /// it could want.
    pub fn callback<P: Protocol>(&self, callback: P::Callback) -> bool {
        let way = self.callbacks.lock().clone();
        match way {
            None => false,
            Some(CallbackWay::Lo { handler, .. }) => match handler.downcast_ref::<Handler<P>>() {
                Some(handler) => {
                    handler.0(callback);
                    true
                }
                None => false,
            },
            Some(CallbackWay::Tcp(sender)) => {
                let body = frame::to_body(&callback);
                body.is_ok_and(|body| sender.post(Frame { body: body.into(), ..Frame::new(Kind::Callback, 0) }).is_ok())
            }
        }
    }

    /// Gives the client up: its connection is closed, [`Service::disconnected`] is called, and
    /// should it come back it is a new client that nothing is known of. For one that does not do
    /// what others wait for. Done twice it does nothing.
    pub fn evict(&self) {
        match self.target.as_ref().map(Weak::upgrade) {
            Some(Some(target)) => target.evict(self),
            Some(None) => {}
            None => self.set_gone(),
        }
    }

    pub(crate) fn set_gone(&self) {
        self.gone.store(true, Ordering::Release);
        *self.callbacks.lock() = None;
        self.going.notify_waiters();
    }

    /// What tells a client of this process that the target has lost it; to be called without any
    /// lock held.
    pub(crate) fn lost(&self) -> Option<Arc<dyn Fn() + Send + Sync>> {
        match &*self.callbacks.lock() {
            Some(CallbackWay::Lo { lost, .. }) => Some(lost.clone()),
            _ => None,
        }
    }

    /// Resolves when the client has gone: nobody waits for its requests any more.
    pub async fn gone(&self) {
        let mut going = std::pin::pin!(self.going.notified());
        going.as_mut().enable();
        if !self.is_gone() {
            going.await;
        }
    }
}

impl fmt::Debug for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Export({} #{} at {})", self.client, self.id, self.nid())
    }
}
