//! stat: attributes by FID. Needs no permission on the file itself; ENOENT if it is gone for good.

use sheen_wire::{self as wire, Fid, mds::Reply};

use super::nodes::entry;
use crate::{Namespace, Store};

impl<S: Store> Namespace<S> {
    pub(crate) fn getattr(&mut self, fid: Fid, layout_known: bool) -> wire::Result<Reply> {
        let mut entry = entry(fid, &*self.live(fid)?);
        if layout_known {
            entry.layout = None;
        }
        Ok(Reply::Entry(entry))
    }
}
