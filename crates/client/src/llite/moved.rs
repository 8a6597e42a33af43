//! Files that somebody moves to other objects (`lfs migrate`), also while they are in use here.
//!
//! **Who uses such a file** hears of it from an OST: an object is closed ([`Errno::MOVED`]). Then
//! the MDT is asked where the bytes are ([`Client::moved`]), which answers when they have arrived
//! there, and all of what was being done is done again there. No lock is in use meanwhile: who
//! moves the file waits for them. What was cached of the old objects went with the locks on them.
//!
//! **Who moves it** copies the bytes to a nameless file between [`Client::migrate_begin`] and
//! [`Client::migrate_end`].
//!
//! Invariants:
//! * while a group moves a file nothing that is written to it here is kept: the group's lock stays
//!   when the objects are closed, and what were kept under it would have nowhere to go. So other
//!   programs of this mount, which are in the group as well, do not wait: they write, and the file
//!   is not moved this time;
//! * nothing is done by halves: what meets a closed object is done again as a whole, or, where
//!   another file has the objects now, ended there ([`super::swap`]);
//! * a layout is trusted no longer than [`LAYOUT_TRUST`] without the MDT saying so again; OSTs
//!   remember closed objects for many times that.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use sheen_layout::{Layout, MDT_OST};
use sheen_wire::{
    Bulk, Errno, Fid, Result, Time,
    mds::{Request, flags},
    ost,
};

use crate::{Caller, Client, OpenFile, join::join_all, mdc};

/// How long a layout that stays as it is is kept without a lock. OSTs remember closed objects for
/// 24 hours: that leaves as many for operations that have begun.
pub(crate) const LAYOUT_TRUST: Duration = Duration::from_secs(3600);
/// Times that one operation follows a file.
const MOVES_MAX: u32 = 32;
/// Pause before it does so for the n-th time, from the second on: n of these.
const MOVES_PAUSE: Duration = Duration::from_millis(10);

/// A migration under way, kept with the open file.
#[derive(Debug)]
pub(crate) struct Migration {
    /// All objects, and their data versions; of a mirrored file also its own FID and the generation
    /// of its layout.
    versions: Vec<(Fid, u64)>,
    /// When the file was last changed.
    mtime: Time,
}

impl Client {
    /// An OST said that objects of the file are closed: asks where its bytes are. `moves`: how
    /// often that was so for this operation.
    ///
    /// # Errors
    /// EIO: too often, or the file has no bytes any more. What the MDT answers.
    pub(crate) async fn moved(&self, fid: Fid, moves: &mut u32) -> Result<Arc<Layout>> {
        *moves += 1;
        if *moves > MOVES_MAX {
            tracing::warn!("{fid}: its objects are closed, and the MDT knows no others");
            return Err(Errno::EIO);
        }
        if *moves > 1 {
            self.rt.sleep(MOVES_PAUSE * *moves).await;
        }
        self.ask_where(fid).await?.ok_or(Errno::EIO)
    }

    /// The layout that the file has now, which takes the place of what is known of it.
    pub(crate) async fn ask_where(&self, fid: Fid) -> Result<Option<Arc<Layout>>> {
        let before = self.last_layout(fid);
        let generation = before.as_ref().map_or(0, |layout| layout.generation());
        let asking = self.asking_unknown();
        let kept = self.mdc.call_keeping(Request::LayoutMoved { fid, generation }, asking.wants()).await?;
        let told = self.told(&mdc::entry(kept.reply)?, &kept.locks, &asking)?;
        let Some(layout) = told.layout else { return Ok(None) };
        self.settle_left(before, &layout).await;
        let lock = told.lock.and_then(|cookie| self.guard_again(fid, cookie));
        self.told_place(fid, &layout, lock);
        Ok(Some(layout))
    }

    /// What is kept of objects that the file has left is written first, as far as it still can be:
    /// who syncs the file from now on goes by another layout. There is some only if the OST that
    /// closed them had forgotten this client's locks, in a restart.
    pub(crate) async fn settle_left(&self, before: Option<Arc<Layout>>, now: &Layout) {
        if let Some(before) = before.filter(|before| before.stripes().first() != now.stripes().first()) {
            self.lov.settle_file(&before).await;
        }
    }

    /// Whether an object of a layout is closed: then the file may have another one now.
    pub(crate) async fn has_left(&self, layout: &Layout) -> bool {
        matches!(self.lov.glimpse(layout).await, Err(Errno::MOVED))
    }

    /// What was learned of layouts long ago is to be asked for again.
    pub(crate) fn distrust_layouts(&self) {
        self.layouts.clear();
        self.files.distrust();
    }

    /// Begins to move a file: notes what state its objects are in, all that was written before
    /// included. Once more: anew. Reading through this open file does not count as an access.
    ///
    /// # Errors
    /// EINVAL: a directory. What MDT and OSTs answer.
    pub async fn migrate_begin(&self, file: &OpenFile) -> Result<()> {
        if file.flags() & flags::DIRECTORY != 0 {
            return Err(Errno::EINVAL);
        }
        file.leave_atime();
        *file.migration.lock() = None;
        if file.is_in_group() {
            file.inode.through.store(true, Relaxed);
        }
        let (_, versions) = self.versions_now(file, true).await?;
        // After the versions: a time that is too new is one of a change that is seen.
        let mtime = self.getattr(file.fid(), Some(file)).await?.attr.mtime;
        *file.migration.lock() = Some(Migration { versions, mtime });
        Ok(())
    }

    /// A number that is another one after each change of the file's bytes, and the generation of
    /// its layout. With `flush` what this client and others keep to be written is written first;
    /// else it counts when it is. It may be another one though nobody wrote: when an OST was
    /// restarted, or the file was moved. 0: nothing was written to it yet.
    ///
    /// # Errors
    /// What MDT and OSTs answer.
    pub async fn data_version(&self, file: &OpenFile, flush: bool) -> Result<(u64, u32)> {
        let (layout, versions) = self.versions_now(file, flush).await?;
        // As in Lustre: each of them only grows while its OST lives.
        let sum = versions.iter().fold(0, |sum: u64, (_, version)| sum.wrapping_add(*version));
        Ok((sum, layout.map_or(0, |layout| layout.generation())))
    }

    /// The versions of all objects that the file has at the moment.
    async fn versions_now(&self, file: &OpenFile, flush: bool) -> Result<(Option<Arc<Layout>>, Vec<(Fid, u64)>)> {
        let mut moves = 0;
        loop {
            let Some(placed) = self.place(file).await? else { return Ok((None, Vec::new())) };
            let layout = placed.layout;
            // Who moves the file waits for the lock.
            drop(placed.guard);
            match self.versions(file.fid(), &layout, flush).await {
                Err(Errno::MOVED) => drop(self.moved(file.fid(), &mut moves).await?),
                versions => return Ok((Some(layout), versions?)),
            }
        }
    }

    async fn versions(&self, fid: Fid, layout: &Layout, flush: bool) -> Result<Vec<(Fid, u64)>> {
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
                _ => Err(Errno::EPROTO),
            }
        });
        let answers = join_all(asks).await.into_iter().collect::<Result<Vec<_>>>()?;
        let state = layout.is_mirrored().then(|| (fid, u64::from(layout.generation())));
        Ok(answers.into_iter().flatten().chain(state).collect())
    }

    /// Gives a file the objects of `from`, a nameless file that is open here, to which its bytes
    /// were copied and which is durable. `group`: the file is locked for this group, whose members
    /// do not write meanwhile. `from` is of no use afterwards.
    ///
    /// # Errors
    /// EINVAL: [`Client::migrate_begin`] did not come before, or `from` is no such file. EBUSY:
    /// somebody wrote to the file since, or does not let go of it; nothing is changed. EACCES: the
    /// caller may not write to the file. What the MDT answers.
    pub async fn migrate_end(&self, who: &Caller, file: &OpenFile, from: Fid, group: Option<u64>) -> Result<()> {
        let (fid, to) = (file.fid(), self.files.any(from).ok_or(Errno::EINVAL)?);
        let Migration { versions, mtime } = file.migration.lock().take().ok_or(Errno::EINVAL)?;
        let copy = self.place(&to).await?.ok_or(Errno::EINVAL)?.layout;
        self.lov.settle_file(&copy).await;
        if self.lov.take_error(&copy).is_some() {
            return Err(Errno::EIO);
        }
        // What other programs of this mount wrote in the group, as they may, counts as well.
        if let Some(layout) = self.last_layout(fid) {
            self.lov.settle_file(&layout).await;
        }
        // Before anybody can read the file here by locks that came through the other one.
        // (What the copy has on the MDT gets another name.)
        let kept = |layout: &Layout| -> Vec<Fid> {
            layout.all_objects().filter(|s| s.ost != MDT_OST).map(|s| s.object).collect()
        };
        self.cache.data.hand_over(kept(&copy).into_iter(), fid);
        let before = self.last_layout(fid).map(|layout| layout.generation());
        let request = |cred| Request::TakeLayout { cred, fid, from, versions: versions.clone(), group, mtime };
        let change = self.cache.change(&[fid, from], false);
        let answer = self.mdc.call_as(who, request).await;
        change.end(&answer);
        let answer = answer.and_then(mdc::done);
        let now = self.ask_where(fid).await;
        // An MDT that was restarted may have done it and not said so.
        let is_other = |now: &Layout| Some(now.generation()) != before && now.stripe_count() == copy.stripe_count();
        let is_done = now.is_ok_and(|now| now.is_some_and(|now| is_other(&now) && kept(&now) == kept(&copy)));
        if answer.is_ok() || is_done {
            to.leave();
            self.drop_holes(fid, self.page_reads(fid), false).await;
            return Ok(());
        }
        answer
    }
}
