//! Errors of operations, and failures of the store.

use sheen_layout::LayoutError;
use sheen_wire::Errno;

/// Why an operation was not executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpError {
    /// The client gets this error.
    Errno(Errno),
    /// Repeat the operation after the next commit. It needs ids whose reservation is not durable
    /// yet, and has changed nothing that matters. The service seals, commits and repeats the
    /// request, so clients never see this. While another batch is being committed, `seal` returns
    /// `None`: wait for that commit first.
    ///
    /// It occurs for the first object on an OST. It also occurs when one commit interval uses more
    /// than half of a reservation (32Ki object ids of one OST, 512 FID sequences).
    CommitFirst,
}

/// Result of an operation that may need ids.
pub(crate) type OpResult<T> = Result<T, OpError>;

impl From<Errno> for OpError {
    fn from(errno: Errno) -> OpError {
        OpError::Errno(errno)
    }
}

impl From<LayoutError> for OpError {
    fn from(error: LayoutError) -> OpError {
        OpError::Errno(error.into())
    }
}

/// A failure of the store. Requests that hit one return EIO. A failed commit must stop the MDT,
/// because changes that were already replied to would be lost.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StoreError {
    /// The store itself failed.
    #[error("metadata store: {0}")]
    Failed(String),
    /// A record cannot be decoded.
    #[error("metadata record {key}: {why}")]
    Corrupt {
        /// Its key, in hex.
        key: String,
        /// Cause of the error.
        why: String,
    },
    /// The store was written by another version or for another MDT.
    #[error("metadata store: {0}")]
    Incompatible(String),
    /// Bytes of the store are lost or differ from those that were written.
    #[error("metadata store: {0}")]
    Damaged(String),
    /// The store lacks a record that every formatted store has.
    #[error("metadata store: no {0} record, which every formatted store has")]
    Incomplete(&'static str),
}

impl StoreError {
    /// Whether the store is damaged. Nothing may be written to it any more, because its replies are
    /// unreliable too.
    pub fn is_damage(&self) -> bool {
        matches!(self, StoreError::Corrupt { .. } | StoreError::Damaged(_) | StoreError::Incomplete(_))
    }
}
