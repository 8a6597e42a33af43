//! statfs: space is the store's matter and known to the service; the number of inodes is known
//! here.

use sheen_wire::{self as wire, mds::Reply};

use crate::{Namespace, Store, engine::Cx};

impl<S: Store> Namespace<S> {
    pub(crate) fn statfs(&mut self, cx: &Cx) -> wire::Result<Reply> {
        Ok(Reply::StatFs(cx.env.statfs(self.counters.files)))
    }
}
