//! New entries that are not opened: mkdir, mknod, symlink.

use bytes::Bytes;
use sheen_wire::{
    Cred, Errno, Fid, FileKind, Result,
    mds::{NewNode, Request},
};

use super::attr_cache::Asking;
use crate::{
    Caller, Client, EntryAttr,
    mdc::{self, MdtReply},
    stats::Op,
};

impl Client {
    /// Creates a directory.
    ///
    /// # Errors
    /// EEXIST, EACCES, ENOSPC, ENAMETOOLONG, EMLINK.
    pub async fn mkdir(&self, who: &Caller, parent: Fid, name: &Bytes, mode: u32, umask: u32) -> Result<EntryAttr> {
        let _timer = self.stats.time(Op::Mkdir);
        self.make(who, parent, name, NewNode::Dir, mode, umask).await
    }

    /// Creates a fifo, socket, device or regular file; `mode` has the type bits.
    ///
    /// # Errors
    /// As [`Client::mkdir`]; EPERM for a device, unless the caller is root; EINVAL for other types.
    pub async fn mknod(
        &self,
        who: &Caller,
        parent: Fid,
        name: &Bytes,
        mode: u32,
        rdev: u32,
        umask: u32,
    ) -> Result<EntryAttr> {
        let _timer = self.stats.time(Op::Mknod);
        let kind = match FileKind::from_mode(mode) {
            None if mode & 0o170000 == 0 => FileKind::Regular,
            None | Some(FileKind::Dir | FileKind::Symlink) => return Err(Errno::EINVAL),
            Some(kind) => kind,
        };
        self.make(who, parent, name, NewNode::Node { kind, rdev }, mode & 0o7777, umask).await
    }

    /// Creates a symbolic link.
    ///
    /// # Errors
    /// As [`Client::mkdir`].
    pub async fn symlink(&self, who: &Caller, parent: Fid, name: &Bytes, target: &Bytes) -> Result<EntryAttr> {
        let _timer = self.stats.time(Op::Symlink);
        self.make(who, parent, name, NewNode::Symlink(target.clone()), 0o777, 0).await
    }

    async fn make(
        &self,
        who: &Caller,
        parent: Fid,
        name: &Bytes,
        node: NewNode,
        mode: u32,
        umask: u32,
    ) -> Result<EntryAttr> {
        self.check_not_virtual(parent)?;
        let fid = self.mdc.next_fid().await?;
        let request = |cred| {
            let (name, node) = (name.clone(), node.clone());
            Request::Create { cred, parent, name, fid, node, mode, umask }
        };
        let (answer, asking) = self.ask_adding(who, parent, name, request).await?;
        let reply = self.cache_attr(&mdc::entry(answer.reply)?, &answer.locks, &asking)?;
        self.cache_name(parent, name, &reply);
        if reply.attr.kind == FileKind::Dir {
            self.cache_empty(&reply);
        }
        // A new file has no objects to query.
        Ok(self.just_made(&reply))
    }

    /// Asks the MDT to add a new inode and its name to a directory. Caches the attributes of the
    /// directory. Returns the reply, and the state under which the new inode may be cached.
    pub(super) async fn ask_adding(
        &self,
        who: &Caller,
        parent: Fid,
        name: &Bytes,
        request: impl Fn(Cred) -> Request,
    ) -> Result<(MdtReply, Asking)> {
        let (asking, dir) = (self.asking_unknown(), self.asking(parent));
        let change = self.cache.change_adding(parent, name, None);
        let answer = self.mdc.request_as(who, request).with_locks(asking.wants()).send().await;
        let token = change.end(&answer);
        let (asking, dir) = (asking.changed(token), dir.changed(token));
        let answer = answer?;
        self.cache_dir(answer.dir, &dir);
        Ok((answer, asking))
    }
}
