//! The devices of a process, as `lctl dl` lists them.

use serde::{Deserialize, Serialize};

/// One device: a service, a target, or a client's connection to one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Device {
    /// `UP`, or another of Lustre's states (`AT`, `IN`, `ST`).
    pub status: String,
    /// Lustre's type: `mgs`, `mgc`, `mds`, `mdt`, `ost`, `obdfilter`, `lod`, `osp`, `lov`, `lmv`,
    /// `mdc`, `osc`.
    pub kind: String,
    /// Such as `sheen-OST0000` or `sheen-OST0000-osc-ff3298de21e05800`.
    pub name: String,
    /// The target's or the client's uuid.
    pub uuid: String,
    /// Number of references: the exports of a target, otherwise 1.
    pub refcount: u64,
    /// NID of its other end, if it has one. `lctl dl -t` shows it.
    pub peer: Option<String>,
}

impl Device {
    /// Creates a device that is up, with one reference and no peer.
    pub fn new(kind: &str, name: &str, uuid: &str) -> Device {
        Device { status: "UP".into(), kind: kind.into(), name: name.into(), uuid: uuid.into(), refcount: 1, peer: None }
    }

    /// Sets the NID of its other end.
    pub fn peer(mut self, nid: impl Into<String>) -> Device {
        self.peer = Some(nid.into());
        self
    }
}
