//! Where a file's bytes are at the moment, and objects for where there are none.
//!
//! A layout that is not settled ([`crate::layouts::is_settled`]) is good under a lock on LAYOUT: as
//! long as this client has it, nobody else gives the file objects. An operation keeps that lock in
//! use while it goes on ([`Client::under`]), but not for long, and never while the MDT is asked:
//! who asks for objects waits for everybody's use of it. For the same reason no lock on an object
//! is in use while objects are asked for: who uses the layout may wait for that one.
//!
//! Where no lock is to be had the layout is that of the moment at which the MDT answered: good for
//! one operation, but nothing is kept of what is read by it.
//!
//! Invariants:
//! * an open file's [`crate::file::Inode`] has the newest layout that this client has heard of; it
//!   is *held* only if this client has had a lock on LAYOUT ever since the MDT said so, or asked
//!   for the objects itself, which its own locks do not hinder;
//! * what was read beside a request for objects by this client itself may be from before: the
//!   kernel drops such pages.

use std::{pin::pin, sync::Arc, time::Duration};

use sheen_layout::Layout;
use sheen_wire::{
    Errno, Fid, Result,
    ldlm::{Cookie, Policy, Resource, bits},
    mds::Request,
};

use crate::{
    Client, OpenFile,
    cache::data::{PATIENCE, Reading, Reads},
    layouts::{is_as_new, is_settled},
    locks::LockRef,
    mdc,
};

/// Longest that a lock on LAYOUT, or those under which is read, are in use while an OST is waited
/// for. A quarter of the time after which a server gives up a client that keeps a lock.
pub(super) const HOLD_MAX: Duration = Duration::from_secs(5);
/// The same of a lock on LAYOUT that somebody wants. What OSTs do by themselves is done by then, as
/// a rule; what waits for locks of other clients may wait for whoever wants this one (who migrates
/// a file with a group's lock).
const WANTED_MAX: Duration = Duration::from_millis(200);
/// Times that objects are asked for one write: each time the MDT gives some, or all are there.
const INTENTS_MAX: usize = 8;
/// Times that a read for pages looks whether its layout is about to go.
const ROUNDS_MAX: usize = 4;
const LAYOUT: Policy = Policy::bits(bits::LAYOUT);

/// A file's layout, and the lock under which it is good, in use. No lock: it is settled, or was
/// good when the MDT was asked.
pub(crate) struct Placed {
    pub layout: Arc<Layout>,
    pub guard: Option<LockRef>,
}

impl Client {
    /// The lock on LAYOUT, if it is there.
    pub(crate) fn layout_lock(&self, fid: Fid) -> Option<LockRef> {
        self.mdc.locks().matching(Resource::bits(fid), &LAYOUT)
    }

    /// The layout's lock of before, if it is still there.
    pub(crate) fn guard_again(&self, fid: Fid, cookie: Cookie) -> Option<LockRef> {
        self.mdc.locks().again(Resource::bits(fid), &LAYOUT, cookie)
    }

    /// The layout of an open file; `None` where the file has none yet.
    ///
    /// # Errors
    /// ESTALE: the MDT has lost the file.
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

    /// As [`Client::place`], for a read whose answer goes into the kernel's page cache. If the lock
    /// on LAYOUT is being given up, which waits for such reads, the MDT is not waited for: it is
    /// read by the layout of before, and the pages are dropped once more.
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

    /// The layout without asking.
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
            && let Some(layout) = file.inode.held().or_else(|| self.learn_told(file))
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

    /// The layout that was told with attributes, which are dropped with LAYOUT as well. A lock on
    /// it is in use.
    fn learn_told(&self, file: &OpenFile) -> Option<Arc<Layout>> {
        let told = self.cache.meta.lock().get(file.fid())?.layout;
        let layout = told.filter(|layout| !layout.is_plain())?;
        file.inode.learn(&layout);
        file.inode.held()
    }

    /// The MDT was restarted: whether it still knows where the file's bytes are.
    async fn ask_whether_it_is_there(&self, file: &OpenFile) -> Result<()> {
        let request = Request::GetAttr { fid: file.fid(), layout_known: false };
        let entry = mdc::entry(self.mdc.call(request).await?)?;
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
        let kept = self.mdc.call_keeping(Request::GetAttr { fid, layout_known: false }, asking.wants()).await?;
        let entry = mdc::entry(kept.reply)?;
        let told = self.told(&entry, &kept.locks, &asking)?;
        let Some(layout) = told.layout else { return Ok(None) };
        self.settle_left(file.inode.last(), &layout).await;
        if let Some(bytes) = entry.layout {
            let _ = file.inode.sent.set(bytes);
        }
        if is_settled(&layout) {
            file.inode.learn(&layout);
            return Ok(Some(Placed { layout, guard: None }));
        }
        match told.lock.and_then(|cookie| self.guard_again(fid, cookie)) {
            Some(guard) => {
                file.inode.learn(&layout);
                // This client itself may have asked for objects meanwhile.
                let layout = file.inode.held().unwrap_or(layout);
                Ok(Some(Placed { layout, guard: Some(guard) }))
            }
            None => {
                file.inode.learn_past(&layout);
                Ok(Some(Placed { layout, guard: None }))
            }
        }
    }

    /// As [`Client::place`], of a file that is open for writing: one that has no layout, for it was
    /// opened with [`sheen_wire::mds::flags::LAYOUT_LATER`], gets one.
    ///
    /// # Errors
    /// Also those of [`Client::ask_objects`].
    pub(crate) async fn place_given(&self, file: &OpenFile) -> Result<Placed> {
        if let Some(placed) = self.place(file).await? {
            return Ok(placed);
        }
        Box::pin(self.ask_objects(file.fid(), 0, 0)).await?;
        self.place(file).await?.ok_or(Errno::EIO)
    }

    /// The layout of an open file, with objects for all of `[offset, offset + len)` that there can
    /// be. `page`: for a page of the kernel's, for which the lock on LAYOUT may have to wait before
    /// it is given up: the MDT is not waited for if there are objects.
    ///
    /// # Errors
    /// ENODATA: the layout ends before that. As [`Client::place`] and [`Client::ask_objects`].
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
        tracing::warn!("{}: the MDT gives no objects for what is written at {offset}", file.fid());
        Err(Errno::EIO)
    }

    /// Objects for what is to be written, and one mirror to write them to, unless another write has
    /// asked for them meanwhile.
    pub(crate) async fn intend(&self, file: &OpenFile, offset: u64, len: u64, page: bool) -> Result<()> {
        let turn = file.inode.intents.lock().await;
        let there = self.place_known(file)?.is_some_and(|placed| !placed.layout.needs_intent(offset, len));
        if there {
            return Ok(());
        }
        let (fid, reads) = (file.fid(), self.page_reads(file.fid()));
        self.ask_objects(fid, offset, offset.saturating_add(len)).await?;
        // The kernel may wait for pages that are to be written, and take their turn.
        drop(turn);
        self.drop_holes(fid, reads, page).await;
        Ok(())
    }

    /// The layout of a file with objects for `[start, end)`: where there are none, the MDT gives it
    /// some.
    ///
    /// # Errors
    /// ENOSPC, and what else the MDT answers.
    pub(crate) async fn ask_objects(&self, fid: Fid, start: u64, end: u64) -> Result<Arc<Layout>> {
        let before = self.layout_lock(fid).map(|lock| lock.cookie());
        let asking = self.asking_unknown();
        let change = self.cache.change(&[fid], false);
        let answer = self.mdc.call_keeping(Request::LayoutIntent { fid, start, end }, asking.wants()).await;
        let asking = asking.changed(change.end(&answer));
        let kept = answer?;
        let told = self.told(&mdc::entry(kept.reply)?, &kept.locks, &asking)?;
        let layout = told.layout.ok_or(Errno::EPROTO)?;
        // This client's lock of before is spared by what it asks for itself.
        let again = |cookie| self.guard_again(fid, cookie);
        let lock = told.lock.and_then(again).or_else(|| before.and_then(again));
        self.told_place(fid, &layout, lock);
        Ok(layout)
    }

    /// Takes in where a file's bytes are since: other objects, or more. `lock`: on LAYOUT, under
    /// which that is so.
    pub(super) fn told_place(&self, fid: Fid, layout: &Arc<Layout>, lock: Option<LockRef>) {
        if lock.is_some() || is_settled(layout) {
            self.files.learn(fid, layout);
        } else {
            self.files.learn_past(fid, layout);
        }
        // What it has of the size was guarded by the locks on the objects that there were.
        self.cache.begin_drop_attr(fid);
    }

    /// Pages that were holes for want of objects, or are read beside the request for them, are
    /// under no lock any more. `page`: the kernel waits for this write of a page, so it is not
    /// waited for.
    pub(crate) async fn drop_holes(&self, fid: Fid, before: Reads, page: bool) {
        let Some(data) = self.cache.data.get(fid) else { return };
        let now = data.reads();
        if !data.has_holes() && now == before && now.under_way == 0 {
            return;
        }
        let Some(dropped) = self.cache.flush_pages(&data) else { return };
        let cache = self.cache.clone();
        let dropped = async move {
            dropped.await;
            cache.data.tidy(&data);
        };
        match page {
            true => drop(self.rt.spawn("ldlm_invalidate", dropped)),
            false => dropped.await,
        }
    }

    /// The layout of a file was edited by this client: what is known of it is asked for again.
    pub(crate) async fn edited(&self, fid: Fid) {
        self.layouts.forget(fid);
        self.files.outdate(fid);
        let Some(file) = self.files.any(fid) else { return };
        let before = self.page_reads(fid);
        // A failure shows at the next use.
        if let Ok(Some(placed)) = self.ask_place(&file).await {
            drop(placed);
        }
        self.drop_holes(fid, before, false).await;
    }

    /// The newest layout of a file that this client knows, good or not: where it may have written.
    pub(crate) fn last_layout(&self, fid: Fid) -> Option<Arc<Layout>> {
        let told = || self.cache.meta.lock().get(fid)?.layout;
        let known = [self.layouts.get(fid), self.files.last_layout(fid), told()];
        known.into_iter().flatten().reduce(|last, other| if is_as_new(&last, &other) { last } else { other })
    }

    /// Does something by a layout with its lock in use, for [`HOLD_MAX`] at most, and not for much
    /// longer than [`WANTED_MAX`] while it is wanted. Also the lock, if it was there all the time.
    pub(crate) async fn under<T>(
        &self,
        fid: Fid,
        guard: Option<LockRef>,
        work: impl Future<Output = T>,
    ) -> (T, Option<LockRef>) {
        let mut work = pin!(work);
        let Some(guard) = guard else { return (work.await, None) };
        let until = self.rt.now() + HOLD_MAX;
        loop {
            if let Ok(answer) = self.rt.timeout(WANTED_MAX, work.as_mut()).await {
                return (answer, Some(guard));
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
