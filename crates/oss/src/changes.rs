//! Changes of objects, each made under the OST's own locks on what it touches.
//!
//! So whoever else has that cached has given it up before, and nobody is granted a lock on it meanwhile. The locks of the client that
//! asks for the change are not in the way: what it has cached is its own business.
//!
//! Invariants:
//! * writes take CW, so they do not exclude each other: the local file system orders them. What makes an object shorter takes PW, which
//!   also keeps an object as long as it is known to be while somebody writes inside of it;
//! * the part of a request that is on one object is made as soon as its own locks are granted, and they are given back with it. So the
//!   OST waits for no lock while it holds another, and a client may hold locks on some objects and wait for others in any order.

use sheen_lockd::Local;
use sheen_objects::{change, runs};
use sheen_rpc::Export;
use sheen_wire::{
    Bulk, Fid, Result,
    ldlm::{Mode, Policy, Resource},
    ost::{Allocate, Part},
};

use crate::{Ost, Store, locks};

/// A lock that the OST takes.
type Want = (Resource, Mode, Policy);

/// A change of one object.
pub trait Change {
    /// Which.
    fn object(&self) -> Fid;

    /// The locks that it needs if the object has at least `reach` bytes. With fewer bytes they are on more.
    fn wants(&self, reach: u64) -> Vec<Want>;

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
}

/// An object's new size.
pub struct Truncate(pub Fid, pub u64);

/// fallocate: object, offset, length.
pub struct Fallocate(pub Allocate, pub (Fid, u64, u64));

/// What comes before an object is removed: nobody has it cached.
pub struct Revoke(pub Fid);

impl Change for Write<'_> {
    fn object(&self) -> Fid {
        self.parts.first().map_or(Fid::ZERO, |part| part.object)
    }

    fn wants(&self, reach: u64) -> Vec<Want> {
        let extents = runs(self.parts).filter_map(|run| change::written(run.offset, run.len as u64, reach));
        extents.map(|extent| (Resource::extent(self.object()), Mode::Cw, extent)).collect()
    }

    fn make(&self, store: &Store) -> Result<()> {
        store.write(self.parts, self.bulk, self.sum)
    }
}

impl Change for Truncate {
    fn object(&self) -> Fid {
        self.0
    }

    fn wants(&self, reach: u64) -> Vec<Want> {
        vec![(Resource::extent(self.0), Mode::Pw, change::resized(self.1, reach))]
    }

    fn make(&self, store: &Store) -> Result<()> {
        store.truncate(&[(self.0, self.1)])
    }
}

impl Change for Fallocate {
    fn object(&self) -> Fid {
        self.1.0
    }

    fn wants(&self, reach: u64) -> Vec<Want> {
        let (object, offset, len) = self.1;
        let extent =
            if change::grows(self.0) { change::written(offset, len, reach) } else { change::inside(offset, len) };
        extent.map(|extent| (Resource::extent(object), Mode::Cw, extent)).into_iter().collect()
    }

    fn make(&self, store: &Store) -> Result<()> {
        store.allocate(self.0, &[self.1])
    }
}

impl Change for Revoke {
    fn object(&self) -> Fid {
        self.0
    }

    fn wants(&self, _: u64) -> Vec<Want> {
        vec![(Resource::extent(self.0), Mode::Pw, Policy::extent(0, u64::MAX))]
    }

    fn make(&self, _: &Store) -> Result<()> {
        Ok(())
    }
}

/// The locks of a change, granted or waited for, and the reach of the object that they are right for.
struct Held {
    lock: Local,
    reach: u64,
}

impl Ost {
    /// Makes a change for the client. `blocking`: it may take long.
    ///
    /// # Errors
    /// What the local file system says. ESHUTDOWN: the OST stops, and somebody was in the way.
    pub(crate) async fn change(&self, export: &Export, change: impl Change, blocking: bool) -> Result<()> {
        let mut held = self.lock(export, &change);
        if !self.may_make(&held, &change) {
            held = self.locks.unless_stopping(self.settle(export, held, &change)).await?;
        }
        let done = self.perhaps_blocking(blocking, || change.make(&self.store));
        drop(held);
        done
    }

    /// Makes changes for the client, those that nobody is in the way of at once, each of the others when its time has come.
    ///
    /// # Errors
    /// As [`Ost::change`]; some of the changes may be made then.
    pub(crate) async fn change_each<C: Change>(
        &self,
        export: &Export,
        changes: impl Iterator<Item = C>,
        blocking: bool,
    ) -> Result<()> {
        let lock = |change: C| (self.lock(export, &change), change);
        let (ready, others): (Vec<_>, Vec<_>) =
            changes.map(lock).partition(|(held, change)| self.may_make(held, change));
        self.perhaps_blocking(blocking, || {
            ready.into_iter().try_for_each(|(held, change)| {
                let done = change.make(&self.store);
                drop(held);
                done
            })
        })?;
        if others.is_empty() {
            return Ok(());
        }
        let each = others.into_iter().map(async |(held, change)| {
            let held = self.settle(export, held, &change).await;
            let done = self.perhaps_blocking(blocking, || change.make(&self.store));
            drop(held);
            done
        });
        self.locks.unless_stopping(locks::all(each)).await?.into_iter().collect()
    }

    fn lock(&self, export: &Export, change: &impl Change) -> Held {
        let reach = self.store.reach(change.object());
        Held { lock: self.locks.lockd().local(&change.wants(reach), Some(export)), reach }
    }

    /// Nobody is in the way, and the object has not become shorter before it was locked (it cannot afterwards, below what the lock
    /// is on).
    fn may_make(&self, held: &Held, change: &impl Change) -> bool {
        held.lock.is_granted() && self.store.reach(change.object()) >= held.reach
    }

    async fn settle(&self, export: &Export, mut held: Held, change: &impl Change) -> Held {
        held.lock.wait().await;
        if !self.may_make(&held, change) {
            drop(held);
            let lock = self.locks.lockd().local(&change.wants(0), Some(export));
            held = Held { lock, reach: 0 };
            held.lock.wait().await;
        }
        held
    }
}
