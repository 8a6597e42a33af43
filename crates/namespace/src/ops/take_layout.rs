//! TakeLayout: a file replaces its objects by those of an orphan to which its bytes were copied
//! (`lfs migrate`).
//!
//! * Both are regular files (EINVAL). `from` is an orphan, is the caller's, and has a layout
//!   (EINVAL). The caller may write the file (EACCES).
//! * Afterwards the file has the layout of `from`, in the next generation. `from` has no layout any
//!   more, and can only be closed. The file's former objects are destroyed like those of an
//!   unlinked file.
//! * EBUSY unless the sealed objects are all that the file has, in all mirrors: otherwise it got
//!   others meanwhile. EBUSY also if the layout of a mirrored file is of another generation than
//!   when the copy began: another mirror may be the valid one.
//! * The mirrors of a mirrored copy stay as fresh as they were: only the mirror that the bytes were
//!   written to is fresh.
//! * The modification time stays. The objects of the copy are newer, so the caller passes the time.
//!   It is limited to times that a caller with write permission could set anyway: not before the
//!   last time that was set, not in the future. Sets ctime.
//! * Clears set-user-id, set-group-id and file capabilities as a write does. If the caller is the
//!   owner, only capabilities; if the superuser, nothing.
//! * ERANGE when a plain layout's 65,535 generations are used up.
//!
//! An object of the copy on the MDT is named after the copy. It therefore first gets a name after
//! the file, a new one each time ([`Namespace::begin_take`]). A crash may come before the request
//! is executed. So the new name is added to the unlink log when it is reserved, and removed from
//! the log in the batch in which the file gets it. While the operation is in progress, the entry is
//! skipped.

use std::collections::BTreeSet;

use sheen_layout::Layout;
use sheen_wire::{
    self as wire, Errno, Fid, FileKind, Time,
    changelog::Kind,
    mds::{Reply, Request},
};

use crate::{
    Namespace, Store,
    access::{self, WRITE, is_owner, is_root, without_privilege},
    changelog::Changed,
    interface::Cx,
    key,
    relayouts::{BegunTake, Renamed, drawn_version},
};

/// Layouts of the two files: of the file itself (`old`), and of the copy (`new`).
struct Both {
    old: Option<Layout>,
    new: Layout,
}

/// Work to be done before a [`Request::TakeLayout`] is executed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Taking {
    /// Objects that the file leaves, each with its OST: to be sealed.
    pub leaving: Vec<(u32, Fid)>,
    /// Objects of the copy on the MDT: to be sealed, and to get another name.
    pub renamed: Vec<Renamed>,
}

impl<S: Store> Namespace<S> {
    /// Begins a [`Request::TakeLayout`]. Unless this fails, [`Namespace::end_take`] must follow,
    /// whether the request succeeds or not.
    ///
    /// # Errors
    /// Those of the request; EINVAL for another kind of request.
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

    /// Ends a [`Request::TakeLayout`]. The reserved name belongs to the file now, or will be
    /// destroyed.
    pub fn end_take(&mut self, fid: Fid) {
        self.takes.remove(&fid);
    }

    /// Returns the layout of a file, if it has one.
    ///
    /// # Errors
    /// ENOENT; EIO: it cannot be read.
    pub fn layout(&mut self, fid: Fid) -> wire::Result<Option<Layout>> {
        let inode = self.live(fid)?;
        let bytes = inode.layout.as_ref().filter(|_| inode.kind == FileKind::Regular);
        Ok(bytes.map(|b| Layout::decode(b)).transpose()?)
    }

    /// Whether there is a regular file of this FID.
    pub fn is_file(&mut self, fid: Fid) -> bool {
        self.live(fid).is_ok_and(|inode| inode.kind == FileKind::Regular)
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
        // Another mirror may become the valid one without a write.
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
        // Above every generation of either file that a client knows.
        let last = old.as_ref().map_or(0, Layout::generation).max(new.generation());
        let taken = new.adopted(*fid, last.checked_add(1).ok_or(Errno::ERANGE)?)?;
        let taken = match new.part_on_mdt() {
            None => taken,
            Some(part) => self.with_begun_name(*fid, *from, &part, &taken)?,
        };
        // The file may have any content now, as after a write. The owner could set the bits again.
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
            // So that the modification times of the copied objects, which are before `now`, do not
            // show.
            (i.mtime_set, i.ctime) = (cx.now, cx.now);
        })?;
        self.tables.log_owner(*fid);
        self.record(cx, cred, &Changed::file(Kind::Lyout, *fid));
        Ok(Reply::Ok)
    }

    /// Returns the layout in which the object on the MDT has the reserved name, which is the file's
    /// now. The object's former name, in `part`, goes into the unlink log.
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
