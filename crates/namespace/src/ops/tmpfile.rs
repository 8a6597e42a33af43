//! open(O_TMPFILE): a regular file without a name.
//!
//! * Needs write and search permission on the directory (EACCES); ENOTDIR, ENOENT as for any
//!   create. EINVAL unless opened for writing.
//! * Owner, group, mode and layout are those of a file created in the directory. The directory's
//!   times do not change.
//! * If the FID in the request is that of an orphan, the request is a resend, as in
//!   [`super::open_create`]: the file is opened.
//! * The file is deleted at its last close (also if the client dies), unless it was linked before.
//!   O_EXCL: it can never be linked.

use sheen_wire::{
    self as wire, Errno, Fid, FileKind,
    mds::{
        Reply,
        flags::{self, EXCL},
    },
};

use super::{
    names::may_add,
    nodes::{New, new_inode},
};
use crate::{Namespace, Store, error::OpResult, interface::Cx, record::Inode, relayouts::unnamed_version};

impl<S: Store> Namespace<S> {
    pub(crate) fn tmpfile(&mut self, cx: &mut Cx, new: &New, flags: u32) -> OpResult<Reply> {
        if !flags::writes(flags) {
            return Err(Errno::EINVAL.into());
        }
        self.make_unnamed(cx, new, flags, flags & EXCL == 0)
    }

    /// Makes and opens a file without a name.
    ///
    /// An earlier life of the MDT may have made a file with this FID and have deleted it. So the
    /// object on the MDT, which is named after the file, gets a version that was not used.
    pub(crate) fn make_unnamed(&mut self, cx: &mut Cx, new: &New, flags: u32, linkable: bool) -> OpResult<Reply> {
        let dir = self.dir(new.parent)?;
        may_add(&dir, new.cred)?;
        let inode = new_inode(cx, new, &dir, FileKind::Regular)?;
        self.handles.check_room(cx.client)?;
        match self.check_new_fid(new.fid) {
            Err(Errno::EINVAL) if self.is_orphan(new.fid)? && self.is_own(new)? => {
                if !self.is_replaced_by_replay(new.fid)? {
                    return Ok(self.opened(cx, new.cred, new.fid, flags, true)?);
                }
                self.destroy_orphan(new.fid)?;
            }
            checked => checked?,
        }
        self.check_quota(cx, &inode)?;
        let mut layout = self.new_layout(cx, new.fid, Some(new.parent), Default::default())?;
        if self.replaying.is_none() {
            layout = layout.on_mdt_as(unnamed_version(self.tables.last_transno() + 1));
        }
        self.put_orphan(new.fid)?;
        let layout = Some(layout.encode().into());
        self.tables.put_inode(new.fid, Inode { layout, nlink: 0, linkable, ..inode });
        self.counters.files += 1;
        Ok(self.opened(cx, new.cred, new.fid, flags, true)?)
    }

    /// Whether the request is a replay that made another file than the orphan of this FID. The
    /// first life of the MDT committed the orphan and did not answer. The second one deleted it at
    /// the end of its recovery, made a new file for the resent request, and committed neither.
    fn is_replaced_by_replay(&mut self, fid: Fid) -> wire::Result<bool> {
        let Some(replayed) = self.replayed_layout() else { return Ok(false) };
        let stored = self.tables.inode(fid)?.and_then(|inode| inode.layout.clone());
        Ok(stored != Some(replayed?.encode().into()))
    }

    fn is_orphan(&mut self, fid: Fid) -> wire::Result<bool> {
        Ok(self.tables.inode(fid)?.is_some_and(|i| i.kind == FileKind::Regular && i.nlink == 0))
    }
}
