//! Directory entries, queried with as few system calls as their tests need.
//!
//! An entry is reached from its open directory, so the kernel looks up one name and not a path.
//! Only lgetxattr(2) needs a path, which goes through `/proc/self/fd`.

use std::{
    ffi::CStr,
    os::{
        fd::{AsRawFd, BorrowedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

use rustix::fs::{AtFlags, CWD, StatxFlags, StatxTimestamp};
use sheen_layout::lmv::LmvUser;
use sheen_wire::{Errno, Fid, FileKind, Result, Time, control, entries};

use super::facts::{Facts, Moment, Stat, Striping};
use crate::{os_errno, statx::with_type};

/// Bytes of a layout that are requested at first, enough for 160 stripes. The kernel clears a
/// buffer of this size, so a larger one costs time.
const VALUE_BYTES: usize = 4096;
/// Largest value of an extended attribute.
const VALUE_BYTES_MAX: usize = 65536;

/// How attributes are requested.
#[derive(Clone, Copy, Debug)]
pub struct Asking {
    mask: StatxFlags,
    flags: AtFlags,
    /// Whether attributes from the OSTs matter.
    sizes: bool,
}

impl Asking {
    /// Creates a request for attributes. `birth`: also for the creation time, which the kernel does
    /// not cache. `lazy`: cached attributes are accepted, however old they are.
    pub fn new(birth: bool, lazy: bool) -> Asking {
        let mask = if birth { StatxFlags::BASIC_STATS | StatxFlags::BTIME } else { StatxFlags::BASIC_STATS };
        Asking { mask, flags: if lazy { AtFlags::STATX_DONT_SYNC } else { AtFlags::empty() }, sizes: true }
    }

    /// Sets whether sizes and times of data matter. By default they do.
    pub fn with_sizes(self, sizes: bool) -> Asking {
        Asking { sizes, ..self }
    }
}

/// The location of an entry, and its type if known.
#[derive(Clone, Copy, Debug)]
pub struct EntryLocation<'a> {
    /// The directory in which `name` is looked up.
    pub at: BorrowedFd<'a>,
    /// The entry's name in that directory, or its path.
    pub name: &'a CStr,
    /// The part of the printed path before `name`.
    pub prefix: &'a [u8],
    /// The file type, if the directory returned it.
    pub kind: Option<FileKind>,
    /// Whether symbolic links are followed.
    pub follow: bool,
}

impl<'a> EntryLocation<'a> {
    /// Returns the location of a path.
    pub fn path(path: &'a CStr, kind: Option<FileKind>, follow: bool) -> EntryLocation<'a> {
        EntryLocation { at: CWD, name: path, prefix: b"", kind, follow }
    }
}

/// An entry, and its properties as far as they were fetched.
#[derive(Debug)]
pub struct Entry<'a> {
    location: EntryLocation<'a>,
    asking: Asking,
    /// Buffer for values of extended attributes, reused for the next entry.
    buffer: &'a mut Vec<u8>,
    stat: Option<Stat>,
    striping: Option<Striping>,
    dir_striping: Option<LmvUser>,
    /// FID and layout from the directory. The layout is empty if the entry has none.
    fid: Option<Fid>,
    layout: Option<&'a [u8]>,
}

impl<'a> Entry<'a> {
    /// Creates the entry at a location.
    pub fn new(location: EntryLocation<'a>, asking: Asking, buffer: &'a mut Vec<u8>) -> Entry<'a> {
        Entry { location, asking, buffer, stat: None, striping: None, dir_striping: None, fid: None, layout: None }
    }

    /// Adds what the directory returned about the entry. Attributes that are not complete enough
    /// are requested when they are needed.
    pub fn listed(self, listed: Option<&entries::Entry<'a>>) -> Entry<'a> {
        let Some(listed) = listed else { return self };
        let stat = listed.stat.filter(|_| listed.sized || !self.asking.sizes);
        let fid = listed.stat.map(|stat| stat.fid());
        Entry { stat: stat.map(stat_from_listing), fid, layout: listed.layout, ..self }
    }

    /// Reads an extended attribute into the buffer. Returns whether the attribute exists.
    fn fetch(&mut self, name: &str) -> Result<bool> {
        let path = match self.location.at.as_raw_fd() {
            fd if fd == CWD.as_raw_fd() => self.location.name.to_bytes().to_vec(),
            fd => [format!("/proc/self/fd/{fd}/").as_bytes(), self.location.name.to_bytes()].concat(),
        };
        self.buffer.resize(VALUE_BYTES, 0);
        loop {
            let got = match self.location.follow {
                true => rustix::fs::getxattr(&*path, name, &mut self.buffer[..]),
                false => rustix::fs::lgetxattr(&*path, name, &mut self.buffer[..]),
            };
            return match got.map_err(os_errno) {
                Ok(length) => {
                    self.buffer.truncate(length);
                    Ok(true)
                }
                Err(Errno::ERANGE) if self.buffer.len() < VALUE_BYTES_MAX => {
                    self.buffer.resize(VALUE_BYTES_MAX, 0);
                    continue;
                }
                Err(Errno::ENODATA | Errno::EOPNOTSUPP) => Ok(false),
                Err(e) => Err(e),
            };
        }
    }

    /// Returns a control attribute of the mount about the entry.
    fn control(&mut self, name: &str) -> Result<Option<String>> {
        Ok(self.fetch(name)?.then(|| String::from_utf8_lossy(self.buffer).trim_end().to_owned()))
    }
}

impl Facts for Entry<'_> {
    fn name(&self) -> &[u8] {
        let name = self.location.name.to_bytes();
        let end = name.iter().rposition(|b| *b != b'/').map_or(name.len().min(1), |last| last + 1);
        let start = name[..end].iter().rposition(|b| *b == b'/').filter(|slash| slash + 1 < end);
        &name[start.map_or(0, |slash| slash + 1)..end]
    }

    fn write_path(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.location.prefix);
        out.extend_from_slice(self.location.name.to_bytes());
    }

    fn kind(&mut self) -> Result<FileKind> {
        if let Some(kind) = self.location.kind {
            return Ok(kind);
        }
        let kind = FileKind::from_mode(self.stat()?.mode).ok_or(Errno::EINVAL)?;
        self.location.kind = Some(kind);
        Ok(kind)
    }

    fn stat(&mut self) -> Result<&Stat> {
        let stat = match self.stat.take() {
            Some(stat) => stat,
            None => {
                let link = if self.location.follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
                let ask = |flags| statx(self.location.at, self.location.name, flags, self.asking.mask);
                with_type(self.asking.flags | link, ask, |stat| stat.mode)?
            }
        };
        Ok(self.stat.insert(stat))
    }

    fn striping(&mut self) -> Result<&Striping> {
        let striping = match self.striping.take() {
            Some(striping) => striping,
            None => match self.kind()? {
                _ if self.layout.is_some_and(<[u8]>::is_empty) => Striping::None,
                _ if let Some(bytes) = self.layout => Striping::decode(bytes, false),
                kind @ (FileKind::Regular | FileKind::Dir) if self.fetch("lustre.lov")? => {
                    Striping::decode(self.buffer, kind == FileKind::Dir)
                }
                _ => Striping::None,
            },
        };
        Ok(self.striping.insert(striping))
    }

    fn dir_striping(&mut self) -> Result<Option<&LmvUser>> {
        if self.dir_striping.is_none() && self.kind()? == FileKind::Dir && self.fetch("lustre.lmv")? {
            self.dir_striping = LmvUser::decode(self.buffer).ok();
        }
        Ok(self.dir_striping.as_ref())
    }

    fn mdt(&mut self) -> Result<Option<u32>> {
        Ok(self.control(control::MDT)?.and_then(|text| text.parse().ok()))
    }

    fn fid(&mut self) -> Result<String> {
        let text = match self.fid {
            Some(fid) => fid.to_string(),
            None => self.control(control::FID)?.unwrap_or_default(),
        };
        Ok(text.trim_matches(['[', ']']).to_owned())
    }

    fn xattr(&mut self, name: &str) -> Result<Option<Vec<u8>>> {
        Ok(self.fetch(name)?.then(|| self.buffer.clone()))
    }
}

/// Returns the attributes of a path's target, with its creation time.
///
/// # Errors
/// The errno of statx(2).
pub fn stat_of(path: &Path) -> Result<Stat> {
    let Asking { mask, flags, .. } = Asking::new(true, false);
    statx(CWD, path.as_os_str().as_bytes(), flags, mask)
}

fn statx(at: BorrowedFd<'_>, name: impl rustix::path::Arg, flags: AtFlags, mask: StatxFlags) -> Result<Stat> {
    let st = rustix::fs::statx(at, name, flags, mask).map_err(os_errno)?;
    let moment = |t: StatxTimestamp| -> Moment { (t.tv_sec, t.tv_nsec) };
    Ok(Stat {
        mode: u32::from(st.stx_mode),
        ino: st.stx_ino,
        size: st.stx_size,
        blocks: st.stx_blocks,
        links: st.stx_nlink,
        uid: st.stx_uid,
        gid: st.stx_gid,
        attributes: st.stx_attributes.bits(),
        atime: moment(st.stx_atime),
        mtime: moment(st.stx_mtime),
        ctime: moment(st.stx_ctime),
        btime: (st.stx_mask & StatxFlags::BTIME.bits() != 0).then(|| moment(st.stx_btime)),
    })
}

/// Converts attributes that a directory returned.
fn stat_from_listing(stat: entries::Stat) -> Stat {
    let moment = |t: Time| -> Moment { (t.sec, t.nsec) };
    Stat {
        mode: stat.mode,
        ino: stat.fid().ino(),
        size: stat.size,
        blocks: stat.blocks,
        links: stat.nlink,
        uid: stat.uid,
        gid: stat.gid,
        attributes: 0,
        atime: moment(stat.atime()),
        mtime: moment(stat.mtime()),
        ctime: moment(stat.ctime()),
        btime: Some(moment(stat.btime())),
    }
}
