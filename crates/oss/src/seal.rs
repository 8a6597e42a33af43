//! Sealing the objects that a file leaves behind (a migration, Lustre's swap of layouts), and the
//! data versions that show whether a client has written to them meanwhile.
//!
//! Invariants:
//! * a version requested with `flush` is returned after all other clients have written their dirty
//!   data. If an object's version is the same later, its bytes are the same;
//! * an object is sealed while no other client holds a lock on it, so every client has flushed and
//!   dropped its cached data. Each object is sealed by itself, so that the OST waits for no lock
//!   while it holds another one. A sealed object does not change any more;
//! * sealing takes PW, not EX: EX would make clients discard dirty data;
//! * a seal request waits at most [`SEAL_WAIT_MAX`], because other requests queue behind it. It
//!   does not wait for the end of a recovery;
//! * a request for which the MDT does not wait any more has no effect on objects that were sealed
//!   later ([`Order`]).

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use sheen_rpc::Export;
use sheen_wire::{
    Errno, Fid, Result,
    ldlm::{Mode, Policy, Resource},
};

use crate::{Ost, Store, changes::ObjectChange, locks, store::Order};

/// How long a seal request waits for locks of other clients before it fails with EBUSY. A program
/// may hold a group lock for any time.
const SEAL_WAIT_MAX: Duration = Duration::from_secs(20);
/// Extent of a whole object.
const WHOLE: Policy = Policy::extent(0, u64::MAX);

/// Seals one object. `version`: the version that the object must have (`None`: any). `sealed`: the
/// objects that this request has sealed so far.
struct SealOne<'a> {
    object: Fid,
    version: Option<u64>,
    group: Option<u64>,
    order: Order,
    sealed: &'a Mutex<Vec<Fid>>,
}

impl ObjectChange for SealOne<'_> {
    fn wants(&self) -> Vec<(Resource, Mode, Policy)> {
        let (mode, policy) = self.group.map_or((Mode::Pw, WHOLE), |gid| (Mode::Group, Policy::group(gid)));
        vec![(Resource::extent(self.object), mode, policy)]
    }

    fn make(&self, store: &Store) -> Result<()> {
        store.seal_object(self.object, self.version, self.order)?;
        self.sealed.lock().push(self.object);
        Ok(())
    }
}

impl Ost {
    /// Returns the data versions of objects. `flush`: includes the dirty data of other clients,
    /// which the OST makes them write first.
    ///
    /// # Errors
    /// MOVED: an object is sealed. ESHUTDOWN: the OST stops. Errors of the local file system.
    pub(crate) async fn versions(&self, export: &Arc<Export>, objects: &[Fid], flush: bool) -> Result<Vec<u64>> {
        let each = objects.iter().map(async |&object| {
            if flush {
                self.write_back(export, object).await?;
            }
            self.store.version(object)
        });
        self.locks.unless_stopping(locks::all(each)).await?.into_iter().collect()
    }

    /// Seals objects: all of them or, with an error, none.
    ///
    /// # Errors
    /// EBUSY: an object has another version, or a client does not cancel its lock in time. As
    /// [`Ost::versions`].
    pub(crate) async fn seal(
        &self,
        export: &Export,
        objects: &[(Fid, Option<u64>)],
        group: Option<u64>,
        order: u64,
    ) -> Result<()> {
        let (sealed, order) = (Mutex::default(), order_of(export, order));
        let one = |&(object, version): &(Fid, Option<u64>)| SealOne { object, version, group, order, sealed: &sealed };
        let sealing = self.change_each(export, objects.iter().map(one), false);
        let mut done = match self.rt.timeout(SEAL_WAIT_MAX, sealing).await {
            Ok(Ok(_)) => self.store.sync_markers().await,
            Ok(Err(errno)) => Err(errno),
            Err(_) => Err(Errno::EBUSY),
        };
        if done.is_ok() {
            let objects: Vec<Fid> = objects.iter().map(|(object, _)| *object).collect();
            done = self.settle(&objects).await;
        }
        if done.is_err() {
            self.store.unseal(&sealed.lock(), order)?;
        }
        done
    }

    /// Unseals objects.
    ///
    /// # Errors
    /// As [`Store::unseal`].
    pub(crate) fn unseal(&self, export: &Export, objects: &[Fid], order: u64) -> Result<()> {
        self.store.unseal(objects, order_of(export, order))
    }

    /// Gives sealed objects second names ([`Store::link`]). The markers that record them need
    /// space.
    ///
    /// # Errors
    /// ENOSPC: the remaining space is granted to clients. As [`Store::link`].
    pub(crate) async fn link(&self, export: &Export, objects: &[(Fid, Fid)], order: u64) -> Result<()> {
        let _space = self.reserve_for_files(export, objects.len())?;
        self.store.link(objects, order_of(export, order)).await
    }
}

/// Returns the place of an MDT's request. `number`: as the MDT counts.
fn order_of(export: &Export, number: u64) -> Order {
    Order { export: export.id(), number }
}
