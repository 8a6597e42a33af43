//! readlink: the target of a symbolic link, as it was given. EINVAL for any other file.

use sheen_wire::{self as wire, Errno, Fid, mds::Reply};

use crate::{Namespace, Store};

impl<S: Store> Namespace<S> {
    pub(crate) fn readlink(&mut self, fid: Fid) -> wire::Result<Reply> {
        self.live(fid)?.target.clone().map(Reply::Bytes).ok_or(Errno::EINVAL)
    }
}
