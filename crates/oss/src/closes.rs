//! Closing objects that a file leaves (a migration, Lustre's swap of layouts), and the data
//! versions that tell whether somebody has written to them meanwhile.
//!
//! Invariants:
//! * a version is told, to who wants it so, when all that others had in their caches is written;
//!   one that is the same later means the same bytes;
//! * an object is closed while nobody else has a lock on it: whoever kept something has written and
//!   forgotten it. Each object is closed by itself, so that the OST waits for no lock while it
//!   holds another: what is closed does not change any more;
//! * it is not closed by EX: who is called back for that throws away what it has to write;
//! * who asks does not wait longer than [`CLOSE_WAIT_MAX`]: others queue behind.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use sheen_rpc::Export;
use sheen_wire::{
    Errno, Fid, Result,
    ldlm::{Mode, Policy, Resource},
};

use crate::{Ost, Store, changes::Change, locks};

/// How long others are waited for before a close is given up: a program may be in a group.
const CLOSE_WAIT_MAX: Duration = Duration::from_secs(20);
/// All of an object.
const WHOLE: Policy = Policy::extent(0, u64::MAX);

/// An object, the version that it shall have (`None`: any), and what was closed so far of the same
/// request.
struct CloseOne<'a> {
    object: Fid,
    version: Option<u64>,
    group: Option<u64>,
    closed: &'a Mutex<Vec<Fid>>,
}

impl Change for CloseOne<'_> {
    fn wants(&self) -> Vec<(Resource, Mode, Policy)> {
        let (mode, policy) = self.group.map_or((Mode::Pw, WHOLE), |gid| (Mode::Group, Policy::group(gid)));
        vec![(Resource::extent(self.object), mode, policy)]
    }

    fn make(&self, store: &Store) -> Result<()> {
        store.close_object(self.object, self.version)?;
        self.closed.lock().push(self.object);
        Ok(())
    }
}

impl Ost {
    /// The data versions of objects; `flush`: of all that clients have, and not only of what they
    /// wrote so far.
    ///
    /// # Errors
    /// MOVED. What the local file system says. ESHUTDOWN: the OST stops.
    pub(crate) async fn versions(&self, export: &Arc<Export>, objects: &[Fid], flush: bool) -> Result<Vec<u64>> {
        let each = objects.iter().map(async |&object| {
            if flush {
                self.write_back(export, object).await?;
            }
            self.store.version(object)
        });
        self.locks.unless_stopping(locks::all(each)).await?.into_iter().collect()
    }

    /// Closes objects; all of them or, with an error, none.
    ///
    /// # Errors
    /// EBUSY: one has another version, or somebody keeps his locks. As [`Ost::versions`].
    pub(crate) async fn close(
        &self,
        export: &Export,
        objects: &[(Fid, Option<u64>)],
        group: Option<u64>,
    ) -> Result<()> {
        let closed = Mutex::default();
        let one = |&(object, version): &(Fid, Option<u64>)| CloseOne { object, version, group, closed: &closed };
        let closing = self.change_each(export, objects.iter().map(one), false);
        let done = match self.rt.timeout(CLOSE_WAIT_MAX, closing).await {
            Ok(Ok(_)) => self.store.settle_closed().await,
            Ok(Err(errno)) => Err(errno),
            Err(_) => Err(Errno::EBUSY),
        };
        if done.is_err() {
            self.store.reopen(&closed.lock())?;
        }
        done
    }

    /// Gives closed objects second names ([`Store::link`]). The markers that say so take room.
    ///
    /// # Errors
    /// ENOSPC: what is left is promised to clients. As [`Store::link`].
    pub(crate) async fn link(&self, export: &Export, objects: &[(Fid, Fid)]) -> Result<()> {
        let _room = self.room_for_files(export, objects.len())?;
        self.store.link(objects).await
    }
}
