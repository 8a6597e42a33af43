//! access(2): whether read (4), write (2), execute or search (1) permission would be granted. Mask
//! 0 asks for existence alone.
//!
//! EACCES if any of them is not granted; EINVAL for other bits. The superuser may execute only a
//! file with an execute bit.

use sheen_wire::{self as wire, Cred, Errno, Fid, mds::Reply};

use crate::{Namespace, Store, access};

impl<S: Store> Namespace<S> {
    pub(crate) fn access(&mut self, cred: &Cred, fid: Fid, mask: u32) -> wire::Result<Reply> {
        let inode = self.live(fid)?;
        if mask & !7 != 0 {
            return Err(Errno::EINVAL);
        }
        access::check(&inode, cred, mask)?;
        Ok(Reply::Ok)
    }
}
