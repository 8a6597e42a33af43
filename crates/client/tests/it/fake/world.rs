//! The state of the fake services, which all of them share.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use parking_lot::Mutex;
use sheen_rt::Rt;
use sheen_wire::{
    Attr, Errno, Fid, Time,
    ast::Grant,
    changelog,
    ldlm::{LockId, Resource},
    mgs::{Config, TargetKind},
    ost::ObjectAttr,
};
use tokio::sync::Notify;

use super::locks::FakeLocks;

/// A file or directory of the fake MDT.
pub struct Node {
    pub attr: Attr,
    pub layout: Option<bytes::Bytes>,
    pub entries: BTreeMap<bytes::Bytes, (Fid, u64)>,
    pub parent: Fid,
    pub target: bytes::Bytes,
    pub xattrs: BTreeMap<bytes::Bytes, bytes::Bytes>,
}

/// State of all fake services.
pub struct State {
    pub clock: i64,
    pub nodes: BTreeMap<Fid, Node>,
    pub objects: BTreeMap<(u32, Fid), Object>,
    /// Stripe size and OSTs of new files; `None`: no layout.
    pub layout: Option<(u32, Vec<u32>)>,
    /// Components of new files, in place of `layout`.
    pub template: Option<sheen_layout::Template>,
    /// Layouts that files get at the next layout lookup.
    pub moving: BTreeMap<Fid, sheen_layout::Layout>,
    pub config: Config,
    pub next: u64,
    pub open: BTreeMap<u64, Fid>,
    /// Log of requests: `ost1 write sync=false parts=2 len=131072`.
    pub log: Vec<String>,
    /// OSTs that reject writes with ENOSPC.
    pub full: BTreeSet<u32>,
    /// Epochs (boots of the hosts) of OSTs, if not 1.
    pub epochs: BTreeMap<u32, u64>,
    /// Groups that the MDT requires of the caller.
    pub groups_wanted: Option<Vec<u32>>,
    /// How long services take; zero: they reply at once.
    pub delay: Duration,
    pub incarnation: u64,
    pub locks: FakeLocks,
    /// Durable records of the changelog.
    pub changelog: Vec<changelog::Record>,
    pub habits: Habits,
}

pub struct World {
    pub state: Mutex<State>,
    pub config_changed: Notify,
    pub rt: Rt,
    /// Whether intent locks are revoked before the reply is sent.
    pub hasty: AtomicBool,
}

impl World {
    pub fn tick(state: &mut State) -> Time {
        state.clock += 1;
        Time { sec: state.clock, nsec: 0 }
    }

    /// Returns the requests since the last call.
    pub fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().log)
    }

    /// Revokes the locks of a reply before it is sent, if a test wants that.
    pub fn granted(&self, grants: &[Grant]) {
        if self.hasty.load(Relaxed) {
            for grant in grants {
                self.revoke(Resource::bits(grant.fid));
            }
        }
    }

    /// Resolves when replies of the MDT to requests of this kind are delivered.
    pub async fn delay_reply(&self, op: &str) {
        while self.state.lock().habits.late == Some(op) {
            self.rt.sleep(Duration::from_millis(1)).await;
        }
    }

    /// Returns how long a target says that its recovery may take.
    pub fn recovery_left(&self, kind: TargetKind, index: u32) -> Option<Duration> {
        let state = self.state.lock();
        let (recovering, left) = state.habits.recovery?;
        (recovering == kind && !state.habits.recovered.contains(&(kind, index))).then_some(left)
    }

    /// Waits until a target is not in recovery.
    pub async fn recovered(&self, kind: TargetKind, index: u32) {
        while self.recovery_left(kind, index).is_some() {
            self.rt.sleep(Duration::from_millis(1)).await;
        }
    }

    pub async fn pause(&self) {
        let delay = self.state.lock().delay;
        if !delay.is_zero() {
            self.rt.sleep(delay * (1 + self.rt.random_u64() % 5) as u32).await;
        }
    }
}

#[derive(Default)]
pub struct Object {
    pub data: Vec<u8>,
    pub blocks: BTreeSet<usize>,
    pub mtime: Option<Time>,
}

/// Behaviour of the fake OSTs.
#[derive(Default)]
pub struct Habits {
    /// Whether they grant all the space that is requested.
    pub grants_space: bool,
    /// Bytes of grant that writes have used.
    pub used: u64,
    /// Whether they delay all writes.
    pub hold: bool,
    /// Number of writes that they delay.
    pub held: usize,
    /// Kind of requests that the MDT executes and whose replies it delays.
    pub late: Option<&'static str>,
    /// Whether they delay all requests that look at objects.
    pub blind: bool,
    /// An OST that delays all writes.
    pub disconnected: Option<u32>,
    /// Error of all writes.
    pub write_error: Option<Errno>,
    /// Whether they say that an owner of each file is near a limit of space.
    pub tight: bool,
    /// Whether the MDT says so at an open.
    pub tight_opens: bool,
    /// Kinds of changes, and the files that they named.
    pub files: BTreeSet<(&'static str, Fid)>,
    /// Number of writes to answer with `LockFirst`.
    pub lock_first: usize,
    /// An object of which all writes are answered with `LockFirst`.
    pub refused: Option<Fid>,
    /// Whether they answer so to all writes without a lock, as in a recovery.
    pub only_held: bool,
    /// Replies to the glimpses.
    pub glimpsed: Vec<(LockId, Option<ObjectAttr>)>,
    /// Targets in recovery: those of this kind answer no requests, and say how long it may take.
    pub recovery: Option<(TargetKind, Duration)>,
    /// Targets of this kind that are not in recovery any more.
    pub recovered: BTreeSet<(TargetKind, u32)>,
    /// Number of restarts so far.
    pub restarts: u64,
    /// Whether restarted ones did not wait for the client.
    pub forgetful: bool,
    /// Sealed objects.
    pub sealed: BTreeSet<Fid>,
    /// Destroyed objects.
    pub destroyed: BTreeSet<Fid>,
    /// Whether the MDT has a data service.
    pub holds_data: bool,
    /// Whether the next layout lookup unseals the objects, as after a migration that failed.
    pub unseals: bool,
}

impl Habits {
    pub fn granted(&self, want: u64) -> u64 {
        if self.grants_space { want } else { 0 }
    }
}
