//! Entries of directories, asked by as few system calls as their tests need.
//!
//! An entry is reached from the open directory that it lies in, so the kernel looks up one name and
//! not a path. The one call that takes paths alone, lgetxattr(2), goes through `/proc/self/fd`.

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

use super::super::fs::with_type;
use super::facts::{Facts, Moment, Stat, Striping};

/// Bytes of a layout that are asked for at first, enough for 160 stripes: the kernel clears as much
/// memory as is offered.
const VALUE_BYTES: usize = 4096;
/// Largest value of an extended attribute.
const VALUE_BYTES_MAX: usize = 65536;

/// How attributes are asked for.
#[derive(Clone, Copy, Debug)]
pub struct Asking {
    mask: StatxFlags,
    flags: AtFlags,
    /// Whether what the OSTs know matters.
    sizes: bool,
}

impl Asking {
    /// `birth`: when files were created is asked for too, which the kernel does not keep. `lazy`:
    /// what the kernel has will do, however old it is.
    pub fn new(birth: bool, lazy: bool) -> Asking {
        let mask = if birth { StatxFlags::BASIC_STATS | StatxFlags::BTIME } else { StatxFlags::BASIC_STATS };
        Asking { mask, flags: if lazy { AtFlags::STATX_DONT_SYNC } else { AtFlags::empty() }, sizes: true }
    }

    /// Whether sizes and times of data matter; they do if nothing is said.
    pub fn with_sizes(self, sizes: bool) -> Asking {
        Asking { sizes, ..self }
    }
}

/// What is known of an entry to begin with.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The directory from which `name` leads to it.
    pub at: BorrowedFd<'a>,
    /// Its name there, or its path.
    pub name: &'a CStr,
    /// What its printed path has before `name`.
    pub prefix: &'a [u8],
    /// What it is, if the directory told.
    pub kind: Option<FileKind>,
    /// Whether a symbolic link counts as what it leads to.
    pub follow: bool,
}

impl<'a> Place<'a> {
    /// What a path leads to.
    pub fn path(path: &'a CStr, kind: Option<FileKind>, follow: bool) -> Place<'a> {
        Place { at: CWD, name: path, prefix: b"", kind, follow }
    }
}

/// An entry, and what was learned of it so far.
pub struct Entry<'a> {
    place: Place<'a>,
    asking: Asking,
    /// For values of extended attributes; used again for the next entry.
    buffer: &'a mut Vec<u8>,
    stat: Option<Stat>,
    striping: Option<Striping>,
    dir_striping: Option<LmvUser>,
    /// What its directory told: which file it is, and the bytes of its layout, none if it has none.
    fid: Option<Fid>,
    layout: Option<&'a [u8]>,
}

impl<'a> Entry<'a> {
    /// The entry at a place.
    pub fn new(place: Place<'a>, asking: Asking, buffer: &'a mut Vec<u8>) -> Entry<'a> {
        Entry { place, asking, buffer, stat: None, striping: None, dir_striping: None, fid: None, layout: None }
    }

    /// With what its directory told. Attributes that are not complete enough are asked for when
    /// they are needed.
    pub fn told(self, told: Option<&entries::Entry<'a>>) -> Entry<'a> {
        let Some(told) = told else { return self };
        let stat = told.stat.filter(|_| told.sized || !self.asking.sizes);
        Entry { stat: stat.map(stat_told), fid: told.stat.map(|stat| stat.fid()), layout: told.layout, ..self }
    }

    /// An extended attribute into the buffer; whether there is one.
    fn fetch(&mut self, name: &str) -> Result<bool> {
        let path = match self.place.at.as_raw_fd() {
            fd if fd == CWD.as_raw_fd() => self.place.name.to_bytes().to_vec(),
            fd => [format!("/proc/self/fd/{fd}/").as_bytes(), self.place.name.to_bytes()].concat(),
        };
        self.buffer.resize(VALUE_BYTES, 0);
        loop {
            let got = match self.place.follow {
                true => rustix::fs::getxattr(&*path, name, &mut self.buffer[..]),
                false => rustix::fs::lgetxattr(&*path, name, &mut self.buffer[..]),
            };
            return match got.map_err(errno) {
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

    /// An attribute in which the mount tells of the entry.
    fn control(&mut self, name: &str) -> Result<Option<String>> {
        Ok(self.fetch(name)?.then(|| String::from_utf8_lossy(self.buffer).trim_end().to_owned()))
    }
}

impl Facts for Entry<'_> {
    fn name(&self) -> &[u8] {
        let name = self.place.name.to_bytes();
        let end = name.iter().rposition(|b| *b != b'/').map_or(name.len().min(1), |last| last + 1);
        let start = name[..end].iter().rposition(|b| *b == b'/').filter(|slash| slash + 1 < end);
        &name[start.map_or(0, |slash| slash + 1)..end]
    }

    fn write_path(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.place.prefix);
        out.extend_from_slice(self.place.name.to_bytes());
    }

    fn kind(&mut self) -> Result<FileKind> {
        if let Some(kind) = self.place.kind {
            return Ok(kind);
        }
        let kind = FileKind::from_mode(self.stat()?.mode).ok_or(Errno::EINVAL)?;
        self.place.kind = Some(kind);
        Ok(kind)
    }

    fn stat(&mut self) -> Result<&Stat> {
        let stat = match self.stat.take() {
            Some(stat) => stat,
            None => {
                let link = if self.place.follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
                let ask = |flags| statx(self.place.at, self.place.name, flags, self.asking.mask);
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

/// Attributes of what a path leads to, with its birth.
///
/// # Errors
/// ENOENT and the like.
pub fn stat_of(path: &Path) -> Result<Stat> {
    let Asking { mask, flags, .. } = Asking::new(true, false);
    statx(CWD, path.as_os_str().as_bytes(), flags, mask)
}

fn statx(at: BorrowedFd<'_>, name: impl rustix::path::Arg, flags: AtFlags, mask: StatxFlags) -> Result<Stat> {
    let st = rustix::fs::statx(at, name, flags, mask).map_err(errno)?;
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

/// Attributes as a directory tells of them.
fn stat_told(stat: entries::Stat) -> Stat {
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

/// The kernel's errno.
pub fn errno(e: rustix::io::Errno) -> Errno {
    Errno(e.raw_os_error())
}
