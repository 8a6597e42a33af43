//! AllocSeq: a FID sequence for a client, never handed out before, also across crashes.

use sheen_wire::{self as wire, mds::Reply};

use crate::{Namespace, Store};

impl<S: Store> Namespace<S> {
    pub(crate) fn alloc_seq(&mut self) -> wire::Result<Reply> {
        self.sequences.take().map(Reply::Seq)
    }
}
