//! Why a target cannot be reached.

use sheen_wire::Errno;

/// Why a target cannot be reached.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// It was not reached in the time allowed.
    #[error("cannot reach {target}: {reason}; check that the server runs and that the address is right")]
    Unreachable {
        /// The target.
        target: String,
        /// The last attempt and its outcome.
        reason: String,
    },
    /// The connection was lost and not restored in time.
    #[error("lost the connection to {target} and could not restore it in {seconds} s")]
    TimedOut {
        /// The target.
        target: String,
        /// The time allowed.
        seconds: u64,
    },
    /// The import was closed.
    #[error("the connection to {target} was closed")]
    Closed {
        /// The target.
        target: String,
    },
}

/// How the last round over all addresses of a target has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Miss {
    /// The last attempt of the round and its outcome.
    pub reason: String,
    /// Every address answered that the target is not there: its host refused the connection, or
    /// the server there does not have the target.
    pub is_absent: bool,
}

impl From<ConnectError> for Errno {
    fn from(e: ConnectError) -> Errno {
        match e {
            ConnectError::Unreachable { .. } => Errno::ENOTCONN,
            ConnectError::TimedOut { .. } => Errno::ETIMEDOUT,
            ConnectError::Closed { .. } => Errno::ESHUTDOWN,
        }
    }
}
