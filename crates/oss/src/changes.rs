//! Changes of objects. The OST makes each change under its own locks on the range that changes.
//!
//! So other clients have cancelled their conflicting locks before the change, and no client is
//! granted a conflicting lock meanwhile. Locks of the requesting client do not conflict: that
//! client keeps its own cache coherent with its requests.
//!
//! Invariants:
//! * writes take CW, so they do not exclude each other: the local file system orders them;
//! * changes that make an object shorter take PW;
//! * the removal of an object takes EX, and no other change does: a blocking callback for EX tells
//!   the client that it may discard dirty data;
//! * a write holds its bytes in memory while it waits for locks. [`crate::write_admission`] bounds
//!   these bytes;
//! * the part of a request on one object is executed as soon as its own locks are granted, and
//!   these locks are released right after. So the OST never waits for a lock while it holds another
//!   one, and a client may hold locks on some objects and wait for others in any order. Changes
//!   that need not wait are made together, and get one transno.

use sheen_lockd::Local;
use sheen_objects::{Run, change, runs};
use sheen_rpc::Export;
use sheen_wire::{
    Bulk, Fid, Result, Time,
    ldlm::{Mode, Policy, Resource},
    ost::{Allocate, Part},
};

use crate::{Ost, Store, locks};

/// A lock that the OST takes: resource, mode, extent.
type Want = (Resource, Mode, Policy);

/// A change of one object.
pub trait ObjectChange {
    /// The locks that the change needs.
    fn wants(&self) -> Vec<Want>;

    /// Bytes held in memory until the change is made.
    fn bytes(&self) -> usize {
        0
    }

    /// The object that changes, if clients replay such a change.
    fn object(&self) -> Option<Fid> {
        None
    }

    /// Makes the change.
    ///
    /// # Errors
    /// Errors of the local file system.
    fn make(&self, store: &Store) -> Result<()>;
}

/// A write to parts of one object, with the bytes.
pub struct Write<'a> {
    /// File of the object.
    pub file: Fid,
    pub parts: &'a [Part],
    pub bulk: &'a Bulk,
    /// As for [`Store::write`].
    pub sum: bool,
    /// As for [`Store::write`].
    pub mtime: Option<Time>,
}

/// A truncate of an object of a file to a new size.
pub struct Truncate {
    pub file: Fid,
    pub object: Fid,
    pub size: u64,
}

/// A fallocate of (object, offset, length) in an object of a file.
pub struct Fallocate {
    pub file: Fid,
    pub mode: Allocate,
    pub run: (Fid, u64, u64),
}

/// The revocation of all other clients' locks on an object, before the object is removed. Changes
/// nothing by itself.
pub struct Revoke(pub Fid);

impl ObjectChange for Write<'_> {
    fn wants(&self) -> Vec<Want> {
        let want =
            |run: Run| Some((Resource::extent(run.object), Mode::Cw, change::inside(run.offset, run.len as u64)?));
        runs(self.parts).filter_map(want).collect()
    }

    fn bytes(&self) -> usize {
        self.bulk.len()
    }

    fn object(&self) -> Option<Fid> {
        self.parts.first().map(|part| part.object)
    }

    fn make(&self, store: &Store) -> Result<()> {
        store.write(self.file, self.parts, self.bulk, self.sum, self.mtime)
    }
}

impl ObjectChange for Truncate {
    fn wants(&self) -> Vec<Want> {
        vec![(Resource::extent(self.object), Mode::Pw, change::resized(self.size))]
    }

    fn object(&self) -> Option<Fid> {
        Some(self.object)
    }

    fn make(&self, store: &Store) -> Result<()> {
        store.truncate(self.file, &[(self.object, self.size)])
    }
}

impl ObjectChange for Fallocate {
    fn wants(&self) -> Vec<Want> {
        let (object, offset, len) = self.run;
        let extent = change::inside(offset, len);
        extent.map(|extent| (Resource::extent(object), Mode::Cw, extent)).into_iter().collect()
    }

    fn object(&self) -> Option<Fid> {
        Some(self.run.0)
    }

    fn make(&self, store: &Store) -> Result<()> {
        store.allocate(self.file, self.mode, &[self.run])
    }
}

impl ObjectChange for Revoke {
    fn wants(&self) -> Vec<Want> {
        vec![(Resource::extent(self.0), Mode::Ex, Policy::extent(0, u64::MAX))]
    }

    fn make(&self, _: &Store) -> Result<()> {
        Ok(())
    }
}

/// The outcome of a change.
#[must_use]
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The change is made.
    Made(Transnos),
    /// Nothing was changed: a lock of another client conflicts, and too many bytes wait already.
    /// The client is to enqueue a lock first.
    LockFirst,
}

/// The transnos of a change ([`crate::commits`]).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Transnos {
    /// The last one; 0 if the change has none.
    pub last: u64,
    /// Those of the objects, if there are different ones.
    pub each: Vec<(Fid, u64)>,
}

impl Ost {
    /// Makes a change for the client. `blocking`: the change may block the thread for long.
    ///
    /// # Errors
    /// Errors of the local file system. ESHUTDOWN: the OST stopped, or the client was disconnected,
    /// while the change waited for a lock.
    pub(crate) async fn change(&self, export: &Export, change: impl ObjectChange, blocking: bool) -> Result<Outcome> {
        let mut lock = self.lock(export, &change);
        let mut admitted = None;
        if !lock.is_granted() {
            admitted = self.write_admission.enter(export.id(), change.bytes());
            if admitted.is_none() {
                return Ok(Outcome::LockFirst);
            }
            self.locks.unless_disconnected(export, lock.wait()).await?;
        }
        let done = self.perhaps_blocking(blocking, || change.make(&self.store));
        let last = done.map(|()| self.number(export, change.object().into_iter()));
        drop((lock, admitted));
        Ok(Outcome::Made(Transnos { last: last?, each: Vec::new() }))
    }

    /// Returns the transno of changes to these objects that were just made, while no other client
    /// can change the same bytes.
    fn number(&self, export: &Export, objects: impl Iterator<Item = Fid>) -> u64 {
        let mut objects = objects.peekable();
        if objects.peek().is_some() { self.commits.changed(export, objects) } else { 0 }
    }

    /// Makes changes for the client. Changes without a conflicting lock are made at once, each of
    /// the others when its lock is granted.
    ///
    /// # Errors
    /// As [`Ost::change`]; some of the changes may be made then.
    pub(crate) async fn change_each<C: ObjectChange>(
        &self,
        export: &Export,
        changes: impl Iterator<Item = C>,
        blocking: bool,
    ) -> Result<Outcome> {
        let lock = |change: C| (self.lock(export, &change), change);
        let (ready, others): (Vec<_>, Vec<_>) = changes.map(lock).partition(|(lock, _)| lock.is_granted());
        let bytes = others.iter().map(|(_, change)| change.bytes()).sum();
        let Some(admitted) = self.write_admission.enter(export.id(), bytes) else { return Ok(Outcome::LockFirst) };
        self.perhaps_blocking(blocking, || ready.iter().try_for_each(|(_, change)| change.make(&self.store)))?;
        let made: Vec<Fid> = ready.iter().filter_map(|(_, change)| change.object()).collect();
        let last = self.number(export, made.iter().copied());
        drop(ready);
        if others.is_empty() {
            return Ok(Outcome::Made(Transnos { last, each: Vec::new() }));
        }
        let each = others.into_iter().map(async |(mut lock, change)| {
            lock.wait().await;
            let done = self.perhaps_blocking(blocking, || change.make(&self.store));
            let object = change.object();
            let transno = done.map(|()| self.number(export, object.into_iter()));
            drop(lock);
            Ok((object, transno?))
        });
        let done: Result<Vec<_>> =
            self.locks.unless_disconnected(export, locks::all(each)).await?.into_iter().collect();
        drop(admitted);
        let later = done?.into_iter().filter_map(|(object, transno)| Some((object?, transno)));
        let each: Vec<_> = made.into_iter().map(|object| (object, last)).chain(later).collect();
        Ok(Outcome::Made(Transnos { last: each.iter().map(|one| one.1).max().unwrap_or_default(), each }))
    }

    fn lock(&self, export: &Export, change: &impl ObjectChange) -> Local {
        self.locks.lockd().local(&change.wants(), Some(export))
    }
}
