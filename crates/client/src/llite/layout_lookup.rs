//! Layout lookup: the current layout of an open file, and new objects where it has none.
//!
//! A layout that is not settled ([`crate::cache::is_settled`]) is valid under a LAYOUT lock.
//! While this client holds that lock, the MDT gives the file no objects for other clients. An
//! operation keeps the lock in use while it runs ([`Client::under`]), but not for long, and never
//! during a request to the MDT. A layout intent waits until all clients have released the lock. For
//! the same reason no extent lock is in use during a layout intent: another user of the layout may
//! be waiting for that extent lock.
//!
//! Without a LAYOUT lock the layout is a snapshot: use it for this one operation and cache nothing
//! read through it.
//!
//! A settled layout needs no lock: the MDT refuses to add mirrors to it while a client has the file
//! open without a LAYOUT lock. A client with the lock gets a callback instead, which may overtake
//! the reply that brings lock and layout ([`mdc::MdtReply::revoked`]). Such a layout is a
//! snapshot, too.
//!
//! Invariants:
//! * [`crate::open::Inode`] of an open file has the newest layout that this client has received.
//!   The layout is *held* only if this client has had a LAYOUT lock ever since the MDT sent it, or
//!   requested the objects itself. The client's own locks do not block its own requests.
//! * A read that runs beside this client's own request for objects may return data from before the
//!   request. The kernel drops such pages.

use std::{pin::pin, sync::Arc, time::Duration};

use sheen_layout::Layout;
use sheen_wire::{
    Errno, Fid, Result,
    ldlm::{Cookie, Policy, Resource, bits},
    mds::{Opener, Request},
};

use crate::{
    Client, OpenFile,
    cache::{
        data::{PATIENCE, Reading, Reads},
        is_as_new, is_settled,
    },
    locks::LockRef,
    mdc,
};

/// Longest time for which a LAYOUT lock, or the locks of a read, stay in use during a request to an
/// OST. A quarter of the time after which a server evicts a client that does not cancel a lock.
pub(super) const HOLD_MAX: Duration = Duration::from_secs(5);
/// Longest time for which a LAYOUT lock stays in use after a blocking callback. Requests that
/// depend on the OSTs alone are usually done by then. A request that waits for another client's
/// extent lock may wait for the client that wants this LAYOUT lock (a migration under a group
/// lock).
const WANTED_MAX: Duration = Duration::from_millis(200);
/// Most layout intents for one write. After each one, more objects exist.
const INTENTS_MAX: usize = 8;
/// Rounds in which a read for the page cache checks whether its LAYOUT lock is being cancelled.
const ROUNDS_MAX: usize = 4;
const LAYOUT: Policy = Policy::bits(bits::LAYOUT);

/// A layout, with the LAYOUT lock that guards it, in use. Without a lock the layout is settled, or
/// a snapshot from the MDT's reply.
pub(crate) struct Placed {
    pub layout: Arc<Layout>,
    pub guard: Option<LockRef>,
}

/// A file's layout, and the handle of the LAYOUT lock under which the MDT sent it. While that very
/// lock is held, no other client has changed the layout; any other LAYOUT lock may belong to a
/// newer layout. `None`: the layout may have changed since.
#[derive(Clone)]
pub(crate) struct Located {
    pub layout: Arc<Layout>,
    pub lock: Option<Cookie>,
}

/// A file that is written or truncated, and the user for the changelog.
#[derive(Clone, Copy)]
pub(crate) struct Changing {
    pub fid: Fid,
    pub opener: Opener,
}

impl Changing {
    /// A change through an open file.
    pub(crate) fn of(file: &OpenFile) -> Changing {
        Changing { fid: file.fid(), opener: file.opener() }
    }
}

impl Client {
    /// Returns the LAYOUT lock of a file, in use, if this client holds one. None while it is in
    /// doubt: the MDT may have evicted this client.
    pub(crate) fn layout_lock(&self, fid: Fid) -> Option<LockRef> {
        if self.lov.evictions().is_unsure() {
            return None;
        }
        self.mdc.locks().matching(Resource::bits(fid), &LAYOUT)
    }

    /// Returns the LAYOUT lock with this handle, in use, if this client still holds it. None while
    /// it is in doubt.
    pub(crate) fn guard_again(&self, fid: Fid, cookie: Cookie) -> Option<LockRef> {
        if self.lov.evictions().is_unsure() {
            return None;
        }
        self.mdc.locks().again(Resource::bits(fid), &LAYOUT, cookie)
    }

    /// Returns the layout of an open file; `None` if the file has none yet.
    ///
    /// # Errors
    /// ESTALE: the MDT has lost the file in a restart.
    pub(crate) async fn place(&self, file: &OpenFile) -> Result<Option<Placed>> {
        file.check_not_lost()?;
        if file.is_unsure() {
            Box::pin(self.ask_whether_it_is_there(file)).await?;
        }
        let placed = match self.place_known(file)? {
            Some(placed) => Some(placed),
            None => Box::pin(self.ask_place(file)).await?,
        };
        match placed {
            Some(placed) if file.mirror() != 0 => self.through(file, placed).map(Some),
            placed => Ok(placed),
        }
    }

    /// As [`Client::place`], for a read whose data goes into the kernel's page cache. The cancel of
    /// a LAYOUT lock waits for such reads, so the read must not wait for the MDT then. It uses the
    /// previous layout, and its pages are dropped again afterwards.
    pub(crate) async fn place_for_pages(&self, file: &OpenFile, reading: &mut Reading) -> Result<Option<Placed>> {
        if let Some(layout) = file.inode.settled().filter(|_| !file.is_unsure()) {
            file.check_not_lost()?;
            return Ok(Some(Placed { layout, guard: None }));
        }
        Box::pin(self.place_beside_flush(file, reading)).await
    }

    async fn place_beside_flush(&self, file: &OpenFile, reading: &mut Reading) -> Result<Option<Placed>> {
        file.check_not_lost()?;
        let data = reading.file.clone();
        for _ in 0..ROUNDS_MAX {
            if !file.is_unsure()
                && let Some(placed) = self.place_known(file)?
            {
                return Ok(Some(placed));
            }
            if !data.is_guarded() {
                let _ = self.rt.timeout(PATIENCE, data.flush_ends()).await;
                if reading.unlock_if_flushing()
                    && let Some(layout) = file.inode.held()
                {
                    return Ok(Some(Placed { layout, guard: None }));
                }
            }
            if reading.is_unlocked() {
                break;
            }
            tokio::select! {
                biased;
                placed = self.place(file) => return placed,
                () = data.flush_begins() => {}
            }
        }
        self.place(file).await
    }

    /// Returns the layout if it is known without a request.
    fn place_known(&self, file: &OpenFile) -> Result<Option<Placed>> {
        let fid = file.fid();
        if let Some(layout) = file.inode.settled() {
            return Ok(Some(Placed { layout, guard: None }));
        }
        let settled = || self.layouts.get(fid).inspect(|layout| file.inode.learn(layout));
        let is_unknown = file.inode.last().is_none();
        if is_unknown && let Some(layout) = settled() {
            return Ok(Some(Placed { layout, guard: None }));
        }
        if let Some(guard) = self.layout_lock(fid)
            && let Some(layout) = file.inode.held().or_else(|| self.learn_cached(file))
        {
            return Ok(Some(Placed { layout, guard: Some(guard) }));
        }
        let layout = match (file.inode.sent.get(), settled()) {
            (_, Some(layout)) => layout,
            (Some(bytes), None) if is_unknown => self.layouts.read(fid, bytes)?,
            _ => return Ok(None),
        };
        if !is_settled(&layout) {
            file.inode.learn_past(&layout);
            return Ok(None);
        }
        file.inode.learn(&layout);
        Ok(Some(Placed { layout, guard: None }))
    }

    /// Takes the layout from the cached attributes, which are dropped together with the LAYOUT
    /// lock. The caller has a LAYOUT lock in use.
    fn learn_cached(&self, file: &OpenFile) -> Option<Arc<Layout>> {
        let cached = self.cache.meta.lock().get(file.fid())?.layout;
        let layout = cached.filter(|layout| !layout.is_plain())?;
        file.inode.learn(&layout);
        file.inode.held()
    }

    /// Checks after an MDT restart whether the MDT still has the file's layout. If not, marks the
    /// file as lost.
    async fn ask_whether_it_is_there(&self, file: &OpenFile) -> Result<()> {
        let request = Request::GetAttr { fid: file.fid(), layout_known: false };
        let entry = mdc::entry(self.mdc.request(request).reply().await?)?;
        if !file.is_unsure() {
            // Another operation has asked as well, and may know a later layout than this reply.
            return Ok(());
        }
        let Some(known) = file.confirm(entry.layout.as_ref()) else { return Ok(()) };
        if self.has_left(&known).await {
            file.confirm_moved();
            return Ok(());
        }
        file.lose();
        file.check_not_lost()
    }

    async fn ask_place(&self, file: &OpenFile) -> Result<Option<Placed>> {
        let fid = file.fid();
        let asking = self.asking_unknown();
        let answer =
            self.mdc.request(Request::GetAttr { fid, layout_known: false }).with_locks(asking.wants()).send().await?;
        let entry = mdc::entry(answer.reply)?;
        let reply = self.cache_attr(&entry, &answer.locks, &asking)?;
        let Some(layout) = reply.layout else { return Ok(None) };
        self.settle_left(file.inode.last(), &layout).await;
        if let Some(bytes) = entry.layout {
            let _ = file.inode.sent.set(bytes);
        }
        if is_settled(&layout) && !answer.revoked {
            file.inode.learn(&layout);
            return Ok(Some(Placed { layout, guard: None }));
        }
        match reply.lock.and_then(|cookie| self.guard_again(fid, cookie)) {
            Some(guard) => {
                file.inode.learn(&layout);
                // Another request of this client may have added objects meanwhile.
                let layout = file.inode.held().unwrap_or(layout);
                Ok(Some(Placed { layout, guard: Some(guard) }))
            }
            None => {
                file.inode.learn_past(&layout);
                Ok(Some(Placed { layout, guard: None }))
            }
        }
    }

    /// As [`Client::place`], for a file that is open for writing. A file without a layout, opened
    /// with [`sheen_wire::mds::flags::LAYOUT_LATER`], gets one.
    ///
    /// # Errors
    /// Also those of [`Client::ask_objects`].
    pub(crate) async fn place_given(&self, file: &OpenFile) -> Result<Placed> {
        if let Some(placed) = self.place(file).await? {
            return Ok(placed);
        }
        Box::pin(self.ask_objects(Changing::of(file), 0, 0)).await?;
        self.place(file).await?.ok_or(Errno::EIO)
    }

    /// Returns the layout of an open file, with objects for `[offset, offset + len)` as far as the
    /// layout can have any. `page`: the write comes from the kernel's page cache. The cancel of the
    /// LAYOUT lock may wait for that page, so if the objects exist the MDT is not asked.
    ///
    /// # Errors
    /// ENODATA: the layout ends before `offset`. As [`Client::place`] and [`Client::ask_objects`].
    pub(crate) async fn place_for_writing(&self, file: &OpenFile, offset: u64, len: u64, page: bool) -> Result<Placed> {
        if file.mirror() != 0 {
            return Box::pin(self.place_in_mirror(file, offset, len)).await;
        }
        let held = if page && !file.is_unsure() { file.inode.held() } else { None };
        if let Some(layout) = held.filter(|layout| !layout.needs_intent(offset, len) && offset < layout.end()) {
            file.check_not_lost()?;
            return Ok(Placed { layout, guard: self.layout_lock(file.fid()) });
        }
        for _ in 0..INTENTS_MAX {
            let placed = self.place_given(file).await?;
            if !placed.layout.needs_intent(offset, len) {
                return if len > 0 && offset >= placed.layout.end() { Err(Errno::ENODATA) } else { Ok(placed) };
            }
            drop(placed);
            Box::pin(self.intend(file, offset, len, page)).await?;
        }
        tracing::warn!("{}: write at offset {offset} fails with EIO: the MDT instantiated no objects", file.fid());
        Err(Errno::EIO)
    }

    /// Requests objects for a write, and the choice of one mirror to write to. Does nothing if a
    /// concurrent write has done so already.
    pub(crate) async fn intend(&self, file: &OpenFile, offset: u64, len: u64, page: bool) -> Result<()> {
        let turn = file.inode.intents.lock().await;
        let there = self.place_known(file)?.is_some_and(|placed| !placed.layout.needs_intent(offset, len));
        if there {
            return Ok(());
        }
        let (fid, reads) = (file.fid(), self.page_reads(file.fid()));
        self.ask_objects(Changing::of(file), offset, offset.saturating_add(len)).await?;
        // The invalidation may wait for dirty pages of the kernel, whose writes need this mutex.
        drop(turn);
        self.drop_holes(fid, reads, page).await;
        Ok(())
    }

    /// Asks the MDT for objects in `[start, end)` of a file (a layout intent), and returns the new
    /// layout.
    ///
    /// # Errors
    /// ENOSPC, and any other error of the MDT.
    pub(crate) async fn ask_objects(&self, changing: Changing, start: u64, end: u64) -> Result<Arc<Layout>> {
        Ok(self.ask_objects_locked(changing, start, end).await?.layout)
    }

    /// As [`Client::ask_objects`], with the lock under which the layout holds.
    pub(crate) async fn ask_objects_locked(&self, changing: Changing, start: u64, end: u64) -> Result<Located> {
        let Changing { fid, opener } = changing;
        let before = self.layout_lock(fid).map(|lock| lock.cookie());
        let asking = self.asking_unknown();
        let change = self.cache.change(&[fid], false);
        let request = Request::LayoutIntent { fid, start, end, opener };
        let answer = self.mdc.request(request).with_locks(asking.wants()).send().await;
        let asking = asking.changed(change.end(&answer));
        let answer = answer?;
        let reply = self.cache_attr(&mdc::entry(answer.reply)?, &answer.locks, &asking)?;
        let layout = reply.layout.ok_or(Errno::EPROTO)?;
        // The MDT does not revoke the requester's own LAYOUT lock.
        let again = |cookie| self.guard_again(fid, cookie);
        let lock = reply.lock.and_then(again).or_else(|| before.and_then(again));
        let cookie = lock.as_ref().map(LockRef::cookie);
        self.note_layout(fid, &layout, lock, answer.revoked || before.is_some());
        Ok(Located { layout, lock: cookie })
    }

    /// Records the new layout of a file: other objects, or more. `lock`: the LAYOUT lock that
    /// guards the layout. `revoked`: without `lock`, a change after the reply would have been
    /// missed.
    pub(super) fn note_layout(&self, fid: Fid, layout: &Arc<Layout>, lock: Option<LockRef>, revoked: bool) {
        if lock.is_some() || is_settled(layout) && !revoked {
            self.files.learn(fid, layout);
        } else {
            self.files.learn_past(fid, layout);
        }
        // Cached sizes were guarded by the locks on the former objects alone.
        self.cache.begin_drop_attr(fid);
    }

    /// Drops the kernel's pages that are holes for want of objects, or were read during the request
    /// for objects (`before`: the reads before it). No lock guards such pages any more. `page`: the
    /// kernel waits for the write of a page, so the invalidation runs in the background.
    pub(crate) async fn drop_holes(&self, fid: Fid, before: Reads, page: bool) {
        let Some(data) = self.cache.data.get(fid) else { return };
        let now = data.reads();
        if !data.has_holes() && now == before && now.under_way == 0 {
            return;
        }
        let Some(dropped) = self.cache.flush_pages(&data) else { return };
        match page {
            true => drop(self.rt.spawn("ldlm_invalidate", dropped)),
            false => dropped.await,
        }
    }

    /// Forgets the layout of a file that this client has edited, and asks the MDT for the new one.
    /// Drops the kernel's attributes as well: no lock guards the size of the new layout's objects,
    /// and no callback reports the change to this client.
    pub(crate) async fn edited(&self, fid: Fid) {
        self.layouts.forget(fid);
        self.files.outdate(fid);
        if let Some(dropped) = self.cache.drop_attr(fid) {
            dropped.await;
        }
        let Some(file) = self.files.any(fid) else { return };
        let before = self.page_reads(fid);
        // An error recurs at the next use of the layout.
        if let Ok(Some(placed)) = self.ask_place(&file).await {
            drop(placed);
        }
        self.drop_holes(fid, before, false).await;
    }

    /// Returns the newest layout of a file that this client knows, valid or not. This client may
    /// have dirty data of its objects.
    pub(crate) fn last_layout(&self, fid: Fid) -> Option<Arc<Layout>> {
        let cached = || self.cache.meta.lock().last_layout(fid);
        let known = [self.layouts.get(fid), self.files.last_layout(fid), cached()];
        known.into_iter().flatten().reduce(|last, other| if is_as_new(&last, &other) { last } else { other })
    }

    /// Runs `work` with the LAYOUT lock in use, for [`HOLD_MAX`] at most, and not for much longer
    /// than [`WANTED_MAX`] after a blocking callback. Also returns the lock, if the client held it
    /// all the time, and it is not in doubt.
    pub(crate) async fn under<T>(
        &self,
        fid: Fid,
        guard: Option<LockRef>,
        work: impl Future<Output = T>,
    ) -> (T, Option<LockRef>) {
        let mut work = pin!(work);
        let Some(guard) = guard else { return (work.await, None) };
        let (until, evictions) = (self.rt.now() + HOLD_MAX, self.lov.evictions().count());
        loop {
            if let Ok(answer) = self.rt.timeout(WANTED_MAX, work.as_mut()).await {
                let is_sure = self.lov.evictions().count() == evictions;
                let again = || self.guard_again(fid, guard.cookie());
                return (answer, if is_sure { Some(guard) } else { again() });
            }
            if guard.is_wanted() || self.rt.now() >= until {
                break;
            }
        }
        let cookie = guard.cookie();
        drop(guard);
        (work.await, self.guard_again(fid, cookie))
    }
}
