//! One function an operation, from the kernel's words to the client's.

use std::sync::Arc;

use bytes::Bytes;
use sheen_client::{Caller, OpenDir, OpenFile};
use sheen_fuse::{
    CopyFileRange, Create, DirBuffer, DirPlusBuffer, Op, Read, Request, SetAttr, StatFs, Statx, Write, abi,
};
use sheen_wire::{Bulk, Errno, Fid, Result, mds, mds::flags, ost::Seek};

use crate::{answer::Answer, node, serve::Inner};

/// How files are opened: past the kernel's page cache, writers side by side, no FLUSH (nothing is held back at a close).
const OPEN_FLAGS: u32 =
    abi::flags::fopen::DIRECT_IO | abi::flags::fopen::PARALLEL_DIRECT_WRITES | abi::flags::fopen::NOFLUSH;
/// O_NOCTTY, O_NOFOLLOW, O_CLOEXEC and the like mean nothing to a server: what it is told.
const SERVER_FLAGS: u32 = flags::ACCMODE
    | flags::TRUNC
    | flags::APPEND
    | flags::SYNC
    | flags::DIRECT
    | flags::DIRECTORY
    | flags::EXCL
    | flags::CREAT
    | flags::EXEC;
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

/// Does what a request asks for.
pub async fn run(fs: Arc<Inner>, request: Request) -> Result<Answer> {
    let Request { header: h, op } = request;
    let who = Caller::new(h.uid, h.gid, h.pid);
    let fid = node::fid(h.nodeid);
    let client = &fs.client;
    match op {
        Op::Lookup { name } => client.lookup(&who, fid, &name).await.map(|e| Answer::Entry(node::entry(&e))),
        Op::Forget(_) => Ok(Answer::None),
        Op::GetAttr { fh } => getattr(&fs, fid, fh).await.map(|e| Answer::Attr(node::attr(&e))),
        Op::Statx { fh, .. } => {
            let e = getattr(&fs, fid, fh).await?;
            let btime = Some(e.attr.btime);
            Ok(Answer::Statx(Statx { attr: node::attr(&e), btime, attributes: 0, attributes_mask: 0 }))
        }
        Op::SetAttr(set) => setattr(&fs, &who, fid, &set).await,
        Op::ReadLink => client.readlink(fid).await.map(Answer::ReadLink),
        Op::Symlink { name, target } => {
            client.symlink(&who, fid, &name, &target).await.map(|e| Answer::Entry(node::entry(&e)))
        }
        Op::Mknod { name, mode, rdev, umask } => {
            client.mknod(&who, fid, &name, mode, rdev, umask).await.map(|e| Answer::Entry(node::entry(&e)))
        }
        Op::Mkdir { name, mode, umask } => {
            client.mkdir(&who, fid, &name, mode, umask).await.map(|e| Answer::Entry(node::entry(&e)))
        }
        Op::Unlink { name } => client.unlink(&who, fid, &name).await.map(|()| Answer::Ok),
        Op::Rmdir { name } => client.rmdir(&who, fid, &name).await.map(|()| Answer::Ok),
        Op::Rename { name, new_parent, new_name, flags } => {
            let to = node::fid(new_parent);
            client.rename(&who, fid, &name, to, &new_name, flags).await.map(|()| Answer::Ok)
        }
        Op::Link { target, name } => {
            let target = node::fid(target);
            client.link(&who, target, fid, &name).await.map(|e| Answer::Entry(node::entry(&e)))
        }
        Op::Open { flags, .. } => {
            let file = client.open(&who, fid, flags & SERVER_FLAGS).await?;
            Ok(Answer::Open { fh: fs.files.insert(file), flags: OPEN_FLAGS })
        }
        Op::Create(c) => create(&fs, &who, fid, &c).await,
        Op::TmpFile(c) => {
            let flags = c.flags & SERVER_FLAGS & !flags::DIRECTORY;
            let (e, file) = client.tmpfile(&who, fid, flags, c.mode, c.umask).await?;
            Ok(Answer::Create { entry: node::entry(&e), fh: fs.files.insert(file), flags: OPEN_FLAGS })
        }
        Op::Read(read) => {
            let file = fs.file(read.fh)?;
            client.read(&file, read.offset, read.size as usize).await.map(Answer::Data)
        }
        Op::Write(w) => write(&fs, &who, *w).await,
        Op::Release { fh, .. } => match fs.files.remove(fh) {
            Some(file) => client.release(file).await.map(|()| Answer::Ok),
            None => Err(Errno::EBADF),
        },
        Op::Fsync { fh, datasync } => client.fsync(&*fs.file(fh)?, datasync).await.map(|()| Answer::Ok),
        Op::OpenDir { flags } => {
            let dir = client.opendir(&who, fid, flags & SERVER_FLAGS).await?;
            Ok(Answer::OpenDir { fh: fs.dirs.insert(dir) })
        }
        Op::ReadDir(read) => readdir(&fs, read).await,
        Op::ReadDirPlus(read) => readdir_plus(&fs, read).await,
        Op::ReleaseDir { fh, .. } => match fs.dirs.remove(fh) {
            Some(dir) => client.releasedir(dir).await.map(|()| Answer::Ok),
            None => Err(Errno::EBADF),
        },
        Op::FsyncDir { fh, .. } => fsyncdir(&fs, fh).await.map(|()| Answer::Ok),
        Op::StatFs => client.statfs().await.map(|s| Answer::StatFs(statfs(&s))),
        Op::SyncFs => client.syncfs().await.map(|()| Answer::Ok),
        Op::SetXattr { name, value, flags, .. } => {
            client.setxattr(&who, fid, &name, &value, flags).await.map(|()| Answer::Ok)
        }
        Op::GetXattr { name, size } => sized(client.getxattr(&who, fid, &name).await?, size),
        Op::ListXattr { size } => {
            let names = client.listxattr(&who, fid).await?;
            let mut list = Vec::with_capacity(names.iter().map(|n| n.len() + 1).sum());
            for name in names {
                list.extend_from_slice(&name);
                list.push(0);
            }
            sized(list.into(), size)
        }
        Op::RemoveXattr { name } => client.removexattr(&who, fid, &name).await.map(|()| Answer::Ok),
        Op::Access { mask } => client.access(&who, fid, mask).await.map(|()| Answer::Ok),
        Op::Fallocate { fh, offset, length, mode } => {
            client.fallocate(&*fs.file(fh)?, mode, offset, length).await.map(|()| Answer::Ok)
        }
        Op::Lseek { fh, offset, whence } => {
            let what = match whence {
                SEEK_DATA => Seek::Data,
                SEEK_HOLE => Seek::Hole,
                _ => return Err(Errno::EINVAL),
            };
            client.lseek(&*fs.file(fh)?, offset, what).await.map(Answer::Offset)
        }
        Op::CopyFileRange(c) => copy(&fs, &c).await,
        Op::Ioctl(_) => Err(Errno::ENOTTY),
        // The kernel then does it itself, or tells the program that it cannot be done: FLUSH (nothing is held back),
        // locks (local to the mount until Sheen's own arrive), BMAP, POLL (files are always ready).
        _ => Err(Errno::ENOSYS),
    }
}

impl Inner {
    fn file(&self, fh: u64) -> Result<Arc<OpenFile>> {
        self.files.get(fh).ok_or(Errno::EBADF)
    }

    fn dir(&self, fh: u64) -> Result<Arc<OpenDir>> {
        self.dirs.get(fh).ok_or(Errno::EBADF)
    }
}

/// The kernel does not tell an ordinary FUSE file system of sync(2) and syncfs(2) (only virtiofs is told), so fsync of the
/// root directory stands for them: `sync MOUNTPOINT` makes everything durable.
async fn fsyncdir(fs: &Inner, fh: u64) -> Result<()> {
    let dir = fs.dir(fh)?;
    if dir.fid() == fs.client.root() { fs.client.syncfs().await } else { fs.client.fsyncdir(&dir).await }
}

async fn getattr(fs: &Inner, fid: Fid, fh: Option<u64>) -> Result<sheen_client::EntryAttr> {
    let file = fh.and_then(|fh| fs.files.get(fh));
    fs.client.getattr(fid, file.as_deref()).await
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
    let e = fs.client.setattr(who, fid, change, file.as_deref()).await?;
    Ok(Answer::Attr(node::attr(&e)))
}

async fn create(fs: &Inner, who: &Caller, parent: Fid, c: &Create) -> Result<Answer> {
    let flags = c.flags & SERVER_FLAGS | flags::CREAT;
    let (e, file) = fs.client.create(who, parent, &c.name, flags, c.mode, c.umask).await?;
    Ok(Answer::Create { entry: node::entry(&e), fh: fs.files.insert(file), flags: OPEN_FLAGS })
}

async fn write(fs: &Inner, who: &Caller, w: Write) -> Result<Answer> {
    let file = fs.file(w.fh)?;
    if w.kill_suidgid {
        fs.client.kill_priv(who, &file).await?;
    }
    // Pages of a mapping belong where they are, whatever the flags of the file that the kernel happens to name.
    let append = !w.cached && w.flags & flags::APPEND != 0;
    let sync = w.flags & flags::DSYNC != 0;
    let n = fs.client.write_as(&file, w.offset, Bulk::from(w.data), append, sync).await?;
    Ok(Answer::Written(n as u32))
}

async fn readdir(fs: &Inner, read: Read) -> Result<Answer> {
    let dir = fs.dir(read.fh)?;
    let page = fs.client.readdir(&dir, read.offset, read.size, false).await?;
    let mut buffer = DirBuffer::new(read.size);
    for item in page.entries {
        if buffer.add(item.fid.ino(), item.cookie, item.kind, &item.name) {
            break;
        }
    }
    Ok(Answer::Dir(buffer))
}

async fn readdir_plus(fs: &Inner, read: Read) -> Result<Answer> {
    let dir = fs.dir(read.fh)?;
    let page = fs.client.readdir(&dir, read.offset, read.size, true).await?;
    let mut buffer = DirPlusBuffer::new(read.size);
    for item in page.entries {
        let full = match &item.attr {
            Some(e) => buffer.add(&node::entry(e), item.cookie, &item.name),
            None => buffer.add_bare(item.fid.ino(), item.cookie, item.kind, &item.name),
        };
        if full {
            break;
        }
    }
    Ok(Answer::DirPlus(buffer))
}

async fn copy(fs: &Inner, c: &CopyFileRange) -> Result<Answer> {
    if c.flags != 0 {
        return Err(Errno::EINVAL);
    }
    let (from, to) = (fs.file(c.fh_in)?, fs.file(c.fh_out)?);
    let n = fs.client.copy_file_range(&from, c.offset_in, &to, c.offset_out, c.len).await?;
    Ok(Answer::Copied(n))
}

/// An extended attribute into the room that the program has.
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
