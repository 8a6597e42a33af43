//! Failures of the store.

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
