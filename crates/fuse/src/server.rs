//! Passes messages from a channel to the file system. All transports use it.

use std::{
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use sheen_wire::Errno;

use crate::{
    abi::flags::init::SETXATTR_EXT,
    channel::Channel,
    counters::Counters,
    init::{InitConfig, Negotiated},
    interrupts::EarlyInterrupts,
    notify::Notifier,
    parse::{self, Incoming, Malformed},
    pool::Pool,
    reply::Reply,
    request::Request,
};

/// A payload of at most this many bytes is copied out of the buffer in which it arrived. A larger
/// one keeps the buffer, or the ring entry, for as long as the data lives. Copying 16 KiB takes
/// about a microsecond.
pub const COPY_PAYLOAD_BYTES_MAX: usize = 16 << 10;

/// A file system. Its methods are called from many threads concurrently.
pub trait Filesystem: Send + Sync + 'static {
    /// Chooses the flags and limits to negotiate with the kernel. Called before the first request.
    fn init(&self, config: &mut InitConfig) {
        let _ = config;
    }

    /// Receives the negotiated values before the first request. Notifications may be sent from now
    /// on.
    fn started(&self, negotiated: &Negotiated, notifier: &Notifier) {
        let _ = (negotiated, notifier);
    }

    /// Handles a request and replies at once, or later from any thread. The calling thread serves
    /// no other request until this returns.
    fn request(&self, request: Request, reply: Reply);

    /// Reports that the program waiting for the request `unique` got a signal.
    ///
    /// Returns whether the file system knows the request, that is, received it and has not replied.
    /// If false, the session calls again as soon as it has handed the request over. A file system
    /// that aborts the operation replies EINTR to that request. It may also ignore the interrupt.
    /// May also be called for requests with a reply already sent.
    fn interrupt(&self, unique: u64) -> bool {
        let _ = unique;
        true
    }

    /// The mount has ended and no more requests arrive. Called once.
    fn destroy(&self) {}
}

/// State shared by the threads that serve a mount.
pub(crate) struct Server {
    filesystem: Arc<dyn Filesystem>,
    negotiated: Negotiated,
    pool: Arc<Pool>,
    early: EarlyInterrupts,
    notifier: Notifier,
    serving: AtomicUsize,
    ended: Mutex<bool>,
    end: Condvar,
}

/// One thread that serves the mount. The drop of the last one ends it.
pub(crate) struct Serving(Arc<Server>);

impl Server {
    pub(crate) fn new(
        filesystem: Arc<dyn Filesystem>,
        negotiated: Negotiated,
        pool: Arc<Pool>,
        notifier: Notifier,
    ) -> Arc<Server> {
        Arc::new(Server {
            filesystem,
            negotiated,
            pool,
            early: EarlyInterrupts::new(),
            notifier,
            serving: AtomicUsize::new(0),
            ended: Mutex::new(false),
            end: Condvar::new(),
        })
    }

    /// Registers a thread. All threads must be registered before the first starts, so that the
    /// count is right even if a later one fails to start.
    pub(crate) fn register(self: &Arc<Server>) -> Serving {
        self.serving.fetch_add(1, Ordering::AcqRel);
        Serving(self.clone())
    }

    pub(crate) fn negotiated(&self) -> &Negotiated {
        &self.negotiated
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    pub(crate) fn notifier(&self) -> &Notifier {
        &self.notifier
    }

    /// Whether the mount has ended and the file system is destroyed.
    pub(crate) fn has_ended(&self) -> bool {
        *self.ended.lock()
    }

    /// Waits for the end, without `deadline` for any time. Returns whether the mount has ended.
    pub(crate) fn wait_for_end(&self, deadline: Option<Instant>) -> bool {
        let mut ended = self.ended.lock();
        while !*ended {
            match deadline {
                None => self.end.wait(&mut ended),
                Some(deadline) if self.end.wait_until(&mut ended, deadline).timed_out() => break,
                Some(_) => {}
            }
        }
        *ended
    }

    /// Parses one message.
    pub(crate) fn parse(&self, message: &[u8]) -> Result<Incoming, Malformed> {
        parse::parse(message, self.negotiated.has(SETXATTR_EXT))
    }

    /// Handles one message, whose payload is attached. `channel` takes the reply.
    pub(crate) fn dispatch(&self, incoming: Result<Incoming, Malformed>, channel: Channel) {
        match incoming {
            Ok(Incoming::Request { request, answered, wide_copy, .. }) => {
                let unique = request.header.unique;
                let reply = if answered {
                    Reply::new(channel, unique).with_wide_copy(wide_copy)
                } else {
                    channel.release(unique);
                    Reply::silent(unique)
                };
                self.hand_over(request, reply);
                if self.early.was_early(unique) {
                    self.filesystem.interrupt(unique);
                }
            }
            Ok(Incoming::Interrupt { target }) => {
                channel.release(target);
                self.early.interrupt(target, |unique| self.filesystem.interrupt(unique));
            }
            Ok(Incoming::Destroy { unique }) => Reply::new(channel, unique).ok(),
            Ok(Incoming::Unsupported { unique, opcode }) => {
                tracing::debug!(opcode, "operation not supported; replying ENOSYS");
                Reply::new(channel, unique).error(Errno::ENOSYS);
            }
            Err(Malformed { unique: Some(unique), opcode }) => {
                tracing::error!(opcode, "malformed kernel request; replying EIO");
                Reply::new(channel, unique).error(Errno::EIO);
            }
            // FORGET, INTERRUPT and the like, or no whole header.
            Err(Malformed { unique: None, opcode }) => {
                tracing::error!(opcode, "malformed kernel message, which has no reply; ignoring it");
                channel.release(0);
            }
        }
    }

    /// Hands a request to the file system. A panic there fails the request with EIO; the thread
    /// continues.
    fn hand_over(&self, request: Request, reply: Reply) {
        let op = request.op.name();
        if catch_unwind(AssertUnwindSafe(|| self.filesystem.request(request, reply))).is_err() {
            tracing::error!(op, "the file system panicked; the request fails with EIO unless it was answered");
        }
    }
}

/// Returns where the payload of a message is that the caller attaches.
pub(crate) fn payload(incoming: &Result<Incoming, Malformed>) -> Option<Range<usize>> {
    match incoming {
        Ok(Incoming::Request { payload, .. }) => payload.clone(),
        _ => None,
    }
}

/// Copies a small payload out of memory that is used again.
pub(crate) fn copy(payload: &[u8], counters: &Counters) -> Bytes {
    counters.bytes_copied.fetch_add(payload.len() as u64, Ordering::Relaxed);
    Bytes::copy_from_slice(payload)
}

/// Inserts the payload into a request.
pub(crate) fn attach(incoming: &mut Result<Incoming, Malformed>, bytes: Bytes) {
    if let Ok(Incoming::Request { request, .. }) = incoming {
        parse::attach(request, bytes);
    }
}

impl std::ops::Deref for Serving {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.0
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if self.0.serving.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.notifier.close();
            self.0.filesystem.destroy();
            *self.0.ended.lock() = true;
            self.0.end.notify_all();
        }
    }
}
