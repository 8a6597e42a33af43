//! [`Rt`]: the handle for all access to the outside world.

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
pub struct Rt(Inner);

#[derive(Clone)]
enum Inner {
    Real(Arc<Real>),
    Sim(sim::Host),
}

impl Rt {
    /// Starts the real runtime.
    ///
    /// # Errors
    /// Threads or the event queue could not be created.
    pub fn real(options: RealOptions) -> io::Result<(Runtime, Rt)> {
        let (runtime, real) = Real::start(options)?;
        Ok((runtime, Rt(Inner::Real(Arc::new(real)))))
    }

    /// Returns the monotonic time.
    pub fn now(&self) -> Instant {
        match &self.0 {
            Inner::Real(r) => r.now(),
            Inner::Sim(s) => s.now(),
        }
    }

    /// Returns the time since the boot of the host. Other than [`Rt::now`], it includes the time
    /// for which the host was suspended. Not comparable with that time.
    pub fn boot_time(&self) -> Instant {
        match &self.0 {
            Inner::Real(_) => real::lease::boot_time(),
            Inner::Sim(s) => s.now(),
        }
    }

    /// Gives this process a lease: it may serve and change files until `end` ([`Rt::boot_time`]). A
    /// later call replaces the end; [`Instant::FAR`] removes it. Afterwards each change of a file,
    /// and each sync, first calls the first `ended` and then fails. Hosts of a simulation are never
    /// halted, and their leases do not end.
    pub fn lease_until(&self, end: Instant, ended: fn()) {
        match &self.0 {
            Inner::Real(r) => r.lease.set(end, ended),
            Inner::Sim(_) => {}
        }
    }

    /// Whether the lease of this process holds ([`Rt::lease_until`]). It does if there is none.
    pub fn has_lease(&self) -> bool {
        match &self.0 {
            Inner::Real(r) => r.lease.holds(),
            Inner::Sim(_) => true,
        }
    }

    /// Returns the time of day. It may jump; use it for display and for time stamps of files only.
    pub fn wall(&self) -> Time {
        match &self.0 {
            Inner::Real(r) => r.wall(),
            Inner::Sim(s) => s.wall(),
        }
    }

    /// Returns a random number. Fast, but not suitable for secrets.
    pub fn random_u64(&self) -> u64 {
        match &self.0 {
            Inner::Real(r) => r.random_u64(),
            Inner::Sim(s) => s.random_u64(),
        }
    }

    /// Fills `buf` with random bytes from the kernel: unpredictable, except in a simulation.
    pub fn fill_random(&self, buf: &mut [u8]) {
        match &self.0 {
            Inner::Real(r) => r.fill_random(buf),
            Inner::Sim(s) => s.fill_random(buf),
        }
    }

    /// Returns an id of the host's current boot. It changes with each boot (in a simulation with
    /// each crash of the host) and is the same for all processes in between. As long as neither it
    /// nor [`Disk::mount_id`] has changed, data written to a disk and not synced is still intact.
    ///
    /// If the kernel provides no boot id, each [`Rt`] gets a different one: data then counts as
    /// lost although it may be intact.
    pub fn boot_id(&self) -> u64 {
        match &self.0 {
            Inner::Real(r) => r.boot_id,
            Inner::Sim(s) => s.boot_id(),
        }
    }

    /// Returns the size of the memory that this process may use, in bytes: the host's, or the limit
    /// of its control group, if that is less.
    pub fn memory_bytes(&self) -> u64 {
        match &self.0 {
            Inner::Real(_) => real::memory_bytes(),
            Inner::Sim(s) => s.memory_bytes(),
        }
    }

    /// Completes after `duration`, counted from the call.
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

    /// As [`Rt::sleep`], whose resolution is about a millisecond, but exact to some ten
    /// microseconds, at the cost of a few system calls. For injected delays.
    pub async fn sleep_exactly(&self, duration: Duration) {
        let slept = match &self.0 {
            Inner::Real(r) => r.sleep_exactly(duration).await,
            Inner::Sim(s) => {
                s.sleep(duration).await;
                Ok(())
            }
        };
        // Without a descriptor for the timer.
        if slept.is_err() {
            self.sleep(duration).await;
        }
    }

    /// Returns the future's output, or [`Elapsed`] if it takes longer than
    /// `duration`. The future is then dropped.
    ///
    /// # Errors
    /// [`Elapsed`] after `duration`.
    pub async fn timeout<F: Future>(&self, duration: Duration, future: F) -> Result<F::Output, Elapsed> {
        let mut future = pin!(future);
        let mut sleep = pin!(self.sleep(duration));
        poll_fn(|cx| {
            // Poll the future first: if it is ready at once, no timer is needed.
            if let Poll::Ready(out) = future.as_mut().poll(cx) {
                return Poll::Ready(Ok(out));
            }
            sleep.as_mut().poll(cx).map(|()| Err(Elapsed))
        })
        .await
    }

    /// Runs a future as a task. `name` is its name in traces.
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

    /// Runs a blocking function on a thread for blocking work. If the returned future is dropped,
    /// the function still runs to its end. In a simulation the function runs on the same thread
    /// after a short virtual delay.
    pub async fn run_blocking<T: Send + 'static>(&self, f: impl FnOnce() -> T + Send + 'static) -> T {
        match &self.0 {
            Inner::Real(r) => r.run_blocking(f).await,
            Inner::Sim(s) => s.run_blocking(f).await,
        }
    }

    /// As [`Rt::run_blocking`], on a thread of its own. So it does not wait for other blocking
    /// work, however much of it there is. For rare work that must be in time.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub async fn run_on_own_thread<T: Send + 'static>(
        &self,
        name: &str,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        match &self.0 {
            Inner::Real(r) => r.run_on_own_thread(name, f).await,
            Inner::Sim(s) => Ok(s.run_blocking(f).await),
        }
    }

    /// Runs a function that may block for a short time on this thread. Other tasks move to other
    /// threads meanwhile.
    pub fn block_in_place<T>(&self, f: impl FnOnce() -> T) -> T {
        match &self.0 {
            Inner::Real(r) => r.block_in_place(f),
            Inner::Sim(_) => f(),
        }
    }

    /// Waits for a future on a thread outside the runtime, such as a FUSE worker. On a thread of
    /// the runtime, the thread's other tasks first move to other threads.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] in a simulation, where there are no threads.
    pub fn block_on_thread<F: Future>(&self, future: F) -> io::Result<F::Output> {
        match &self.0 {
            Inner::Real(r) => Ok(r.block_on_thread(future)),
            Inner::Sim(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Listens at an address. Port 0 picks a free port.
    ///
    /// # Errors
    /// EADDRINUSE, EADDRNOTAVAIL, EACCES, as bind(2).
    pub async fn listen(&self, addr: SocketAddr) -> io::Result<Listener> {
        match &self.0 {
            Inner::Real(r) => real::net::listen(&r.handle, addr).map(|l| Listener(ListenerInner::Real(l))),
            Inner::Sim(s) => s.listen(addr).map(|l| Listener(ListenerInner::Sim(l))),
        }
    }

    /// Connects to an address. Has no time limit of its own: wrap it in a [`Rt::timeout`].
    ///
    /// # Errors
    /// ECONNREFUSED, ETIMEDOUT, EHOSTUNREACH and the like, as connect(2).
    pub async fn connect(&self, addr: SocketAddr) -> io::Result<Stream> {
        match &self.0 {
            Inner::Real(r) => real::net::connect(&r.handle, addr).await.map(|s| Stream(StreamInner::Real(s))),
            Inner::Sim(s) => s.connect(addr).await.map(|s| Stream(StreamInner::Sim(s))),
        }
    }

    /// Returns this host's source address for packets to `to`, by its routes. Sends nothing.
    ///
    /// # Errors
    /// ENETUNREACH if there is no route, otherwise the errors of connect(2).
    pub fn source_address(&self, to: SocketAddr) -> io::Result<IpAddr> {
        match &self.0 {
            Inner::Real(_) => real::net::source_address(to),
            Inner::Sim(s) => Ok(s.source_address(to)),
        }
    }

    /// Returns this host's disk.
    pub fn disk(&self) -> Disk {
        match &self.0 {
            Inner::Real(r) => Disk(DiskInner::Real(real::disk::Disk::new(r.handle.clone(), r.lease.clone()))),
            Inner::Sim(s) => Disk(DiskInner::Sim(s.disk())),
        }
    }
}

/// In this file because the simulated world does not know that an [`Rt`] may also be real.
impl sim::World {
    /// Returns an [`Rt`] of the host's present life. Host numbers are below 2^24. The first use of
    /// a number creates the host with an empty disk. Its address is that of [`sim::World::addr`].
    pub fn rt(&self, host: u32) -> Rt {
        Rt(Inner::Sim(self.host(host)))
    }
}
