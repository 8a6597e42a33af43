//! statfs: the service knows the space of the store, the engine knows the number of inodes.

use sheen_wire::{self as wire, mds::Reply};

use crate::{Namespace, Store, interface::Cx};

impl<S: Store> Namespace<S> {
    pub(crate) fn statfs(&mut self, cx: &Cx) -> wire::Result<Reply> {
        Ok(Reply::StatFs(cx.env.statfs(self.counters.files)))
    }
}
