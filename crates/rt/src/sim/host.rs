//! One life of a simulated host, as [`crate::Rt`] uses it.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use sheen_wire::{Errno, Time};

use super::{
    conn::host_ip,
    state::{Core, Event, EventKey, State},
};
use crate::Instant;

#[derive(Clone)]
pub(crate) struct Host {
    pub(crate) core: Arc<Core>,
    pub(crate) id: u32,
    pub(crate) life: u32,
    /// The boot to which this life belongs.
    pub(crate) boot: u32,
}

impl Host {
    /// Calls `f` with the world's state.
    ///
    /// # Errors
    /// EIO if this life of the host has ended.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut State) -> io::Result<R>) -> io::Result<R> {
        self.core.with(|s| if s.host(self.id).life == self.life { f(s) } else { Err(Errno::EIO.into()) })
    }

    pub(crate) fn now(&self) -> Instant {
        self.core.with(|s| s.now)
    }

    pub(crate) fn wall(&self) -> Time {
        self.core.with(|s| s.wall())
    }

    pub(crate) fn random_u64(&self) -> u64 {
        self.core.with(|s| s.rng.u64(..))
    }

    pub(crate) fn boot_id(&self) -> u64 {
        u64::from(self.id) << 32 | u64::from(self.boot)
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        self.core.with(|s| s.config.memory_bytes)
    }

    pub(crate) fn fill_random(&self, buf: &mut [u8]) {
        self.core.with(|s| s.rng.fill(buf));
    }

    pub(crate) fn sleep(&self, duration: Duration) -> Sleep {
        Sleep { deadline: self.now() + duration, host: self.clone(), timer: None }
    }

    pub(crate) async fn run_blocking<T>(&self, f: impl FnOnce() -> T) -> T {
        let delay = self.core.with(|s| s.sample(&s.config.blocking_delay.clone()));
        self.sleep(delay).await;
        f()
    }

    /// Waits for the duration of an fsync. Returns EIO if the host crashes meanwhile.
    pub(crate) async fn fsync_delay_elapsed(&self) -> io::Result<()> {
        let delay = self.with(|s| Ok(s.sample(&s.config.fsync_delay.clone())))?;
        self.sleep(delay).await;
        Ok(())
    }

    /// Returns the host's only address, or the loopback address if `to` is one.
    pub(crate) fn source_address(&self, to: SocketAddr) -> IpAddr {
        if to.ip().is_loopback() { to.ip() } else { host_ip(self.id) }
    }
}

/// A timer. Even with a zero duration it waits until no task is ready, so that a
/// loop around it yields.
pub(crate) struct Sleep {
    host: Host,
    deadline: Instant,
    timer: Option<EventKey>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let (deadline, timer) = (self.deadline, self.timer);
        let alive = self.host.with(|s| match timer {
            None => {
                let after = deadline.since(s.now);
                Ok((Some(s.plan(after, Event::Timer(cx.waker().clone()))), Poll::Pending))
            }
            Some(key) => match s.timer(key) {
                None => Ok((timer, Poll::Ready(()))),
                Some(waker) => {
                    waker.clone_from(cx.waker());
                    Ok((timer, Poll::Pending))
                }
            },
        });
        match alive {
            Ok((timer, poll)) => {
                self.timer = timer;
                poll
            }
            Err(_) => Poll::Pending,
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.timer {
            let event = self.host.core.with(|s| s.cancel(key));
            drop(event);
        }
    }
}
