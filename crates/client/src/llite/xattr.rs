//! Extended attributes. The MDT has them, except those that begin with `sheen.`: the client answers
//! these itself ([`super::control`]) and never lists them.

use bytes::Bytes;
use sheen_layout::Layout;
use sheen_wire::{
    Errno, Fid, Result, control,
    ldlm::{Policy, Resource, bits},
    mds::{Reply, Request},
    mirror, project,
};

use crate::{Caller, Client, OpenFile, locks::LockRef, mdc, stats::Op};

/// Prefix of the attributes that edit the layout.
const LAYOUT_PREFIX: &[u8] = b"lustre.lov";

fn is_control(name: &Bytes) -> bool {
    name.starts_with(control::PREFIX.as_bytes())
}

/// Returns whether everybody may read the attribute, and the kernel requests it all the time. These
/// are capabilities before writes, and access control lists before lookups.
fn is_for_all(name: &Bytes) -> bool {
    name.starts_with(b"security.") || name.starts_with(b"system.posix_acl_")
}

impl Client {
    /// Returns the layout of an open file for programs that know plain layouts alone: `lustre.lov`,
    /// and for a composite layout [`Layout::encode_plain_view`].
    ///
    /// # Errors
    /// ENODATA: the file has no layout. Any error of the MDT and the OSTs.
    pub async fn plain_layout(&self, who: &Caller, file: &OpenFile) -> Result<Bytes> {
        let bytes = self.getxattr(who, file.fid(), &Bytes::from_static(LAYOUT_PREFIX)).await?;
        let Some(layout) = Layout::decode(&bytes).ok().filter(|layout| !layout.is_plain()) else {
            return Ok(bytes);
        };
        let empty = self.getattr_of(file.fid(), Some(file)).await?.attr.size == 0;
        Ok(layout.encode_plain_view(empty, self.lov.osts().len()).into())
    }

    /// Returns the value of an attribute, `lustre.lov` and its like included.
    ///
    /// # Errors
    /// ENODATA: no such attribute. EACCES, EOPNOTSUPP.
    pub async fn getxattr(&self, who: &Caller, fid: Fid, name: &Bytes) -> Result<Bytes> {
        let name = &control::attribute_name(name);
        // The time of a wait for others says nothing.
        let _timer = (!control::is_wait(name)).then(|| self.stats.time(Op::Getxattr));
        if is_control(name) {
            return self.control(who, fid, name).await;
        }
        if self.virtual_attr(fid).is_some() {
            return Err(Errno::ENODATA);
        }
        let keeps = is_for_all(name);
        if keeps
            && let Some(_lock) = self.xattr_lock(fid)
            && let Some(known) = self.cache.meta.lock().xattr(fid, name)
        {
            return known;
        }
        let (token, lock) = (self.cache.token(), self.xattr_lock(fid).map(|lock| lock.cookie()));
        let request = |cred| Request::GetXattr { cred, fid, name: name.clone() };
        let value = self.mdc.request_as(who, request).reply().await.and_then(mdc::bytes);
        if let (true, Some(token), Some(cookie)) = (keeps, token, lock)
            && let Some(_lock) = self.xattr_lock(fid).filter(|lock| lock.cookie() == cookie)
        {
            self.cache.meta.lock().put_xattr(fid, name, &value, &token);
        }
        value
    }

    fn xattr_lock(&self, fid: Fid) -> Option<LockRef> {
        self.mdc.locks().matching(Resource::bits(fid), &Policy::bits(bits::XATTR))
    }

    /// Sets an attribute; `flags` are [`sheen_wire::mds::xattr`]'s. `lustre.lov` sets the layout.
    ///
    /// # Errors
    /// EEXIST, ENODATA by the flags; EPERM, EACCES, ENOSPC, E2BIG, EOPNOTSUPP.
    pub async fn setxattr(&self, who: &Caller, fid: Fid, name: &Bytes, value: &Bytes, flags: u32) -> Result<()> {
        let _timer = self.stats.time(Op::Setxattr);
        if is_control(name) {
            return self.set_control(who, name, value).await;
        }
        self.check_not_virtual(fid)?;
        let request = |cred| Request::SetXattr { cred, fid, name: name.clone(), value: value.clone(), flags };
        let other = (name == mirror::XATTR).then(|| mirror::MirrorChange::decode(value).ok()?.other()).flatten();
        let file = if name.starts_with(LAYOUT_PREFIX) { self.files.any(fid) } else { None };
        let repaired = match &file {
            Some(file) => Some(file.inode.repairs.write().await),
            None => None,
        };
        let change = self.cache.change(&[fid, other.unwrap_or(fid)], false);
        let answer = self.mdc.request_as(who, request).reply().await;
        change.end(&answer);
        if answer.is_ok() && name.starts_with(LAYOUT_PREFIX) {
            Box::pin(self.edited(fid)).await;
            if let Some(other) = other {
                Box::pin(self.edited(other)).await;
            }
        }
        if answer.is_ok()
            && name == project::XATTR
            && let Some(dropped) = self.cache.drop_attr(fid)
        {
            // The kernel does not know that an ioctl has changed ctime.
            dropped.await;
        }
        drop(repaired);
        mdc::done(answer?)
    }

    /// Returns the names of the attributes that the caller may see.
    ///
    /// # Errors
    /// ENOENT.
    pub async fn listxattr(&self, who: &Caller, fid: Fid) -> Result<Vec<Bytes>> {
        let _timer = self.stats.time(Op::Listxattr);
        if self.virtual_attr(fid).is_some() {
            return Ok(Vec::new());
        }
        match self.mdc.request_as(who, |cred| Request::ListXattr { cred, fid }).reply().await? {
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
        let change = self.cache.change(&[fid], false);
        let answer = self.mdc.request_as(who, request).reply().await;
        change.end(&answer);
        mdc::done(answer?)
    }
}
