//! open(2) in its forms.
//!
//! An open takes one round trip to the MDT. Only O_TRUNC of an existing file also goes to the
//! objects. A known file whose OPEN lock is held is opened without a request
//! ([`Client::open_known`]).

use std::sync::{Arc, atomic::Ordering::Relaxed};

use bytes::Bytes;
use sheen_layout::Layout;
use sheen_wire::{
    Errno, Fid, Result,
    ldlm::Cookie,
    mds::{Entry, Reply, Request, flags},
};

use super::{
    attr_cache::AttrReply,
    layout_lookup::{Changing, Located},
};
use crate::{Caller, Client, EntryAttr, OpenDir, OpenFile, open::OpenBy, stats::Op};

impl Client {
    /// Opens a known file. `flags` are Linux's ([`flags`]).
    ///
    /// # Errors
    /// EACCES, EISDIR, ENOENT, ETXTBSY and other errors of open(2).
    pub async fn open(&self, who: &Caller, fid: Fid, flags: u32) -> Result<Arc<OpenFile>> {
        let _timer = self.stats.time(Op::Open);
        if self.virtual_attr(fid).is_some() {
            return Err(Errno::EISDIR);
        }
        if let Some(file) = self.open_known(who, fid, flags) {
            self.note_pages(&file);
            return Ok(file);
        }
        // An open for execution brings no OPEN lock, and may not use one.
        let asking = if flags & flags::EXEC == 0 { self.asking_open(fid) } else { self.asking(fid) };
        // An open for writing may give the file its layout.
        let change = (flags::writes(flags) || flags & flags::TRUNC != 0).then(|| self.cache.change(&[fid], false));
        let work = async {
            let request = |cred| Request::Open { cred, fid, flags };
            let answer = self.mdc.request_as(who, request).with_locks(asking.wants()).send().await?;
            let opened = self.opened(who, answer.reply, flags)?;
            self.doubt_layout(&opened.file, answer.revoked || self.has_lost_layout(&asking));
            let truncates = flags & flags::TRUNC != 0 && !opened.created;
            let mut locks = answer.locks;
            if truncates {
                // Not in use during the requests to the OSTs.
                let came = locks.drain(..).next().map(|(_, lock)| lock.cookie());
                let lock = asking.lock(fid, came);
                self.or_release(&opened.file, self.empty(&opened, lock)).await?;
            }
            Ok((opened, locks))
        };
        let answer = work.await;
        let asking = match change {
            Some(change) => asking.changed(change.end(&answer)),
            None => asking,
        };
        let (opened, locks) = answer?;
        if flags & flags::TRUNC == 0 {
            self.cache_attr(&opened.entry, &locks, &asking)?;
        }
        self.note_pages(&opened.file);
        Ok(opened.file)
    }

    /// open(O_CREAT): opens the entry `name`, and creates it if it does not exist.
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
        let (answer, asking) = self.ask_adding(who, parent, name, request).await?;
        let opened = self.opened(who, answer.reply, flags)?;
        self.doubt_layout(&opened.file, answer.revoked);
        let fid = opened.entry.attr.fid;
        let was_there = !opened.created && (flags::writes(flags) || flags & flags::TRUNC != 0);
        if was_there {
            // The file may have been in the cache before, and have a layout only now.
            self.cache.change(&[fid], false).end(&Ok::<_, Errno>(()));
        }
        let reply = self.cache_attr(&opened.entry, &answer.locks, &asking);
        drop(answer.locks);
        if let Ok(reply) = &reply {
            self.cache_name(parent, name, reply);
        }
        let attr = match reply {
            Ok(reply) if opened.created => self.just_made(&reply),
            // Boxed, because new files, the frequent case, do not need it.
            reply => Box::pin(self.or_release(&opened.file, self.opened_instead(&opened, reply, flags))).await?,
        };
        self.note_pages(&opened.file);
        Ok((attr, opened.file))
    }

    /// Returns the attributes of a file that existed already, after O_TRUNC has taken effect.
    async fn opened_instead(&self, opened: &Opened, reply: Result<AttrReply>, flags: u32) -> Result<EntryAttr> {
        let reply = reply?;
        if flags & flags::TRUNC != 0 {
            let change = self.cache.change(&[reply.attr.fid], true);
            let emptied = self.empty(opened, reply.lock).await;
            change.end(&emptied);
            let layout = emptied?;
            return self.completed(AttrReply { layout, ..reply }).await;
        }
        self.completed(reply).await
    }

    /// open(O_TMPFILE): creates a file without a name. It is deleted at its release unless it was
    /// linked.
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
        let opened = self.opened(who, self.mdc.request_as(who, request).reply().await?, flags)?;
        // Mostly the copy of a migration, which no program reads.
        opened.file.accesses.exclude();
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
        let asking = self.asking(fid);
        let request = |cred| Request::Open { cred, fid, flags };
        let answer = self.mdc.request_as(who, request).with_locks(asking.wants()).send().await?;
        let opened = self.opened(who, answer.reply, flags)?;
        self.cache_attr(&opened.entry, &answer.locks, &asking)?;
        Ok(OpenDir::new(opened.file))
    }

    /// Records whether the kernel may keep its pages of the file at this open: all are under locks.
    fn note_pages(&self, file: &OpenFile) {
        // Pages of a mirrored file are dropped with the LAYOUT lock, except those that were read
        // before it was mirrored.
        let has_holes = || self.cache.data.get(file.fid()).is_some_and(|data| data.has_holes());
        let guarded = self.cache.data.is_guarded(file.fid()) && (has_holes() || !file.inode.is_mirrored());
        file.keep_cache.store(file.cached() && guarded, Relaxed);
    }

    /// Registers a file at the MDT that was opened without a request.
    pub(crate) async fn register(&self, file: &OpenFile) -> Result<()> {
        match self.files.register(self.mdc.import(), file.fid()) {
            Some(reply) => reply.await,
            None => Ok(()),
        }
    }

    /// Marks the layout of a newly opened file as outdated if its lock was `revoked`: the callback
    /// came before the file was in the table of open files.
    fn doubt_layout(&self, file: &OpenFile, revoked: bool) {
        if revoked {
            file.inode.distrust();
        }
    }

    fn opened(&self, who: &Caller, reply: Reply, flags: u32) -> Result<Opened> {
        let Reply::Opened { handle, entry, created, tight } = reply else { return Err(Errno::EPROTO) };
        self.lov.tight().note(entry.attr.fid, tight);
        let file = self.files.insert(&entry.attr, entry.layout.clone(), OpenBy::new(who, flags), handle);
        Ok(Opened { file, entry, created })
    }

    /// Truncates all objects to 0 bytes, after the MDT did its part of O_TRUNC. `lock`: came with
    /// the layout. Returns the layout since.
    async fn empty(&self, opened: &Opened, lock: Option<Cookie>) -> Result<Option<Arc<Layout>>> {
        let Some(layout) = self.layout_of(&opened.entry.attr, opened.entry.layout.as_ref())? else { return Ok(None) };
        let changing = Changing::of(&opened.file);
        let located = self.place_for_cutting(changing, Located { layout, lock }, 0).await?;
        self.cut(changing, located, 0).await.map(Some)
    }

    /// Closes the file again if the rest of its open fails.
    async fn or_release<T>(&self, file: &Arc<OpenFile>, rest: impl Future<Output = Result<T>>) -> Result<T> {
        let answer = rest.await;
        if answer.is_err() {
            // The first error is the one to report.
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
