//! Files that the MDT itself holds open: see modules `orphans` and `replaced`.

use std::collections::VecDeque;

use sheen_wire::{Fid, Time};

use crate::ClientId;

/// Owner of the handles that hold these files open. No export has the number 0.
pub(crate) const INTERNAL_CLIENT: ClientId = ClientId(0);

/// A file held open until no client has its OPEN bit any more. The service then passes it to
/// [`crate::Namespace::release_orphan`]. If the MDT stops before, the next recovery finds the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeldOrphan {
    /// FID of the file.
    pub fid: Fid,
    pub(crate) handle: u64,
}

/// Expiry time, handle and FID of each held file, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Replaced(pub(crate) VecDeque<(Time, u64, Fid)>);
