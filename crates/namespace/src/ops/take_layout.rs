//! TakeLayout: a file leaves its objects for those of a nameless file, to which its bytes were
//! copied (`lfs migrate`).
//!
//! * Both are regular files (EINVAL); `from` has no name, is the caller's, and has a layout
//!   (EINVAL). The caller may write to the file (EACCES).
//! * The file's layout is `from`'s from then on, under the next generation. `from` has no layout
//!   any more, and is of no use but to be closed. The file's former objects go as those of an
//!   unlinked file do.
//! * EBUSY unless the objects that were closed are all that the file has, in all mirrors: it got
//!   others meanwhile. EBUSY also if the layout of a mirrored file is of another generation than
//!   when the copy began: another mirror may be the one that counts.
//! * Of a mirrored copy its mirrors are as fresh as they were: that which the bytes were written
//!   to, and no other one.
//! * The modification time stays what it was: the copies are younger, so the caller says what that
//!   is. It is taken for as much as somebody who may write can do anyway: nothing before the last
//!   time that was set, nothing in the future. Sets ctime.
//! * Takes set-user-id, set-group-id and file capabilities away as a write does; from the owner
//!   (superuser) only capabilities (nothing).
//! * Refused with ERANGE when a plain layout's 65,535 generations are used up.
//!
//! What the copy has on the MDT is named after the copy, so it gets a name after the file first
//! ([`Namespace::begin_take`]): a new one each time. A crash may come before the request is
//! executed. So that name goes into the unlink log when it is reserved, and comes off it in the
//! batch in which the file gets it; while it is under way it is passed over.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use sheen_layout::Layout;
use sheen_wire::{
    self as wire, Errno, Fid, FileKind, Time,
    mds::{Reply, Request},
};

use crate::{
    Namespace, Store,
    access::{self, WRITE, is_owner, is_root, without_privilege},
    engine::Cx,
    key,
    ops::Renamed,
};

/// What the two files have.
struct Both {
    old: Option<Layout>,
    new: Layout,
}

/// What a [`Request::TakeLayout`] needs done before it is executed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Taking {
    /// The objects that the file leaves, each with its OST: to be closed.
    pub leaving: Vec<(u32, Fid)>,
    /// What the copy has on the MDT: to be closed, and to get another name.
    pub renamed: Vec<Renamed>,
}

/// Copies that are going to be taken which have something on the MDT, by the file.
pub(crate) type Takes = BTreeMap<Fid, BegunTake>;

#[derive(Clone, Debug)]
pub(crate) struct BegunTake {
    /// The copy's layout as it is.
    stored: Bytes,
    /// The version of the object on the MDT.
    version: u32,
    /// Number in the unlink log of its new name.
    pub(crate) logged: u64,
    /// The new name.
    pub(crate) object: Option<Fid>,
}

/// Versions that are drawn have this bit, those that follow from generations have not.
const DRAWN: u32 = 1 << 31;

/// A version for an object on the MDT that its file has not used: by the number in the unlink log
/// that its name gets next, which is another one each time.
pub(crate) fn drawn_version(logged: u64) -> u32 {
    DRAWN | (logged.wrapping_add(1) as u32 & !DRAWN)
}

impl<S: Store> Namespace<S> {
    /// Begins a [`Request::TakeLayout`]. [`Namespace::end_take`] has to follow, whatever becomes of
    /// it, unless this fails.
    ///
    /// # Errors
    /// As the request's own; EINVAL for another one.
    pub fn begin_take(&mut self, request: &Request) -> wire::Result<Taking> {
        let (Both { old, new }, Request::TakeLayout { fid, from, .. }) = (self.both(request)?, request) else {
            return Err(Errno::EINVAL);
        };
        let leaving = old.iter().flat_map(Layout::all_objects).map(|s| (s.ost, s.object)).collect();
        let version = drawn_version(self.counters.destroy);
        let named = new.adopted(*fid, new.generation())?.on_mdt_as(version);
        let Some(part) = named.part_on_mdt() else {
            return Ok(Taking { leaving, renamed: Vec::new() });
        };
        let stored = self.live(*from)?.layout.clone().ok_or(Errno::EINVAL)?;
        let logged = self.log_destroy(&part.encode().into());
        self.tables.end();
        logged?;
        let pairs = new.all_objects().zip(named.all_objects()).filter(|(old, new)| old.object != new.object);
        let renamed: Vec<Renamed> =
            pairs.map(|(old, new)| Renamed { ost: old.ost, old: old.object, new: new.object }).collect();
        let object = renamed.first().map(|name| name.new);
        self.takes.insert(*fid, BegunTake { stored, version, logged: self.counters.destroy, object });
        Ok(Taking { leaving, renamed })
    }

    /// It is over: the name that was reserved is the file's, or goes.
    pub fn end_take(&mut self, fid: Fid) {
        self.takes.remove(&fid);
    }

    /// The layout of a file, if it has one.
    ///
    /// # Errors
    /// ENOENT; EIO: it cannot be read.
    pub fn layout(&mut self, fid: Fid) -> wire::Result<Option<Layout>> {
        let inode = self.live(fid)?;
        let bytes = inode.layout.as_ref().filter(|_| inode.kind == FileKind::Regular);
        Ok(bytes.map(|b| Layout::decode(b)).transpose()?)
    }

    fn both(&mut self, request: &Request) -> wire::Result<Both> {
        let Request::TakeLayout { cred, fid, from, versions, .. } = request else { return Err(Errno::EINVAL) };
        let (file, other) = (self.live(*fid)?, self.live(*from)?);
        if fid == from || [&file, &other].iter().any(|i| i.kind != FileKind::Regular) {
            return Err(Errno::EINVAL);
        }
        access::check(&file, cred, WRITE)?;
        if other.nlink > 0 || !is_owner(cred, &other) {
            return Err(Errno::EINVAL);
        }
        let old = self.layout(*fid)?;
        let new = self.layout(*from)?.ok_or(Errno::EINVAL)?;
        // Which mirrors count may become otherwise though nobody writes.
        let state = old.as_ref().filter(|old| old.is_mirrored()).map(|old| (*fid, u64::from(old.generation())));
        let is_as_known = state.is_none_or(|state| versions.contains(&state));
        let objects = old.iter().flat_map(Layout::all_objects).map(|s| s.object);
        let has: BTreeSet<Fid> = objects.chain(state.map(|(fid, _)| fid)).collect();
        let closed: BTreeSet<Fid> = versions.iter().map(|(object, _)| *object).collect();
        if has == closed && is_as_known { Ok(Both { old, new }) } else { Err(Errno::EBUSY) }
    }

    pub(crate) fn take_layout(&mut self, cx: &Cx, request: &Request, mtime: Time) -> wire::Result<Reply> {
        let Both { old, new } = self.both(request)?;
        let Request::TakeLayout { cred, fid, from, .. } = request else { return Err(Errno::EINVAL) };
        // Above all that anybody knows of either.
        let last = old.as_ref().map_or(0, Layout::generation).max(new.generation());
        let taken = new.adopted(*fid, last.checked_add(1).ok_or(Errno::ERANGE)?)?;
        let taken = match new.part_on_mdt() {
            None => taken,
            Some(part) => self.with_begun_name(*fid, *from, &part, &taken)?,
        };
        // It may hold anything now, as after a write. The owner could set the bits again.
        let file = self.live(*fid)?;
        let perm = if is_owner(cred, &file) { file.perm } else { without_privilege(&file, cred)? };
        if !is_root(cred) {
            self.drop_capability(*fid)?;
        }
        if let Some(left) = self.live(*fid)?.layout.clone() {
            self.log_destroy(&left)?;
        }
        self.edit(*from, |i| i.layout = None)?;
        self.edit(*fid, |i| {
            (i.layout, i.perm) = (Some(taken.encode().into()), perm);
            i.mtime = mtime.clamp(i.mtime, cx.now.max(i.mtime));
            // So that the times of the copies, which are older, do not show.
            (i.mtime_set, i.ctime) = (cx.now, cx.now);
        })?;
        Ok(Reply::Ok)
    }

    /// The layout with what it has on the MDT under the name that was reserved, which is the file's
    /// now; what it was, `part`, is to go.
    fn with_begun_name(&mut self, fid: Fid, from: Fid, part: &Layout, taken: &Layout) -> wire::Result<Layout> {
        let begun = self.takes.get(&fid).cloned().ok_or(Errno::EPROTO)?;
        if self.live(from)?.layout.as_ref() != Some(&begun.stored) {
            return Err(Errno::EBUSY);
        }
        self.tables.put_raw(key::destroy(begun.logged), None);
        self.log_destroy(&part.encode().into())?;
        Ok(taken.on_mdt_as(begun.version))
    }
}
