//! FIDs and names of files: `llapi_path2fid`, `_fd2fid`, `_fid2path`, `_fid_parse` and similar
//! functions. They return a negated errno if they fail.

use std::ffi::{c_char, c_int, c_longlong, c_uint, c_void};

use rustix::fs::{Mode, OFlags};
use sheen_admin::{
    attributes::{self, At, fid_of},
    os_errno,
};
use sheen_wire::{Errno, Fid, Result, control, fid::ROOT};

use crate::{
    capi::LuFid,
    ffi::{file, or_minus_errno, or_minus_one, pathname, put, put_text, shared, text},
    mounts, open,
};

/// Stores the FID of a path, even if it is a symbolic link. -ENOENT, -ENOTTY (not on a mount),
/// -EINVAL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_path2fid(path: *const c_char, fid: *mut LuFid) -> c_int {
    or_minus_errno(|| unsafe { put(fid, attributes::fid(At::Name(pathname(path)?))?.into()) }.map(|()| 0))
}

/// Stores the FID of an open file. -EBADF, -ENOTTY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_fd2fid(fd: c_int, fid: *mut LuFid) -> c_int {
    or_minus_errno(|| unsafe { put(fid, fid_of(file(fd)?)?.into()) }.map(|()| 0))
}

/// Parses a FID, in brackets or not, after any white space. Stores in `end`, if it is not null, the
/// position after the FID, or of the error.
///
/// -EINVAL: it is no FID. -ERANGE: one of its numbers is too large.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_fid_parse(from: *const c_char, fid: *mut LuFid, end: *mut *mut c_char) -> c_int {
    or_minus_errno(|| {
        let bytes = unsafe { text(from)? }.to_bytes();
        let (read, found) = parse(bytes);
        if !end.is_null() {
            // SAFETY: `read` is at most the string's length. C gets back its own pointer, which it
            // may use to change the string as before.
            unsafe { put(end, from.add(read).cast_mut())? };
        }
        unsafe { put(fid, found?.into()) }.map(|()| 0)
    })
}

/// Returns the number of bytes that were parsed, and the FID.
fn parse(bytes: &[u8]) -> (usize, Result<Fid>) {
    let mut at = bytes.iter().take_while(|b| b.is_ascii_whitespace()).count();
    let bracket = bytes.get(at) == Some(&b'[');
    at += usize::from(bracket);
    let mut numbers = [0; 3];
    for (i, (number, most)) in numbers.iter_mut().zip([u64::MAX, u32::MAX.into(), u32::MAX.into()]).enumerate() {
        if i > 0 {
            if bytes.get(at) != Some(&b':') {
                return (at, Err(Errno::EINVAL));
            }
            at += 1;
        }
        let rest = bytes.get(at..).unwrap_or_default();
        let prefix = if matches!(rest, [b'0', b'x' | b'X', ..]) { 2 } else { 0 };
        let digits = rest[prefix..].iter().take_while(|b| b.is_ascii_hexdigit()).count();
        if digits == 0 {
            return (at, Err(Errno::EINVAL));
        }
        let text = std::str::from_utf8(&rest[prefix..prefix + digits]).unwrap_or_default();
        match u64::from_str_radix(text, 16).ok().filter(|n| *n <= most) {
            Some(n) => *number = n,
            None => return (at, Err(Errno::ERANGE)),
        }
        at += prefix + digits;
    }
    if bracket {
        if bytes.get(at) != Some(&b']') {
            return (at, Err(Errno::EINVAL));
        }
        at += 1;
    }
    let [seq, oid, ver] = numbers;
    (at, Ok(Fid { seq, oid: oid as u32, ver: ver as u32 }))
}

/// Stores a path of a file by its FID, for the superuser. The path starts at the root of the file
/// system, without a leading slash; that of the root itself is `/`. `device`: an absolute path on
/// the mount, or the file system's name. `link`, if it is not null, is the number of the name. The
/// number of the next name is stored there; after the last name it stays that of the last. `recno`
/// is unchanged.
///
/// -EINVAL; -ENODEV: no such mount; -ENOENT: no such file; -EPERM; -EOVERFLOW: it does not fit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_fid2path(
    device: *const c_char,
    fid: *const c_char,
    path: *mut c_char,
    room: c_int,
    _recno: *mut c_longlong,
    link: *mut c_int,
) -> c_int {
    or_minus_errno(|| {
        let (device, fid) = unsafe { (pathname(device)?, text(fid)?) };
        let (read, found) = parse(fid.to_bytes());
        let found = found?;
        if read != fid.to_bytes().len() {
            return Err(Errno::EINVAL);
        }
        unsafe { path_of(At::Path(&mounts::root_of(device)?), found, path, room, link) }
    })
}

/// As [`llapi_fid2path`], by an open file of the mount.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_fid2path_at(
    mount: c_int,
    fid: *const LuFid,
    path: *mut c_char,
    room: c_int,
    _recno: *mut c_longlong,
    link: *mut c_int,
) -> c_int {
    or_minus_errno(|| unsafe { path_of(At::File(file(mount)?), (*shared(fid)?).into(), path, room, link) })
}

unsafe fn path_of(at: At<'_>, fid: Fid, path: *mut c_char, room: c_int, link: *mut c_int) -> Result<c_int> {
    let value = attributes::get(at, &format!("{}{fid}", control::PATHS_PREFIX)).map_err(|e| match e {
        Errno::ENODATA => Errno::ENOENT,
        Errno::EOPNOTSUPP => Errno::ENOTTY,
        e => e,
    })?;
    let paths = control::decode_paths(&value);
    // SAFETY: guaranteed by C.
    let asked = unsafe { link.as_ref() }.and_then(|link| usize::try_from(*link).ok()).unwrap_or(0);
    // For a number that is too large, Lustre returns the first name.
    let at = if asked < paths.len() { asked } else { 0 };
    let found = paths.get(at).ok_or(Errno::ENOENT)?;
    let found = if found.is_empty() { &b"/"[..] } else { found };
    let room = usize::try_from(room).map_err(|_| Errno::EINVAL)?;
    unsafe { put_text(path, room, found, Errno::EOVERFLOW)? };
    if !link.is_null() {
        unsafe { put(link, (at + 1).min(paths.len() - 1) as c_int)? };
    }
    Ok(0)
}

/// Stores the FID of a file's parent directory and the file's name there, for the superuser.
/// `link`: the number of the name, from 0.
///
/// -ENODATA: it has no such name. -EPERM, -ENOENT, -ENOTTY. -EOVERFLOW: the name does not fit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_path2parent(
    path: *const c_char,
    link: c_uint,
    parent: *mut LuFid,
    name: *mut c_char,
    room: usize,
) -> c_int {
    or_minus_errno(|| unsafe { parent_of(At::Name(pathname(path)?), link, parent, name, room) })
}

/// As [`llapi_path2parent`], for an open file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_fd2parent(
    fd: c_int,
    link: c_uint,
    parent: *mut LuFid,
    name: *mut c_char,
    room: usize,
) -> c_int {
    or_minus_errno(|| unsafe { parent_of(At::File(file(fd)?), link, parent, name, room) })
}

unsafe fn parent_of(at: At<'_>, link: c_uint, parent: *mut LuFid, name: *mut c_char, room: usize) -> Result<c_int> {
    let value = attributes::ask(at, control::PARENTS)?;
    let parents = control::decode_paths(&value);
    let found = usize::try_from(link).ok().and_then(|link| parents.get(link)).ok_or(Errno::ENODATA)?;
    let (read, fid) = parse(found);
    let rest = found.get(read..).and_then(|rest| rest.strip_prefix(b"/")).ok_or(Errno::EINVAL)?;
    unsafe { put(parent, fid?.into())? };
    unsafe { put_text(name, room, rest, Errno::EOVERFLOW) }.map(|()| 0)
}

/// Opens a file by its FID, for the superuser. `place`: any path on the mount. Returns the open
/// file, or -1 with `errno`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_open_by_fid(place: *const c_char, fid: *const LuFid, flags: c_int) -> c_int {
    or_minus_one(|| open_by(At::Path(unsafe { pathname(place)? }), unsafe { *shared(fid)? }, flags))
}

/// As [`llapi_open_by_fid`], by an open file of the mount.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_open_by_fid_at(place: c_int, fid: *const LuFid, flags: c_int) -> c_int {
    or_minus_one(|| open_by(At::File(unsafe { file(place)? }), unsafe { *shared(fid)? }, flags))
}

fn open_by(place: At<'_>, fid: LuFid, flags: c_int) -> Result<c_int> {
    let path = mounts::by_fid(&mounts::info(place)?, fid.into());
    let opened = rustix::fs::open(&path, OFlags::from_bits_retain(flags as u32), Mode::empty());
    opened.map(open::give).map_err(os_errno)
}

/// `struct file_handle` with the kernel's data of a file on FUSE: node id, and generation of the
/// node, which is always 0.
#[repr(C)]
struct Handle {
    bytes: u32,
    kind: c_int,
    node: [u32; 2],
    generation: u32,
}

/// `FILEID_INO64_GEN`, and its size in bytes.
const NODE_AND_GENERATION: c_int = 0x81;
const NODE_AND_GENERATION_BYTES: u32 = 12;
/// Node id of the root, which the kernel chose. All other node ids are inode numbers.
const ROOT_NODE: u64 = 1;

/// Creates the handle of a file for open_by_handle_at(2) from its FID, in memory to be freed with
/// `free`. Does not check that the file exists.
///
/// -EINVAL: no file can have that FID. -ENOMEM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_fid_to_handle(handle: *mut *mut c_void, fid: *const LuFid) -> c_int {
    or_minus_errno(|| {
        if handle.is_null() {
            return Err(Errno::EINVAL);
        }
        let node = node_of(unsafe { *shared(fid)? }.into()).ok_or(Errno::EINVAL)?;
        // SAFETY: malloc accepts any size, and this one is not 0.
        let room = unsafe { libc::malloc(size_of::<Handle>()) };
        if room.is_null() {
            return Err(Errno::ENOMEM);
        }
        let made = Handle {
            bytes: NODE_AND_GENERATION_BYTES,
            kind: NODE_AND_GENERATION,
            node: [(node >> 32) as u32, node as u32],
            generation: 0,
        };
        // SAFETY: the memory has this size, is aligned for any type, and no other code uses it.
        unsafe { room.cast::<Handle>().write(made) };
        unsafe { put(handle, room) }.map(|()| 0)
    })
}

/// Returns the node id by which the kernel knows a file. `None`: there can be no such file.
fn node_of(fid: Fid) -> Option<u64> {
    if fid == ROOT {
        return Some(ROOT_NODE);
    }
    Some(fid.ino()).filter(|node| !fid.is_zero() && Fid::from_ino(*node) == fid)
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    #[test]
    fn fid_parse_stops_after_the_fid_and_refuses_invalid_ones() {
        let fid = Fid { seq: 0x2_0000_0401, oid: 0x10, ver: 1 };
        assert_eq!(parse(b" [0x200000401:0x10:0x1] next"), (23, Ok(fid)));
        assert_eq!(parse(b"200000401:10:1"), (14, Ok(fid)));
        for (bad, at, e) in [
            ("", 0, Errno::EINVAL),
            ("[0x1:0x2]", 8, Errno::EINVAL),
            ("0x1:0x2:", 8, Errno::EINVAL),
            ("[0x1:0x2:0x3", 12, Errno::EINVAL),
            ("0x1:0x1ffffffff:0x0", 4, Errno::ERANGE),
            ("0x11111111111111111:0x0:0x0", 0, Errno::ERANGE),
            ("nothing", 0, Errno::EINVAL),
        ] {
            assert_eq!(parse(bad.as_bytes()), (at, Err(e)), "{bad}");
        }
    }

    #[test]
    fn fid_to_handle_finds_the_node_id() {
        assert_eq!(node_of(Fid::new(0x2_0000_0401, 5)), Some(0x0200_0004_0100_0005));
        assert_eq!(node_of(ROOT), Some(1));
        for none in [Fid::ZERO, Fid::new(0x2_0000_0401, 1 << 24), Fid::new(1 << 40, 1), Fid { ver: 1, ..ROOT }] {
            assert_eq!(node_of(none), None, "{none}");
        }
    }

    #[test]
    fn fid_parse_stores_fid_and_end_position() {
        let (mut fid, mut end) = (LuFid::default(), std::ptr::null_mut());
        let text: &CStr = c"[0x200000401:0x2:0x0]:rest";
        // SAFETY: all three pointers are valid.
        unsafe {
            assert_eq!(llapi_fid_parse(text.as_ptr(), &raw mut fid, &raw mut end), 0);
            assert_eq!(CStr::from_ptr(end), c":rest");
        }
        assert_eq!((fid.f_seq, fid.f_oid, fid.f_ver), (0x2_0000_0401, 2, 0));
    }
}
