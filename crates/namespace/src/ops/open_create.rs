//! open(O_CREAT): looks up a name, creates a regular file if there is none, and opens it. This is
//! one step, so that of two callers with O_EXCL only one succeeds.
//!
//! * EEXIST with O_EXCL if the name exists, whatever it names; EISDIR if it names a directory;
//!   EINVAL with O_DIRECTORY.
//! * If the name refers to the FID in the request, and the file is the caller's, the request is a
//!   resend. Its first execution survived a crash, its reply did not. The file is opened as a new
//!   one. If another client has removed the file since, the file is made again without a name
//!   (module `executed`). For the comparison of FIDs see [`super::create`].
//! * An existing file is opened as in [`super::open`]. This needs no permission on the directory
//!   except search.
//! * A new file needs write permission on the directory, as in [`super::create`]. It gets its
//!   layout at once (not with LAYOUT_LATER). It is opened as requested, whatever its mode.

use sheen_wire::{
    Errno, FileKind,
    mds::{
        Reply,
        flags::{DIRECTORY, EXCL, LAYOUT_LATER},
    },
};

use super::{
    names::{is_dots, may_add},
    nodes::{New, new_inode},
};
use crate::{Namespace, Store, error::OpResult, interface::Cx, record::Inode};

impl<S: Store> Namespace<S> {
    pub(crate) fn open_create(&mut self, cx: &mut Cx, new: &New, name: &[u8], flags: u32) -> OpResult<Reply> {
        if flags & DIRECTORY != 0 {
            return Err(Errno::EINVAL.into());
        }
        let (dir, found) = self.walk(new.cred, new.parent, name)?;
        if let Some(found) = found {
            return match found.kind {
                FileKind::Regular if found.fid == new.fid && self.is_own(new)? => {
                    self.handles.check_room(cx.client)?;
                    Ok(self.opened(cx, new.cred, new.fid, flags, true)?)
                }
                _ if flags & EXCL != 0 => Err(Errno::EEXIST.into()),
                FileKind::Dir => Err(Errno::EISDIR.into()),
                _ => self.open_fid(cx, new.cred, found.fid, flags),
            };
        }
        if is_dots(name) {
            return Err(if flags & EXCL != 0 { Errno::EEXIST } else { Errno::EISDIR }.into());
        }
        may_add(&dir, new.cred)?;
        let inode = new_inode(cx, new, &dir, FileKind::Regular)?;
        self.handles.check_room(cx.client)?;
        self.check_new_fid(new.fid)?;
        self.check_quota(cx, &inode)?;
        let layout = match flags & LAYOUT_LATER {
            0 => Some(self.new_layout(cx, new.fid, Some(new.parent), Default::default())?.encode().into()),
            _ => None,
        };
        self.enter(cx, new, name, Inode { layout, ..inode })?;
        Ok(self.opened(cx, new.cred, new.fid, flags, true)?)
    }
}
