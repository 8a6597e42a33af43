//! Copies a file's data to a volatile file (O_TMPFILE) and exchanges the objects, through system
//! calls on the mount.
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
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    time::Duration,
};

use rustix::{
    fs::{Mode, OFlags, XattrFlags, fgetxattr, fsetxattr, fstat, fsync, ftruncate, open},
    io::{Errno as Os, pread, pwrite},
    ioctl::{NoArg, Setter, Updater, ioctl as call},
};
use sheen_wire::{
    Errno, Fid, control,
    ioctl::{self, MigrateEnd, MigrateSeek},
};

use super::super::{
    fs::{not_sheen, parent_of},
    pace::Pace,
};

/// Bytes copied at a time.
const CHUNK_BYTES: usize = 4 << 20;
/// Most attempts at a copy, if programs write to the file meanwhile.
const TRIES: u32 = 5;
/// Pause before the second attempt. Each further pause is twice as long.
const PAUSE: Duration = Duration::from_millis(50);

/// Options of a migration.
#[derive(Clone, Debug)]
pub struct How {
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

impl Default for How {
    fn default() -> How {
        How { layout: None, block: false, direct: true, checksum: false, bandwidth: None }
    }
}

/// The step that failed, and the reason.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    /// The step in Lustre's words, such as `cannot open source file`.
    pub what: &'static str,
    /// The reason.
    pub errno: Errno,
}

type Done<T> = Result<T, Failure>;

fn failed<E: Into<io::Error>>(what: &'static str) -> impl Fn(E) -> Failure {
    move |e| Failure { what, errno: Errno::from(e.into()) }
}

/// Migrates a file. Calls `progress` with the bytes copied and the total bytes.
///
/// # Errors
/// EBUSY: programs wrote to the file during every attempt. Otherwise the errno of the failed system
/// call.
pub fn run(path: &Path, how: &How, progress: &mut dyn FnMut(u64, u64)) -> Done<()> {
    let direct = if how.direct { OFlags::DIRECT } else { OFlags::empty() };
    let source = open(path, OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOCTTY | direct, Mode::empty())
        .map_err(failed("cannot open source file"))?;
    let path = std::fs::canonicalize(path).map_err(failed("cannot open source file"))?;
    let fid = fid_of(&source).map_err(|errno| Failure { what: "cannot open source file", errno })?;
    let volatile = nameless(&path, how)?;
    let copy = Copy {
        source,
        fid: fid_of(&volatile).map_err(|errno| Failure { what: "cannot get the volatile file's FID", errno })?,
        volatile,
        how,
    };
    // A group id that no other program uses.
    let group = if how.block { fid.seq ^ u64::from(fid.oid) << 32 | 1 << 62 } else { 0 };
    if group != 0 {
        copy.group_lock(group).map_err(failed("cannot get group lock"))?;
    }
    let mut pause = PAUSE;
    for left in (0..TRIES).rev() {
        let sums = copy.bytes(progress)?;
        if how.checksum {
            copy.compare(&sums)?;
        }
        match copy.end(group) {
            Err(Os::BUSY) if left > 0 => {
                std::thread::sleep(pause);
                pause *= 2;
                ftruncate(&copy.volatile, 0).map_err(failed("cannot copy"))?;
            }
            done => return done.map_err(failed("cannot swap layout")),
        }
    }
    Ok(())
}

/// Creates the volatile file that receives the data.
fn nameless(path: &Path, how: &How) -> Done<OwnedFd> {
    let what = "cannot create volatile file";
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = open(parent_of(path), flags, Mode::RUSR | Mode::WUSR).map_err(failed(what))?;
    if let Some(layout) = &how.layout {
        fsetxattr(&file, "lustre.lov", layout, XattrFlags::REPLACE).map_err(failed(what))?;
    }
    Ok(file)
}

/// Returns the FID of an open file. ENOTTY: not on a Sheen mount.
pub fn fid_of(file: &OwnedFd) -> Result<Fid, Errno> {
    let mut text = [0; 64];
    let len = fgetxattr(file, control::FID, &mut text[..]).map_err(|e| not_sheen(Errno(e.raw_os_error())))?;
    std::str::from_utf8(&text[..len]).ok().and_then(|t| t.trim_end().parse().ok()).ok_or(Errno::ENOTTY)
}

struct Copy<'a> {
    source: OwnedFd,
    volatile: OwnedFd,
    /// FID of the volatile file.
    fid: Fid,
    how: &'a How,
}

/// Offset, length and hash of a piece of the file.
type Sum = (u64, usize, u64);

impl Copy<'_> {
    fn group_lock(&self, group: u64) -> Result<(), Os> {
        // SAFETY: the ioctl number encodes that the argument is read, and its size, which is that
        // of a `u64`.
        unsafe { call(&self.source, Setter::<{ ioctl::GROUP_LOCK }, u64>::new(group)) }
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

    /// Copies all data and makes the copy durable. Returns the checksums, if they are requested.
    fn bytes(&self, progress: &mut dyn FnMut(u64, u64)) -> Done<Vec<Sum>> {
        // SAFETY: the ioctl number encodes that there is no argument.
        unsafe { call(&self.source, NoArg::<{ ioctl::MIGRATE_BEGIN }>::new()) }.map_err(failed("cannot begin"))?;
        let total = fstat(&self.source).map_err(failed("cannot stat"))?.st_size as u64;
        let (mut sums, mut buffer, mut at) = (Vec::new(), vec![0; CHUNK_BYTES], 0);
        let mut pace = Pace::new(self.how.bandwidth);
        progress(0, total);
        while at < total {
            let data = match self.seek(at, false) {
                Ok(data) => data.min(total),
                Err(Os::NXIO) => break,
                Err(e) => return Err(failed("cannot read")(e)),
            };
            let hole = self.seek(data, true).map_or(total, |hole| hole.min(total));
            at = data;
            while at < hole {
                let len = buffer.len().min((hole - at) as usize);
                let got = pread(&self.source, &mut buffer[..len], at).map_err(failed("cannot read"))?;
                if got == 0 {
                    break; // truncated meanwhile: the servers will refuse the exchange
                }
                write_all(&self.volatile, &buffer[..got], at)?;
                if self.how.checksum {
                    sums.push((at, got, hash(&buffer[..got])));
                }
                at += got as u64;
                progress(at, total);
                pace.moved(got as u64, || progress(at, total));
            }
            if at < hole {
                break;
            }
        }
        ftruncate(&self.volatile, total).map_err(failed("cannot copy"))?;
        fsync(&self.volatile).map_err(failed("cannot sync"))?;
        progress(total, total);
        Ok(sums)
    }

    /// Reads the copy again and compares it with the checksums.
    fn compare(&self, sums: &[Sum]) -> Done<()> {
        let mut buffer = vec![0; CHUNK_BYTES];
        for &(at, len, sum) in sums {
            let mut got = 0;
            while got < len {
                match pread(&self.volatile, &mut buffer[got..len], at + got as u64).map_err(failed("cannot verify"))? {
                    0 => break,
                    more => got += more,
                }
            }
            if hash(&buffer[..got]) != sum {
                return Err(Failure { what: "the copy differs from the file", errno: Errno::EIO });
            }
        }
        Ok(())
    }

    /// Ends the migration: the file takes over the copy's objects.
    fn end(&self, group: u64) -> Result<(), Os> {
        let Fid { seq, oid, ver } = self.fid;
        let end = MigrateEnd { seq, oid, ver, group };
        // SAFETY: the ioctl number encodes that the argument is read, and its size, which is that
        // of `MigrateEnd`.
        unsafe { call(&self.source, Setter::<{ ioctl::MIGRATE_END }, MigrateEnd>::new(end)) }
    }
}

fn write_all(file: impl AsFd, mut bytes: &[u8], mut at: u64) -> Done<()> {
    while !bytes.is_empty() {
        let written = pwrite(&file, bytes, at).map_err(failed("cannot write"))?;
        if written == 0 {
            return Err(Failure { what: "cannot write", errno: Errno::EIO });
        }
        bytes = &bytes[written..];
        at += written as u64;
    }
    Ok(())
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}
