//! Layouts from and to files and bytes: `llapi_layout_get_by_*`, `_file_open`, `_file_create`,
//! `_set_by_*`, `_file_comp_*`.

use std::{
    ffi::{c_char, c_int, c_uint, c_void},
    path::Path,
    ptr, slice,
};

use rustix::fs::{FileType, OFlags};
use sheen_admin::{
    attributes::{self, At, LOV, fid_of},
    os_errno,
};
use sheen_layout::{
    LAYOUT_BYTES_MAX,
    codec::{COMPONENTS_MAX, V1_BYTES},
};
use sheen_wire::{Errno, Result};

use crate::{
    capi::LuFid,
    ffi::{file, or_minus_one, or_null, pathname, put, shared},
    layout::Layout,
    mounts,
    open::{self, LayoutTarget},
    sanity, xattr,
};

/// `enum llapi_layout_get_flags`.
const GET_EXPECTED: c_uint = 1;
const GET_COPY: c_uint = 2;
const GET_CHECK: c_uint = 4;

/// Lustre's attributes for changes of a file's components: `lustre.lov` and the change.
const ADD: &str = "lustre.lov.add";
const DELETE: &str = "lustre.lov.del";
const SET_FLAGS: &str = "lustre.lov.set.flags";

/// Creates a plain layout without settings. Free it with `llapi_layout_free`.
#[unsafe(no_mangle)]
pub extern "C" fn llapi_layout_alloc() -> *mut Layout {
    or_null(|| Ok(boxed(Layout::default())))
}

/// Frees a layout. Null is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_free(layout: *mut Layout) {
    if !layout.is_null() {
        // SAFETY: it came from a `Box` (`boxed`), and C no longer uses it.
        drop(unsafe { Box::from_raw(layout) });
    }
}

fn boxed(layout: Layout) -> *mut Layout {
    Box::into_raw(Box::new(layout))
}

/// Returns the layout of a file or directory. With `LLAPI_LAYOUT_GET_EXPECTED`, values that are not
/// set are those that a file there would get. Null with ENOENT, ENOTTY (not on a mount), EINVAL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_get_by_path(path: *const c_char, flags: c_uint) -> *mut Layout {
    or_null(|| {
        let path = unsafe { pathname(path)? };
        if flags & !(GET_EXPECTED | GET_COPY | GET_CHECK) != 0 {
            return Err(Errno::EINVAL);
        }
        let expected = flags & GET_EXPECTED != 0;
        let layout = if expected { open::expected_layout_of(path)? } else { open::layout_of(At::Path(path))? };
        Ok(boxed(layout))
    })
}

/// Returns the layout of an open file or directory. Null with EBADF, ENOTTY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_get_by_fd(fd: c_int, _flags: c_uint) -> *mut Layout {
    or_null(|| open::layout_of(At::File(unsafe { file(fd)? })).map(boxed))
}

/// Returns the layout of a file by its FID, for the superuser. `place`: any path on the mount. Null
/// with ENOENT, ENOTTY, EACCES, EINVAL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_get_by_fid(
    place: *const c_char,
    fid: *const LuFid,
    _flags: c_uint,
) -> *mut Layout {
    or_null(|| {
        let (place, fid) = unsafe { (pathname(place)?, shared(fid)?) };
        let mount = mounts::info(At::Path(place))?;
        open::layout_of(At::Path(&mounts::by_fid(&mount, (*fid).into()))).map(boxed)
    })
}

/// Returns the layout in a value of `lustre.lov`. The value is never changed, whatever the flags.
/// With `LLAPI_LAYOUT_GET_CHECK` there must be as many objects as stripes (EBADSLT). A directory's
/// layout has no objects, so it fails this check if it sets a stripe count.
///
/// Null with EINVAL: null, empty, or inconsistent. ERANGE: truncated, or no layout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_get_by_xattr(value: *const c_void, size: isize, flags: c_uint) -> *mut Layout {
    or_null(|| {
        let size = usize::try_from(size).ok().filter(|size| *size > 0 && !value.is_null()).ok_or(Errno::EINVAL)?;
        // SAFETY: not null, and C guarantees that size.
        let value = unsafe { slice::from_raw_parts(value.cast::<u8>(), size) };
        xattr::decode(value, flags & GET_CHECK != 0).map(boxed)
    })
}

/// Returns a request for a file with this layout, as a value of `lustre.lov`, in memory to be freed
/// with `free`. Stores its size. Null with EINVAL, E2BIG. (Lustre does not export this function.)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_to_lum(layout: *const Layout, size: *mut usize) -> *mut c_void {
    or_null(|| {
        let value = xattr::encode(unsafe { shared(layout)? })?;
        unsafe { put(size, value.len())? };
        // SAFETY: malloc accepts any size, and this one is not 0.
        let room = unsafe { libc::malloc(value.len()) };
        if room.is_null() {
            return Err(Errno::ENOMEM);
        }
        // SAFETY: the memory has exactly this size, and no other code uses it.
        unsafe { ptr::copy_nonoverlapping(value.as_ptr(), room.cast(), value.len()) };
        Ok(room)
    })
}

/// Encodes a request for a file with this layout. EINVAL: its components do not fit together.
fn request(layout: &Layout) -> Result<Vec<u8>> {
    sanity::check(layout, false, layout.mirror_count > 1).map_err(|_| Errno::EINVAL)?;
    xattr::encode(&layout.as_request())
}

unsafe fn open_file(path: *const c_char, flags: OFlags, mode: u32, layout: *const Layout) -> Result<c_int> {
    let path = unsafe { pathname(path)? };
    // SAFETY: guaranteed by C. A null layout has a meaning here.
    let opened = match unsafe { layout.as_ref() } {
        Some(layout) => open::open(path, flags, mode, &request(layout)?, LayoutTarget::New)?,
        None => open::plain(path, flags, mode)?,
    };
    Ok(open::give(opened))
}

/// Opens a file as open(2) does. A new file gets the layout; an existing one retains its own. With
/// a null layout, a new file gets the directory's default.
///
/// -1 with ENOTTY: not on a mount. EINVAL: the components do not fit together, or the file system
/// refuses the layout (an unknown pool or OST).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_file_open(
    path: *const c_char,
    flags: c_int,
    mode: libc::mode_t,
    layout: *const Layout,
) -> c_int {
    or_minus_one(|| unsafe { open_file(path, OFlags::from_bits_retain(flags as u32), mode, layout) })
}

/// As [`llapi_layout_file_open`], with `O_CREAT | O_EXCL`.
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

/// Sets the layout of an open file that has none (EEXIST: it has one), or the default of a
/// directory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_set_by_fd(fd: c_int, layout: *const Layout) -> c_int {
    or_minus_one(|| unsafe { set(fd, &request(shared(layout)?)?) })
}

/// As [`llapi_layout_set_by_fd`], with a value of `lustre.lov`, which states its own length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_set_by_xattr(fd: c_int, value: *const c_void) -> c_int {
    or_minus_one(|| {
        let head = unsafe { shared(value.cast::<[u8; V1_BYTES]>())? };
        let size = xattr::length(head)?;
        debug_assert!(size <= LAYOUT_BYTES_MAX);
        // SAFETY: C guarantees a whole layout, which has that size.
        unsafe { set(fd, slice::from_raw_parts(value.cast(), size)) }
    })
}

unsafe fn set(fd: c_int, value: &[u8]) -> Result<c_int> {
    let file = unsafe { file(fd)? };
    fid_of(file)?;
    let stat = rustix::fs::fstat(file).map_err(os_errno)?;
    let is_dir = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    attributes::set(At::File(file), LOV, value, !is_dir).map(|()| 0)
}

/// Appends the components of a layout to those of a file. -1 with EINVAL, ENOENT, and errors of the
/// file system.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_file_comp_add(path: *const c_char, layout: *const Layout) -> c_int {
    or_minus_one(|| {
        let (path, layout) = unsafe { (pathname(path)?, shared(layout)?) };
        if !layout.composite || sanity::check(layout, true, false).is_err() {
            return Err(Errno::EINVAL);
        }
        edit(path, ADD, &xattr::encode(&layout.as_request())?)
    })
}

/// Deletes components of a file's layout: the one with this id, or (id 0) those with these flags.
/// -1 with EINVAL: both are given, or neither.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_file_comp_del(path: *const c_char, id: u32, flags: u32) -> c_int {
    or_minus_one(|| {
        let path = unsafe { pathname(path)? };
        if (id == 0) == (flags == 0) {
            return Err(Errno::EINVAL);
        }
        edit(path, DELETE, &xattr::encode_selection(&[(id, flags)]))
    })
}

/// Sets flags of a file's components by their ids. With `LCME_FL_NEG`, clears them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_file_comp_set(
    path: *const c_char,
    ids: *const u32,
    flags: *const u32,
    count: usize,
) -> c_int {
    or_minus_one(|| {
        let path = unsafe { pathname(path)? };
        if ids.is_null() || flags.is_null() || count == 0 || count > COMPONENTS_MAX {
            return Err(Errno::EINVAL);
        }
        // SAFETY: not null, and C guarantees that many elements.
        let (ids, flags) = unsafe { (slice::from_raw_parts(ids, count), slice::from_raw_parts(flags, count)) };
        let chosen: Vec<(u32, u32)> = ids.iter().copied().zip(flags.iter().copied()).collect();
        edit(path, SET_FLAGS, &xattr::encode_selection(&chosen))
    })
}

fn edit(path: &Path, how: &str, value: &[u8]) -> Result<c_int> {
    attributes::fid(At::Path(path))?;
    attributes::set(At::Path(path), how, value, false).map(|()| 0)
}
