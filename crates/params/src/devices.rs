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
    /// Number of references, as Lustre counts them: a constant of the type, and two per export.
    pub refcount: u64,
    /// NID of its other end, if it has one. `lctl dl -t` shows it.
    pub peer: Option<String>,
}

/// References that Lustre holds to a device of a type without exports.
fn references(kind: &str) -> u64 {
    match kind {
        "mds" | "mdt" | "ost" | "obdfilter" => 3,
        "lod" | "lov" => 4,
        _ => 5,
    }
}

impl Device {
    /// Creates a device that is up, without exports and peer.
    pub fn new(kind: &str, name: &str, uuid: &str) -> Device {
        let refcount = references(kind);
        Device { status: "UP".into(), kind: kind.into(), name: name.into(), uuid: uuid.into(), refcount, peer: None }
    }

    /// Counts the references of a target's exports.
    pub fn exports(mut self, exports: u64) -> Device {
        self.refcount += exports * 2;
        self
    }

    /// Sets the NID of its other end.
    pub fn peer(mut self, nid: impl Into<String>) -> Device {
        self.peer = Some(nid.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The recorded MDT had 9 clients, and each OST had 4.
    #[test]
    fn device_references_are_those_of_lustre() {
        for (kind, exports, refcount) in
            [("mdt", 9, 21), ("obdfilter", 4, 11), ("mds", 0, 3), ("lov", 0, 4), ("lmv", 0, 5), ("osc", 0, 5)]
        {
            assert_eq!(Device::new(kind, "a", "b").exports(exports).refcount, refcount, "{kind}");
        }
    }
}
