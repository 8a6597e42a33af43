//! The state of a recovery after a crash. The task is in [`crate::recovery`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_recovery::{Stage, Window};
use sheen_rpc::Export;
use sheen_rt::{Instant, Rt};
use sheen_wire::{Errno, Time, mds::Request};
use tokio::sync::Notify;

use crate::config::MdtConfig;

/// A change that waits to be replayed.
#[derive(Debug)]
pub(crate) struct Change {
    pub export: Arc<Export>,
    pub request: Request,
    pub time: Time,
    pub layout: Option<Bytes>,
}

/// The state of a recovery.
#[derive(Debug)]
pub(crate) struct Recovery {
    pub window: Mutex<Window<Change, Errno>>,
    /// Notified when the window has changed.
    changed: Notify,
    ended: AtomicBool,
    /// An administrator ends the recovery.
    aborted: AtomicBool,
    /// Time that the MDT waits for a client, in seconds (`recovery_time_soft`).
    soft_secs: AtomicU64,
    /// Longest duration of a recovery, in seconds (`recovery_time_hard`).
    hard_secs: AtomicU64,
    pub times: Mutex<Times>,
    /// Last transno that was durable before the recovery.
    pub committed_before: u64,
}

/// Limits of a recovery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Limits {
    /// Time that the MDT waits for a client.
    pub soft: Duration,
    /// Longest duration.
    pub hard: Duration,
}

/// When a recovery began and ended, and when the MDT stops to wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// Wall clock at the start.
    pub start: Time,
    pub began: Instant,
    /// When a client last connected, or clients were dropped.
    pub waits_since: Instant,
    /// Duration; `None` while it is under way, and if there was nothing to recover.
    pub took: Option<Duration>,
}

impl Times {
    /// Returns the end of the wait for the clients that have not recovered.
    pub fn deadline(&self, limits: Limits) -> Instant {
        (self.waits_since + limits.soft).min(self.began + limits.hard)
    }
}

impl Recovery {
    /// Begins the recovery of these clients; without any there is none.
    pub fn new(clients: Vec<String>, committed_before: u64, config: &MdtConfig, rt: &Rt) -> Recovery {
        let window = Window::new(clients);
        let ended = AtomicBool::new(window.stage() == Stage::Ended);
        let now = rt.now();
        Recovery {
            window: Mutex::new(window),
            changed: Notify::new(),
            ended,
            aborted: AtomicBool::new(false),
            soft_secs: AtomicU64::new(config.recovery_time_soft_secs),
            hard_secs: AtomicU64::new(config.recovery_time_hard_secs),
            times: Mutex::new(Times { start: rt.wall(), began: now, waits_since: now, took: None }),
            committed_before,
        }
    }

    /// Returns whether the MDT executes new requests.
    pub fn is_ended(&self) -> bool {
        self.ended.load(Relaxed)
    }

    /// Lets the MDT execute new requests.
    pub fn end(&self, now: Instant) {
        {
            let mut times = self.times.lock();
            times.took = Some(now.since(times.began));
        }
        self.ended.store(true, Relaxed);
        self.notify();
    }

    /// Returns the limits.
    pub fn limits(&self) -> Limits {
        let secs = |secs: &AtomicU64| Duration::from_secs(secs.load(Relaxed));
        Limits { soft: secs(&self.soft_secs), hard: secs(&self.hard_secs) }
    }

    /// Changes the limits in seconds, also of a recovery that is under way.
    pub fn set_limits(&self, soft_secs: Option<u64>, hard_secs: Option<u64>) {
        for (cell, value) in [(&self.soft_secs, soft_secs), (&self.hard_secs, hard_secs)] {
            value.into_iter().for_each(|secs| cell.store(secs, Relaxed));
        }
        self.notify();
    }

    /// Ends the wait for clients that have not recovered. Does nothing after the end.
    pub fn abort(&self) {
        if !self.is_ended() {
            self.aborted.store(true, Relaxed);
            self.notify();
        }
    }

    /// Returns whether an administrator ended the recovery.
    pub fn is_aborted(&self) -> bool {
        self.aborted.load(Relaxed)
    }

    /// Reports a change of the window.
    pub fn notify(&self) {
        self.changed.notify_waiters();
    }

    /// Waits until `done` returns something; called again after each change of the window.
    pub async fn wait_for<T>(&self, mut done: impl FnMut(&Recovery) -> Option<T>) -> T {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(value) = done(self) {
                return value;
            }
            changed.await;
        }
    }

    /// Waits until the MDT executes new requests.
    pub async fn ended(&self) {
        self.wait_for(|me| me.is_ended().then_some(())).await;
    }

    /// Waits until all changes are replayed.
    pub async fn replayed(&self) {
        self.wait_for(|me| (me.is_ended() || me.window.lock().stage() > Stage::Replay).then_some(())).await;
    }
}
