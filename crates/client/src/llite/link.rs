//! Hard links, and where symbolic ones lead.

use bytes::Bytes;
use sheen_wire::{Fid, Result, mds::Request};

use crate::{Caller, Client, EntryAttr, mdc, stats::Op};

impl Client {
    /// Gives a file a further name.
    ///
    /// # Errors
    /// EEXIST, EPERM (a directory), EMLINK, EACCES.
    pub async fn link(&self, who: &Caller, fid: Fid, parent: Fid, name: &Bytes) -> Result<EntryAttr> {
        let _timer = self.stats.time(Op::Link);
        self.check_not_virtual(parent)?;
        self.check_not_virtual(fid)?;
        let request = |cred| Request::Link { cred, fid, parent, name: name.clone() };
        self.merged(mdc::entry(self.mdc.call_as(who, request).await?)?).await
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// EINVAL: not a symbolic link.
    pub async fn readlink(&self, fid: Fid) -> Result<Bytes> {
        mdc::bytes(self.mdc.call(Request::ReadLink { fid }).await?)
    }
}
