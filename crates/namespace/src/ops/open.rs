//! open: of a file that exists.
//!
//! * ELOOP for a symbolic link (the kernel follows links itself, so one that arrives here was not
//!   to be followed); ENXIO for sockets and other special files (the kernel opens those itself).
//! * ENOTDIR with O_DIRECTORY for what is no directory; EISDIR for writing or truncating one.
//! * EACCES by the access mode; O_TRUNC needs permission to write whatever the mode; execution
//!   needs execute permission instead of read permission, and a regular file.
//! * Opening a regular file for writing gives it its layout, if it has none; not so with
//!   LAYOUT_LATER, unless it is truncated.
//! * O_TRUNC sets mtime and ctime, and takes set-user-id and set-group-id away unless superuser.
//!   The client cuts the objects.
//! * Opening for writing takes file capabilities away unless superuser, as the OSTs, which see the
//!   writes, know nothing of them.
//! * ETXTBSY for what a program is being run from, on another client: for writing or with O_TRUNC.
//!   The client's own kernel sees to its own programs, and has done so before it asks; but not
//!   before a mere O_TRUNC, nor of a file whose name it did not know. In turn a file that others
//!   write is not run: whoever may have it open unknown to the MDT is asked first
//!   ([`Namespace::is_written_elsewhere`]).
//! * ENFILE past the client's limit of open files.

use sheen_wire::{
    self as wire, Cred, Errno, Fid, FileKind,
    ldlm::bits,
    mds::{
        Reply,
        flags::{self, CREAT, DIRECTORY, EXEC, LAYOUT_LATER, TRUNC},
    },
};

use super::nodes::entry;
use crate::{
    ClientId, Namespace, Store,
    access::{self, READ, WRITE, is_root, without_privilege},
    engine::Cx,
    record::Inode,
};

impl<S: Store> Namespace<S> {
    pub(crate) fn open_fid(&mut self, cx: &mut Cx, cred: &Cred, fid: Fid, flags: u32) -> wire::Result<Reply> {
        let inode = self.live(fid)?;
        check_open(&inode, cred, flags)?;
        // Whose kernel has seen to it before it asked.
        let spared = (flags::writes(flags) && flags & CREAT == 0).then_some(cx.client);
        if (flags::writes(flags) || flags & TRUNC != 0) && self.handles.is_run_but(fid, spared) {
            return Err(Errno::ETXTBSY);
        }
        self.handles.check_room(cx.client)?;
        if flags & EXEC != 0 {
            // Under a lock on LAYOUT the close of who has written it may still wait for others.
            let written = self.is_written_elsewhere(cx.client, fid);
            self.tables.recall(fid, if written { bits::OPEN | bits::LAYOUT } else { bits::OPEN });
        }
        let regular = inode.kind == FileKind::Regular;
        let truncates = regular && flags & TRUNC != 0;
        let perm = if truncates && !is_root(cred) { without_privilege(&inode, cred)? } else { inode.perm };
        if regular && (truncates || flags::writes(flags)) {
            let later = flags & LAYOUT_LATER != 0 && !truncates;
            let layout = if later { inode.layout.clone() } else { Some(self.layout_of(cx, fid, &inode)?) };
            if truncates || !is_root(cred) {
                self.drop_capability(fid)?;
            }
            if truncates || inode.layout.is_none() && !later {
                self.edit(fid, |i| {
                    i.layout = layout;
                    if truncates {
                        i.perm = perm;
                        (i.mtime, i.mtime_set, i.ctime) = (cx.now, cx.now, cx.now);
                    }
                })?;
            }
        }
        self.opened(cx, fid, flags, false)
    }

    /// Closes a file again that was opened to be run and may not be.
    pub fn refuse_run(&mut self, client: ClientId, fid: Fid, handle: u64) {
        if self.handles.get(client, fid, handle).is_ok() {
            // A store that fails here leaves the orphan's record, for the next recovery; the fault
            // is kept.
            let _ = self.close_handle(handle, fid);
        }
        self.tables.end();
    }

    /// Whether a client other than this one runs a program from the file.
    pub fn is_run_elsewhere(&self, client: ClientId, fid: Fid) -> bool {
        self.handles.is_run_but(fid, Some(client))
    }

    /// Whether a client other than this one has the file open for writing, as far as is known here:
    /// who has a lock on [`bits::OPEN`] may have it open as well.
    pub fn is_written_elsewhere(&self, client: ClientId, fid: Fid) -> bool {
        self.handles.is_written_but(fid, client)
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
