//! Why an operation below [`crate::llite`] failed: an error for the user, or a reason to repeat the
//! operation.
//!
//! Replies carry both as errnos. The conversion from a [`RequestError`], and [`Failure::of_reply`],
//! tell them apart where a reply arrives (`osc`, `mdc`). There is no conversion of a [`Failure`] to
//! an [`Errno`] by `?`: a function that returns an errno either repeats the operation, or decides
//! with [`Failure::into_errno`] not to. That is also where a failed request is logged.

use std::fmt;

use sheen_rpc::RequestError;
use sheen_wire::Errno;

/// Why a request or an operation on objects failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// An error for the user, found by this client or within a reply.
    Errno(Errno),
    /// An error for the user: a request failed.
    Request(RequestError),
    /// Objects of the layout are sealed: the file has another layout, or is about to get one.
    /// `partly`: a part of the operation may have been done before.
    LayoutMoved {
        /// Whether a part of the operation may have been done.
        partly: bool,
    },
    /// The MDT's decision depends on the caller's supplementary groups.
    NeedGroups,
    /// All OSTs that could take new objects are disconnected.
    OstsDisconnected,
    /// The MDT does not know the sequence of the new file's FID.
    UnknownSequence,
}

/// Result of an operation that may have to be repeated.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    /// Sealed objects, and nothing was done.
    pub const MOVED: Failure = Failure::LayoutMoved { partly: false };
    /// Sealed objects, and a part of the operation may have been done.
    pub const MOVED_PARTLY: Failure = Failure::LayoutMoved { partly: true };

    /// Decodes an error within a reply.
    pub fn of_reply(errno: Errno) -> Failure {
        match errno {
            Errno::MOVED => Failure::MOVED,
            Errno::MOVED_PARTLY => Failure::MOVED_PARTLY,
            Errno::NEED_GROUPS => Failure::NeedGroups,
            Errno::OSTS_DISCONNECTED => Failure::OstsDisconnected,
            Errno::UNKNOWN_SEQUENCE => Failure::UnknownSequence,
            errno => Failure::Errno(errno),
        }
    }

    /// Returns the error for the user of an operation that is not repeated. EIO: objects are
    /// sealed. EPROTO: the MDT asks for groups that it has. ETIMEDOUT: no OST was connected in
    /// time.
    ///
    /// Logs a failed request, unless the target gave an ordinary answer
    /// ([`RequestError::into_errno`]).
    pub fn into_errno(self) -> Errno {
        match self {
            Failure::Errno(errno) => errno,
            Failure::Request(error) => error.into_errno(),
            Failure::LayoutMoved { .. } => Errno::EIO,
            Failure::NeedGroups => Errno::EPROTO,
            Failure::OstsDisconnected => Errno::ETIMEDOUT,
            Failure::UnknownSequence => Errno::EINVAL,
        }
    }

    /// Returns the error for the user, and logs nothing. `None`: a reason to repeat the operation.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Failure::Errno(errno) => Some(*errno),
            Failure::Request(error) => Some(error.errno()),
            Failure::LayoutMoved { .. }
            | Failure::NeedGroups
            | Failure::OstsDisconnected
            | Failure::UnknownSequence => None,
        }
    }

    /// Whether objects are sealed.
    pub fn is_moved(&self) -> bool {
        matches!(self, Failure::LayoutMoved { .. })
    }
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Failure {
        Failure::Errno(errno)
    }
}

impl From<RequestError> for Failure {
    fn from(error: RequestError) -> Failure {
        match Failure::of_reply(error.errno()) {
            Failure::Errno(_) => Failure::Request(error),
            reason => reason,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Errno(errno) => errno.fmt(f),
            Failure::Request(error) => error.fmt(f),
            Failure::LayoutMoved { .. } => f.write_str("objects are sealed"),
            Failure::NeedGroups => f.write_str("the MDT needs the groups of the caller"),
            Failure::OstsDisconnected => f.write_str("all OSTs for new objects are disconnected"),
            Failure::UnknownSequence => f.write_str("the MDT does not know the sequence of the new file's FID"),
        }
    }
}
