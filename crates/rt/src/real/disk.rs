//! Files of the host, through the kernel's page cache.

use std::{
    ffi::OsString,
    fs,
    io::{self, IoSlice, IoSliceMut},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use rustix::{
    fs::{
        FallocateFlags, FlockOperation, OFlags, SeekFrom, Timespec, Timestamps, UTIME_OMIT, XattrFlags, fallocate,
        fgetxattr, flock, fremovexattr, fsetxattr, futimens,
    },
    io::Errno,
};
use sheen_wire::{
    FileKind, StatFs, Time,
    ost::{Allocate, Seek},
};
use tokio::runtime::Handle;

use super::{blocking, lease::Lease, mount_id};
use crate::metadata::{ATTR_BYTES_MAX, DirEntry, DirEntryKind, Metadata, OpenOptions};

/// Maximum number of buffers in one system call. The list is on the stack, and longer lists gain
/// nothing (the kernel's limit is 1024).
const VECTORS: usize = 64;

#[derive(Clone)]
pub(crate) struct Disk {
    handle: Handle,
    lease: Arc<Lease>,
}

impl Disk {
    pub(crate) fn new(handle: Handle, lease: Arc<Lease>) -> Disk {
        Disk { handle, lease }
    }

    fn file(&self, fd: fs::File) -> File {
        File { fd: Arc::new(fd), handle: self.handle.clone(), lease: self.lease.clone() }
    }

    pub(crate) fn open(&self, path: &Path, o: OpenOptions) -> io::Result<File> {
        if o.create || o.create_new || o.truncate {
            self.lease.check()?;
        }
        let flags = if o.direct { OFlags::DIRECT.bits() as i32 } else { 0 };
        let file = fs::OpenOptions::new()
            .read(o.read)
            .write(o.write)
            .create(o.create)
            .create_new(o.create_new)
            .truncate(o.truncate)
            .custom_flags(flags)
            .open(path)?;
        Ok(self.file(file))
    }

    pub(crate) fn open_append(&self, path: &Path) -> io::Result<File> {
        self.lease.check()?;
        let file = fs::OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        Ok(self.file(file))
    }

    pub(crate) fn open_dir(&self, path: &Path) -> io::Result<OpenDir> {
        let flags = OFlags::DIRECTORY.bits() as i32;
        let dir = fs::OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        Ok(OpenDir { fd: Arc::new(dir), handle: self.handle.clone(), lease: self.lease.clone() })
    }

    pub(crate) fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.lease.check()?;
        fs::create_dir_all(path)
    }

    pub(crate) fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.lease.check()?;
        fs::remove_file(path)
    }

    pub(crate) fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.lease.check()?;
        fs::remove_dir_all(path)
    }

    pub(crate) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.lease.check()?;
        fs::rename(from, to)
    }

    pub(crate) fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.lease.check()?;
        fs::hard_link(from, to)
    }

    pub(crate) fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        fs::read_dir(path)?
            .map(|entry| {
                let entry = entry?;
                let kind = match entry.file_type()? {
                    t if t.is_file() => DirEntryKind::File,
                    t if t.is_dir() => DirEntryKind::Dir,
                    _ => DirEntryKind::Other,
                };
                Ok(DirEntry { name: entry.file_name(), kind })
            })
            .collect()
    }

    pub(crate) fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        metadata(&fs::metadata(path)?)
    }

    pub(crate) fn statvfs(&self, path: &Path) -> io::Result<StatFs> {
        Ok(space(&rustix::fs::statvfs(path)?))
    }

    pub(crate) fn device(&self, path: &Path) -> io::Result<u64> {
        Ok(fs::metadata(path)?.dev())
    }

    pub(crate) fn mount_id(&self, path: &Path) -> io::Result<u64> {
        mount_id::of(path)
    }

    pub(crate) fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        fs::read(path)
    }

    pub(crate) fn write_atomic(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let (dir, tmp) = temporary(path)?;
        self.lease.check()?;
        let file = fs::File::create(&tmp)?;
        io::Write::write_all(&mut &file, content)?;
        file.sync_all()?;
        // The sync may have taken long.
        self.lease.check()?;
        fs::rename(&tmp, path)?;
        fs::File::open(dir)?.sync_all()
    }

    pub(crate) async fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let (dir, lease) = (fs::File::open(path)?, self.lease.clone());
        blocking(&self.handle, move || lease.check().and_then(|()| dir.sync_all())).await
    }

    pub(crate) async fn sync_fs(&self, path: &Path) -> io::Result<()> {
        let (any, lease) = (fs::File::open(path)?, self.lease.clone());
        blocking(&self.handle, move || sync_fs(&any, &lease)).await
    }

    pub(crate) fn try_lock(&self, path: &Path) -> io::Result<fs::File> {
        let file = fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(file)
    }
}

/// Syncs the file system of an open file or directory.
fn sync_fs(any: &fs::File, lease: &Lease) -> io::Result<()> {
    lease.check()?;
    Ok(rustix::fs::syncfs(any)?)
}

fn space(s: &rustix::fs::StatVfs) -> StatFs {
    StatFs {
        bsize: u32::try_from(s.f_frsize).unwrap_or(u32::MAX),
        blocks: s.f_blocks,
        bfree: s.f_bfree,
        bavail: s.f_bavail,
        files: s.f_files,
        ffree: s.f_ffree,
        state: 0,
    }
}

#[derive(Clone)]
pub(crate) struct OpenDir {
    fd: Arc<fs::File>,
    handle: Handle,
    lease: Arc<Lease>,
}

impl OpenDir {
    pub(crate) fn statvfs(&self) -> io::Result<StatFs> {
        Ok(space(&rustix::fs::fstatvfs(&*self.fd)?))
    }

    pub(crate) async fn sync_fs(&self) -> io::Result<()> {
        let (fd, lease) = (self.fd.clone(), self.lease.clone());
        blocking(&self.handle, move || sync_fs(&fd, &lease)).await
    }

    pub(crate) fn is_removed(&self) -> bool {
        match rustix::fs::fstat(&*self.fd) {
            Ok(found) => found.st_nlink == 0,
            // NFS reports a removed directory this way. Other errors prove nothing.
            Err(e) => e == Errno::STALE,
        }
    }
}

/// Returns the directory of `path` and the path of the temporary file in it.
pub(crate) fn temporary(path: &Path) -> io::Result<(PathBuf, PathBuf)> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let dir = match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => p.to_owned(),
        _ => PathBuf::from("."),
    };
    let mut tmp = OsString::from(".");
    tmp.push(name);
    tmp.push(".tmp");
    let tmp = dir.join(tmp);
    Ok((dir, tmp))
}

fn metadata(m: &fs::Metadata) -> io::Result<Metadata> {
    Ok(Metadata {
        len: m.size(),
        blocks512: m.blocks(),
        mtime: Time { sec: m.mtime(), nsec: m.mtime_nsec() as u32 },
        kind: FileKind::from_mode(m.mode()).ok_or(io::ErrorKind::InvalidData)?,
    })
}

#[derive(Clone)]
pub(crate) struct File {
    fd: Arc<fs::File>,
    handle: Handle,
    lease: Arc<Lease>,
}

impl File {
    pub(crate) fn fd(&self) -> &fs::File {
        &self.fd
    }

    pub(crate) fn read_vectored_at(&self, mut offset: u64, mut bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let want: usize = bufs.iter().map(|b| b.len()).sum();
        let mut done = 0;
        while done < want {
            let now = bufs.len().min(VECTORS);
            let n = match rustix::io::preadv(&*self.fd, &mut bufs[..now], offset) {
                Ok(0) => break,
                Ok(n) => n,
                Err(Errno::INTR) => continue,
                Err(e) => return Err(e.into()),
            };
            done += n;
            offset += n as u64;
            IoSliceMut::advance_slices(&mut bufs, n);
        }
        Ok(done)
    }

    pub(crate) fn write_all_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.write_slices(offset, &mut [IoSlice::new(buf)]).map(|_| ())
    }

    pub(crate) fn write_all_vectored_at(&self, mut offset: u64, bufs: &[Bytes]) -> io::Result<()> {
        for chunk in bufs.chunks(VECTORS) {
            let mut slices = [IoSlice::new(&[]); VECTORS];
            for (slice, bytes) in slices.iter_mut().zip(chunk) {
                *slice = IoSlice::new(bytes);
            }
            offset = self.write_slices(offset, &mut slices[..chunk.len()])?;
        }
        Ok(())
    }

    pub(crate) fn append(&self, buf: &[u8]) -> io::Result<()> {
        self.lease.check()?;
        io::Write::write_all(&mut &*self.fd, buf)
    }

    /// Writes all of the slices. Returns the offset after them.
    fn write_slices(&self, mut offset: u64, mut slices: &mut [IoSlice<'_>]) -> io::Result<u64> {
        let mut left: usize = slices.iter().map(|s| s.len()).sum();
        while left > 0 {
            self.lease.check()?;
            let n = match rustix::io::pwritev(&*self.fd, slices, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => n,
                Err(Errno::INTR) => continue,
                Err(e) => return Err(e.into()),
            };
            left -= n;
            offset += n as u64;
            IoSlice::advance_slices(&mut slices, n);
        }
        Ok(offset)
    }

    pub(crate) fn set_len(&self, len: u64) -> io::Result<()> {
        self.lease.check()?;
        self.fd.set_len(len)
    }

    pub(crate) fn allocate(&self, mode: Allocate, offset: u64, len: u64) -> io::Result<()> {
        let keep = |keep_size| if keep_size { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
        const PUNCH: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);
        let call = |flags| retry(|| fallocate(&*self.fd, flags, offset, len));
        self.lease.check()?;
        match mode {
            Allocate::Reserve { keep_size } => call(keep(keep_size))?,
            Allocate::PunchHole => call(PUNCH)?,
            Allocate::ZeroRange { keep_size } => match call(FallocateFlags::ZERO_RANGE | keep(keep_size)) {
                Err(Errno::OPNOTSUPP) => {
                    call(PUNCH)?;
                    call(keep(keep_size))?;
                }
                other => other?,
            },
        }
        Ok(())
    }

    pub(crate) fn seek(&self, what: Seek, offset: u64) -> io::Result<Option<u64>> {
        // Moves the descriptor's own file position, which is never used.
        let from = match what {
            Seek::Data => SeekFrom::Data(offset),
            Seek::Hole => SeekFrom::Hole(offset),
        };
        match rustix::fs::seek(&*self.fd, from) {
            Ok(at) => Ok(Some(at)),
            Err(Errno::NXIO) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    pub(crate) fn metadata(&self) -> io::Result<Metadata> {
        metadata(&self.fd.metadata()?)
    }

    pub(crate) fn set_mtime(&self, mtime: Time) -> io::Result<()> {
        let times = Timestamps {
            last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
            last_modification: Timespec { tv_sec: mtime.sec, tv_nsec: mtime.nsec.into() },
        };
        self.lease.check()?;
        Ok(futimens(&*self.fd, &times)?)
    }

    pub(crate) fn attr(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let mut value = [0; ATTR_BYTES_MAX];
        match retry(|| fgetxattr(&*self.fd, name, &mut value[..])) {
            Ok(len) => Ok(Some(value[..len].to_vec())),
            Err(Errno::NODATA | Errno::RANGE | Errno::OPNOTSUPP) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    pub(crate) fn set_attr(&self, name: &str, value: &[u8]) -> io::Result<()> {
        self.lease.check()?;
        Ok(retry(|| fsetxattr(&*self.fd, name, value, XattrFlags::empty()))?)
    }

    pub(crate) fn remove_attr(&self, name: &str) -> io::Result<()> {
        self.lease.check()?;
        match retry(|| fremovexattr(&*self.fd, name)) {
            Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
            other => Ok(other?),
        }
    }

    pub(crate) async fn sync_data(&self) -> io::Result<()> {
        let (fd, lease) = (self.fd.clone(), self.lease.clone());
        blocking(&self.handle, move || lease.check().and_then(|()| fd.sync_data())).await
    }

    pub(crate) fn sync_data_blocking(&self) -> io::Result<()> {
        self.lease.check()?;
        self.fd.sync_data()
    }

    pub(crate) fn drop_cached(&self) -> io::Result<()> {
        Ok(rustix::fs::fadvise(&*self.fd, 0, None, rustix::fs::Advice::DontNeed)?)
    }
}

fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}
