//! open: of a file that exists.
//!
//! * ELOOP for a symbolic link (the kernel follows links itself, so one that arrives here was not to be followed); ENXIO
//!   for sockets and other special files (the kernel opens those itself).
//! * ENOTDIR with O_DIRECTORY for what is no directory; EISDIR for writing or truncating one.
//! * EACCES by the access mode; O_TRUNC needs permission to write whatever the mode; execution needs execute permission
//!   instead of read permission, and a regular file.
//! * Opening a regular file for writing gives it its layout, if it has none.
//! * O_TRUNC sets mtime and ctime, and takes set-user-id and set-group-id away unless superuser. The client cuts the
//!   objects.
//! * Opening for writing takes file capabilities away unless superuser, as the OSTs, which see the writes, know nothing of them.
//! * ENFILE past the client's limit of open files.

use sheen_wire::{
    self as wire, Cred, Errno, Fid, FileKind,
    mds::{
        Reply,
        flags::{self, DIRECTORY, EXEC, TRUNC},
    },
};

use super::nodes::entry;
use crate::{
    Namespace, Store,
    access::{self, READ, WRITE, is_root, without_privilege},
    engine::Cx,
    record::Inode,
};

impl<S: Store> Namespace<S> {
    pub(crate) fn open_fid(&mut self, cx: &mut Cx, cred: &Cred, fid: Fid, flags: u32) -> wire::Result<Reply> {
        let inode = self.live(fid)?;
        check_open(&inode, cred, flags)?;
        self.handles.check_room(cx.client)?;
        let regular = inode.kind == FileKind::Regular;
        let truncates = regular && flags & TRUNC != 0;
        let perm = if truncates && !is_root(cred) { without_privilege(&inode, cred)? } else { inode.perm };
        if regular && (truncates || flags::writes(flags)) {
            let layout = self.layout_of(cx, fid, &inode)?;
            if truncates || !is_root(cred) {
                self.drop_capability(fid)?;
            }
            if truncates || inode.layout.is_none() {
                self.edit(fid, |i| {
                    i.layout = Some(layout);
                    if truncates {
                        i.perm = perm;
                        (i.mtime, i.mtime_set, i.ctime) = (cx.now, cx.now, cx.now);
                    }
                })?;
            }
        }
        self.opened(cx, fid, flags, false)
    }

    /// Hands out a handle; all checks are done.
    pub(crate) fn opened(&mut self, cx: &Cx, fid: Fid, flags: u32, created: bool) -> wire::Result<Reply> {
        let entry = entry(fid, &*self.live(fid)?);
        let handle = self.handles.open(cx.client, fid, flags);
        Ok(Reply::Opened { handle, entry, created })
    }
}

fn check_open(inode: &Inode, cred: &Cred, flags: u32) -> wire::Result<()> {
    let writes = flags::writes(flags) || flags & flags::ACCMODE == flags::ACCMODE || flags & TRUNC != 0;
    if flags & DIRECTORY != 0 && !inode.is_dir() {
        return Err(Errno::ENOTDIR);
    }
    match inode.kind {
        FileKind::Regular => {}
        FileKind::Symlink => return Err(Errno::ELOOP),
        FileKind::Dir if writes => return Err(Errno::EISDIR),
        FileKind::Dir if flags & EXEC != 0 => return Err(Errno::EACCES),
        FileKind::Dir => {}
        FileKind::Fifo | FileKind::Socket | FileKind::Char | FileKind::Block => return Err(Errno::ENXIO),
    }
    let mut mask = if writes { WRITE } else { 0 };
    if flags & EXEC != 0 {
        mask |= access::EXEC;
    } else if flags & flags::ACCMODE != flags::WRONLY {
        mask |= READ;
    }
    access::check(inode, cred, mask)
}
