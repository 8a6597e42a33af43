//! Changes by this client itself, which its own locks do not stop.

use bytes::Bytes;
use sheen_wire::{Errno, Fid};

use super::{
    caches::Cache,
    meta::{Begun, Token},
};
use crate::{failure::Failure, mdc::MdtReply};

/// A change by this client, in progress. If it is dropped before its end, its outcome is unknown.
pub struct Change<'a> {
    cache: &'a Cache,
    begun: Option<Begun>,
}

impl Cache {
    /// Begins a change of these inodes. `data`: the change affects only the data in their objects.
    pub fn change(&self, fids: &[Fid], data: bool) -> Change<'_> {
        let begun = self.meta.lock().begin(fids, data);
        Change { cache: self, begun: Some(begun) }
    }

    /// Begins a change that adds a name to a directory. `also`: the existing inode that gets the
    /// name.
    pub fn change_adding(&self, dir: Fid, name: &Bytes, also: Option<Fid>) -> Change<'_> {
        let change = match also {
            Some(fid) => self.change(&[fid, dir], false),
            None => self.change(&[dir], false),
        };
        // After the change has begun, `Meta::put_empty` stores nothing. If the directory was marked
        // as empty before, `adds` notes the name.
        self.adds(dir, name);
        change
    }

    /// Begins a change that removes or replaces names in directories. It also changes the inodes
    /// behind the names (link counts, times), whose locks the MDT does not revoke. The reply lists
    /// these inodes, because the cached names may be outdated.
    pub fn change_names(&self, names: &[(Fid, &Bytes)]) -> Change<'_> {
        let dirs: Vec<Fid> = names.iter().map(|(dir, _)| *dir).collect();
        let change = self.change(&dirs, false);
        // No name is cached again until the change has ended.
        let mut meta = self.meta.lock();
        names.iter().for_each(|(dir, name)| meta.drop_name(*dir, name));
        change
    }

    /// Notes that this client is about to add a name to a directory.
    pub fn adds(&self, dir: Fid, name: &Bytes) {
        self.meta.lock().adds(dir, name);
    }
}

impl Change<'_> {
    /// Ends the change after its reply, and drops what it changed. Returns a token to cache the
    /// reply.
    pub fn end<T>(self, answer: &Result<T, Errno>) -> Option<Token> {
        self.ended(answer.as_ref().err().copied(), &[])
    }

    /// Ends a change of the data in objects.
    pub fn end_data<T>(self, answer: &Result<T, Failure>) {
        self.ended(answer.as_ref().err().and_then(Failure::errno), &[]);
    }

    /// Ends the change like [`Change::end`], with a reply that lists further changed inodes.
    pub fn end_with_invalidations(self, answer: &Result<MdtReply, Errno>) -> Option<Token> {
        match answer {
            Ok(reply) => self.ended(None, &reply.invalidations),
            Err(errno) => self.ended(Some(*errno), &[]),
        }
    }

    fn ended(mut self, error: Option<Errno>, also: &[Fid]) -> Option<Token> {
        let begun = self.begun.take()?;
        let token = self.cache.meta.lock().end(&begun, also);
        if matches!(error, Some(Errno::ETIMEDOUT | Errno::ESHUTDOWN)) {
            self.cache.unsure();
        }
        self.cache.token().map(|_| token)
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        if let Some(begun) = self.begun.take() {
            self.cache.meta.lock().end(&begun, &[]);
            self.cache.unsure();
        }
    }
}
