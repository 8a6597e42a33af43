//! Changes of names by this client itself: what is behind them changes, too (links, times), under locks that the MDT does not call
//! back.
//!
//! Which inodes these are the client knows from its cache, if nothing happened to the name meanwhile: its lock is there still, and no
//! other change of this client met this one. Else it drops all that it knows of inodes, which is always right and seldom necessary: a
//! kernel looks a name up before it changes it.

use bytes::Bytes;
use sheen_wire::{
    Fid, Result,
    ldlm::{Cookie, Policy, Resource, bits},
};

use crate::{
    Client,
    cache::{Change, meta::Meta},
};

/// What is behind a name that is being changed.
enum Behind {
    /// This, as long as the lock is held.
    Inode(Cookie),
    /// Nothing, as long as the directory's lock is held.
    Nothing(Cookie),
    Unknown,
}

/// A change of names under way.
pub(crate) struct NamesChange<'a> {
    change: Change<'a>,
    behind: Vec<Behind>,
    names: Vec<(Fid, Bytes)>,
}

impl Client {
    /// Begins a change of names in directories.
    pub(crate) fn change_names(&self, dirs: &[Fid], names: &[(Fid, &Bytes)]) -> NamesChange<'_> {
        let mut fids = dirs.to_vec();
        let mut behind = Vec::with_capacity(names.len());
        for (parent, name) in names {
            behind.push(self.behind(*parent, name, &mut fids));
            self.cache.meta.lock().drop_name(*parent, name);
        }
        fids.dedup();
        let names = names.iter().map(|(parent, name)| (*parent, (*name).clone())).collect();
        NamesChange { change: self.cache.change(&fids, false), behind, names }
    }

    fn behind(&self, parent: Fid, name: &Bytes, fids: &mut Vec<Fid>) -> Behind {
        let there = self.cache.meta.lock().name(parent, name);
        if let Some(fid) = there {
            let lock = self.mdc.locks().matching(Resource::bits(fid), &Policy::bits(bits::LOOKUP));
            let still = self.cache.meta.lock().name(parent, name) == Some(fid);
            return match lock.filter(|_| still) {
                Some(lock) => {
                    fids.push(fid);
                    Behind::Inode(lock.cookie())
                }
                None => Behind::Unknown,
            };
        }
        match self.inode_lock(parent) {
            Some(lock) if self.cache.meta.lock().is_absent(parent, name) => Behind::Nothing(lock.cookie()),
            _ => Behind::Unknown,
        }
    }
}

impl NamesChange<'_> {
    /// It is done, or refused.
    pub(crate) fn end<T>(self, client: &Client, answer: &Result<T>) {
        let known = |behind: &Behind| match behind {
            Behind::Inode(cookie) => client.mdc.locks().is_held(*cookie, &Policy::bits(bits::LOOKUP)),
            Behind::Nothing(cookie) => client.mdc.locks().is_held(*cookie, &Policy::bits(bits::UPDATE)),
            Behind::Unknown => false,
        };
        let known = self.behind.iter().all(known);
        let token = self.change.end(answer);
        let mut meta = client.cache.meta.lock();
        self.names.iter().for_each(|(parent, name)| meta.drop_name(*parent, name));
        if answer.is_ok() && !(known && token.as_ref().is_some_and(Meta::was_alone)) {
            meta.clear();
        }
    }
}
