//! One function per operation, from the kernel's terms to the client's.

use std::sync::Arc;

use bytes::Bytes;
use sheen_client::{Caller, OpenDir, OpenFile};
use sheen_fuse::{
    CopyFileRange, Create, DirBuffer, DirPlusBuffer, LockRequest, Op, Read, Request, SetAttr, StatFs, Write,
    abi::flags::lock_type,
};
use sheen_wire::{
    Bulk, Errno, Fid, Result,
    ldlm::{FlockKind, Mode},
    mds,
    mds::flags,
    ost::Seek,
};

use crate::{
    answer::Answer,
    file::File,
    ioctl, locks, node, project, queries,
    state::{Inner, Signal, interrupted},
};

/// Open flags that the servers get. O_NOCTTY, O_NOFOLLOW, O_CLOEXEC and the like mean nothing to
/// them.
const SERVER_FLAGS: u32 = flags::ACCMODE
    | flags::TRUNC
    | flags::APPEND
    | flags::SYNC
    | flags::DIRECT
    | flags::DIRECTORY
    | flags::EXCL
    | flags::CREAT
    | flags::LAYOUT_LATER
    | flags::EXEC;
/// `system.posix_acl_access` and `system.posix_acl_default`.
const ACL_PREFIX: &[u8] = b"system.posix_acl_";
/// O_NONBLOCK.
const NONBLOCK: u32 = 0o4000;
/// O_NOATIME.
const NOATIME: u32 = 0o1000000;
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

/// Executes a request. `signal`: ends the wait of a request that waits for a program.
///
/// Between the kernel's lookup of a name and its request for the inode, another mount may have
/// removed or replaced the inode. ESTALE makes the kernel walk the path again, without its cached
/// names, which gives the right result. ENOENT would be final for the program, although the name
/// may have existed all the time.
pub async fn run(fs: Arc<Inner>, request: Request, signal: Option<Signal>) -> Result<Answer> {
    let of_inode = is_of_inode(&request.op);
    match perform(fs, request, signal).await {
        Err(Errno::ENOENT) if of_inode => Err(Errno::ESTALE),
        outcome => outcome,
    }
}

/// Returns whether a request is about an inode that the kernel knows, and not about a name.
/// Requests for extended attributes are excluded, because some of them concern other files.
fn is_of_inode(op: &Op) -> bool {
    matches!(
        op,
        Op::GetAttr { .. }
            | Op::Statx { .. }
            | Op::SetAttr(_)
            | Op::ReadLink
            | Op::Open { .. }
            | Op::OpenDir { .. }
            | Op::Access { .. }
    )
}

/// Performs the operation. The future is allocated for each request, so its large and infrequent
/// parts are boxed separately.
async fn perform(fs: Arc<Inner>, request: Request, signal: Option<Signal>) -> Result<Answer> {
    let Request { header: h, op } = request;
    let who = Caller::new(h.uid, h.gid, h.pid);
    let client = &fs.client;
    let of = |nodeid| node::fid(nodeid, client.root());
    let fid = of(h.nodeid);
    let since = fs.moment();
    let named = |entry| Answer::Entry(entry, since);
    match op {
        Op::Lookup { name } => client.lookup(&who, fid, &name).await.map(named),
        Op::Forget(files) => {
            fs.forgotten(&files);
            Ok(Answer::None)
        }
        Op::GetAttr { fh } => getattr(&fs, h.pid, fid, fh).await.map(Answer::Attr),
        Op::Statx { fh, .. } => getattr(&fs, h.pid, fid, fh).await.map(Answer::Statx),
        Op::SetAttr(set) => Box::pin(setattr(&fs, &who, fid, &set)).await,
        Op::ReadLink => client.readlink(fid).await.map(Answer::ReadLink),
        Op::Symlink { name, target } => client.symlink(&who, fid, &name, &target).await.map(named),
        Op::Mknod { name, mode, rdev, umask } => client.mknod(&who, fid, &name, mode, rdev, umask).await.map(named),
        Op::Mkdir { name, mode, umask } => client.mkdir(&who, fid, &name, mode, umask).await.map(named),
        Op::Unlink { name } => client.unlink(&who, fid, &name).await.map(|()| Answer::Ok),
        Op::Rmdir { name } => client.rmdir(&who, fid, &name).await.map(|()| Answer::Ok),
        Op::Rename { name, new_parent, new_name, flags } => {
            let to = of(new_parent);
            client.rename(&who, fid, &name, to, &new_name, flags).await.map(|()| Answer::Ok)
        }
        Op::Link { target, name } => {
            let target = of(target);
            Box::pin(client.link(&who, target, fid, &name)).await.map(named)
        }
        Op::Open { flags, .. } => {
            let (fh, flags) = fs.opened(Box::pin(client.open(&who, fid, flags & SERVER_FLAGS)).await?, flags);
            Ok(Answer::Open { fh, flags })
        }
        Op::Create(c) => create(&fs, &who, fid, &c).await,
        Op::TmpFile(c) => {
            let flags = c.flags & SERVER_FLAGS & !flags::DIRECTORY;
            let (entry, file) = client.tmpfile(&who, fid, flags, c.mode, c.umask).await?;
            let (fh, flags) = fs.opened(file, c.flags);
            Ok(Answer::Create { entry, since, fh, flags })
        }
        Op::Read(read) => {
            let file = fs.file(read.fh)?;
            file.note_read();
            let pages = read.is_page_cached();
            let data = client.read_in_place(&file, read.offset, read.size as usize, pages).await?;
            client.count_read(h.pid, &file, read.offset, data.len() as u64);
            Ok(Answer::Data(data))
        }
        Op::Write(w) => Box::pin(write(&fs, &who, *w)).await,
        Op::Flush { fh, lock_owner } => flush(&fs, fid, fh, lock_owner).await.map(|()| Answer::Ok),
        Op::Release { fh, flock_owner, .. } => release(&fs, fh, flock_owner).await.map(|()| Answer::Ok),
        Op::GetLk(request) => getlk(&fs, fid, &request).await.map(Answer::Lock),
        Op::SetLk { request, wait } => Box::pin(setlk(&fs, fid, &request, wait, signal)).await,
        Op::Fsync { fh, datasync } => client.fsync(&*fs.file(fh)?, datasync).await.map(|()| Answer::Ok),
        Op::OpenDir { flags } => {
            let dir = client.opendir(&who, fid, flags & SERVER_FLAGS).await?;
            Ok(Answer::OpenDir { fh: fs.dirs.insert(dir) })
        }
        Op::ReadDir(read) => Box::pin(readdir(&fs, read)).await,
        Op::ReadDirPlus(read) => Box::pin(readdir_plus(&fs, read)).await,
        Op::ReleaseDir { fh, .. } => match fs.dirs.remove(fh) {
            Some(dir) => client.releasedir(dir).await.map(|()| Answer::Ok),
            None => Err(Errno::EBADF),
        },
        Op::FsyncDir { fh, .. } => fsyncdir(&fs, fh).await.map(|()| Answer::Ok),
        Op::StatFs => client.statfs().await.map(|s| Answer::StatFs(statfs(&s))),
        Op::SyncFs => client.syncfs().await.map(|()| Answer::Ok),
        Op::SetXattr { name, value, flags, .. } => {
            fs.check_xattr(&name)?;
            client.setxattr(&who, fid, &name, &value, flags).await.map(|()| Answer::Ok)
        }
        Op::GetXattr { name, size } => Box::pin(getxattr(&fs, &who, fid, &name, size, signal)).await,
        Op::ListXattr { size } => {
            let mut names = client.listxattr(&who, fid).await?;
            names.retain(|name| fs.check_xattr(name).is_ok());
            let mut list = Vec::with_capacity(names.iter().map(|n| n.len() + 1).sum());
            for name in names {
                list.extend_from_slice(&name);
                list.push(0);
            }
            sized(list.into(), size)
        }
        Op::RemoveXattr { name } => {
            fs.check_xattr(&name)?;
            client.removexattr(&who, fid, &name).await.map(|()| Answer::Ok)
        }
        Op::Access { mask } => client.access(&who, fid, mask).await.map(|()| Answer::Ok),
        Op::Fallocate { fh, offset, length, mode } => {
            let file = fs.file(fh)?;
            Box::pin(fallocate(&fs, &who, &file, mode, offset, length)).await.map(|()| Answer::Ok)
        }
        Op::Lseek { fh, offset, whence } => {
            let what = match whence {
                SEEK_DATA => Seek::Data,
                SEEK_HOLE => Seek::Hole,
                _ => return Err(Errno::EINVAL),
            };
            client.lseek(&*fs.file(fh)?, offset, what).await.map(Answer::Offset)
        }
        Op::CopyFileRange(c) => Box::pin(copy(&fs, &who, &c)).await,
        Op::Ioctl(command) if project::is_of_project(command.cmd) => {
            Box::pin(project::run(&fs, &who, fid, &command)).await
        }
        Op::Ioctl(command) if queries::answers(&command) => Box::pin(queries::run(&fs, &who, fid, &command)).await,
        Op::Ioctl(command) => Box::pin(ioctl::run(&fs, &who, &command, signal)).await,
        // BMAP, POLL (files are always ready): the kernel does these itself, or the program gets an
        // error.
        _ => Err(Errno::ENOSYS),
    }
}

impl Inner {
    fn file(&self, fh: u64) -> Result<Arc<File>> {
        self.files.get(fh).ok_or(Errno::EBADF)
    }

    /// Registers a file that was opened with these flags. Returns its handle number and the flags
    /// for the kernel.
    fn opened(&self, file: Arc<OpenFile>, flags: u32) -> (u64, u32) {
        if flags & NOATIME != 0 {
            file.leave_atime();
        }
        let file = File::new(file, self.owners.next(), flags & NONBLOCK != 0);
        let flags = file.fopen(self.tells_locks());
        (self.files.insert(file), flags)
    }

    fn dir(&self, fh: u64) -> Result<Arc<OpenDir>> {
        self.dirs.get(fh).ok_or(Errno::EBADF)
    }
}

/// Syncs a directory. The kernel does not pass sync(2) and syncfs(2) to an ordinary FUSE file
/// system (only to virtiofs). So fsync of the root directory stands for them: `sync MOUNTPOINT`
/// makes everything durable.
async fn fsyncdir(fs: &Inner, fh: u64) -> Result<()> {
    let dir = fs.dir(fh)?;
    if dir.fid() == fs.client.root() { fs.client.syncfs().await } else { fs.client.fsyncdir(&dir).await }
}

async fn getattr(fs: &Inner, pid: u32, fid: Fid, fh: Option<u64>) -> Result<sheen_client::EntryAttr> {
    if let Some(recorded) = fs.create_replies.take(pid, fid, fs.rt.now()) {
        return Ok(recorded);
    }
    match fh.and_then(|fh| fs.files.get(fh)) {
        Some(file) => fs.client.getattr(fid, Some(&**file)).await,
        None => fs.client.getattr_for(fid, || !sheen_rt::proc::checks_permissions(pid)).await,
    }
}

async fn setattr(fs: &Inner, who: &Caller, fid: Fid, set: &SetAttr) -> Result<Answer> {
    let time = |t: sheen_fuse::SetTime| match t {
        sheen_fuse::SetTime::Now => mds::SetTime::Now,
        sheen_fuse::SetTime::At(t) => mds::SetTime::At(t),
    };
    let change = mds::SetAttr {
        perm: set.mode.map(|m| m & 0o7777),
        uid: set.uid,
        gid: set.gid,
        size: set.size,
        atime: set.atime.map(time),
        mtime: set.mtime.map(time),
        kill_priv: set.kill_suidgid,
    };
    let file = set.fh.and_then(|fh| fs.files.get(fh));
    let e = fs.client.setattr(who, fid, change, file.as_deref().map(|f| &**f)).await?;
    Ok(Answer::Changed(e))
}

async fn create(fs: &Inner, who: &Caller, parent: Fid, c: &Create) -> Result<Answer> {
    let (since, flags) = (fs.moment(), c.flags & SERVER_FLAGS | flags::CREAT);
    let (entry, file) = fs.client.create(who, parent, &c.name, flags, c.mode, c.umask).await?;
    if !entry.keep.attr {
        fs.create_replies.record(who.pid, &entry.attr, fs.rt.now());
    }
    let (fh, flags) = fs.opened(file, c.flags);
    Ok(Answer::Create { entry, since, fh, flags })
}

async fn write(fs: &Inner, who: &Caller, w: Write) -> Result<Answer> {
    let file = fs.file(w.fh)?;
    drop_privilege(fs, who, &file, w.kill_suidgid).await?;
    let (offset, data) = (w.offset, Bulk::from(w.data));
    // A page of a mapping has a fixed offset, whatever the flags of the open file in the request.
    let n = if w.cached {
        fs.client.write_page(&file, offset, data).await?
    } else {
        let (append, sync) = (w.flags & flags::APPEND != 0, w.flags & flags::DSYNC != 0);
        let n = fs.client.write_as(&file, offset, data, append, sync).await?;
        fs.client.count_write(who.pid, &file, offset, n as u64);
        n
    };
    Ok(Answer::Written(n as u32))
}

async fn fallocate(fs: &Inner, who: &Caller, file: &File, mode: u32, offset: u64, length: u64) -> Result<()> {
    drop_privilege(fs, who, file, who.cred.uid != 0).await?;
    fs.client.fallocate(file, mode, offset, length).await
}

/// Removes set-user-id and set-group-id before a change of a file's data, if the caller is
/// `unprivileged`. For a write, the kernel says whether it is. For fallocate(2) and
/// copy_file_range(2) it does not, so every caller except root counts as unprivileged.
async fn drop_privilege(fs: &Inner, who: &Caller, file: &File, unprivileged: bool) -> Result<()> {
    if unprivileged {
        fs.client.kill_priv(who, file).await?;
        if file.note_unprivileged() {
            fs.changed_unseen(file.fid());
        }
    }
    Ok(())
}

/// Releases the fcntl locks of an owner that closes the file.
async fn flush(fs: &Inner, fid: Fid, fh: u64, owner: u64) -> Result<()> {
    let file = fs.file(fh)?;
    let mut ended = true;
    if let Some(closing) = fs.owners.closes(fid, owner) {
        unlock(fs, fid, closing.number, FlockKind::Posix).await;
        ended = closing.ended;
    }
    if ended {
        file.closed_by(owner);
    }
    Ok(())
}

/// Releases an open file, with the locks that the file itself holds.
async fn release(fs: &Inner, fh: u64, flock_owner: Option<u64>) -> Result<()> {
    let file = fs.files.remove(fh).ok_or(Errno::EBADF)?;
    if file.was_read() && !fs.moves_atime() {
        file.leave_atime();
    }
    let fid = file.fid();
    for number in file.lockers().into_iter().filter_map(|owner| fs.owners.ends(fid, owner, file.number())) {
        unlock(fs, fid, number, FlockKind::Posix).await;
    }
    if flock_owner.is_some() {
        unlock(fs, fid, file.number(), FlockKind::Flock).await;
    }
    let answer = fs.client.release(file.open()).await;
    if file.changes_unseen() {
        fs.changed_unseen(file.fid());
    }
    answer
}

/// Releases an owner's locks. A failure does not fail the close, because the MDT drops the locks
/// with the client's session.
async fn unlock(fs: &Inner, fid: Fid, owner: u64, kind: FlockKind) {
    if let Err(e) = fs.client.unlock_owner(fid, owner, kind).await {
        tracing::warn!("{fid}: unlock at close failed ({e}): the lock may stay until this mount ends");
    }
}

async fn getlk(fs: &Inner, fid: Fid, request: &LockRequest) -> Result<sheen_fuse::Lock> {
    fs.check_locks()?;
    let (flock, mode) = locks::wanted(request, fs.owners.get(fid, request.owner).unwrap_or(0))?;
    let by = if mode == Mode::Nl { None } else { fs.client.getlk(fid, flock, mode).await? };
    Ok(locks::found(&request.lock, by))
}

async fn setlk(fs: &Inner, fid: Fid, request: &LockRequest, wait: bool, signal: Option<Signal>) -> Result<Answer> {
    fs.check_locks()?;
    let (file, unlocks) = (fs.file(request.fh)?, request.lock.kind == lock_type::UNLOCK);
    let (owner, _locking) = if request.flock {
        (file.number(), None)
    } else if unlocks {
        let Some(number) = fs.owners.get(fid, request.owner) else { return Ok(Answer::Ok) };
        (number, None)
    } else {
        file.locks(request.owner);
        let locking = fs.owners.locks(fid, request.owner, file.number());
        (locking.number, Some(locking))
    };
    let (flock, mode) = locks::wanted(request, owner)?;
    fs.client.lock(fid, flock, mode, wait, interrupted(signal)).await?;
    Ok(Answer::Locked { fid, flock })
}

async fn readdir(fs: &Inner, read: Read) -> Result<Answer> {
    let dir = fs.dir(read.fh)?;
    let page = fs.client.list(&dir, read.offset, read.size, false).await?;
    let mut buffer = DirBuffer::new(read.size);
    for item in page.entries {
        if buffer.add(fs.inos().of(item.fid), item.cookie, item.kind, &item.name) {
            break;
        }
    }
    Ok(Answer::Dir(buffer))
}

/// Handles READDIRPLUS, which the kernel sends when it has seen lookups of names in the directory.
/// The reply contains no attributes, because the kernel could not be made to forget its names
/// ([`crate::kernel`]). But the client fetches the attributes, and later lookups take them from its
/// cache.
async fn readdir_plus(fs: &Inner, read: Read) -> Result<Answer> {
    let dir = fs.dir(read.fh)?;
    let page = fs.client.list(&dir, read.offset, read.size, true).await?;
    let mut buffer = DirPlusBuffer::new(read.size);
    for item in page.entries {
        if buffer.add_bare(fs.inos().of(item.fid), item.cookie, item.kind, &item.name) {
            break;
        }
    }
    Ok(Answer::DirPlus(buffer))
}

async fn copy(fs: &Inner, who: &Caller, c: &CopyFileRange) -> Result<Answer> {
    if c.flags != 0 {
        return Err(Errno::EINVAL);
    }
    let (from, to) = (fs.file(c.fh_in)?, fs.file(c.fh_out)?);
    drop_privilege(fs, who, &to, who.cred.uid != 0).await?;
    from.note_read();
    let n = fs.client.copy_file_range(&from, c.offset_in, &to, c.offset_out, c.len).await?;
    Ok(Answer::Copied(n))
}

/// Returns an extended attribute. The kernel caches access control lists, which it needs to check
/// permissions, until its attributes of the file are invalidated. It does not cache a list that it
/// is waiting for at that moment. So if no lock guards the attributes, they are invalidated now.
/// `signal`: ends a wait ([`sheen_wire::control::is_wait`]) with EINTR.
async fn getxattr(
    fs: &Inner,
    who: &Caller,
    fid: Fid,
    name: &Bytes,
    room: u32,
    signal: Option<Signal>,
) -> Result<Answer> {
    fs.check_xattr(name)?;
    if name.starts_with(ACL_PREFIX) && !fs.client.is_cacheable(fid).await.is_ok_and(|yes| yes) {
        fs.changed_unseen(fid);
    }
    tokio::select! {
        biased;
        value = fs.client.getxattr(who, fid, name) => sized(value?, room),
        () = interrupted(signal) => Err(Errno::EINTR),
    }
}

/// Returns an extended attribute if it fits into the program's buffer; its size if `room` is 0.
fn sized(value: Bytes, room: u32) -> Result<Answer> {
    match room {
        0 => Ok(Answer::XattrSize(value.len() as u32)),
        room if value.len() > room as usize => Err(Errno::ERANGE),
        _ => Ok(Answer::Xattr(value)),
    }
}

fn statfs(s: &sheen_wire::StatFs) -> StatFs {
    StatFs {
        blocks: s.blocks,
        bfree: s.bfree,
        bavail: s.bavail,
        files: s.files,
        ffree: s.ffree,
        bsize: s.bsize,
        namelen: mds::NAME_MAX as u32,
        frsize: s.bsize,
    }
}
