//! TakeLayout: a file leaves its objects for those of a nameless file, to which its bytes were copied (`lfs migrate`).
//!
//! * Both are regular files (EINVAL); `from` has no name, is the caller's, and has a layout (EINVAL). The caller may write to the file
//!   (EACCES).
//! * The file's layout is `from`'s from then on, under the next generation. `from` has no layout any more, and is of no use but to be
//!   closed. The file's former objects go as those of an unlinked file do.
//! * EOPNOTSUPP where one of them is mirrored (its mirrors would have to be closed as well), or begins on the MDT (where an object has the
//!   name of its file).
//! * EBUSY unless the objects that were closed are all that the file has: it got others meanwhile.
//! * The modification time stays what it was: the copies are younger, so the caller says what that is. It is taken for as
//!   much as somebody who may write can do anyway: nothing before the last time that was set, nothing in the future. Sets ctime.
//! * Takes set-user-id, set-group-id and file capabilities away as a write does; from the owner (superuser) only capabilities (nothing).
//! * Refused with ERANGE when a plain layout's 65,535 generations are used up.

use std::collections::BTreeSet;

use sheen_layout::Layout;
use sheen_wire::{
    self as wire, Errno, Fid, FileKind, Time,
    mds::{Reply, Request},
};

use crate::{
    Namespace, Store,
    access::{self, WRITE, is_owner, is_root, without_privilege},
    engine::Cx,
};

/// What the two files have.
struct Both {
    old: Option<Layout>,
    new: Layout,
}

impl<S: Store> Namespace<S> {
    /// The objects that a [`Request::TakeLayout`] is about to close, each with its OST: those that the file leaves.
    ///
    /// # Errors
    /// As the request's own; EINVAL for another one.
    pub fn leaving(&mut self, request: &Request) -> wire::Result<Vec<(u32, Fid)>> {
        let old = self.both(request)?.old;
        Ok(old.iter().flat_map(|old| old.stripes()).map(|s| (s.ost, s.object)).collect())
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
        if old.iter().chain([&new]).any(|l| l.mdt_end() > 0 || l.is_mirrored()) {
            return Err(Errno::EOPNOTSUPP);
        }
        let has: BTreeSet<Fid> = old.iter().flat_map(|old| old.stripes()).map(|s| s.object).collect();
        let closed: BTreeSet<Fid> = versions.iter().map(|(object, _)| *object).collect();
        if has == closed { Ok(Both { old, new }) } else { Err(Errno::EBUSY) }
    }

    pub(crate) fn take_layout(&mut self, cx: &Cx, request: &Request, mtime: Time) -> wire::Result<Reply> {
        let Both { old, new } = self.both(request)?;
        let Request::TakeLayout { cred, fid, from, .. } = request else { return Err(Errno::EINVAL) };
        // Above all that anybody knows of either.
        let last = old.as_ref().map_or(0, Layout::generation).max(new.generation());
        let taken = new.adopted(*fid, last.checked_add(1).ok_or(Errno::ERANGE)?)?;
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
}
