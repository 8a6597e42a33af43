//! Attribute and name cache: replies from it, and the entry of the MDT's replies into it.
//!
//! All functions keep the same order. To read the cache, take the lock in use first. To fill it,
//! keep the lock in use, and enter only data that was requested after the last change by this
//! client ended ([`Token`]). No lock stays in use during a wait. The caller remembers the lock's
//! handle, and caches what it learned under the lock only if the lock is still held afterwards.

use std::sync::Arc;

use bytes::Bytes;
use sheen_layout::Layout;
use sheen_rt::join::join_all;
use sheen_wire::{
    Attr, Errno, Fid, FileKind, Result,
    ldlm::{Cookie, LockId, Policy, Resource, bits},
    mds::{self, Entry, flags},
};

use super::{dom_inline::DomInline, with_layout::Retries};
use crate::{
    Caller, Client, EntryAttr, Keep, OpenFile,
    cache::{
        Hits, is_settled,
        meta::{ATTR, Known, Token},
    },
    failure::Failure,
    locks::LockRef,
    lov::{self, FileGlimpse, GlimpseReply},
    open::OpenBy,
};

/// The owner's x bit.
const OWNER_X: u32 = 0o100;
/// The extended attribute with file capabilities.
const CAPABILITY: &[u8] = b"security.capability";

/// The MDT's attributes and layout of a file, and the lock that guards them.
pub(crate) struct AttrReply {
    pub attr: Attr,
    pub layout: Option<Arc<Layout>>,
    /// Handle of a lock on [`ATTR`].
    pub lock: Option<Cookie>,
    /// State of the cache at the request. `None`: the reply must not be cached.
    pub token: Option<Token>,
    /// Inline DoM data. The file has no objects besides the one on the MDT.
    pub inline_dom: Option<DomInline>,
}

impl AttrReply {
    fn by(&self) -> By {
        let mirrored = self.layout.clone().filter(|layout| layout.is_mirrored());
        By { fid: self.attr.fid, mirrored, lock: self.lock }
    }
}

/// The layout through which a file's objects are queried.
struct By {
    fid: Fid,
    /// The layout, if it has mirrors.
    mirrored: Option<Arc<Layout>>,
    /// As [`AttrReply::lock`].
    lock: Option<Cookie>,
}

/// Attributes of a file, as far as they are known without a request to an OST.
pub(crate) enum KnownAttr {
    /// Complete attributes.
    Complete(EntryAttr),
    /// The MDT's part; the attributes of the objects are missing.
    OfMdt(AttrReply),
}

/// State of the client before a request to the MDT: the cache, and the lock that it holds already.
pub(crate) struct Asking {
    pub token: Option<Token>,
    held: Option<(Fid, Cookie)>,
    /// Whether `held` is a lock on LAYOUT, too.
    held_layout: bool,
    /// [`crate::cache::Layouts::cleared`] before the request.
    cleared: u64,
    /// The layout that the reply need not contain, because the client knows it.
    layout: Option<Arc<Layout>>,
}

impl Asking {
    /// Returns the number of inodes for which the reply should bring locks.
    pub fn wants(&self) -> u64 {
        u64::from(self.held.is_none())
    }

    /// Sets the layout that the reply leaves out.
    pub fn knowing(self, layout: Option<Arc<Layout>>) -> Asking {
        Asking { layout, ..self }
    }

    /// The lock under which an answer about `fid` holds: the one that `came` with it, or the one
    /// held since before.
    pub fn lock(&self, fid: Fid, came: Option<Cookie>) -> Option<Cookie> {
        came.or(self.held.filter(|(of, _)| *of == fid).map(|(_, cookie)| cookie))
    }

    /// Sets the token of a request that was itself a change, and has ended.
    pub fn changed(self, token: Option<Token>) -> Asking {
        Asking { token, ..self }
    }
}

/// Returns whether this lock on [`ATTR`] also guards the layout. A settled layout needs no lock.
fn guards(lock: &LockRef, layout: Option<&Layout>) -> bool {
    lock.bits() & bits::LAYOUT != 0 || layout.is_none_or(is_settled)
}

impl Client {
    /// Returns this client's lock on an inode's attributes, in use, if it holds one.
    pub(crate) fn inode_lock(&self, fid: Fid) -> Option<LockRef> {
        let matching = |bits| self.mdc.locks().matching(Resource::bits(fid), &Policy::bits(bits));
        matching(ATTR | bits::LAYOUT).or_else(|| matching(ATTR))
    }

    pub(crate) fn inode_lock_again(&self, fid: Fid, cookie: Cookie) -> Option<LockRef> {
        let again = |bits| self.mdc.locks().again(Resource::bits(fid), &Policy::bits(bits), cookie);
        again(ATTR | bits::LAYOUT).or_else(|| again(ATTR))
    }

    /// Records the state before a request to the MDT for an inode.
    pub(crate) fn asking(&self, fid: Fid) -> Asking {
        // A lock without LAYOUT does not guard a layout that may change.
        let guards = |lock: &LockRef| lock.bits() & bits::LAYOUT != 0 || self.layouts.get(fid).is_some();
        self.asking_under(fid, self.inode_lock(fid).filter(guards))
    }

    /// Records the state before an open request to the MDT.
    pub(crate) fn asking_open(&self, fid: Fid) -> Asking {
        let guards = |lock: &LockRef| lock.bits() & bits::LAYOUT != 0 || self.layouts.get(fid).is_some();
        self.asking_under(fid, self.open_lock(fid).filter(guards))
    }

    /// Returns the lock under which a file may be opened without a request, if this client holds
    /// it.
    fn open_lock(&self, fid: Fid) -> Option<LockRef> {
        self.mdc.locks().matching(Resource::bits(fid), &Policy::bits(ATTR | bits::OPEN))
    }

    /// Opens a regular file without a request. `None`: the MDT must be asked, because it has work
    /// to do or may refuse.
    pub(crate) fn open_known(&self, who: &Caller, fid: Fid, flags: u32) -> Option<Arc<OpenFile>> {
        if flags & (flags::TRUNC | flags::DIRECTORY | flags::EXEC) != 0 || flags & flags::ACCMODE == flags::ACCMODE {
            return None;
        }
        // In use until the file is in `files`: these are registered at the MDT before OPEN is
        // cancelled.
        let lock = self.open_lock(fid)?;
        let Known { attr, layout, .. } = self.cache.meta.lock().get(fid)?;
        let ready = attr.kind == FileKind::Regular && (layout.is_some() || !flags::writes(flags));
        if !ready || !self.may_open(who, &attr, flags) {
            return None;
        }
        Hits::add(&self.cache.hits.open);
        let open = Policy::bits(bits::OPEN);
        self.files
            .insert_local(&attr, layout, OpenBy::new(who, flags), || self.mdc.locks().is_held(lock.cookie(), &open))
    }

    /// Returns whether it is certain, without asking the MDT, that the caller may open a file and
    /// that the open needs no action of the MDT. Permissions as in [`Client::may_search`]. The
    /// MDT's action is to remove file capabilities when an unprivileged caller opens for writing.
    fn may_open(&self, who: &Caller, attr: &Attr, flags: u32) -> bool {
        let uid = self.uid_of(who);
        // The MDT knows all files that a user's mount has open by other users' permission. So they
        // stay open when that ends.
        if self.mdc.capabilities().user().is_some() && uid != attr.uid {
            return false;
        }
        let root = uid == 0;
        if flags::writes(flags) && !root {
            let known = self.mdc.locks().covered(Resource::bits(attr.fid), &Policy::bits(bits::XATTR));
            let capability = self.cache.meta.lock().xattr(attr.fid, &Bytes::from_static(CAPABILITY));
            if !known || !matches!(capability, Some(Err(_))) {
                return false;
            }
        }
        if self.kernel_checks(who) {
            return true;
        }
        let executes = flags & flags::EXEC != 0;
        let reads = flags::reads(flags) && !executes;
        let wanted = u32::from(reads) * 4 + u32::from(flags::writes(flags)) * 2 + u32::from(executes);
        match root {
            true => !executes || attr.perm & 0o111 != 0,
            false => uid == attr.uid && attr.perm >> 6 & wanted == wanted,
        }
    }

    /// Returns whether a read of the file updates its access time; `true` if that is not known.
    pub(crate) fn reading_shows(&self, fid: Fid) -> bool {
        let Some(_lock) = self.inode_lock(fid) else { return true };
        let known = self.cache.meta.lock().get(fid);
        known.is_none_or(|known| mds::reading_shows(&known.attr, self.rt.wall(), mds::RELATIME_SECS))
    }

    /// Returns the regular file behind a name, if it is known to have no other name.
    pub(crate) fn only_name(&self, parent: Fid, name: &Bytes) -> Option<Fid> {
        let mut meta = self.cache.meta.lock();
        let fid = meta.name(parent, name)?;
        meta.get(fid).filter(|known| known.attr.nlink == 1 && known.attr.kind == FileKind::Regular).map(|_| fid)
    }

    /// Drops OPEN from the lock on a file whose last name is about to be removed: otherwise the MDT
    /// would revoke it. Returns the lock conversion, to be sent with the request. If the file is
    /// open under that lock, returns nothing, and the MDT has to send a blocking callback.
    pub(crate) fn without_open(&self, fid: Fid) -> Vec<(LockId, u64)> {
        self.files.unless_local(fid, || self.mdc.locks().without(fid, bits::OPEN)).unwrap_or_default()
    }

    /// Records the state before a request to the MDT for an unknown inode.
    pub(crate) fn asking_unknown(&self) -> Asking {
        self.asking_under(Fid::default(), None)
    }

    fn asking_under(&self, fid: Fid, lock: Option<LockRef>) -> Asking {
        let held_layout = lock.as_ref().is_some_and(|lock| lock.bits() & bits::LAYOUT != 0);
        let held = lock.map(|lock| (fid, lock.cookie()));
        Asking { token: self.cache.token(), held, held_layout, cleared: self.layouts.cleared(), layout: None }
    }

    /// Returns whether this client has lost the LAYOUT lock that it held at the request. Then the
    /// layout may have changed after the reply was sent.
    pub(crate) fn has_lost_layout(&self, asked: &Asking) -> bool {
        asked.held_layout && asked.held.is_some_and(|(fid, cookie)| self.guard_again(fid, cookie).is_none())
    }

    /// Returns attributes from the cache. `None`: the MDT must be asked.
    pub(crate) fn known_attr(&self, fid: Fid) -> Option<KnownAttr> {
        let token = self.cache.token();
        let lock = self.inode_lock(fid)?;
        let Known { attr, layout, .. } = self.cache.meta.lock().get(fid)?;
        if !guards(&lock, layout.as_deref()) {
            return None;
        }
        Hits::add(&self.cache.hits.attr);
        if let Some(entry) = self.whole(&layout, &attr, &lock) {
            return Some(KnownAttr::Complete(entry));
        }
        Some(KnownAttr::OfMdt(AttrReply { attr, layout, lock: Some(lock.cookie()), token, inline_dom: None }))
    }

    /// Returns complete attributes that need no request: of a file without objects, or of one whose
    /// objects are all locked and were queried before.
    pub(crate) fn whole(&self, layout: &Option<Arc<Layout>>, attr: &Attr, lock: &LockRef) -> Option<EntryAttr> {
        if !guards(lock, layout.as_deref()) {
            return None;
        }
        let Some(layout) = layout else {
            return Some(self.entry_attr(*attr, self.inode_lock_again(attr.fid, lock.cookie()), Some(Vec::new())));
        };
        let layout = self.lov.readable(layout);
        let cookies = self.lov.all_locked(&layout)?;
        let objects = self.lov.lock_again(&layout, &cookies)?;
        let merged = self.cache.meta.lock().merged(attr.fid)?;
        Some(self.entry_attr(merged, self.inode_lock_again(attr.fid, lock.cookie()), Some(objects)))
    }

    /// Enters the MDT's attributes of a file into the caches, with the lock from the same reply.
    pub(crate) fn cache_attr(&self, entry: &Entry, locks: &[(Fid, LockRef)], asked: &Asking) -> Result<AttrReply> {
        let came = locks.iter().find(|(of, _)| *of == entry.attr.fid).map(|(_, lock)| lock.cookie());
        self.cache_attr_under(entry, came, asked)
    }

    /// As [`Client::cache_attr`], with the handle of the lock from the reply.
    pub(crate) fn cache_attr_under(&self, entry: &Entry, came: Option<Cookie>, asked: &Asking) -> Result<AttrReply> {
        let (attr, fid) = (entry.attr, entry.attr.fid);
        // In use from here on, so that the client holds it until everything is cached.
        let lock = asked.lock(fid, came).and_then(|cookie| self.inode_lock_again(fid, cookie));
        let lock = lock.filter(|_| !self.has_lost_layout(asked));
        let same = self.layouts.cleared() == asked.cleared;
        let layout = match attr.kind {
            FileKind::Regular if entry.layout.is_none() => asked.layout.clone().filter(|_| same),
            FileKind::Regular if lock.is_some() && same => {
                entry.layout.as_ref().map(|bytes| self.layouts.decode(fid, bytes)).transpose()?
            }
            // Without a lock, no callback reports a change of the layout. After an MDT restart, the
            // MDT may have lost the layout. In both cases it is valid for this reply alone.
            FileKind::Regular => entry.layout.as_ref().and_then(|bytes| self.layouts.read(fid, bytes).ok()),
            _ => None,
        };
        if let (Some(lock), Some(token)) = (&lock, &asked.token)
            && guards(lock, layout.as_deref())
        {
            let mut meta = self.cache.meta.lock();
            let fresh = meta.put(fid, attr, layout.clone(), token);
            if !entry.xattrs && lock.bits() & bits::XATTR != 0 {
                meta.put_no_xattrs(fid, token);
            }
            drop(meta);
            if let Some(layout) = layout.as_ref().filter(|layout| fresh && !is_settled(layout)) {
                self.files.learn(fid, layout);
            }
        }
        self.files.note(&attr);
        Ok(AttrReply { attr, layout, lock: lock.map(|lock| lock.cookie()), token: asked.token, inline_dom: None })
    }

    /// Caches that a name leads to a file whose attributes the MDT sent under a lock.
    pub(crate) fn cache_name(&self, parent: Fid, name: &Bytes, reply: &AttrReply) {
        let (Some(cookie), Some(token)) = (reply.lock, &reply.token) else { return };
        if let Some(_lock) = self.inode_lock_again(reply.attr.fid, cookie) {
            self.cache.meta.lock().put_name(parent, name, reply.attr.fid, token);
        }
    }

    /// Caches that a new directory is empty, unless it was changed since. A restarted MDT answers
    /// "created" also for a directory that it had created before the restart.
    pub(crate) fn cache_empty(&self, reply: &AttrReply) {
        let Attr { btime, mtime, ctime, .. } = reply.attr;
        if (btime, btime) == (mtime, ctime)
            && let (Some(cookie), Some(token)) = (reply.lock, &reply.token)
            && let Some(_lock) = self.inode_lock_again(reply.attr.fid, cookie)
        {
            self.cache.meta.lock().put_empty(reply.attr.fid, token);
        }
    }

    /// Caches the attributes of a directory after a change in it. The client has held the same lock
    /// on the directory since before the request.
    pub(crate) fn cache_dir(&self, dir: Option<Attr>, asked: &Asking) {
        if let (Some(attr), Some((of, cookie)), Some(token)) = (dir, asked.held, &asked.token)
            && of == attr.fid
            && let Some(_lock) = self.inode_lock_again(of, cookie)
        {
            self.cache.meta.lock().put(of, attr, None, token);
        }
    }

    /// Caches that a name does not exist, if the directory has been locked since before the
    /// request.
    pub(crate) fn cache_absent(&self, parent: Fid, name: &Bytes, asked: &Asking) {
        let (Some((_, cookie)), Some(token)) = (asked.held, &asked.token) else { return };
        if let Some(_lock) = self.inode_lock_again(parent, cookie) {
            self.cache.meta.lock().put_absent(parent, name, token);
        }
    }

    /// Merges the attributes of the objects into those of the MDT.
    pub(crate) async fn completed(&self, reply: AttrReply) -> Result<EntryAttr> {
        self.try_complete(reply).await.map_err(Failure::into_errno)
    }

    /// As [`Client::completed`], for a caller that can do without the objects.
    pub(crate) async fn try_complete(&self, reply: AttrReply) -> Result<EntryAttr, Failure> {
        let by = reply.by();
        match self.completed_once(reply).await {
            Err(Failure::LayoutMoved { .. }) => Ok(Box::pin(self.completed_elsewhere(by.fid)).await?),
            Ok(entry) if self.may_be_stale(&by) => {
                let seen = entry.attr;
                // No lock is in use while the MDT is asked.
                drop(entry);
                Ok(Box::pin(self.completed_again(by, seen)).await?)
            }
            answer => answer,
        }
    }

    /// Returns whether the query may have used a mirror that is stale by now and may be truncated:
    /// the layout was not locked all the time.
    fn may_be_stale(&self, by: &By) -> bool {
        let is_held = |lock| self.mdc.locks().is_held(lock, &Policy::bits(bits::LAYOUT));
        by.mirrored.is_some() && !by.lock.is_some_and(is_held)
    }

    /// Repeats the query until the layout is the same before and after it.
    async fn completed_again(&self, by: By, seen: Attr) -> Result<EntryAttr> {
        let (mut by, mut seen) = (by, EntryAttr::from(seen));
        let mut retries = Retries::new("stat", by.fid);
        loop {
            let reply = match self.ask_attr(by.fid, None).await {
                // The file was deleted meanwhile.
                Err(Errno::ENOENT | Errno::ESTALE) => return Ok(seen),
                reply => reply?,
            };
            let is_same = |(was, now): (&Arc<Layout>, &Arc<Layout>)| !now.overtakes(was);
            if by.mirrored.as_ref().zip(reply.layout.as_ref()).is_none_or(is_same) {
                return Ok(seen);
            }
            by = reply.by();
            seen = match self.completed_once(reply).await {
                Err(Failure::LayoutMoved { .. }) => return self.completed_elsewhere(by.fid).await,
                entry => entry.map_err(Failure::into_errno)?,
            };
            if !self.may_be_stale(&by) {
                return Ok(seen);
            }
            // No lock is in use while the MDT is asked.
            seen.keep = Keep::default();
            retries.again()?;
        }
    }

    /// As [`Client::completed`], for a file that was migrated since the MDT's reply.
    async fn completed_elsewhere(&self, fid: Fid) -> Result<EntryAttr> {
        let mut retries = Retries::new("stat", fid);
        loop {
            self.layout_after_seal(&mut retries).await?;
            match self.completed_once(self.ask_attr(fid, None).await?).await {
                Err(Failure::LayoutMoved { .. }) => {}
                answer => return answer.map_err(Failure::into_errno),
            }
        }
    }

    async fn completed_once(&self, mut reply: AttrReply) -> Result<EntryAttr, Failure> {
        let Some(layout) = reply.layout.clone() else {
            let lock = reply.lock.and_then(|cookie| self.inode_lock_again(reply.attr.fid, cookie));
            return Ok(self.entry_attr(reply.attr, lock, Some(Vec::new())));
        };
        if let Some(came) = reply.inline_dom.take() {
            return Ok(self.merged_with_content(&reply, &layout, came));
        }
        let lock = self.locks_sizes(reply.attr.fid);
        if layout.is_mirrored() {
            let glimpse = |mirror: Arc<Layout>| async move {
                let seen = self
                    .lov
                    .glimpse_files(&[FileGlimpse { layout: &mirror, lock }])
                    .await
                    .pop()
                    .unwrap_or(Err(Errno::EIO.into()))?;
                Ok((mirror, seen))
            };
            let (mirror, seen) = Box::pin(self.lov.by_any(&layout, glimpse)).await?;
            return Ok(self.merged(&reply, &mirror, &seen));
        }
        let glimpse = FileGlimpse { layout: &layout, lock };
        let seen = Box::pin(self.lov.glimpse_files(&[glimpse])).await.pop().unwrap_or(Err(Errno::EIO.into()))?;
        Ok(self.merged(&reply, &layout, &seen))
    }

    /// Returns the attributes of a new file, which has no objects to query. The objects of its
    /// layout are not locked.
    pub(crate) fn just_made(&self, reply: &AttrReply) -> EntryAttr {
        let lock = reply.lock.and_then(|cookie| self.inode_lock_again(reply.attr.fid, cookie));
        self.entry_attr(reply.attr, lock, reply.layout.is_none().then(Vec::new))
    }

    /// As [`Client::completed`] for several files, with as few requests as the OSTs allow.
    pub(crate) async fn all_completed(&self, all: Vec<Result<AttrReply>>) -> Vec<Result<EntryAttr>> {
        let by: Vec<Option<By>> = all.iter().map(|reply| reply.as_ref().ok().map(AttrReply::by)).collect();
        let mut all = self.all_queried(all, |fid| self.locks_sizes(fid)).await;
        let unsure = |by: &Option<By>| by.as_ref().is_some_and(|by| self.may_be_stale(by));
        if by.iter().any(unsure) {
            // No lock is in use while the MDT is asked.
            all.iter_mut().flatten().for_each(|entry| entry.keep = Keep::default());
            for (answer, by) in all.iter_mut().zip(by) {
                if let (Ok(entry), Some(by)) = (&*answer, by.filter(|by| self.may_be_stale(by))) {
                    *answer = Box::pin(self.completed_again(by, entry.attr)).await;
                }
            }
        }
        all
    }

    /// As [`Client::all_completed`] without locks on objects, for attributes that are not cached
    /// and may be slightly old.
    pub(crate) async fn all_glimpsed(&self, all: Vec<Result<AttrReply>>) -> Vec<Result<EntryAttr>> {
        self.all_queried(all, |_| false).await
    }

    async fn all_queried(&self, all: Vec<Result<AttrReply>>, lock: impl Fn(Fid) -> bool) -> Vec<Result<EntryAttr>> {
        let layouts: Vec<Option<Arc<Layout>>> =
            all.iter().map(|reply| Some(self.lov.readable(reply.as_ref().ok()?.layout.as_ref()?))).collect();
        let glimpses: Vec<FileGlimpse<'_>> = all
            .iter()
            .zip(&layouts)
            .filter_map(|(reply, layout)| {
                let fid = reply.as_ref().ok()?.attr.fid;
                Some(FileGlimpse { layout: layout.as_deref()?, lock: lock(fid) })
            })
            .collect();
        let mut seen = self.lov.glimpse_files(&glimpses).await;
        if glimpses.len() > 1 {
            // A file that was migrated fails all files of its request: query each of them alone.
            let moved =
                |(_, seen): &(usize, &Result<GlimpseReply, Failure>)| matches!(seen, Err(Failure::LayoutMoved { .. }));
            let alone: Vec<usize> = seen.iter().enumerate().filter(moved).map(|(i, _)| i).collect();
            let again = join_all(alone.iter().map(|i| self.lov.glimpse_files(&glimpses[*i..=*i]))).await;
            for (i, mut answer) in alone.into_iter().zip(again) {
                seen[i] = answer.pop().unwrap_or(Err(Errno::EIO.into()));
            }
        }
        let mut seen = seen.into_iter();
        let mut complete = |(reply, layout): (Result<AttrReply>, &Option<Arc<Layout>>)| {
            let reply = reply?;
            let Some(layout) = layout else {
                let lock = reply.lock.and_then(|cookie| self.inode_lock_again(reply.attr.fid, cookie));
                return Ok(self.entry_attr(reply.attr, lock, Some(Vec::new())));
            };
            Ok(self.merged(&reply, layout, &seen.next().unwrap_or(Err(Errno::EIO.into()))?))
        };
        let fids: Vec<Option<Fid>> = all.iter().map(|reply| reply.as_ref().ok().map(|reply| reply.attr.fid)).collect();
        let all: Vec<Result<EntryAttr, Failure>> = all.into_iter().zip(&layouts).map(&mut complete).collect();
        let mut completed = Vec::with_capacity(all.len());
        for (answer, fid) in all.into_iter().zip(fids) {
            completed.push(match (answer, fid) {
                (Err(Failure::LayoutMoved { .. }), Some(fid)) => Box::pin(self.completed_elsewhere(fid)).await,
                (answer, _) => answer.map_err(Failure::into_errno),
            });
        }
        completed
    }

    /// Returns whether a file's objects are worth locking for its size: not while the file is open
    /// here for writing, or is contended.
    fn locks_sizes(&self, fid: Fid) -> bool {
        !self.files.is_written(fid) && !self.lov.objects().is_contended(fid)
    }

    /// Merges inline DoM data into the MDT's attributes.
    fn merged_with_content(&self, reply: &AttrReply, layout: &Layout, came: DomInline) -> EntryAttr {
        let (seen, content) = came.seen();
        let entry = self.merged(reply, layout, &seen);
        if let (Some(content), Some(token)) = (content, &reply.token) {
            // The cache takes the content only if it took the merged attributes.
            self.cache.meta.lock().put_content(reply.attr.fid, content, token);
        }
        entry
    }

    /// Merges the attributes that the OSTs sent into those of the MDT.
    fn merged(&self, reply: &AttrReply, layout: &Layout, seen: &GlimpseReply) -> EntryAttr {
        let mut attr = reply.attr;
        lov::merge(&mut attr, layout, &seen.objects);
        let lock = reply.lock.and_then(|cookie| self.inode_lock_again(attr.fid, cookie));
        let objects = seen.locks.as_ref().and_then(|cookies| self.lov.lock_again(layout, cookies));
        let objects = objects
            .filter(|_| lock.as_ref().is_some_and(|lock| guards(lock, reply.layout.as_deref().or(Some(layout)))));
        if let (Some(_), Some(objects), Some(token)) = (&lock, &objects, &reply.token) {
            let mut meta = self.cache.meta.lock();
            // When locks are lost without a callback, the cache is cleared after the locks.
            if self.lov.are_held(layout, objects) {
                meta.put_merged(attr.fid, &reply.attr, attr, token);
            }
        }
        self.entry_attr(attr, lock, objects)
    }

    /// Returns the attributes with the locks under which the kernel may cache them.
    pub(crate) fn entry_attr(&self, attr: Attr, inode: Option<LockRef>, objects: Option<Vec<LockRef>>) -> EntryAttr {
        let mut entry = EntryAttr::from(attr);
        if let (Some(kernel), Some(inode)) = (self.cache.kernel(), inode) {
            let name = inode.bits() & bits::LOOKUP != 0 && kernel.keeps_names();
            let is_cacheable = objects.is_some() && inode.bits() & ATTR == ATTR;
            let mut locks = objects.unwrap_or_default();
            locks.push(inode);
            entry.keep = Keep { name, attr: is_cacheable, refs: Some(Arc::new(locks)) };
        }
        entry
    }

    /// Resolves a name from the cache, to a file or to ENOENT. `None`: the MDT must be asked.
    pub(crate) fn known_name(&self, who: &Caller, parent: Fid, name: &Bytes) -> Option<Result<Fid>> {
        if !self.may_search(who, parent) {
            return None;
        }
        let there = self.cache.meta.lock().name(parent, name);
        if let Some(fid) = there {
            let _lock = self.mdc.locks().matching(Resource::bits(fid), &Policy::bits(bits::LOOKUP))?;
            return (self.cache.meta.lock().name(parent, name) == Some(fid)).then_some(Ok(fid));
        }
        let _lock = self.inode_lock(parent)?;
        self.cache.meta.lock().is_absent(parent, name).then_some(Err(Errno::ENOENT))
    }

    /// Returns whether it is certain, without asking the MDT, that the caller may search a
    /// directory. The kernel checks permissions before it sends a request. Otherwise the superuser
    /// always may, and for the owner the owner's bits decide, whatever the access control list
    /// says.
    fn may_search(&self, who: &Caller, dir: Fid) -> bool {
        let uid = self.uid_of(who);
        if self.kernel_checks(who) || uid == 0 {
            return true;
        }
        let Some(_lock) = self.inode_lock(dir) else { return false };
        let known = self.cache.meta.lock().get(dir);
        known.is_some_and(|dir| dir.attr.uid == uid && dir.attr.perm & OWNER_X != 0)
    }

    /// Returns the user id with which the MDT executes a caller's requests.
    fn uid_of(&self, who: &Caller) -> u32 {
        self.mdc.capabilities().user().map_or(who.cred.uid, |user| user.uid)
    }

    /// Whether the kernel has checked the permissions of this caller, before it sent the request.
    fn kernel_checks(&self, who: &Caller) -> bool {
        self.cache.kernel().is_some() && self.uid_of(who) == who.cred.uid
    }
}
