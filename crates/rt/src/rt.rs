//! [`Rt`]: the handle through which everything reaches the outside world.

use std::{
    future::poll_fn,
    io,
    net::{IpAddr, SocketAddr},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use sheen_wire::Time;

use crate::{
    Disk, Elapsed, Instant, JoinHandle, Listener, RealOptions, Runtime, Stream,
    disk::DiskInner,
    net::{ListenerInner, StreamInner},
    real::{self, Real},
    sim, task,
};

/// A handle to the outside world, cheap to clone. All calls may be made on any thread.
#[derive(Clone)]
pub struct Rt(pub(crate) Inner);

#[derive(Clone)]
pub(crate) enum Inner {
    Real(Arc<Real>),
    Sim(sim::Host),
}

impl Rt {
    /// Starts the real thing.
    ///
    /// # Errors
    /// Threads or the event queue could not be made.
    pub fn real(options: RealOptions) -> io::Result<(Runtime, Rt)> {
        let (runtime, real) = Real::start(options)?;
        Ok((runtime, Rt(Inner::Real(Arc::new(real)))))
    }

    /// Monotonic time.
    pub fn now(&self) -> Instant {
        match &self.0 {
            Inner::Real(r) => r.now(),
            Inner::Sim(s) => s.now(),
        }
    }

    /// The time of day. May jump; for showing and for time stamps of files.
    pub fn wall(&self) -> Time {
        match &self.0 {
            Inner::Real(r) => r.wall(),
            Inner::Sim(s) => s.wall(),
        }
    }

    /// A random number, fast; not for secrets.
    pub fn random_u64(&self) -> u64 {
        match &self.0 {
            Inner::Real(r) => r.random_u64(),
            Inner::Sim(s) => s.random_u64(),
        }
    }

    /// Random bytes, from the kernel: unguessable (except in a simulation).
    pub fn fill_random(&self, buf: &mut [u8]) {
        match &self.0 {
            Inner::Real(r) => r.fill_random(buf),
            Inner::Sim(s) => s.fill_random(buf),
        }
    }

    /// Which life of the host this is: another number after each boot (simulated: after each crash
    /// of the host), the same for all processes in between. What was written to a disk and not
    /// synced is still there as long as it does not change.
    ///
    /// Where the kernel does not tell, it is another one for each [`Rt`]: that errs on the side of
    /// loss.
    pub fn boot_id(&self) -> u64 {
        match &self.0 {
            Inner::Real(r) => r.boot_id,
            Inner::Sim(s) => s.boot_id(),
        }
    }

    /// Ready after `duration`, counted from the call.
    pub fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send + 'static + use<> {
        enum Sleep {
            Real(tokio::time::Sleep),
            Sim(sim::Sleep),
        }
        let sleep = match &self.0 {
            Inner::Real(r) => Sleep::Real(r.sleep(duration)),
            Inner::Sim(s) => Sleep::Sim(s.sleep(duration)),
        };
        async move {
            match sleep {
                Sleep::Real(s) => s.await,
                Sleep::Sim(s) => s.await,
            }
        }
    }

    /// The future's output, or [`Elapsed`] (and the future dropped) if it takes longer than
    /// `duration`.
    ///
    /// # Errors
    /// Time ran out.
    pub async fn timeout<F: Future>(&self, duration: Duration, future: F) -> Result<F::Output, Elapsed> {
        let mut future = pin!(future);
        let mut sleep = pin!(self.sleep(duration));
        poll_fn(|cx| {
            // The future first: what is ready at once costs no timer.
            if let Poll::Ready(out) = future.as_mut().poll(cx) {
                return Poll::Ready(Ok(out));
            }
            sleep.as_mut().poll(cx).map(|()| Err(Elapsed))
        })
        .await
    }

    /// Runs a future as a task of its own. `name` says what it is for, in traces.
    pub fn spawn<F>(&self, name: &'static str, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        match &self.0 {
            Inner::Real(r) => JoinHandle(task::Inner::Real(r.handle.spawn(future))),
            Inner::Sim(s) => JoinHandle(task::Inner::Sim(s.spawn(name, future))),
        }
    }

    /// Runs what blocks on a thread for such work. If the future is dropped the work still ends by
    /// itself. Simulated: after a short virtual delay, at once.
    pub async fn run_blocking<T: Send + 'static>(&self, f: impl FnOnce() -> T + Send + 'static) -> T {
        match &self.0 {
            Inner::Real(r) => r.run_blocking(f).await,
            Inner::Sim(s) => s.run_blocking(f).await,
        }
    }

    /// Runs what may block for a short while on this thread, letting other tasks move to other
    /// threads meanwhile.
    pub fn block_in_place<T>(&self, f: impl FnOnce() -> T) -> T {
        match &self.0 {
            Inner::Real(r) => r.block_in_place(f),
            Inner::Sim(_) => f(),
        }
    }

    /// Waits for a future on a plain thread (a FUSE worker, say). On a thread of the runtime other
    /// tasks move away first.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] in a simulation, where there are no threads.
    pub fn block_on_thread<F: Future>(&self, future: F) -> io::Result<F::Output> {
        match &self.0 {
            Inner::Real(r) => Ok(r.block_on_thread(future)),
            Inner::Sim(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Listens at an address; port 0 takes a free one.
    ///
    /// # Errors
    /// EADDRINUSE, EADDRNOTAVAIL, EACCES, as bind(2).
    pub async fn listen(&self, addr: SocketAddr) -> io::Result<Listener> {
        match &self.0 {
            Inner::Real(r) => real::net::listen(&r.handle, addr).map(|l| Listener(ListenerInner::Real(l))),
            Inner::Sim(s) => s.listen(addr).map(|l| Listener(ListenerInner::Sim(l))),
        }
    }

    /// Connects. Takes as long as the network lets it: put a [`Rt::timeout`] around it.
    ///
    /// # Errors
    /// ECONNREFUSED, ETIMEDOUT, EHOSTUNREACH and the like, as connect(2).
    pub async fn connect(&self, addr: SocketAddr) -> io::Result<Stream> {
        match &self.0 {
            Inner::Real(r) => real::net::connect(&r.handle, addr).await.map(|s| Stream(StreamInner::Real(s))),
            Inner::Sim(s) => s.connect(addr).await.map(|s| Stream(StreamInner::Sim(s))),
        }
    }

    /// The address of this host from which packets to `to` leave, by its routes. Sends nothing.
    ///
    /// # Errors
    /// ENETUNREACH: there is no route. Else as connect(2).
    pub fn source_address(&self, to: SocketAddr) -> io::Result<IpAddr> {
        match &self.0 {
            Inner::Real(_) => real::net::source_address(to),
            Inner::Sim(s) => Ok(s.source_address(to)),
        }
    }

    /// This host's disk.
    pub fn disk(&self) -> Disk {
        match &self.0 {
            Inner::Real(r) => Disk(DiskInner::Real(real::disk::Disk(r.handle.clone()))),
            Inner::Sim(s) => Disk(DiskInner::Sim(s.disk())),
        }
    }
}
