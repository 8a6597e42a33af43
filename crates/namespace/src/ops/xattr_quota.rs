//! Quotas: the attribute `lustre.quota`, and the limit of files at a creation.
//!
//! * The attribute's value is a [`Change`] of limits, defaults or grace times. Only the superuser
//!   sets it (EPERM), on the root directory (EOPNOTSUPP). EINVAL for a value that is no change, for
//!   a soft limit above the hard one, for the id 0, and for a removal. EINVAL also for a limit of
//!   files within a pool. The service has checked that the pool exists. It cannot be read
//!   (ENODATA): the service answers queries. Sets ctime of the root directory.
//! * Limits that a change leaves as they are stay those that apply to the id, own or default. From
//!   then on they are its own.
//! * A creation returns EDQUOT if its user, group or project would exceed a limit of files. That is
//!   the hard one, or the soft one after the grace time. Files of the superuser are never refused.
//!   A change of owner or project, an adopted object and a replay are not refused either.

use sheen_wire::{self as wire, Errno, Fid, fid::ROOT, quota::Change};

use crate::{Namespace, Store, interface::Cx, record::Inode};

impl<S: Store> Namespace<S> {
    /// Checks whether the owner of a new file may have one more.
    ///
    /// # Errors
    /// EDQUOT.
    pub(crate) fn check_quota(&self, cx: &Cx, inode: &Inode) -> wire::Result<()> {
        // A replayed creation was allowed then.
        if self.replaying.is_some() { Ok(()) } else { self.tables.quotas.check(inode.owner(), cx.now) }
    }

    /// Changes limits. The caller has checked that it is the superuser.
    pub(crate) fn set_quota(&mut self, cx: &Cx, fid: Fid, value: Option<&[u8]>) -> wire::Result<()> {
        if fid != ROOT {
            return Err(Errno::EOPNOTSUPP);
        }
        let change = Change::decode(value.ok_or(Errno::EINVAL)?)?;
        self.tables.quotas.change(change, cx.now)?;
        self.edit(fid, |root| root.ctime = cx.now)
    }
}
