//! Lookup of a directory entry.

use bytes::Bytes;
use sheen_wire::{
    Errno, Fid, Result,
    mds::{Reply, Request},
};

use super::attr_cache::{AttrReply, KnownAttr};
use crate::{Caller, Client, EntryAttr, cache::Hits, mdc, stats::Op};

impl Client {
    /// Returns the attributes of the file behind a name. `.` and `..` are also valid for a file
    /// that is no directory. The kernel sends them for a file that it knows by number alone
    /// (name_to_handle_at, open_by_handle_at, NFS). `..` is then the directory of the file's first
    /// name.
    ///
    /// # Errors
    /// ENOENT: no such entry. EACCES: the directory may not be searched. ENAMETOOLONG. ESTALE: `..`
    /// of a file without a name.
    pub async fn lookup(&self, who: &Caller, parent: Fid, name: &Bytes) -> Result<EntryAttr> {
        let _timer = self.stats.time(Op::Lookup);
        if let Some(answer) = self.virtual_lookup(who, parent, name).await {
            return answer;
        }
        if &name[..] == b"." {
            return match self.mdt_attr(parent, None).await? {
                KnownAttr::Complete(entry) => Ok(entry),
                KnownAttr::OfMdt(reply) => self.named(reply).await,
            };
        }
        if &name[..] == b".." {
            return match self.ask_name(who, parent, name).await {
                Err(Errno::ENOTDIR) => self.directory_of(parent).await,
                reply => self.completed(reply?).await,
            };
        }
        let ahead = self.await_statahead(parent, name).await;
        let known = self.known_name(who, parent, name);
        if ahead {
            self.statahead.note_use(known.is_some());
        }
        match known {
            Some(Ok(fid)) => {
                Hits::add(&self.cache.hits.name);
                match self.known_attr(fid) {
                    Some(KnownAttr::Complete(entry)) => return Ok(entry),
                    Some(KnownAttr::OfMdt(reply)) => return self.named(reply).await,
                    None => {}
                }
            }
            Some(Err(errno)) => {
                Hits::add(&self.cache.hits.absent);
                return Err(errno);
            }
            None => {}
        }
        Hits::add(&self.cache.hits.miss);
        let dir = self.asking(parent);
        let reply = match self.ask_name(who, parent, name).await {
            Err(Errno::ENOENT) => {
                self.cache_absent(parent, name, &dir);
                return Err(Errno::ENOENT);
            }
            reply => reply?,
        };
        self.cache_name(parent, name, &reply);
        self.named(reply).await
    }

    async fn ask_name(&self, who: &Caller, parent: Fid, name: &Bytes) -> Result<AttrReply> {
        let asking = self.asking_unknown();
        let request = |cred| Request::Lookup { cred, parent, name: name.clone() };
        let expected = self.expect_inline_dom();
        let handle = expected.as_ref().map(|expected| expected.cookie());
        let answer =
            self.mdc.request_as(who, request).with_locks(asking.wants()).with_inline_dom(handle).send().await?;
        let mut reply = self.cache_attr(&mdc::entry(answer.reply)?, &answer.locks, &asking)?;
        reply.inline_dom = self.take_inline_dom(expected, answer.inline_dom, reply.attr.fid, reply.layout.as_deref());
        Ok(reply)
    }

    async fn directory_of(&self, file: Fid) -> Result<EntryAttr> {
        let Reply::Parents(names) = self.mdc.request(Request::Parents { fid: file }).reply().await? else {
            return Err(Errno::EPROTO);
        };
        let (directory, _) = names.first().ok_or(Errno::ESTALE)?;
        self.getattr_of(*directory, None).await
    }
}
