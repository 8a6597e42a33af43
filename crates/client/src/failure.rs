//! Why an operation below [`crate::llite`] failed: an error for the user, or a reason to repeat the
//! operation.
//!
//! Replies carry both as errnos. [`Failure::of_reply`] tells them apart where a reply arrives
//! (`osc`, `mdc`). There is no conversion of a [`Failure`] to an [`Errno`] by `?`: a function that
//! returns an errno either repeats the operation, or decides with [`Failure::into_errno`] not to.

use std::fmt;

use sheen_wire::Errno;

/// Why a request or an operation on objects failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// An error for the user.
    Errno(Errno),
    /// Objects of the layout are sealed: the file has another layout, or is about to get one.
    /// `partly`: a part of the operation may have been done before.
    LayoutMoved {
        /// Whether a part of the operation may have been done.
        partly: bool,
    },
    /// The MDT's decision depends on the caller's supplementary groups.
    NeedGroups,
}

/// Result of an operation that may have to be repeated.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    /// Sealed objects, and nothing was done.
    pub const MOVED: Failure = Failure::LayoutMoved { partly: false };
    /// Sealed objects, and a part of the operation may have been done.
    pub const MOVED_PARTLY: Failure = Failure::LayoutMoved { partly: true };

    /// Decodes the error in a reply.
    pub fn of_reply(errno: Errno) -> Failure {
        match errno {
            Errno::MOVED => Failure::MOVED,
            Errno::MOVED_PARTLY => Failure::MOVED_PARTLY,
            Errno::NEED_GROUPS => Failure::NeedGroups,
            errno => Failure::Errno(errno),
        }
    }

    /// Returns the error for the user of an operation that is not repeated. EIO: objects are
    /// sealed. EPROTO: the MDT asks for groups that it has.
    pub fn into_errno(self) -> Errno {
        match self {
            Failure::Errno(errno) => errno,
            Failure::LayoutMoved { .. } => Errno::EIO,
            Failure::NeedGroups => Errno::EPROTO,
        }
    }

    /// Whether objects are sealed.
    pub fn is_moved(self) -> bool {
        matches!(self, Failure::LayoutMoved { .. })
    }
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Failure {
        Failure::Errno(errno)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::LayoutMoved { .. } => f.write_str("objects are sealed"),
            other => other.into_errno().fmt(f),
        }
    }
}
