//! Mounts and their pools: `llapi_search_fsname`, `_getname`, `_get_poollist` and their like. They
//! return an errno negated.

use std::{
    ffi::{CStr, CString, OsStr, c_char, c_int},
    os::unix::ffi::OsStrExt,
    path::Path,
};

use rustix::fs::OFlags;
use sheen_wire::{
    Errno, Result,
    mgs::{TargetKind, target_name},
};

use crate::{
    border::{optional, or_else, or_minus_errno, put, put_text, shared, text},
    mounts::{self, MOUNT_TYPE, Mounted},
    open,
    sys::At,
};

/// What a buffer without a length holds: a path with its NUL.
const PATH_BYTES: usize = 4096;
/// The same for a file system's name, which is at most 8 characters.
const FSNAME_BYTES: usize = 9;

/// The name of the file system on which a path is or shall be, into a buffer of
/// `LUSTRE_MAXFSNAME + 1` bytes. -ENOTTY, -ENOENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_search_fsname(path: *const c_char, fsname: *mut c_char) -> c_int {
    or_minus_errno(|| {
        let info = mounts::info_of_place(unsafe { text(path)? })?;
        unsafe { put_text(fsname, FSNAME_BYTES, info.fsname.as_bytes(), Errno::ENAMETOOLONG) }.map(|()| 0)
    })
}

/// Where a file system is mounted, into a buffer of `PATH_MAX` bytes; with no name (null or empty)
/// any. -ENODEV: nowhere.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_search_rootpath(path: *mut c_char, fsname: *const c_char) -> c_int {
    or_minus_errno(|| {
        let wanted = unsafe { optional(fsname) }.map(CStr::to_bytes);
        let is_it = |m: &Mounted| wanted.is_none_or(|name| m.fsname.as_bytes() == name);
        let found = mounts::all().into_iter().find(is_it).ok_or(Errno::ENODEV)?;
        unsafe { put_text(path, PATH_BYTES, &found.point, Errno::ENAMETOOLONG) }.map(|()| 0)
    })
}

/// Where a file system is mounted, by the device number that stat(2) says of its files, into a
/// buffer of `PATH_MAX` bytes. -ENODEV: nowhere.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_search_rootpath_by_dev(path: *mut c_char, device: libc::dev_t) -> c_int {
    or_minus_errno(|| {
        if path.is_null() {
            return Err(Errno::EINVAL);
        }
        let found = mounts::all().into_iter().find(|mount| mount.device == device).ok_or(Errno::ENODEV)?;
        unsafe { put_text(path, PATH_BYTES, &found.point, Errno::ENAMETOOLONG) }.map(|()| 0)
    })
}

/// The mount that holds a path (`index` 0), or with no path (null or empty) that of the index, in
/// the order of the table of mounts: where it is, and its file system's name, in buffers of
/// `PATH_MAX` and `LUSTRE_MAXFSNAME + 1` bytes, either of which may be null. -ENODEV: there is
/// none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_search_mounts(
    path: *const c_char,
    index: c_int,
    point: *mut c_char,
    fsname: *mut c_char,
) -> c_int {
    or_minus_errno(|| {
        let (all, index) = (mounts::all(), usize::try_from(index).map_err(|_| Errno::EINVAL)?);
        let found = match unsafe { optional(path) } {
            None => all.get(index),
            Some(_) if index > 0 => None,
            Some(path) => {
                let real = Path::new(OsStr::from_bytes(path.to_bytes())).canonicalize();
                let real = real.map_err(|e| e.raw_os_error().map_or(Errno::EIO, Errno))?;
                mounts::holding(&all, &real)
            }
        };
        let found = found.ok_or(Errno::ENODEV)?;
        unsafe {
            put_if(point, PATH_BYTES, &found.point)?;
            put_if(fsname, FSNAME_BYTES, found.fsname.as_bytes())?;
        }
        Ok(0)
    })
}

/// # Safety
/// As [`put_text`]; null is nowhere.
unsafe fn put_if(pointer: *mut c_char, room: usize, value: &[u8]) -> Result<()> {
    if pointer.is_null() { Ok(()) } else { unsafe { put_text(pointer, room, value, Errno::ENAMETOOLONG) } }
}

/// 1 if that is the type of mounts of this library in the table of mounts, else 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_is_lustre_mnttype(kind: *const c_char) -> c_int {
    or_else(0, || Ok(c_int::from(unsafe { text(kind)? }.to_bytes() == MOUNT_TYPE.as_bytes())))
}

/// The same of an entry of a table of mounts, as getmntent(3) gives it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_is_lustre_mnt(entry: *const libc::mntent) -> c_int {
    or_else(0, || Ok(unsafe { llapi_is_lustre_mnttype(shared(entry)?.mnt_type) }))
}

/// `fsname-instance`, as in names of parameters. -ENOTTY, -ENOENT, -ENAMETOOLONG.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_getname(path: *const c_char, name: *mut c_char, room: usize) -> c_int {
    or_minus_errno(|| {
        let info = mounts::info(At::Path(unsafe { text(path)? }))?;
        let found = format!("{}-{}", info.fsname, info.instance);
        unsafe { put_text(name, room, found.as_bytes(), Errno::ENAMETOOLONG) }.map(|()| 0)
    })
}

/// The two parts of [`llapi_getname`] apart. Nothing is written where one does not fit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_get_fsname_instance(
    path: *const c_char,
    fsname: *mut c_char,
    fsname_room: usize,
    instance: *mut c_char,
    instance_room: usize,
) -> c_int {
    or_minus_errno(|| {
        let info = mounts::info(At::Path(unsafe { text(path)? }))?;
        if instance.is_null() {
            return Err(Errno::EINVAL);
        }
        if info.instance.len() >= instance_room {
            return Err(Errno::ENAMETOOLONG);
        }
        unsafe {
            put_text(fsname, fsname_room, info.fsname.as_bytes(), Errno::ENAMETOOLONG)?;
            put_text(instance, instance_room, info.instance.as_bytes(), Errno::ENAMETOOLONG)?;
        }
        Ok(0)
    })
}

/// The file system's name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_get_fsname(path: *const c_char, fsname: *mut c_char, room: usize) -> c_int {
    or_minus_errno(|| {
        let info = mounts::info(At::Path(unsafe { text(path)? }))?;
        unsafe { put_text(fsname, room, info.fsname.as_bytes(), Errno::ENAMETOOLONG) }.map(|()| 0)
    })
}

/// What tells this mount from others of the host.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_get_instance(path: *const c_char, instance: *mut c_char, room: usize) -> c_int {
    or_minus_errno(|| {
        let info = mounts::info(At::Path(unsafe { text(path)? }))?;
        unsafe { put_text(instance, room, info.instance.as_bytes(), Errno::ENAMETOOLONG) }.map(|()| 0)
    })
}

/// The pools of a file system, by its name or a path on it: how many, each as `fsname.pool` in
/// `buffer`, to which `list` points. -EOVERFLOW: they are too many or too long for the room given.
/// -ENODEV, -ENOTTY, -ENOENT: there is no such mount.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_get_poollist(
    name: *const c_char,
    list: *mut *mut c_char,
    list_size: c_int,
    buffer: *mut c_char,
    buffer_size: c_int,
) -> c_int {
    or_minus_errno(|| {
        let root = mounts::root_of(unsafe { text(name)? })?;
        let fsname = mounts::info(At::Path(&root))?.fsname;
        let names = mounts::pools(At::Path(&root))?.into_iter().map(|pool| format!("{fsname}.{}", pool.name));
        unsafe { put_list(names, list, list_size, buffer, buffer_size) }
    })
}

/// The OSTs of a pool, `fsname.pool`: how many, each as a uuid in `buffer`, to which `members`
/// points. -EINVAL: no such name. -ENOENT: no such pool. -EOVERFLOW, -ENODEV as
/// [`llapi_get_poollist`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_get_poolmembers(
    pool: *const c_char,
    members: *mut *mut c_char,
    list_size: c_int,
    buffer: *mut c_char,
    buffer_size: c_int,
) -> c_int {
    or_minus_errno(|| {
        let name = unsafe { text(pool)? }.to_str().map_err(|_| Errno::EINVAL)?;
        let (fsname, name) = name.split_once('.').ok_or(Errno::EINVAL)?;
        let root = mounts::root_of(&CString::new(fsname).map_err(|_| Errno::EINVAL)?)?;
        let osts = mounts::pool_of(At::Path(&root), name.as_bytes())?;
        let uuids = osts.iter().map(|ost| format!("{}_UUID", target_name(fsname, TargetKind::Ost, *ost)));
        unsafe { put_list(uuids, members, list_size, buffer, buffer_size) }
    })
}

/// Opens the root of a mount, by its file system's name or a path on it, for functions that end in
/// `_at`. 0; -ENODEV, -ENOTTY: there is no such mount.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_root_path_open(device: *const c_char, fd: *mut c_int) -> c_int {
    or_minus_errno(|| {
        let root = mounts::root_of(unsafe { text(device)? })?;
        let root = CString::new(mounts::info(At::Path(&root))?.mountpoint).map_err(|_| Errno::EINVAL)?;
        if fd.is_null() {
            return Err(Errno::EINVAL);
        }
        let file = open::plain(&root, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, 0)?;
        unsafe { put(fd, open::give(file)) }.map(|()| 0)
    })
}

/// Strings one after another into a buffer, and pointers to them into a list; how many.
///
/// # Safety
/// `list` is null or points to room for so many pointers, `buffer` is null or points to room for so
/// many bytes.
unsafe fn put_list(
    texts: impl Iterator<Item = String>,
    list: *mut *mut c_char,
    list_size: c_int,
    buffer: *mut c_char,
    buffer_size: c_int,
) -> Result<c_int> {
    let (mut count, mut used) = (0, 0);
    let room = |size: c_int| usize::try_from(size).map_err(|_| Errno::EINVAL);
    let (list_size, buffer_size) = (room(list_size)?, room(buffer_size)?);
    for text in texts {
        if count >= list_size {
            return Err(Errno::EOVERFLOW);
        }
        if buffer.is_null() || list.is_null() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: `used` is at most the buffer's size, and `count` below the list's.
        unsafe {
            let at = buffer.add(used);
            put_text(at, buffer_size - used, text.as_bytes(), Errno::EOVERFLOW)?;
            put(list.add(count), at)?;
        }
        used += text.len() + 1;
        count += 1;
    }
    c_int::try_from(count).map_err(|_| Errno::EOVERFLOW)
}
