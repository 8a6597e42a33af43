//! A change that waits to be replayed. The recovery is in [`crate::recovery`].

use std::sync::Arc;

use bytes::Bytes;
use sheen_rpc::Export;
use sheen_wire::{Errno, Fid, Time, mds::Request};

/// The state of the MDT's recovery.
pub(crate) type Recovery = sheen_recoveryd::Recovery<Change, Errno>;

/// A change that waits to be replayed.
#[derive(Debug)]
pub(crate) struct Change {
    pub export: Arc<Export>,
    pub request: Request,
    pub time: Time,
    pub layout: Option<Bytes>,
    /// All files that its names referred to, and perhaps others.
    pub named: Vec<Fid>,
}
