//! The sending direction of a connection.
//!
//! The caller that posts a frame writes it to the socket itself, if no other caller is writing and
//! the socket has room: no other task is woken. Only the holder of the [`WriteHalf`] may write. The
//! half is taken out of the shared state, used without the lock, and put back. If another caller
//! holds it, the frame goes into the queue, which the holder empties. If the socket is full, a
//! spawned task takes over the half and the queue, and ends when the queue is empty. So an idle
//! connection has no task.
//!
//! The queue is bounded for callers of [`Sender::send`]: a server adds no more replies that a peer
//! does not read. [`Sender::post`] never waits. It is for frames that are bounded elsewhere: a
//! client's requests by its slots, and pings.

use std::{
    collections::VecDeque,
    io,
    net::SocketAddr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use sheen_rt::{Instant, Rt, WriteHalf};
use sheen_wire::auth::{Claim, Flavor, Role};
use tokio::sync::Notify;

use crate::{
    accepted::Counted,
    fault::Faults,
    frame::{Encoded, Frame},
    seal::Seal,
};

/// Bytes in a connection's queue above which [`Sender::send`] waits: two of the largest frames.
const QUEUE_BYTES_MAX: usize = 32 << 20;
/// Frames that a poster writes, with those of other callers, before a task takes over. No caller is
/// delayed for long.
const POSTER_FRAMES_MAX: usize = 8;

/// Sends frames over a connection. Cheap to clone; usable from any thread.
#[derive(Clone)]
pub struct Sender(Arc<Shared>);

/// The addresses of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    /// The peer's address.
    pub(crate) peer: SocketAddr,
    /// The address of this end. `None`: the connection had broken before it was known.
    pub(crate) own: Option<SocketAddr>,
}

/// State that the two directions of a connection share.
pub(crate) struct Shared {
    rt: Rt,
    ends: Ends,
    faults: Arc<Faults>,
    write_timeout: Duration,
    out: Mutex<Out>,
    delayed: Mutex<Delayed>,
    /// The protection of frames that are posted from now on, unless they have none.
    flavor: OnceLock<Flavor>,
    /// The key that the client proved to know.
    claim: OnceLock<Claim>,
    /// Seals frames. Only the holder of the half uses it.
    seal: Mutex<Option<Seal>>,
    /// Notified when the queue shrank, or the connection closed.
    space: Notify,
    pub(crate) closed: AtomicBool,
    pub(crate) closing: Notify,
    /// Counts the connection while it exists.
    _counted: Option<Counted>,
}

struct Out {
    /// Absent while a caller or a task writes, and once the direction is closed.
    half: Option<WriteHalf>,
    queue: VecDeque<Encoded>,
    queue_bytes: usize,
    /// No frames are accepted any more; those in the queue are still sent.
    finishing: bool,
}

/// Frames that a [`crate::Fault`] delays.
#[derive(Default)]
struct Delayed {
    queue: VecDeque<(Instant, Encoded)>,
    pumping: bool,
}

impl Sender {
    pub(crate) fn new(
        rt: Rt,
        ends: Ends,
        half: WriteHalf,
        faults: Arc<Faults>,
        write_timeout: Duration,
        counted: Option<Counted>,
    ) -> Sender {
        let out = Out { half: Some(half), queue: VecDeque::new(), queue_bytes: 0, finishing: false };
        Sender(Arc::new(Shared {
            rt,
            ends,
            faults,
            write_timeout,
            out: Mutex::new(out),
            delayed: Mutex::default(),
            claim: OnceLock::new(),
            flavor: OnceLock::new(),
            seal: Mutex::default(),
            space: Notify::new(),
            closed: AtomicBool::new(false),
            closing: Notify::new(),
            _counted: counted,
        }))
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0
    }

    /// Returns the peer's address.
    pub fn peer(&self) -> SocketAddr {
        self.0.ends.peer
    }

    /// Returns the addresses of both ends.
    pub(crate) fn ends(&self) -> Ends {
        self.0.ends
    }

    /// Seals the frames that are posted from now on.
    pub(crate) fn protect(&self, seal: Seal) {
        let flavor = seal.flavor();
        *self.0.seal.lock() = Some(seal);
        let _ = self.0.flavor.set(flavor);
    }

    pub(crate) fn set_claim(&self, claim: Claim) {
        let _ = self.0.claim.set(claim);
    }

    /// Returns the key that the client of this connection proved to know. `None`: it was not
    /// asked.
    pub fn claim(&self) -> Option<&Claim> {
        self.0.claim.get()
    }

    /// Returns the authority of the connection's client.
    pub fn role(&self) -> &Role {
        self.claim().map_or(&Role::Server, Claim::role)
    }

    /// Returns the protection of the connection's frames.
    pub fn flavor(&self) -> Flavor {
        self.0.flavor.get().copied().unwrap_or(Flavor::Null)
    }

    /// Returns whether either side has ended the connection.
    pub fn is_closed(&self) -> bool {
        self.0.closed.load(Ordering::Acquire)
    }

    /// Sends a frame without waiting: writes it, or leaves it in the queue.
    ///
    /// Errors: `InvalidInput` for a frame over the wire's limits (the connection stays open).
    /// `NotConnected` or the socket's own error once the connection has ended. Success does not
    /// mean that the peer received the frame.
    pub fn post(&self, frame: Frame) -> io::Result<()> {
        let protected = self.flavor() != Flavor::Null;
        let encoded = Encoded::new(frame, protected).map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
        let fault = self.0.faults.get();
        if fault.drops(&self.0.rt) {
            self.close();
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let mut delayed = self.0.delayed.lock();
        if fault.delay.is_zero() && !delayed.pumping {
            drop(delayed);
            return self.0.write_or_queue(encoded);
        }
        delayed.queue.push_back((self.0.rt.now() + fault.delay, encoded));
        if !std::mem::replace(&mut delayed.pumping, true) {
            drop(self.0.rt.spawn("lnet-delay", self.0.clone().pump()));
        }
        Ok(())
    }

    /// As [`Sender::post`], but first waits until the queue has room.
    pub async fn send(&self, frame: Frame) -> io::Result<()> {
        self.room().await;
        self.post(frame)
    }

    /// Waits until the queue has room, or the connection has ended.
    pub async fn room(&self) {
        while !self.has_room() {
            let mut waiting = std::pin::pin!(self.0.space.notified());
            waiting.as_mut().enable();
            if !self.has_room() {
                waiting.await;
            }
        }
    }

    fn has_room(&self) -> bool {
        self.0.out.lock().queue_bytes < QUEUE_BYTES_MAX || self.is_closed()
    }

    /// Ends the sending direction once all posted frames are sent. The receiving direction stays
    /// open.
    pub fn finish(&self) {
        let idle = {
            let mut out = self.0.out.lock();
            out.finishing = true;
            out.half.take()
        };
        if let Some(half) = idle {
            drop(self.0.rt.spawn("lnet-finish", self.0.clone().shut(half)));
        }
    }

    /// Ends the connection now. Unsent frames are lost.
    pub fn close(&self) {
        self.0.close();
    }
}

impl Shared {
    pub(crate) fn close(&self) {
        let (half, queue) = {
            let mut out = self.out.lock();
            self.closed.store(true, Ordering::Release);
            out.queue_bytes = 0;
            (out.half.take(), std::mem::take(&mut out.queue))
        };
        drop((half, queue));
        self.space.notify_waiters();
        self.closing.notify_waiters();
    }

    /// Resolves when this side closes the connection.
    pub(crate) async fn closed(&self) {
        let mut closing = std::pin::pin!(self.closing.notified());
        closing.as_mut().enable();
        if !self.closed.load(Ordering::Acquire) {
            closing.await;
        }
    }

    fn write_or_queue(self: &Arc<Self>, frame: Encoded) -> io::Result<()> {
        let half = {
            let mut out = self.out.lock();
            if out.finishing || self.closed.load(Ordering::Acquire) {
                return Err(io::ErrorKind::NotConnected.into());
            }
            match out.half.take() {
                Some(half) => half,
                None => {
                    out.queue_bytes += frame.len();
                    out.queue.push_back(frame);
                    return Ok(());
                }
            }
        };
        self.write(half, frame)
    }

    /// Writes `frame` and the frames queued meanwhile, as far as possible without waiting. A task
    /// does the rest.
    fn write(self: &Arc<Self>, mut half: WriteHalf, mut frame: Encoded) -> io::Result<()> {
        for _ in 0..POSTER_FRAMES_MAX {
            match self.seal(&mut frame).and_then(|()| frame.try_write(&half)) {
                Ok(true) => {}
                Ok(false) => break,
                Err(e) => {
                    self.close();
                    return Err(e);
                }
            }
            match self.next(half) {
                Some(more) => (half, frame) = more,
                None => return Ok(()),
            }
        }
        drop(self.rt.spawn("lnet-write", self.clone().drain(half, frame)));
        Ok(())
    }

    /// Seals a frame of a protected connection. Only the holder of the half calls it, so the frames
    /// are sealed in the order in which they are written.
    fn seal(&self, frame: &mut Encoded) -> io::Result<()> {
        let mut seal = self.seal.lock();
        let sealed = seal.as_mut().map_or(Ok(()), |seal| frame.seal(seal));
        sealed.map_err(|_| io::Error::other("a frame cannot be protected"))
    }

    /// Writes `frame` and the queue; waits for the socket.
    async fn drain(self: Arc<Self>, mut half: WriteHalf, mut frame: Encoded) {
        loop {
            if self.seal(&mut frame).is_err() {
                return self.close();
            }
            let written = tokio::select! {
                biased;
                () = self.closed() => return,
                w = self.rt.timeout(self.write_timeout, frame.write(&mut half)) => w,
            };
            match written {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return self.close(),
                Err(_) => {
                    tracing::warn!(peer = %self.ends.peer, "closing a connection: the peer does not read");
                    return self.close();
                }
            }
            match self.next(half) {
                Some(more) => (half, frame) = more,
                None => return,
            }
        }
    }

    /// Takes the next frame from the queue, after one was written. `None`: there is none, and the
    /// half was put back or shut down.
    fn next(self: &Arc<Self>, half: WriteHalf) -> Option<(WriteHalf, Encoded)> {
        let mut out = self.out.lock();
        if let Some(frame) = out.queue.pop_front() {
            let had_room = out.queue_bytes < QUEUE_BYTES_MAX;
            out.queue_bytes -= frame.len();
            let has_room = out.queue_bytes < QUEUE_BYTES_MAX;
            drop(out);
            if has_room && !had_room {
                self.space.notify_waiters();
            }
            return Some((half, frame));
        }
        if self.closed.load(Ordering::Acquire) {
            return None;
        }
        if out.finishing {
            drop(out);
            drop(self.rt.spawn("lnet-finish", self.clone().shut(half)));
            return None;
        }
        out.half = Some(half);
        None
    }

    /// Shuts the direction down, so that the peer sees the end of the stream.
    async fn shut(self: Arc<Self>, mut half: WriteHalf) {
        // A failure means that the connection has ended, which the peer sees as well.
        let _ = self.rt.timeout(self.write_timeout, half.shutdown()).await;
    }

    /// Sends the delayed frames, each at its time.
    async fn pump(self: Arc<Self>) {
        loop {
            let due = {
                let mut delayed = self.delayed.lock();
                match delayed.queue.front() {
                    Some((due, _)) => *due,
                    None => {
                        delayed.pumping = false;
                        return;
                    }
                }
            };
            let wait = due.since(self.rt.now());
            if !wait.is_zero() {
                tokio::select! { biased; () = self.closed() => {}, () = self.rt.sleep_exactly(wait) => {} }
            }
            let frame = self.delayed.lock().queue.pop_front();
            let sent = frame.map(|(_, f)| self.write_or_queue(f));
            if matches!(sent, Some(Err(_))) {
                self.delayed.lock().queue.clear();
            }
        }
    }
}
