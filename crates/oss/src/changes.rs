//! Changes of objects, each made under the OST's own locks on what it touches.
//!
//! So whoever else has that cached has given it up before, and nobody is granted a lock on it
//! meanwhile. The locks of the client that asks for the change are not in the way: what it has
//! cached is its own business.
//!
//! Invariants:
//! * writes take CW, so they do not exclude each other: the local file system orders them. What
//!   makes an object shorter takes PW. What removes it takes EX, which nothing else does: who is
//!   called back for that has nothing to write any more;
//! * a write keeps its bytes in memory while it waits; there is a bound on how many do so
//!   ([`crate::waiting`]);
//! * the part of a request that is on one object is made as soon as its own locks are granted, and
//!   they are given back with it. So the OST waits for no lock while it holds another, and a client
//!   may hold locks on some objects and wait for others in any order.

use sheen_lockd::Local;
use sheen_objects::{Run, change, runs};
use sheen_rpc::Export;
use sheen_wire::{
    Bulk, Fid, Result, Time,
    ldlm::{Mode, Policy, Resource},
    ost::{Allocate, Part},
};

use crate::{Ost, Store, locks};

/// A lock that the OST takes.
type Want = (Resource, Mode, Policy);

/// A change of one object.
pub trait Change {
    /// The locks that it needs.
    fn wants(&self) -> Vec<Want>;

    /// Bytes that are kept in memory until it is made.
    fn bytes(&self) -> usize {
        0
    }

    /// Makes it.
    ///
    /// # Errors
    /// What the local file system says.
    fn make(&self, store: &Store) -> Result<()>;
}

/// Parts of one object, and their bytes.
pub struct Write<'a> {
    pub parts: &'a [Part],
    pub bulk: &'a Bulk,
    /// As for [`Store::write`].
    pub sum: bool,
    /// As for [`Store::write`].
    pub mtime: Option<Time>,
}

/// An object's new size.
pub struct Truncate(pub Fid, pub u64);

/// fallocate: object, offset, length.
pub struct Fallocate(pub Allocate, pub (Fid, u64, u64));

/// What comes before an object is removed: nobody has it cached.
pub struct Revoke(pub Fid);

impl Change for Write<'_> {
    fn wants(&self) -> Vec<Want> {
        let want =
            |run: Run| Some((Resource::extent(run.object), Mode::Cw, change::inside(run.offset, run.len as u64)?));
        runs(self.parts).filter_map(want).collect()
    }

    fn bytes(&self) -> usize {
        self.bulk.len()
    }

    fn make(&self, store: &Store) -> Result<()> {
        store.write(self.parts, self.bulk, self.sum, self.mtime)
    }
}

impl Change for Truncate {
    fn wants(&self) -> Vec<Want> {
        vec![(Resource::extent(self.0), Mode::Pw, change::resized(self.1))]
    }

    fn make(&self, store: &Store) -> Result<()> {
        store.truncate(&[(self.0, self.1)])
    }
}

impl Change for Fallocate {
    fn wants(&self) -> Vec<Want> {
        let (object, offset, len) = self.1;
        let extent = change::inside(offset, len);
        extent.map(|extent| (Resource::extent(object), Mode::Cw, extent)).into_iter().collect()
    }

    fn make(&self, store: &Store) -> Result<()> {
        store.allocate(self.0, &[self.1])
    }
}

impl Change for Revoke {
    fn wants(&self) -> Vec<Want> {
        vec![(Resource::extent(self.0), Mode::Ex, Policy::extent(0, u64::MAX))]
    }

    fn make(&self, _: &Store) -> Result<()> {
        Ok(())
    }
}

/// What became of a change.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It is made.
    Made,
    /// Nothing is: somebody is in the way, and too many bytes wait already.
    LockFirst,
}

impl Ost {
    /// Makes a change for the client. `blocking`: it may take long.
    ///
    /// # Errors
    /// What the local file system says. ESHUTDOWN: the OST stops or the client goes, and somebody
    /// was in the way.
    pub(crate) async fn change(&self, export: &Export, change: impl Change, blocking: bool) -> Result<Outcome> {
        let mut lock = self.lock(export, &change);
        let mut waits = None;
        if !lock.is_granted() {
            waits = self.waiting.enter(export.id(), change.bytes());
            if waits.is_none() {
                return Ok(Outcome::LockFirst);
            }
            self.locks.unless_gone(export, lock.wait()).await?;
        }
        let done = self.perhaps_blocking(blocking, || change.make(&self.store));
        drop((lock, waits));
        done.map(|()| Outcome::Made)
    }

    /// Makes changes for the client, those that nobody is in the way of at once, each of the others
    /// when its time has come.
    ///
    /// # Errors
    /// As [`Ost::change`]; some of the changes may be made then.
    pub(crate) async fn change_each<C: Change>(
        &self,
        export: &Export,
        changes: impl Iterator<Item = C>,
        blocking: bool,
    ) -> Result<Outcome> {
        let lock = |change: C| (self.lock(export, &change), change);
        let (ready, others): (Vec<_>, Vec<_>) = changes.map(lock).partition(|(lock, _)| lock.is_granted());
        let bytes = others.iter().map(|(_, change)| change.bytes()).sum();
        let Some(waits) = self.waiting.enter(export.id(), bytes) else { return Ok(Outcome::LockFirst) };
        self.perhaps_blocking(blocking, || {
            ready.into_iter().try_for_each(|(lock, change)| {
                let done = change.make(&self.store);
                drop(lock);
                done
            })
        })?;
        if others.is_empty() {
            return Ok(Outcome::Made);
        }
        let each = others.into_iter().map(async |(mut lock, change)| {
            lock.wait().await;
            let done = self.perhaps_blocking(blocking, || change.make(&self.store));
            drop(lock);
            done
        });
        let done: Result<()> = self.locks.unless_gone(export, locks::all(each)).await?.into_iter().collect();
        drop(waits);
        done.map(|()| Outcome::Made)
    }

    fn lock(&self, export: &Export, change: &impl Change) -> Local {
        self.locks.lockd().local(&change.wants(), Some(export))
    }
}
