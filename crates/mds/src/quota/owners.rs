//! Owners of objects: the OSTs ask for those of new objects, and the MDT sends those that changed.
//!
//! Owners are looked up and sent with the lock `owning` of the OST held. So an older owner never
//! follows a newer one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use sheen_namespace::{Charged, Problem};
use sheen_rpc::RequestError;
use sheen_wire::ost::{OWNERS_MAX, Owned, Request};
use sheen_wire::quota::{Id, Owner};
use sheen_wire::{Errno, Fid, Result};
use tracing::{debug, info};

use super::master;
use super::rules::{RETRY, all, rules};
use crate::mdt::Mdt;
use crate::state::core::Core;
use crate::state::osp::Osp;

/// Files that are looked up at once; the MDT executes nothing else meanwhile. Each may have to be
/// read from the disk.
const FILES_AT_ONCE: usize = 64;
/// Files of the walk over all files whose owners are sent at once.
const WALK_FILES: usize = 4096;
/// Entries of the owner log that are read at once.
const ENTRIES: usize = 1024;
/// Time that an OST may take to store owners.
const TIMEOUT: Duration = Duration::from_secs(30);
/// After a pass over the owner log that left entries, the next one begins after this many times its
/// duration.
const PASS_PAUSE: u32 = 10;

/// Objects with their files and owners.
type Owners = Vec<Owned>;

/// Returns an object that belongs to no file: it is charged to the superuser.
fn of_no_file(object: Fid) -> Owned {
    Owned { object, file: Fid::ZERO, owner: Owner::default() }
}

/// Returns the objects that a file has on an OST.
fn on(ost: u32, file: Fid, (owner, objects): Charged) -> impl Iterator<Item = Owned> {
    objects.into_iter().filter(move |(on, _)| *on == ost).map(move |(_, object)| Owned { object, file, owner })
}

/// Sends an OST the owners of objects that it asked for.
pub(super) async fn answer_unowned(mdt: &Arc<Mdt>, osp: &Arc<Osp>) {
    // Before, a replay may create the files.
    mdt.recovery.ended().await;
    loop {
        let unowned = osp.quota.unowned(OWNERS_MAX);
        if unowned.is_empty() {
            osp.quota.unowned.notified().await;
            continue;
        }
        osp.when_connected().await;
        if send_unowned(mdt, osp, &unowned).await.is_err() {
            mdt.rt.sleep(RETRY).await;
        }
    }
}

async fn send_unowned(mdt: &Mdt, osp: &Osp, unowned: &[(Fid, Fid)]) -> Result<()> {
    let _order = osp.quota.owning.lock().await;
    let mut owners = Owners::with_capacity(unowned.len());
    for some in unowned.chunks(FILES_AT_ONCE) {
        owners.extend(mdt.owners_of(osp.index, some)?);
    }
    // Others may have been sent since: those of the owner log are right in any case.
    owners.retain(|owned| osp.quota.is_unowned(owned.object));
    send(mdt, osp, &owners, true).await?;
    Ok(())
}

/// Finds the files of objects of which an OST knows no file: they were created by an earlier
/// release, or the OST has lost its index. Sends the OST the owners of the objects of all files,
/// once after each connection. Objects that are unknown then belong to no file.
pub(super) async fn answer_lost(mdt: &Arc<Mdt>, osp: &Arc<Osp>) {
    mdt.recovery.ended().await;
    loop {
        if osp.quota.lost(1).is_empty() {
            osp.quota.lost.notified().await;
            continue;
        }
        osp.when_connected().await;
        let sent = if osp.quota.has_all_owners() { send_lost(mdt, osp).await } else { walk(mdt, osp).await };
        if sent.is_err() {
            mdt.rt.sleep(RETRY).await;
        }
    }
}

async fn send_lost(mdt: &Mdt, osp: &Osp) -> Result<()> {
    let _order = osp.quota.owning.lock().await;
    // With the lock held: the owner log may have named some of them.
    let owners: Owners = osp.quota.lost(OWNERS_MAX).into_iter().map(of_no_file).collect();
    send(mdt, osp, &owners, true).await?;
    Ok(())
}

/// Sends an OST the owners of the objects of all files.
async fn walk(mdt: &Mdt, osp: &Osp) -> Result<()> {
    info!("{}: {} does not know the files of its objects; looking at all files", mdt.name, osp.target);
    let mut after = Fid::ZERO;
    loop {
        let began = mdt.rt.now();
        let order = osp.quota.owning.lock().await;
        let (owners, last) = mdt.owners_after(osp.index, after)?;
        let took = mdt.rt.now().since(began);
        send(mdt, osp, &owners, false).await?;
        drop(order);
        let Some(last) = last else { break };
        after = last;
        // Others get half of the time.
        mdt.rt.sleep(took).await;
    }
    osp.quota.set_all_owners();
    Ok(())
}

/// Sends owners to an OST, after the limits of owners that are new there. With the lock `owning`
/// held. `only_unowned`: an answer to a report, which may be older than an owner that was sent
/// since.
async fn send(mdt: &Mdt, osp: &Osp, owners: &[Owned], only_unowned: bool) -> std::result::Result<(), RequestError> {
    let ids: BTreeSet<Id> = owners.iter().flat_map(|owned| owned.owner.ids()).collect();
    let new = mdt.limited_and_untold(osp, ids);
    if !new.is_empty() {
        master::tell(mdt, osp, &new).await?;
    }
    for some in owners.chunks(OWNERS_MAX) {
        let request = Request::SetOwners { owners: some.to_vec(), only_unowned };
        let op = request.op();
        mdt.rt.timeout(TIMEOUT, osp.run(request)).await.unwrap_or_else(|_| Err(osp.no_reply(op, TIMEOUT)))?;
        osp.quota.owned(some.iter().map(|owned| owned.object));
    }
    Ok(())
}

/// Returns the present problems of objects of an OST, which are given with their files. No owner is
/// sent meanwhile: so an owner that differs is wrong, unless the owner log has the file.
///
/// # Errors
/// The OST does not answer. EIO: the store cannot be read.
pub(crate) async fn confirm(mdt: &Mdt, osp: &Osp, objects: &[(Fid, Fid)]) -> Result<Vec<Problem>> {
    let _order = osp.quota.owning.lock().await;
    let names: Vec<Fid> = objects.iter().map(|(object, _)| *object).collect();
    let stored = osp.stored(&names).await?;
    let mut problems = Vec::new();
    let pairs: Vec<_> = objects.iter().zip(&stored).collect();
    for some in pairs.chunks(FILES_AT_ONCE) {
        let mut core = mdt.core.lock();
        for ((object, file), stored) in some {
            let expected = mdt.look_up(&mut core, |core| core.ns.expected(*file, osp.index, *object))?;
            problems.extend(expected.iter().flat_map(|expected| expected.problems(osp.index, *object, stored)));
        }
    }
    Ok(problems)
}

impl Mdt {
    /// Returns those ids with a limit on the OST that it does not know so far.
    fn limited_and_untold(&self, osp: &Osp, mut ids: BTreeSet<Id>) -> Vec<Id> {
        self.quotas.divide(|division| ids.retain(|id| !division.knows_limit(*id, osp.index)));
        let core = self.core.lock();
        let rules: Vec<_> = ids.into_iter().map(|id| (id, rules(&core, id))).collect();
        self.quotas.divide(|division| {
            let limited = rules.iter().filter(|(_, rules)| division.apply(rules, osp.index));
            limited.map(|(id, _)| *id).collect()
        })
    }

    /// Returns the owner of a file and its objects. `None`: there is no such file.
    fn charged(&self, core: &mut Core, file: Fid) -> Result<Option<Charged>> {
        self.look_up(core, |core| core.ns.charged(file))
    }

    /// Looks a file up.
    fn look_up<T>(&self, core: &mut Core, read: impl FnOnce(&mut Core) -> Result<T>) -> Result<T> {
        if self.commits.is_damaged() {
            return Err(Errno::EIO); // it does not say which files exist
        }
        let found = read(core);
        if found.is_err()
            && let Some(fault) = core.ns.take_fault()
        {
            self.store_failed("finding the owner of an object", &fault);
        }
        found
    }

    /// Whether no file certainly has an object (OST and name) that belonged to `file` as far as the
    /// OST knows. If another layout has it, the OST has learned that since.
    ///
    /// # Errors
    /// EIO: the store cannot be read, or a commit fails. ESHUTDOWN: the MDT stops.
    pub(crate) async fn belongs_to_no_file(&self, file: Fid, object: (u32, Fid)) -> Result<bool> {
        let charged = self.charged(&mut self.core.lock(), file)?;
        // Without any object, the layout may be one that does not decode.
        let may_have = |objects: &[(u32, Fid)]| objects.is_empty() || objects.contains(&object);
        if file.is_zero() || charged.is_some_and(|(_, objects)| may_have(&objects)) {
            return Ok(false);
        }
        // The object may have passed to another layout before. Once that is durable, it is in the
        // owner log until the OST knows the other file.
        self.sync(None).await?;
        let has_changes = self.core.lock().ns.has_owner_changes();
        has_changes.map(|has| !has).map_err(|fault| {
            self.store_failed("reading the owner log", &fault);
            Errno::EIO
        })
    }

    /// Returns the owners of objects of an OST, which it reports with their files. Objects that do
    /// not belong to these files are charged to the superuser: a client must not charge others.
    fn owners_of(&self, ost: u32, objects: &[(Fid, Fid)]) -> Result<Owners> {
        let mut core = self.core.lock();
        let owner_of = |(object, file): &(Fid, Fid)| {
            let charged = self.charged(&mut core, *file)?;
            let found = charged.filter(|(_, objects)| objects.contains(&(ost, *object)));
            let owned = |(owner, _)| Owned { object: *object, file: *file, owner };
            Ok(found.map_or_else(|| of_no_file(*object), owned))
        };
        objects.iter().map(owner_of).collect()
    }

    /// Returns the owners of the objects that the files following `after` have on an OST, and the
    /// last of these files. `None`: all files are done.
    fn owners_after(&self, ost: u32, mut after: Fid) -> Result<(Owners, Option<Fid>)> {
        let (mut owners, mut files_count) = (Owners::new(), 0);
        while owners.len() < OWNERS_MAX && files_count < WALK_FILES {
            let mut core = self.core.lock();
            let files = match core.ns.files_from(after, FILES_AT_ONCE) {
                Ok(files) => files,
                Err(fault) => {
                    drop(core);
                    self.store_failed("listing all files", &fault);
                    return Err(Errno::EIO);
                }
            };
            let Some(last) = files.last().copied() else { return Ok((owners, None)) };
            for file in &files {
                owners.extend(
                    self.charged(&mut core, *file)?.map(|charged| on(ost, *file, charged)).into_iter().flatten(),
                );
            }
            after = last;
            files_count += files.len();
        }
        Ok((owners, Some(after)))
    }
}

/// The task that sends owners of objects that have changed: those of the owner log.
pub(super) async fn follow_log(mdt: Arc<Mdt>) {
    loop {
        mdt.quotas.log.notified().await;
        if mdt.commits.is_damaged() {
            return;
        }
        let began = mdt.rt.now();
        if !pass(&mdt).await {
            // An OST that is disconnected for long must not cost much.
            let took = mdt.rt.now().since(began);
            mdt.rt.sleep(RETRY.max(took.saturating_mul(PASS_PAUSE))).await;
        }
    }
}

/// Sends the owners of all files in the owner log. Returns false if some could not be sent.
async fn pass(mdt: &Mdt) -> bool {
    let (mut after, mut is_done) = (Fid::ZERO, true);
    loop {
        let files = mdt.core.lock().ns.owner_changes(after, ENTRIES);
        let files = match files {
            Ok(files) => files,
            Err(e) => {
                mdt.store_failed("reading the owner log", &e);
                return false;
            }
        };
        let Some(last) = files.last() else { return is_done };
        after = *last;
        is_done &= send_changed(mdt, &files).await;
    }
}

/// Sends the owners of files to all OSTs that have their objects. Returns false if some could not
/// be sent.
async fn send_changed(mdt: &Mdt, files: &[Fid]) -> bool {
    let mut per_ost: BTreeMap<u32, Vec<Fid>> = BTreeMap::new();
    for some in files.chunks(FILES_AT_ONCE) {
        mdt.osts_of(some, &mut per_ost);
    }
    let sent = all(per_ost.into_iter().map(|(ost, files)| send_to(mdt, ost, files)).collect()).await;
    let sent: BTreeMap<(u32, Fid), Owner> = sent.into_iter().flatten().collect();
    let done: usize = files.chunks(FILES_AT_ONCE).map(|some| mdt.owners_sent(some, &sent)).sum();
    done == files.len()
}

/// Sends an OST the owners of the objects that these files have there. Returns what was sent.
async fn send_to(mdt: &Mdt, ost: u32, files: Vec<Fid>) -> Vec<((u32, Fid), Owner)> {
    let Some(osp) = mdt.osts.connected(ost) else { return Vec::new() };
    let _order = osp.quota.owning.lock().await;
    let mut owners = Owners::new();
    for some in files.chunks(FILES_AT_ONCE) {
        let mut core = mdt.core.lock();
        for file in some {
            if let Ok(Some(charged)) = mdt.charged(&mut core, *file) {
                owners.extend(on(ost, *file, charged));
            }
        }
    }
    if let Err(e) = send(mdt, &osp, &owners, false).await {
        // Retried. The OST may be full, which must not count as disconnected.
        debug!("{}: {e}: objects there are charged to their former owners until the OST answers", mdt.name);
        return Vec::new();
    }
    owners.into_iter().map(|owned| ((ost, owned.object), owned.owner)).collect()
}

impl Mdt {
    /// Adds files to the OSTs that have their objects.
    fn osts_of(&self, files: &[Fid], per_ost: &mut BTreeMap<u32, Vec<Fid>>) {
        let mut core = self.core.lock();
        for file in files {
            let Ok(Some((_, objects))) = self.charged(&mut core, *file) else { continue };
            let osts: BTreeSet<u32> = objects.into_iter().map(|(ost, _)| ost).collect();
            osts.into_iter().for_each(|ost| per_ost.entry(ost).or_default().push(*file));
        }
    }

    /// Removes those files from the owner log whose objects have got the file's present owner.
    /// Returns their number. A file that was changed again meanwhile stays.
    fn owners_sent(&self, files: &[Fid], sent: &BTreeMap<(u32, Fid), Owner>) -> usize {
        let mut core = self.core.lock();
        let mut done = Vec::new();
        for file in files {
            let is_done = match self.charged(&mut core, *file) {
                Ok(Some((owner, objects))) => {
                    objects.iter().all(|object| sent.get(object) == Some(&owner) || self.osts.is_removed(object.0))
                }
                // It is deleted, and so are its objects.
                Ok(None) => true,
                Err(_) => false,
            };
            if is_done {
                done.push(*file);
            }
        }
        core.ns.owners_sent(&done);
        self.wake_committer(&core);
        done.len()
    }
}
