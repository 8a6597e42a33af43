//! File migration (`lfs migrate`), also while the file is in use here.
//!
//! **Users of the file**: an OST answers that an object is sealed ([`Failure::LayoutMoved`]). The
//! client asks the MDT for the new layout ([`Client::layout_after_seal`]), and the MDT replies when
//! the bytes are there. Then the client repeats the whole operation with that layout. No lock is in
//! use meanwhile, because the migrating client waits for the locks. Cached data of the old objects
//! was dropped with their locks.
//!
//! **The migrating client** copies the bytes to an orphan between [`Client::migrate_begin`] and
//! [`Client::migrate_end`].
//!
//! Invariants:
//! * While a group migrates a file, writes to the file bypass this client's write-back cache. The
//!   group lock survives the seal, so data that is dirty under it would have no object to go to.
//!   Other programs of this mount in the group need not wait: they write, and the migration fails
//!   with EBUSY.
//! * No operation remains half done. An operation that meets a sealed object is repeated as a
//!   whole. If the objects belong to another file now, it is finished there
//!   ([`super::swap_layouts`]).
//! * A layout is trusted for at most [`LAYOUT_TRUST`] without confirmation by the MDT. OSTs
//!   remember sealed objects many times longer.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use sheen_layout::{Layout, MDT_OST};
use sheen_rt::join::join_all;
use sheen_wire::{
    Bulk, Errno, Fid, Result,
    mds::{Request, flags},
    ost,
};

use super::with_layout::Attempt;
use crate::{Caller, Client, OpenFile, failure::Failure, mdc, open::Migration};

/// Longest time for which a settled layout is used without a lock and without confirmation by the
/// MDT. OSTs remember sealed objects for 24 hours. The rest of that time is for operations that
/// have begun.
pub(crate) const LAYOUT_TRUST: Duration = Duration::from_secs(3600);

impl Client {
    /// Asks the MDT for the current layout, which replaces the known one.
    pub(crate) async fn ask_where(&self, fid: Fid) -> Result<Option<Arc<Layout>>> {
        let before = self.last_layout(fid);
        let generation = before.as_ref().map_or(0, |layout| layout.generation());
        let asking = self.asking_unknown();
        let answer =
            self.mdc.request(Request::LayoutMoved { fid, generation }).with_locks(asking.wants()).send().await?;
        let reply = self.cache_attr(&mdc::entry(answer.reply)?, &answer.locks, &asking)?;
        let Some(layout) = reply.layout else { return Ok(None) };
        self.settle_left(before, &layout).await;
        let lock = reply.lock.and_then(|cookie| self.guard_again(fid, cookie));
        self.note_layout(fid, &layout, lock, answer.revoked);
        Ok(Some(layout))
    }

    /// Flushes dirty data of objects that the file has left, as far as still possible, because a
    /// later fsync uses the new layout. There is such data only if the OST had lost this client's
    /// locks in a restart before it sealed the objects.
    pub(crate) async fn settle_left(&self, before: Option<Arc<Layout>>, now: &Layout) {
        if let Some(before) = before.filter(|before| before.stripes().first() != now.stripes().first()) {
            self.lov.settle_file(&before).await;
        }
    }

    /// Returns whether an object of a layout is sealed: then the file may have another layout now.
    pub(crate) async fn has_left(&self, layout: &Layout) -> bool {
        matches!(self.lov.glimpse(layout).await, Err(Failure::LayoutMoved { .. }))
    }

    /// Marks all layouts as unconfirmed: the next use asks the MDT.
    pub(crate) fn distrust_layouts(&self) {
        self.layouts.clear();
        self.files.distrust();
    }

    /// Begins a migration: flushes dirty data and records the data versions of the objects. A
    /// second call starts again. Reads through this open file do not update the access time.
    ///
    /// # Errors
    /// EINVAL: a directory. Any error of the MDT and the OSTs.
    pub async fn migrate_begin(&self, file: &OpenFile) -> Result<()> {
        if file.flags() & flags::DIRECTORY != 0 {
            return Err(Errno::EINVAL);
        }
        file.leave_atime();
        file.accesses.exclude();
        *file.migration.lock() = None;
        if file.is_in_group() {
            file.inode.through.store(true, Relaxed);
        }
        let (_, versions) = self.versions_now(file, true).await?;
        // Read after the versions: a write between the two has a new version, so it is detected.
        let mtime = self.getattr_of(file.fid(), Some(file)).await?.attr.mtime;
        *file.migration.lock() = Some(Migration { versions, mtime });
        Ok(())
    }

    /// Returns a number that differs after each change of the file's bytes, and the generation of
    /// the file's layout. With `flush`, this client and others write their dirty data first.
    /// Without it, dirty data counts once the OST has it. The number may also change without a
    /// write: when an OST's host fails, or the file is migrated. 0: nothing was written to the file
    /// yet.
    ///
    /// # Errors
    /// Any error of the MDT and the OSTs.
    pub async fn data_version(&self, file: &OpenFile, flush: bool) -> Result<(u64, u32)> {
        let (layout, versions) = self.versions_now(file, flush).await?;
        // A sum, as in Lustre: each version only grows, also over restarts of its OST.
        let sum = versions.iter().fold(0, |sum: u64, (_, version)| sum.wrapping_add(*version));
        Ok((sum, layout.map_or(0, |layout| layout.generation())))
    }

    /// Returns the layout and the versions of all its objects at the moment.
    async fn versions_now(&self, file: &OpenFile, flush: bool) -> Result<(Option<Arc<Layout>>, Vec<(Fid, u64)>)> {
        self.with_layout("data_version", file, |_| async {
            let Some(placed) = self.place(file).await? else { return Ok(Attempt::Done((None, Vec::new()))) };
            let layout = placed.layout;
            // A migrating client may wait for this lock.
            drop(placed.guard);
            let versions = self.versions(file.fid(), &layout, flush).await?;
            Ok(Attempt::Done((Some(layout), versions)))
        })
        .await
    }

    async fn versions(&self, fid: Fid, layout: &Layout, flush: bool) -> Result<Vec<(Fid, u64)>, Failure> {
        if flush {
            self.lov.settle_file(layout).await;
        }
        let mut per_ost: BTreeMap<u32, Vec<Fid>> = BTreeMap::new();
        layout.all_objects().for_each(|s| per_ost.entry(s.ost).or_default().push(s.object));
        let asks = per_ost.into_iter().map(|(ost, objects)| async move {
            let request = ost::Request::Versions { objects: objects.clone(), flush };
            match self.lov.call(ost, request, Bulk::new()).await?.0 {
                ost::Reply::Versions(versions) if versions.len() == objects.len() => {
                    Ok(objects.into_iter().zip(versions).collect::<Vec<_>>())
                }
                _ => Err(Failure::Errno(Errno::EPROTO)),
            }
        });
        let answers = join_all(asks).await.into_iter().collect::<Result<Vec<_>, _>>()?;
        let state = layout.is_mirrored().then(|| (fid, u64::from(layout.generation())));
        Ok(answers.into_iter().flatten().chain(state).collect())
    }

    /// Gives `file` the objects of `from`. `from` is an orphan that is open here, has a copy of the
    /// bytes, and is durable. `group`: the group that has locked the file; its members do not write
    /// meanwhile. `from` cannot be used afterwards.
    ///
    /// # Errors
    /// EINVAL: [`Client::migrate_begin`] was not called before, or `from` is no such file. EBUSY:
    /// the file was written since, or a client does not release its locks; nothing is changed.
    /// EACCES: the caller may not write to the file. Any error of the MDT.
    pub async fn migrate_end(&self, who: &Caller, file: &OpenFile, from: Fid, group: Option<u64>) -> Result<()> {
        let (fid, to) = (file.fid(), self.files.any(from).ok_or(Errno::EINVAL)?);
        let Migration { versions, mtime } = file.migration.lock().take().ok_or(Errno::EINVAL)?;
        let copy = self.place(&to).await?.ok_or(Errno::EINVAL)?.layout;
        self.lov.settle_file(&copy).await;
        if self.lov.take_error(&copy).is_some() {
            return Err(Errno::EIO);
        }
        // Writes of other programs of this mount in the group count as changes as well.
        if let Some(layout) = self.last_layout(fid) {
            self.lov.settle_file(&layout).await;
        }
        // Before a read of `file` can use locks that were taken through `from`. Objects on the MDT
        // are left out, because they get new names.
        let ost_objects = |layout: &Layout| -> Vec<Fid> {
            layout.all_objects().filter(|s| s.ost != MDT_OST).map(|s| s.object).collect()
        };
        self.lov.objects().hand_over(ost_objects(&copy).into_iter(), fid);
        let before = self.last_layout(fid).map(|layout| layout.generation());
        let request = |cred| Request::TakeLayout { cred, fid, from, versions: versions.clone(), group, mtime };
        let change = self.cache.change(&[fid, from], false);
        let answer = self.mdc.request_as(who, request).reply().await;
        change.end(&answer);
        let answer = answer.and_then(mdc::done);
        let now = self.ask_where(fid).await;
        // A restarted MDT may have done the change and answer with an error.
        let is_other = |now: &Layout| Some(now.generation()) != before && now.stripe_count() == copy.stripe_count();
        let is_done =
            now.is_ok_and(|now| now.is_some_and(|now| is_other(&now) && ost_objects(&now) == ost_objects(&copy)));
        if answer.is_ok() || is_done {
            to.leave();
            self.drop_holes(fid, self.page_reads(fid), false).await;
            return Ok(());
        }
        answer
    }
}
