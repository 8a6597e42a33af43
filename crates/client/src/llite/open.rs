//! open(2) in its forms.
//!
//! One round trip to the MDT does it all. Only O_TRUNC of a file that was there already goes on to the objects.

use std::sync::Arc;

use bytes::Bytes;
use sheen_wire::{
    Errno, Fid, Result,
    mds::{Entry, Reply, Request, flags},
};

use crate::{Caller, Client, EntryAttr, OpenDir, OpenFile, stats::Op};

impl Client {
    /// Opens a known file. `flags` are Linux's ([`flags`]).
    ///
    /// # Errors
    /// EACCES, EISDIR, ENOENT, ETXTBSY and what else open(2) gives.
    pub async fn open(&self, who: &Caller, fid: Fid, flags: u32) -> Result<Arc<OpenFile>> {
        let _timer = self.stats.time(Op::Open);
        if self.virtual_attr(fid).is_some() {
            return Err(Errno::EISDIR);
        }
        let reply = self.mdc.call_as(who, |cred| Request::Open { cred, fid, flags }).await?;
        let opened = self.opened(reply, flags)?;
        if flags & flags::TRUNC != 0 && !opened.created {
            self.or_release(&opened.file, self.empty(&opened)).await?;
        }
        Ok(opened.file)
    }

    /// open(O_CREAT): opens the entry `name`, which is made first where it is missing.
    ///
    /// # Errors
    /// As [`Client::open`], and EEXIST with O_EXCL.
    pub async fn create(
        &self,
        who: &Caller,
        parent: Fid,
        name: &Bytes,
        flags: u32,
        mode: u32,
        umask: u32,
    ) -> Result<(EntryAttr, Arc<OpenFile>)> {
        let _timer = self.stats.time(Op::Open);
        self.check_not_virtual(parent)?;
        let fid = self.mdc.next_fid().await?;
        let request = |cred| Request::OpenCreate { cred, parent, name: name.clone(), fid, flags, mode, umask };
        let opened = self.opened(self.mdc.call_as(who, request).await?, flags)?;
        if opened.created {
            return Ok((opened.entry.attr.into(), opened.file));
        }
        let look = async {
            if flags & flags::TRUNC != 0 {
                self.empty(&opened).await?;
            }
            self.merged(opened.entry.clone()).await
        };
        let attr = self.or_release(&opened.file, look).await?;
        Ok((attr, opened.file))
    }

    /// open(O_TMPFILE): a file without a name, gone at its release unless it was linked.
    ///
    /// # Errors
    /// EACCES, ENOSPC.
    pub async fn tmpfile(
        &self,
        who: &Caller,
        parent: Fid,
        flags: u32,
        mode: u32,
        umask: u32,
    ) -> Result<(EntryAttr, Arc<OpenFile>)> {
        let _timer = self.stats.time(Op::Open);
        self.check_not_virtual(parent)?;
        let fid = self.mdc.next_fid().await?;
        let request = |cred| Request::TmpFile { cred, parent, fid, flags, mode, umask };
        let opened = self.opened(self.mdc.call_as(who, request).await?, flags)?;
        Ok((opened.entry.attr.into(), opened.file))
    }

    /// Opens a directory for [`Client::readdir`].
    ///
    /// # Errors
    /// EACCES, ENOTDIR, ENOENT.
    pub async fn opendir(&self, who: &Caller, fid: Fid, flags: u32) -> Result<Arc<OpenDir>> {
        let _timer = self.stats.time(Op::Open);
        if let Some(dir) = self.virtual_opendir(who, fid)? {
            return Ok(dir);
        }
        let flags = flags | flags::DIRECTORY;
        let reply = self.mdc.call_as(who, |cred| Request::Open { cred, fid, flags }).await?;
        Ok(Arc::new(OpenDir(self.opened(reply, flags)?.file)))
    }

    fn opened(&self, reply: Reply, flags: u32) -> Result<Opened> {
        let Reply::Opened { handle, entry, created } = reply else { return Err(Errno::EPROTO) };
        let file = self.files.insert(&entry.attr, entry.layout.clone(), flags, handle);
        Ok(Opened { file, entry, created })
    }

    /// Cuts all objects to nothing, after the MDT did its part of O_TRUNC.
    async fn empty(&self, opened: &Opened) -> Result<()> {
        match self.layout_of(&opened.entry.attr, opened.entry.layout.as_ref())? {
            Some(layout) => self.lov.truncate(&layout, 0).await,
            None => Ok(()),
        }
    }

    /// Closes the file again where what completes its open fails.
    async fn or_release<T>(&self, file: &Arc<OpenFile>, rest: impl Future<Output = Result<T>>) -> Result<T> {
        let answer = rest.await;
        if answer.is_err() {
            // The first error is the one to tell.
            let _ = self.release(file.clone()).await;
        }
        answer
    }
}

struct Opened {
    file: Arc<OpenFile>,
    entry: Entry,
    created: bool,
}
