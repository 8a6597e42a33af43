//! AllocSeq: a FID sequence for a client, never handed out before, also across crashes.

use sheen_wire::mds::Reply;

use crate::{Namespace, OpError, Store, error::OpResult};

impl<S: Store> Namespace<S> {
    pub(crate) fn alloc_seq(&mut self) -> OpResult<Reply> {
        self.take_sequence().map(Reply::Seq)
    }

    /// Takes a sequence for files that the MDT itself makes.
    ///
    /// # Errors
    /// ENOSPC: all are used. [`OpError::CommitFirst`].
    pub fn take_sequence(&mut self) -> Result<u64, OpError> {
        self.sequences.take()
    }
}
