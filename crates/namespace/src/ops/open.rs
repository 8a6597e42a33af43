//! open of a file that exists.
//!
//! * ELOOP for a symbolic link: the kernel follows links itself, so this one must not be followed.
//!   ENXIO for sockets and other special files: the kernel opens those itself.
//! * ENOTDIR with O_DIRECTORY for a file that is not a directory. EISDIR for writing or truncating
//!   a directory.
//! * EACCES by the access mode. O_TRUNC needs write permission in every mode. Execution needs
//!   execute permission instead of read permission, and a regular file.
//! * Opening a regular file for writing allocates its layout, if it has none. With LAYOUT_LATER
//!   this happens only if the file is truncated.
//! * O_TRUNC sets mtime and ctime, and clears set-user-id and set-group-id unless superuser. The
//!   client truncates the objects.
//! * Opening for writing removes file capabilities unless superuser, because the OSTs, which see
//!   the writes, do not know about them.
//! * ETXTBSY for writing or O_TRUNC if another client runs a program from the file. Programs on the
//!   same client are checked by its kernel before the request. The kernel does not check O_TRUNC
//!   without write access, nor a file whose name it did not know (O_CREAT); then the MDT checks
//!   these programs too.
//! * In turn, a file that another client has open for writing is not executed. Clients that may
//!   have it open without the MDT's knowledge are asked first
//!   ([`Namespace::is_written_elsewhere`]).
//! * ENFILE past the client's limit of open files.
//! * An open, and one that gets EACCES, are in the changelog if it records them.

use sheen_wire::{
    self as wire, Cred, Errno, Fid, FileKind,
    changelog::{Kind, open_flags},
    ldlm::bits,
    mds::{
        Opener, Reply,
        flags::{self, CREAT, DIRECTORY, EXEC, LAYOUT_LATER, TRUNC},
    },
};

use super::nodes::entry;
use crate::{
    ClientId, Namespace, Store,
    access::{self, READ, WRITE, is_root, without_privilege},
    changelog::Changed,
    error::OpResult,
    interface::Cx,
    record::Inode,
};

impl<S: Store> Namespace<S> {
    pub(crate) fn open_fid(&mut self, cx: &mut Cx, cred: &Cred, fid: Fid, flags: u32) -> OpResult<Reply> {
        let inode = self.live(fid)?;
        if let Err(errno) = check_open(&inode, cred, flags) {
            if errno == Errno::EACCES {
                self.record_refused_open(cx, cred, fid, flags);
            }
            return Err(errno.into());
        }
        // This client's kernel has checked its own programs before the request.
        let spared = (flags::writes(flags) && flags & CREAT == 0).then_some(cx.client);
        if (flags::writes(flags) || flags & TRUNC != 0) && self.handles.is_executed_by_another(fid, spared) {
            return Err(Errno::ETXTBSY.into());
        }
        self.handles.check_room(cx.client)?;
        if flags & EXEC != 0 {
            // A client that wrote the file may delay its close while it holds a lock on LAYOUT. The
            // invalidation makes it send the close.
            let written = self.is_written_elsewhere(cx.client, fid);
            self.tables.invalidate(fid, if written { bits::OPEN | bits::LAYOUT } else { bits::OPEN });
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
        if truncates {
            self.record(cx, cred, &Changed::file(Kind::Trunc, fid));
        }
        Ok(self.opened(cx, cred, fid, flags, false)?)
    }

    /// Closes a file that was opened for execution and may not be executed.
    pub fn refuse_run(&mut self, client: ClientId, fid: Fid, handle: u64) {
        if self.handles.get(client, fid, handle).is_ok() {
            // If the store fails here, the orphan's record remains for the next recovery, and
            // `take_fault` returns the error.
            let _ = self.close_handle(handle, fid);
        }
        self.tables.end();
    }

    /// Whether a client other than this one has the file open for execution.
    pub fn is_run_elsewhere(&self, client: ClientId, fid: Fid) -> bool {
        self.handles.is_executed_by_another(fid, Some(client))
    }

    /// Whether a program runs from a file, as far as the MDT knows.
    pub fn has_running(&self) -> bool {
        self.handles.has_running()
    }

    /// Whether a client other than this one has the file open for writing, as far as the MDT knows.
    /// Clients with a lock on [`bits::OPEN`] may have it open as well.
    pub fn is_written_elsewhere(&self, client: ClientId, fid: Fid) -> bool {
        self.handles.is_written_by_another(fid, client)
    }

    /// Assigns a handle and returns the reply. The caller has done all checks. The open is in the
    /// changelog, unless the file has no name.
    pub(crate) fn opened(&mut self, cx: &Cx, cred: &Cred, fid: Fid, flags: u32, created: bool) -> wire::Result<Reply> {
        let entry = entry(fid, &*self.live(fid)?);
        let handle = self.handles.open_as(cx.client, fid, flags, Opener::of(cred));
        if entry.attr.nlink > 0 {
            self.record_open(cx, cred, handle, (fid, open_flags(flags, created)));
        }
        // The service knows the limits of space.
        Ok(Reply::Opened { handle, entry, created, tight: false })
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
