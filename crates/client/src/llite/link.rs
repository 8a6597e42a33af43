//! Hard links, and the targets of symbolic links.

use bytes::Bytes;
use sheen_wire::{Fid, Result, mds::Request};

use crate::{Caller, Client, EntryAttr, mdc, stats::Op};

impl Client {
    /// Adds a name to a file.
    ///
    /// # Errors
    /// EEXIST, EPERM (a directory), EMLINK, EACCES.
    pub async fn link(&self, who: &Caller, fid: Fid, parent: Fid, name: &Bytes) -> Result<EntryAttr> {
        let _timer = self.stats.time(Op::Link);
        self.check_not_virtual(parent)?;
        self.check_not_virtual(fid)?;
        let request = |cred| Request::Link { cred, fid, parent, name: name.clone() };
        let asking = self.asking(fid);
        let change = self.cache.change_adding(parent, name, Some(fid));
        let answer = self.mdc.request_as(who, request).with_locks(asking.wants()).send().await;
        let asking = asking.changed(change.end(&answer));
        let answer = answer?;
        let reply = self.cache_attr(&mdc::entry(answer.reply)?, &answer.locks, &asking)?;
        drop(answer.locks);
        self.cache_name(parent, name, &reply);
        self.changed(reply).await
    }

    /// Returns the target of a symbolic link.
    ///
    /// # Errors
    /// EINVAL: not a symbolic link.
    pub async fn readlink(&self, fid: Fid) -> Result<Bytes> {
        let known = self.inode_lock(fid).and_then(|_lock| self.cache.meta.lock().link(fid));
        if let Some(target) = known {
            return Ok(target);
        }
        let target = mdc::bytes(self.mdc.request(Request::ReadLink { fid }).reply().await?)?;
        // The target never changes. The cache drops it with the inode's attributes.
        self.cache.meta.lock().put_link(fid, &target);
        Ok(target)
    }
}
