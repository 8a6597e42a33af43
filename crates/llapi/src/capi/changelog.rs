//! Changelogs: `llapi_changelog_start`, `_recv`, `_free`, `_fini`, `_clear` and similar functions.
//! They return a negated errno if they fail.
//!
//! A reader that follows the changelog waits in the mount for records. If the mount does not wait,
//! because many readers do, the reader asks again after a pause. A program that polls asks after
//! that pause, too: the descriptor of [`llapi_changelog_get_fd`] is a timer for it.

use std::{
    collections::VecDeque,
    ffi::{CStr, c_char, c_int, c_longlong, c_uint, c_void},
    os::fd::{AsRawFd, OwnedFd},
    path::{Path, PathBuf},
    ptr,
};

use rustix::{
    fs::OFlags,
    time::{ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec},
};
use sheen_admin::{
    attributes::{self, At},
    not_sheen, os_errno,
};
use sheen_wire::{
    Errno, Fid, Result,
    changelog::{self, Record},
    control,
};

use crate::{
    ffi::{exclusive, or_minus_errno, put, text},
    mounts,
};

/// Flags of `llapi_changelog_start`: `CHANGELOG_FLAG_FOLLOW` and so on.
const FOLLOW: u32 = 0x1;
const JOBID: u32 = 0x4;
const EXTRA_FLAGS: u32 = 0x8;
/// Extra flags: `CHANGELOG_EXTRA_FLAG_UIDGID` and so on. Those in a record have the same values.
const UIDGID: u32 = 0x1;
const NID: u32 = 0x2;
const OMODE: u32 = 0x4;
const XATTR: u32 = 0x8;
/// Flags in a record that say which parts it has: `CLF_VERSION` and so on.
const CLF_VERSION: u16 = 0x1000;
const CLF_RENAME: u16 = 0x2000;
const CLF_JOBID: u16 = 0x4000;
const CLF_EXTRA_FLAGS: u16 = 0x8000;
/// Bytes of `struct changelog_ext_jobid` and `struct changelog_ext_xattr`, with their NULs.
const JOBID_BYTES: usize = 32;
const XATTR_BYTES: usize = 256;
/// Lustre's types of networks.
const SOCKLND: u64 = 2;
const LOLND: u64 = 9;
/// Shortest time between two requests of a follower that find no records; in milliseconds for
/// poll(2).
const PAUSE: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
const PAUSE_MS: i64 = 1000;
/// Time after which a timer expires at once.
const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 1 };

/// A reader that C has begun.
struct Reader {
    mdt: Mdt,
    next: u64,
    records: VecDeque<Record>,
    flags: u32,
    extra_flags: u32,
    /// A timer for programs that poll, once they have asked for it. It has expired while there may
    /// be records.
    timer: Option<OwnedFd>,
}

/// An MDT, and a mount of its file system.
struct Mdt {
    mount: PathBuf,
    index: u32,
}

impl Mdt {
    /// Finds an MDT by its name. EINVAL: not such a name. ENODEV: there is no mount.
    fn find(name: &CStr) -> Result<Mdt> {
        let name = name.to_str().map_err(|_| Errno::EINVAL)?;
        let (fsname, index) = changelog::mdt_of(name).ok_or(Errno::EINVAL)?;
        Ok(Mdt { mount: mounts::root_of(Path::new(fsname))?, index })
    }
}

impl Reader {
    /// Gets the next records from the MDT. `waits`: for some, if there are none yet.
    ///
    /// # Errors
    /// EINTR: a signal ended the wait.
    fn fill(&mut self, waits: bool) -> Result<()> {
        let prefix = if waits { control::CHANGELOG_WAIT_PREFIX } else { control::CHANGELOG_PREFIX };
        let name = format!("{prefix}{}.{}", self.mdt.index, self.next);
        let value = attributes::get(At::Path(&self.mdt.mount), &name).map_err(not_sheen)?;
        self.records = changelog::decode(&value).map_err(|_| Errno::EPROTO)?.into();
        self.next = self.records.back().map_or(self.next, |last| last.index.saturating_add(1));
        Ok(())
    }

    /// Returns the next record. `None`: there is none. EINTR: a signal ended the wait for one.
    /// EAGAIN: the descriptor is non-blocking.
    fn next(&mut self) -> Result<Option<Record>> {
        let is_nonblocking = self.is_nonblocking()?;
        loop {
            let began = now_ms();
            if self.records.is_empty() {
                self.fill(self.flags & FOLLOW != 0 && !is_nonblocking)?;
                if let Some(timer) = &self.timer {
                    set_timer(timer, if self.records.is_empty() { PAUSE } else { NOW })?;
                }
            }
            if let Some(record) = self.records.pop_front() {
                return Ok(Some(record));
            }
            if self.flags & FOLLOW == 0 {
                return Ok(None);
            }
            if is_nonblocking {
                return Err(Errno::EAGAIN);
            }
            let pause = began.saturating_add(PAUSE_MS).saturating_sub(now_ms()).clamp(0, PAUSE_MS) as c_int;
            // SAFETY: no descriptors are passed.
            if unsafe { libc::poll(ptr::null_mut(), 0, pause) } < 0 {
                return Err(Errno::EINTR);
            }
        }
    }

    /// Whether the program has set `O_NONBLOCK` on the descriptor.
    fn is_nonblocking(&self) -> Result<bool> {
        let Some(timer) = &self.timer else { return Ok(false) };
        Ok(rustix::fs::fcntl_getfl(timer).map_err(os_errno)?.contains(OFlags::NONBLOCK))
    }
}

/// Returns the milliseconds of the monotonic clock.
fn now_ms() -> i64 {
    let now = rustix::time::clock_gettime(ClockId::Monotonic);
    now.tv_sec.saturating_mul(1000).saturating_add(now.tv_nsec / 1_000_000)
}

/// Makes a timer expire after this time, and after each further [`PAUSE`] until it is set again.
fn set_timer(timer: &OwnedFd, after: Timespec) -> Result<()> {
    let spec = Itimerspec { it_interval: PAUSE, it_value: after };
    rustix::time::timerfd_settime(timer, TimerfdTimerFlags::empty(), &spec).map_err(os_errno)?;
    Ok(())
}

/// Begins to read the changelog of an MDT from record `start` on. -EINVAL, -ENODEV, -EPERM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_changelog_start(
    private: *mut *mut c_void,
    flags: c_uint,
    mdt: *const c_char,
    start: c_longlong,
) -> c_int {
    or_minus_errno(|| {
        let mdt = Mdt::find(unsafe { text(mdt)? })?;
        let next = u64::try_from(start).map_err(|_| Errno::EINVAL)?;
        let mut reader = Reader { mdt, next, records: VecDeque::new(), flags, extra_flags: 0, timer: None };
        reader.fill(false)?;
        unsafe { put(private, ptr::null_mut())? };
        unsafe { put(private, Box::into_raw(Box::new(reader)).cast()) }.map(|()| 0)
    })
}

/// Selects the extra parts of the records that follow. -EINVAL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_changelog_set_xflags(private: *mut c_void, extra_flags: c_uint) -> c_int {
    or_minus_errno(|| {
        let reader = unsafe { exclusive(private.cast::<Reader>())? };
        reader.extra_flags = extra_flags & (UIDGID | NID | OMODE | XATTR);
        Ok(0)
    })
}

/// Stores the next record, to be freed with [`llapi_changelog_free`]. Returns 1 if there is none.
/// -EAGAIN: there is none, and the descriptor of [`llapi_changelog_get_fd`] is non-blocking.
/// -EINVAL, -EINTR, -ENOMEM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_changelog_recv(private: *mut c_void, record: *mut *mut c_void) -> c_int {
    or_minus_errno(|| {
        let reader = unsafe { exclusive(private.cast::<Reader>())? };
        unsafe { put(record, ptr::null_mut())? };
        let Some(next) = reader.next()? else { return Ok(1) };
        let bytes = encode(&next, reader.flags, reader.extra_flags);
        // SAFETY: `bytes` is not empty, and the new memory has room for it.
        let room = unsafe { libc::malloc(bytes.len()) };
        if room.is_null() {
            return Err(Errno::ENOMEM);
        }
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), room.cast(), bytes.len()) };
        unsafe { put(record, room) }.map(|()| 0)
    })
}

/// Returns 1 if a record can be returned without a request to the MDT. -EINVAL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_changelog_in_buf(private: *mut c_void) -> c_int {
    or_minus_errno(|| {
        let reader = unsafe { exclusive(private.cast::<Reader>())? };
        Ok(c_int::from(!reader.records.is_empty()))
    })
}

/// Returns a descriptor that poll(2) finds readable while [`llapi_changelog_recv`] may have a
/// record: at once, and again a second after it had none. The program may set `O_NONBLOCK`. It
/// must not read or close the descriptor; [`llapi_changelog_fini`] closes it. -EINVAL, -EMFILE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_changelog_get_fd(private: *mut c_void) -> c_int {
    or_minus_errno(|| {
        let reader = unsafe { exclusive(private.cast::<Reader>())? };
        if let Some(timer) = &reader.timer {
            return Ok(timer.as_raw_fd());
        }
        let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC).map_err(os_errno)?;
        set_timer(&timer, NOW)?;
        Ok(reader.timer.insert(timer).as_raw_fd())
    })
}

/// Frees a record. -EINVAL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_changelog_free(record: *mut *mut c_void) -> c_int {
    or_minus_errno(|| {
        let record = unsafe { exclusive(record)? };
        // SAFETY: it is null, or from `llapi_changelog_recv`.
        unsafe { libc::free(*record) };
        *record = ptr::null_mut();
        Ok(0)
    })
}

/// Ends reading. -EINVAL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_changelog_fini(private: *mut *mut c_void) -> c_int {
    or_minus_errno(|| {
        let reader = std::mem::replace(unsafe { exclusive(private)? }, ptr::null_mut());
        if reader.is_null() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: it is from `llapi_changelog_start`, and C does not use it any more.
        drop(unsafe { Box::from_raw(reader.cast::<Reader>()) });
        Ok(0)
    })
}

/// Says that a user needs no records up to `end` any more; 0: up to the last one. -EINVAL; -ENOENT:
/// there is no such user; -ENODEV, -EPERM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_changelog_clear(mdt: *const c_char, user: *const c_char, end: c_longlong) -> c_int {
    or_minus_errno(|| {
        let (mdt, user) = unsafe { (Mdt::find(text(mdt)?)?, text(user)?) };
        let user = user.to_str().ok().and_then(changelog::user_number).ok_or(Errno::EINVAL)?;
        let end = u64::try_from(end).map_err(|_| Errno::EINVAL)?;
        let value = format!("{} {user} {end}", mdt.index);
        attributes::set(At::Path(&mdt.mount), control::CHANGELOG_CLEAR, value.as_bytes(), false).map(|()| 0)
    })
}

/// Returns `struct changelog_rec` with the parts that the flags select, and the names.
fn encode(record: &Record, flags: u32, extra_flags: u32) -> Vec<u8> {
    let (has_job, has_extra) = (flags & JOBID != 0, flags & EXTRA_FLAGS != 0);
    let parts =
        CLF_VERSION | CLF_RENAME | if has_job { CLF_JOBID } else { 0 } | if has_extra { CLF_EXTRA_FLAGS } else { 0 };
    let names = match &record.source {
        Some(source) => [&record.name[..], &[0], &source.name[..]].concat(),
        None => record.name.to_vec(),
    };
    let mut out = Vec::with_capacity(512);
    out.extend((names.len() as u16).to_ne_bytes());
    out.extend((record.flags | parts).to_ne_bytes());
    out.extend((record.kind as u32).to_ne_bytes());
    out.extend(record.index.to_ne_bytes());
    out.extend(0u64.to_ne_bytes()); // cr_prev
    out.extend(((record.time.sec as u64) << 30 | u64::from(record.time.nsec)).to_ne_bytes());
    put_fid(&mut out, record.target);
    put_fid(&mut out, record.parent);
    let source = record.source.as_ref().map_or((Fid::ZERO, Fid::ZERO), |source| (source.fid, source.parent));
    put_fid(&mut out, source.0);
    put_fid(&mut out, source.1);
    if has_job {
        put_padded(&mut out, &record.job, JOBID_BYTES);
    }
    if has_extra {
        out.extend(u64::from(extra_flags).to_ne_bytes());
        let has = |flag: u32| extra_flags & flag != 0;
        if has(UIDGID) {
            out.extend(u64::from(record.uid).to_ne_bytes());
            out.extend(u64::from(record.gid).to_ne_bytes());
        }
        if has(NID) {
            out.extend(nid(&record.nid).to_ne_bytes());
            out.extend([0u8; 16]);
        }
        if has(OMODE) {
            out.extend(record.opened_with().to_ne_bytes());
        }
        if has(XATTR) {
            put_padded(&mut out, &record.xattr, XATTR_BYTES);
        }
    }
    out.extend(&names);
    out.push(0); // not a part of the record, for programs that take the last name as a string
    out
}

fn put_fid(out: &mut Vec<u8>, fid: Fid) {
    out.extend(fid.seq.to_ne_bytes());
    out.extend(fid.oid.to_ne_bytes());
    out.extend(fid.ver.to_ne_bytes());
}

/// Adds a string in an array of `bytes` bytes, of which the last is a NUL.
fn put_padded(out: &mut Vec<u8>, text: &[u8], bytes: usize) {
    let end = out.len() + bytes;
    out.extend(text.iter().take(bytes - 1));
    out.resize(end, 0);
}

/// Returns Lustre's number for a NID such as `10.0.0.1@tcp1` or `0@lo`. 0: it has none.
fn nid(text: &[u8]) -> u64 {
    let parse = || {
        let (address, network) = std::str::from_utf8(text).ok()?.split_once('@')?;
        if network == "lo" {
            return Some(LOLND << 48);
        }
        // A port follows the address of a server of Sheen.
        let address = address.split(':').next()?.parse::<std::net::Ipv4Addr>().ok()?;
        let number = network.strip_prefix("tcp").map(|n| if n.is_empty() { "0" } else { n })?.parse::<u16>().ok()?;
        Some(SOCKLND << 48 | u64::from(number) << 32 | u64::from(u32::from(address)))
    };
    parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use sheen_wire::{
        Time,
        changelog::{Kind, LAST, Source},
    };

    use super::*;

    fn rename() -> Record {
        let source = Source { fid: Fid::new(3, 4), parent: Fid::new(5, 6), name: "old".into() };
        Record {
            index: 7,
            kind: Kind::Renme,
            flags: LAST,
            time: Time { sec: 2, nsec: 3 },
            target: Fid::new(1, 2),
            parent: Fid::new(8, 9),
            name: "new".into(),
            uid: 10,
            gid: 11,
            nid: "10.0.0.1@tcp".into(),
            job: "mv.0".into(),
            xattr: Default::default(),
            source: Some(Box::new(source)),
        }
    }

    #[test]
    fn record_has_the_parts_that_are_selected() {
        let plain = encode(&rename(), 0, 0);
        assert_eq!(plain.len(), 64 + 32 + 7 + 1);
        assert_eq!(plain[..8], [&7u16.to_ne_bytes()[..], &0x3001u16.to_ne_bytes(), &8u32.to_ne_bytes()].concat());
        assert_eq!(plain[24..32], (2u64 << 30 | 3).to_ne_bytes());
        assert_eq!((plain[32], plain[48], plain[64], plain[80]), (1, 8, 3, 5));
        assert_eq!(plain[96..], *b"new\0old\0");
        let all = encode(&rename(), JOBID | EXTRA_FLAGS, UIDGID | NID | OMODE | XATTR);
        assert_eq!(all.len(), 64 + 32 + 32 + 8 + 16 + 24 + 4 + 256 + 7 + 1);
        assert_eq!((&all[96..101], all[128], all[136], all[144]), (&b"mv.0\0"[..], 0xf, 10, 11));
        assert_eq!(all[152..160], 0x0002_0000_0a00_0001u64.to_ne_bytes());
    }

    #[test]
    fn record_of_an_open_has_its_mode() {
        let open = Record { kind: Kind::Open, flags: 0x42, source: None, name: Default::default(), ..rename() };
        let bytes = encode(&open, EXTRA_FLAGS, OMODE);
        assert_eq!(bytes[2..4], (0x42 | CLF_VERSION | CLF_RENAME | CLF_EXTRA_FLAGS).to_ne_bytes());
        assert_eq!(bytes[96..], [&4u64.to_ne_bytes()[..], &0x42u32.to_ne_bytes(), &[0u8]].concat());
    }

    #[test]
    fn nids_have_lustres_numbers() {
        for (text, number) in [("0@lo", 9 << 48), ("1.2.3.4:988@tcp1", 0x0002_0001_0102_0304), ("x@tcp", 0), ("", 0)] {
            assert_eq!(nid(text.as_bytes()), number, "{text}");
        }
    }
}
