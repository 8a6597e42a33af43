//! stat: attributes by FID. Needs no permission on the file itself; ENOENT if it is gone for good.
//!
//! Of several at once (EINVAL past [`GETATTRS_MAX`]) each answers for itself, in the order asked.

use sheen_wire::{
    self as wire, Errno, Fid,
    mds::{GETATTRS_MAX, Reply},
};

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

    pub(crate) fn getattrs(&mut self, fids: &[Fid]) -> wire::Result<Reply> {
        if fids.len() > GETATTRS_MAX {
            return Err(Errno::EINVAL);
        }
        let one = |fid: &Fid| {
            let inode = self.tables.inode(*fid)?;
            Ok(inode.map(|inode| entry(*fid, &inode)).ok_or(Errno::ENOENT))
        };
        Ok(Reply::Attrs(fids.iter().map(one).collect::<wire::Result<_>>()?))
    }
}
