//! AllocSeq: a FID sequence for a client, never handed out before, also across crashes.

use sheen_wire::mds::Reply;

use crate::{Namespace, Store, error::OpResult};

impl<S: Store> Namespace<S> {
    pub(crate) fn alloc_seq(&mut self) -> OpResult<Reply> {
        self.sequences.take().map(Reply::Seq)
    }
}
