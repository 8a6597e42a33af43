//! Layouts to and from files and bytes: `llapi_layout_get_by_*`, `_file_open`, `_file_create`,
//! `_set_by_*`, `_file_comp_*`.

use std::{
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    ptr, slice,
};

use rustix::fs::{FileType, OFlags};
use sheen_layout::LAYOUT_BYTES_MAX;
use sheen_wire::{Errno, Result};

use crate::{
    border::{file, or_minus_one, or_null, put, shared, text},
    capi::LuFid,
    layout::Layout,
    lum, mounts,
    open::{self, Onto},
    sanity,
    sys::{self, At},
};

/// `enum llapi_layout_get_flags`.
const GET_EXPECTED: c_uint = 1;
const GET_COPY: c_uint = 2;
const GET_CHECK: c_uint = 4;

/// How Lustre calls changes of a file's components; what it does to them comes after `lustre.lov`.
const ADD: &str = "lustre.lov.add";
const DELETE: &str = "lustre.lov.del";
const SET_FLAGS: &str = "lustre.lov.set.flags";

/// A plain layout with nothing asked for; to be freed with `llapi_layout_free`.
#[unsafe(no_mangle)]
pub extern "C" fn llapi_layout_alloc() -> *mut Layout {
    or_null(|| Ok(boxed(Layout::default())))
}

/// Frees one; null is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_free(layout: *mut Layout) {
    if !layout.is_null() {
        // SAFETY: it came from a `Box` (`boxed`), and C gives it up.
        drop(unsafe { Box::from_raw(layout) });
    }
}

fn boxed(layout: Layout) -> *mut Layout {
    Box::into_raw(Box::new(layout))
}

/// The layout of a file or directory. With `LLAPI_LAYOUT_GET_EXPECTED` what is left open is filled
/// with what a file there gets. Null with ENOENT, ENOTTY (not on a mount), EINVAL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_get_by_path(path: *const c_char, flags: c_uint) -> *mut Layout {
    or_null(|| {
        let path = unsafe { text(path)? };
        if flags & !(GET_EXPECTED | GET_COPY | GET_CHECK) != 0 {
            return Err(Errno::EINVAL);
        }
        let expected = flags & GET_EXPECTED != 0;
        let layout = if expected { open::expected_layout_of(path)? } else { open::layout_of(At::Path(path))? };
        Ok(boxed(layout))
    })
}

/// The layout of an open file or directory. Null with EBADF, ENOTTY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_get_by_fd(fd: c_int, _flags: c_uint) -> *mut Layout {
    or_null(|| open::layout_of(At::File(unsafe { file(fd)? })).map(boxed))
}

/// The layout of a file by its FID, for the superuser. `place`: any path on the mount. Null with
/// ENOENT, ENOTTY, EACCES, EINVAL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_get_by_fid(
    place: *const c_char,
    fid: *const LuFid,
    _flags: c_uint,
) -> *mut Layout {
    or_null(|| {
        let (place, fid) = unsafe { (text(place)?, shared(fid)?) };
        let mount = mounts::info(At::Path(place))?;
        open::layout_of(At::Path(&mounts::by_fid(&mount, (*fid).into())?)).map(boxed)
    })
}

/// The layout that the value of `lustre.lov` holds. Nothing is changed in it, whatever the flags.
/// With `LLAPI_LAYOUT_GET_CHECK` its objects must be as many as its stripes (EBADSLT), which is not
/// so of a directory's.
///
/// Null with EINVAL: null, empty, or it contradicts itself. ERANGE: cut short, or no layout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_get_by_xattr(value: *const c_void, size: isize, flags: c_uint) -> *mut Layout {
    or_null(|| {
        let size = usize::try_from(size).ok().filter(|size| *size > 0 && !value.is_null()).ok_or(Errno::EINVAL)?;
        // SAFETY: not null, and of that size, as C promises.
        let value = unsafe { slice::from_raw_parts(value.cast::<u8>(), size) };
        lum::decode(value, flags & GET_CHECK != 0).map(boxed)
    })
}

/// What to ask for to get a file of this layout, as the value of `lustre.lov`, in memory to be
/// freed with `free`; its size is stored. Null with EINVAL, E2BIG. (In Lustre this function is not
/// exported.)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_to_lum(layout: *const Layout, size: *mut usize) -> *mut c_void {
    or_null(|| {
        let value = lum::encode(unsafe { shared(layout)? })?;
        unsafe { put(size, value.len())? };
        // SAFETY: any size may be asked for; it is not 0.
        let room = unsafe { libc::malloc(value.len()) };
        if room.is_null() {
            return Err(Errno::ENOMEM);
        }
        // SAFETY: it has room for just that, and is nobody else's.
        unsafe { ptr::copy_nonoverlapping(value.as_ptr(), room.cast(), value.len()) };
        Ok(room)
    })
}

/// The bytes with which to ask for a file of this layout. EINVAL: its components do not fit
/// together.
fn request(layout: &Layout) -> Result<Vec<u8>> {
    sanity::check(layout, false, layout.mirror_count > 1).map_err(|_| Errno::EINVAL)?;
    lum::encode(&layout.as_request())
}

unsafe fn open_file(path: *const c_char, flags: OFlags, mode: u32, layout: *const Layout) -> Result<c_int> {
    let path = unsafe { text(path)? };
    // SAFETY: as C promises. A null one has a meaning here.
    let opened = match unsafe { layout.as_ref() } {
        Some(layout) => open::open(path, flags, mode, &request(layout)?, Onto::New)?,
        None => open::plain(path, flags, mode)?,
    };
    Ok(open::give(opened))
}

/// open(2); a file that it makes gets the layout, one that is there keeps its own. A null layout is
/// the directory's.
///
/// -1 with ENOTTY: not on a mount. EINVAL: the layout does not fit together, or the file system
/// refuses it (an unknown pool or OST).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_file_open(
    path: *const c_char,
    flags: c_int,
    mode: libc::mode_t,
    layout: *const Layout,
) -> c_int {
    or_minus_one(|| unsafe { open_file(path, OFlags::from_bits_retain(flags as u32), mode, layout) })
}

/// The same with `O_CREAT | O_EXCL`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_file_create(
    path: *const c_char,
    flags: c_int,
    mode: c_int,
    layout: *const Layout,
) -> c_int {
    let flags = OFlags::from_bits_retain(flags as u32) | OFlags::CREATE | OFlags::EXCL;
    or_minus_one(|| unsafe { open_file(path, flags, mode as u32, layout) })
}

/// Gives an open file without one a layout (EEXIST: it has one), or a directory its default.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_set_by_fd(fd: c_int, layout: *const Layout) -> c_int {
    or_minus_one(|| unsafe { set(fd, &request(shared(layout)?)?) })
}

/// The same with the value of a `lustre.lov`, whose length it says itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_set_by_xattr(fd: c_int, value: *const c_void) -> c_int {
    or_minus_one(|| {
        let head = unsafe { shared(value.cast::<[u8; 32]>())? };
        let size = lum::length(head)?;
        debug_assert!(size <= LAYOUT_BYTES_MAX);
        // SAFETY: C promises a whole layout, which has that size.
        unsafe { set(fd, slice::from_raw_parts(value.cast(), size)) }
    })
}

unsafe fn set(fd: c_int, value: &[u8]) -> Result<c_int> {
    let file = unsafe { file(fd)? };
    sys::fid(At::File(file))?;
    let stat = rustix::fs::fstat(file).map_err(sys::errno)?;
    let is_dir = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    sys::set(At::File(file), sys::LOV, value, !is_dir).map(|()| 0)
}

/// Appends a layout's components to a file's. -1 with EINVAL, ENOENT, and what the file system
/// says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_file_comp_add(path: *const c_char, layout: *const Layout) -> c_int {
    or_minus_one(|| {
        let (path, layout) = unsafe { (text(path)?, shared(layout)?) };
        if !layout.composite || sanity::check(layout, true, false).is_err() {
            return Err(Errno::EINVAL);
        }
        edit(path, ADD, &lum::encode(&layout.as_request())?)
    })
}

/// Takes components out of a file's layout: that of an id, or (id 0) those with flags. -1 with
/// EINVAL: both or neither.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_file_comp_del(path: *const c_char, id: u32, flags: u32) -> c_int {
    or_minus_one(|| {
        let path = unsafe { text(path)? };
        if (id == 0) == (flags == 0) {
            return Err(Errno::EINVAL);
        }
        edit(path, DELETE, &lum::encode_selection(&[(id, flags)])?)
    })
}

/// Sets flags of components of a file by their ids, or clears those with `LCME_FL_NEG`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_file_comp_set(
    path: *const c_char,
    ids: *const u32,
    flags: *const u32,
    count: usize,
) -> c_int {
    or_minus_one(|| {
        let path = unsafe { text(path)? };
        if ids.is_null() || flags.is_null() || count == 0 || count > lum::COMPONENTS_MAX {
            return Err(Errno::EINVAL);
        }
        // SAFETY: not null, and of that many, as C promises.
        let (ids, flags) = unsafe { (slice::from_raw_parts(ids, count), slice::from_raw_parts(flags, count)) };
        let chosen: Vec<(u32, u32)> = ids.iter().copied().zip(flags.iter().copied()).collect();
        edit(path, SET_FLAGS, &lum::encode_selection(&chosen)?)
    })
}

fn edit(path: &CStr, how: &str, value: &[u8]) -> Result<c_int> {
    sys::fid(At::Path(path))?;
    sys::set(At::Path(path), how, value, false).map(|()| 0)
}
