//! The MDT's decisions about a change, which a replay repeats.

use bytes::Bytes;
use sheen_wire::{Fid, Time};

/// The MDT's decisions when it first executed a change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decided {
    /// Transno of the change.
    pub transno: u64,
    /// Its time.
    pub time: Time,
    /// Layout of the file concerned, after the change.
    pub layout: Option<Bytes>,
    /// All files that the request's names referred to, and perhaps others. Empty: unknown.
    pub named: Vec<Fid>,
}
