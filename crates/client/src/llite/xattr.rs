//! Extended attributes. They are the MDT's, but for those that begin with `sheen.`, which the client answers ([`super::control`])
//! and never lists.

use bytes::Bytes;
use sheen_wire::{
    Errno, Fid, Result, control,
    mds::{Reply, Request},
};

use crate::{Caller, Client, mdc, stats::Op};

fn is_control(name: &Bytes) -> bool {
    name.starts_with(control::PREFIX.as_bytes())
}

impl Client {
    /// The value of an attribute; also `lustre.lov` and its like.
    ///
    /// # Errors
    /// ENODATA: no such attribute. EACCES, EOPNOTSUPP.
    pub async fn getxattr(&self, who: &Caller, fid: Fid, name: &Bytes) -> Result<Bytes> {
        let _timer = self.stats.time(Op::Getxattr);
        if is_control(name) {
            return self.control(who, fid, name).await;
        }
        if self.virtual_attr(fid).is_some() {
            return Err(Errno::ENODATA);
        }
        let request = |cred| Request::GetXattr { cred, fid, name: name.clone() };
        mdc::bytes(self.mdc.call_as(who, request).await?)
    }

    /// Sets an attribute; `flags` are [`sheen_wire::mds::xattr`]'s. `lustre.lov` sets the layout.
    ///
    /// # Errors
    /// EEXIST, ENODATA by the flags; EPERM, EACCES, ENOSPC, E2BIG, EOPNOTSUPP.
    pub async fn setxattr(&self, who: &Caller, fid: Fid, name: &Bytes, value: &Bytes, flags: u32) -> Result<()> {
        let _timer = self.stats.time(Op::Setxattr);
        if is_control(name) {
            return Err(Errno::EPERM);
        }
        self.check_not_virtual(fid)?;
        let request = |cred| Request::SetXattr { cred, fid, name: name.clone(), value: value.clone(), flags };
        mdc::done(self.mdc.call_as(who, request).await?)
    }

    /// The names of the attributes that the caller may see.
    ///
    /// # Errors
    /// ENOENT.
    pub async fn listxattr(&self, who: &Caller, fid: Fid) -> Result<Vec<Bytes>> {
        let _timer = self.stats.time(Op::Listxattr);
        if self.virtual_attr(fid).is_some() {
            return Ok(Vec::new());
        }
        match self.mdc.call_as(who, |cred| Request::ListXattr { cred, fid }).await? {
            Reply::Names(names) => Ok(names),
            _ => Err(Errno::EPROTO),
        }
    }

    /// Removes an attribute.
    ///
    /// # Errors
    /// ENODATA: no such attribute. EPERM, EACCES.
    pub async fn removexattr(&self, who: &Caller, fid: Fid, name: &Bytes) -> Result<()> {
        let _timer = self.stats.time(Op::Removexattr);
        if is_control(name) {
            return Err(Errno::EPERM);
        }
        self.check_not_virtual(fid)?;
        let request = |cred| Request::RemoveXattr { cred, fid, name: name.clone() };
        mdc::done(self.mdc.call_as(who, request).await?)
    }
}
