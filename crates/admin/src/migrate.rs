//! Migration of a file to new objects while programs use it.
//!
//! The data is copied to a volatile file (O_TMPFILE) in the same directory. Then the file takes
//! over the copy's objects. Everything goes through system calls on the mount.
//!
//! Invariants:
//! * The file takes over the copy's objects only if no program has written to it since before the
//!   copy began. The servers check that ([`ioctl::MIGRATE_BEGIN`], [`ioctl::MIGRATE_END`]).
//!   Otherwise the copy starts over.
//! * The copy is durable before the exchange.
//! * Holes stay holes, and the size stays the same. Owner, mode, times and names of the file do not
//!   change.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    os::fd::OwnedFd,
    path::Path,
    time::Duration,
};

use rustix::{
    fs::{Mode, OFlags, fstat, fsync, ftruncate, open},
    io::{Errno as Os, pread, pwrite},
    ioctl::{NoArg, Setter, Updater, ioctl as call},
};
use sheen_wire::{
    Errno, Fid,
    ioctl::{self, MigrateEnd, MigrateSeek},
};

use crate::{
    Failure, Step,
    attributes::{fid_of, replace_layout},
    copy::{CHUNK_BYTES, Transfer, copy_data},
    open_file, os_errno,
    paths::parent_of,
    progress::Progress,
};

/// Most attempts at a copy, if programs write to the file meanwhile.
const TRIES: u32 = 5;
/// Pause before the second attempt. Each further pause is twice as long.
const PAUSE: Duration = Duration::from_millis(50);

/// Options of a migration.
#[derive(Clone, Debug)]
pub struct MigrateOptions {
    /// The requested layout as a value of `lustre.lov`; `None`: the default.
    pub layout: Option<Vec<u8>>,
    /// Writers wait during the copy.
    pub block: bool,
    /// Bypass the kernel's page cache.
    pub direct: bool,
    /// Read the copy again and compare its checksums with those of the file.
    pub checksum: bool,
    /// Bandwidth limit in bytes per second.
    pub bandwidth: Option<u64>,
}

impl Default for MigrateOptions {
    fn default() -> MigrateOptions {
        MigrateOptions { layout: None, block: false, direct: true, checksum: false, bandwidth: None }
    }
}

type Done<T> = Result<T, Failure>;

/// Migrates a file. After the exchange, only the first mirror of a new layout with mirrors has the
/// data.
///
/// # Errors
/// EBUSY: programs wrote to the file during every attempt. Otherwise the errno of the failed system
/// call.
pub fn migrate(path: &Path, options: &MigrateOptions, progress: &mut dyn FnMut(Progress)) -> Done<()> {
    let mut copy = Copy::begin(path, options)?;
    // A group id that no other program uses.
    let fid = copy.source_fid;
    let group = if options.block { fid.seq ^ u64::from(fid.oid) << 32 | 1 << 62 } else { 0 };
    if group != 0 {
        open_file::group_lock(&copy.source, group).map_err(|errno| Failure::new(Step::LockGroup, path, errno))?;
    }
    let mut pause = PAUSE;
    for left in (0..TRIES).rev() {
        copy.bytes(progress)?;
        copy.compare()?;
        match copy.end(group) {
            Err(Os::BUSY) if left > 0 => {
                std::thread::sleep(pause);
                pause *= 2;
                ftruncate(&copy.volatile, 0).map_err(copy.failed(Step::Resize))?;
            }
            done => return done.map_err(copy.failed(Step::Swap)),
        }
    }
    Ok(())
}

/// Creates the volatile file that receives the data. `path`: the file without symbolic links.
fn create_volatile(path: &Path, layout: Option<&[u8]>) -> sheen_wire::Result<OwnedFd> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = open(parent_of(path), flags, Mode::RUSR | Mode::WUSR).map_err(os_errno)?;
    if let Some(layout) = layout {
        replace_layout(&file, layout)?;
    }
    Ok(file)
}

struct Copy<'a> {
    /// The file's path, for failures.
    path: &'a Path,
    source: OwnedFd,
    source_fid: Fid,
    volatile: OwnedFd,
    volatile_fid: Fid,
    options: &'a MigrateOptions,
    /// Of the last attempt, if they are requested.
    sums: Vec<Sum>,
}

/// Offset, length and hash of a piece of the file.
type Sum = (u64, usize, u64);

impl<'a> Copy<'a> {
    /// Opens the file and creates the volatile file.
    fn begin(path: &'a Path, options: &'a MigrateOptions) -> Done<Copy<'a>> {
        let direct = if options.direct { OFlags::DIRECT } else { OFlags::empty() };
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOCTTY | direct;
        let source = open(path, flags, Mode::empty()).map_err(Failure::of(Step::OpenSource, path))?;
        let resolved = std::fs::canonicalize(path).map_err(Failure::of(Step::OpenSource, path))?;
        let source_fid = fid_of(&source).map_err(|errno| Failure::new(Step::OpenSource, path, errno))?;
        let volatile = create_volatile(&resolved, options.layout.as_deref())
            .map_err(|errno| Failure::new(Step::CreateVolatile, path, errno))?;
        let volatile_fid = fid_of(&volatile).map_err(|errno| Failure::new(Step::IdentifyVolatile, path, errno))?;
        Ok(Copy { path, source, source_fid, volatile, volatile_fid, options, sums: Vec::new() })
    }

    /// Returns a function that makes a failure of an error.
    fn failed(&self, step: Step) -> impl Fn(Os) -> Failure {
        Failure::of(step, self.path)
    }

    /// Returns the offset of the next data, or of the next hole.
    fn seek(&self, offset: u64, hole: bool) -> Result<u64, Os> {
        let mut seek = MigrateSeek { offset, hole: hole.into() };
        // SAFETY: the ioctl number encodes that the argument is read and written, and its size,
        // which is that of `MigrateSeek`.
        let ask = unsafe { Updater::<{ ioctl::MIGRATE_SEEK }, MigrateSeek>::new(&mut seek) };
        // SAFETY: as above.
        unsafe { call(&self.source, ask) }?;
        Ok(seek.offset)
    }

    /// Copies all data and makes the copy durable.
    fn bytes(&mut self, progress: &mut dyn FnMut(Progress)) -> Done<()> {
        // SAFETY: the ioctl number encodes that there is no argument.
        unsafe { call(&self.source, NoArg::<{ ioctl::MIGRATE_BEGIN }>::new()) }
            .map_err(self.failed(Step::BeginMigration))?;
        let total = fstat(&self.source).map_err(self.failed(Step::Stat))?.st_size as u64;
        self.sums.clear();
        progress(Progress::Begin { total });
        // If a program truncates the file meanwhile, the servers will refuse the exchange.
        copy_data(self, total, self.options.bandwidth, progress)?;
        ftruncate(&self.volatile, total).map_err(self.failed(Step::Resize))?;
        fsync(&self.volatile).map_err(self.failed(Step::Sync))?;
        progress(Progress::End { total });
        Ok(())
    }

    fn write_all(&self, mut bytes: &[u8], mut at: u64) -> Done<()> {
        while !bytes.is_empty() {
            let written = pwrite(&self.volatile, bytes, at).map_err(self.failed(Step::Write))?;
            if written == 0 {
                return Err(Failure::new(Step::Write, self.path, Errno::EIO));
            }
            bytes = &bytes[written..];
            at += written as u64;
        }
        Ok(())
    }

    /// Reads the copy again and compares it with the checksums.
    fn compare(&self) -> Done<()> {
        let mut buffer = vec![0; CHUNK_BYTES];
        for &(at, len, sum) in &self.sums {
            let mut got = 0;
            while got < len {
                match pread(&self.volatile, &mut buffer[got..len], at + got as u64)
                    .map_err(self.failed(Step::ReadCopy))?
                {
                    0 => break,
                    more => got += more,
                }
            }
            if hash(&buffer[..got]) != sum {
                return Err(Failure::new(Step::CompareCopy, self.path, Errno::EIO));
            }
        }
        Ok(())
    }

    /// Ends the migration: the file takes over the copy's objects.
    fn end(&self, group: u64) -> Result<(), Os> {
        let Fid { seq, oid, ver } = self.volatile_fid;
        let end = MigrateEnd { seq, oid, ver, group };
        // SAFETY: the ioctl number encodes that the argument is read, and its size, which is that
        // of `MigrateEnd`.
        unsafe { call(&self.source, Setter::<{ ioctl::MIGRATE_END }, MigrateEnd>::new(end)) }
    }
}

impl Transfer for Copy<'_> {
    type Error = Failure;

    fn data(&mut self, at: u64) -> Done<Option<(u64, u64)>> {
        match self.seek(at, false) {
            Ok(data) => Ok(Some((data, self.seek(data, true).unwrap_or(u64::MAX)))),
            Err(Os::NXIO) => Ok(None),
            Err(e) => Err(self.failed(Step::Read)(e)),
        }
    }

    fn read(&mut self, buffer: &mut [u8], at: u64) -> Done<usize> {
        pread(&self.source, buffer, at).map_err(self.failed(Step::Read))
    }

    fn write(&mut self, bytes: &[u8], at: u64) -> Done<()> {
        self.write_all(bytes, at)?;
        if self.options.checksum {
            self.sums.push((at, bytes.len(), hash(bytes)));
        }
        Ok(())
    }
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}
