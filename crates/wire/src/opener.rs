//! Users of open files, for the changelog.
//!
//! They prove nothing: requests about an open file are permitted by the open itself. The MDT makes
//! the ids of a client with limits those that its nodemap or key permits.

use serde::{Deserialize, Serialize};

use crate::{Cred, Fid};

/// The user who opened a file, or truncates it by its path.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Opener {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

impl Opener {
    /// The user is not known: the changelog shows `u=0:0`. Also for the work of the system itself.
    pub const UNKNOWN: Opener = Opener { uid: 0, gid: 0 };

    /// Returns the user of these credentials.
    pub fn of(cred: &Cred) -> Opener {
        Opener { uid: cred.uid, gid: cred.gid }
    }

    /// Returns credentials for the changelog, without supplementary groups.
    pub fn cred(self) -> Cred {
        Cred { uid: self.uid, gid: self.gid, groups: None }
    }
}

/// A file that a client opens again ([`crate::mds::Request::Reopen`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Reopened {
    /// FID of the file.
    pub fid: Fid,
    /// Flags of the open ([`crate::mds::flags`]).
    pub flags: u32,
    /// The handle that it had, or [`crate::mds::NO_HANDLE`].
    pub handle: u64,
    /// The user who had opened it.
    pub opener: Opener,
}

impl Reopened {
    /// Creates the entry of a file whose user is not known.
    pub fn new(fid: Fid, flags: u32, handle: u64) -> Reopened {
        Reopened { fid, flags, handle, opener: Opener::UNKNOWN }
    }
}
