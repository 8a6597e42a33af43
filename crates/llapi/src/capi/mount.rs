//! Mounts and their pools: `llapi_search_fsname`, `_getname`, `_get_poollist` and similar
//! functions. They return a negated errno if they fail.

use std::{
    ffi::{CStr, c_char, c_int},
    os::unix::ffi::OsStrExt,
    path::Path,
};

use rustix::fs::OFlags;
use sheen_admin::{
    attributes::At,
    mounts::{MOUNT_TYPE, Mount, holding, mount_table},
};
use sheen_wire::{
    Errno, Result,
    mgs::{TargetKind, target_name},
};

use crate::{
    ffi::{self, optional, or_else, or_minus_errno, pathname, put, put_text, shared, text},
    mounts, open,
};

/// Size of a buffer for a path whose length is not passed, including the NUL.
const PATH_BYTES: usize = 4096;
/// Size of such a buffer for a file system's name (at most 8 characters), including the NUL.
const FSNAME_BYTES: usize = 9;

/// Stores the name of the file system of a path, which need not exist yet, in a buffer of
/// `LUSTRE_MAXFSNAME + 1` bytes. -ENOTTY, -ENOENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_search_fsname(path: *const c_char, fsname: *mut c_char) -> c_int {
    or_minus_errno(|| {
        let info = mounts::info_of_path(unsafe { pathname(path)? })?;
        unsafe { put_text(fsname, FSNAME_BYTES, info.fsname.as_bytes(), Errno::ENAMETOOLONG) }.map(|()| 0)
    })
}

/// Stores the mount point of a file system in a buffer of `PATH_MAX` bytes. Without a name (null or
/// empty): that of any file system. -ENODEV: not mounted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_search_rootpath(path: *mut c_char, fsname: *const c_char) -> c_int {
    or_minus_errno(|| {
        let wanted = unsafe { optional(fsname) }.map(CStr::to_bytes);
        let is_it = |m: &Mount| wanted.is_none_or(|name| m.fsname.as_bytes() == name);
        let found = mount_table().into_iter().find(is_it).ok_or(Errno::ENODEV)?;
        unsafe { put_text(path, PATH_BYTES, found.point.as_os_str().as_bytes(), Errno::ENAMETOOLONG) }.map(|()| 0)
    })
}

/// Stores the mount point of the file system whose files have this device number in stat(2), in a
/// buffer of `PATH_MAX` bytes. -ENODEV: not mounted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_search_rootpath_by_dev(path: *mut c_char, device: libc::dev_t) -> c_int {
    or_minus_errno(|| {
        if path.is_null() {
            return Err(Errno::EINVAL);
        }
        let found = mount_table().into_iter().find(|mount| mount.device == device).ok_or(Errno::ENODEV)?;
        unsafe { put_text(path, PATH_BYTES, found.point.as_os_str().as_bytes(), Errno::ENAMETOOLONG) }.map(|()| 0)
    })
}

/// Stores a mount point and the file system's name, in buffers of `PATH_MAX` and
/// `LUSTRE_MAXFSNAME + 1` bytes. Either buffer may be null. With a path, the mount is the one that
/// holds the path, and `index` is 0. Without a path (null or empty), it is the mount of this index
/// in the mount table. -ENODEV: no such mount.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_search_mounts(
    path: *const c_char,
    index: c_int,
    point: *mut c_char,
    fsname: *mut c_char,
) -> c_int {
    or_minus_errno(|| {
        let (all, index) = (mount_table(), usize::try_from(index).map_err(|_| Errno::EINVAL)?);
        let found = match unsafe { optional(path) } {
            None => all.get(index),
            Some(_) if index > 0 => None,
            Some(path) => {
                let real = ffi::path(path).canonicalize().map_err(Errno::from)?;
                holding(&all, &real)
            }
        };
        let found = found.ok_or(Errno::ENODEV)?;
        unsafe {
            put_if(point, PATH_BYTES, found.point.as_os_str().as_bytes())?;
            put_if(fsname, FSNAME_BYTES, found.fsname.as_bytes())?;
        }
        Ok(0)
    })
}

/// # Safety
/// As [`put_text`]. If it is null, nothing is written.
unsafe fn put_if(pointer: *mut c_char, room: usize, value: &[u8]) -> Result<()> {
    if pointer.is_null() { Ok(()) } else { unsafe { put_text(pointer, room, value, Errno::ENAMETOOLONG) } }
}

/// Returns 1 if the mount table uses this type for mounts of this library, else 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_is_lustre_mnttype(kind: *const c_char) -> c_int {
    or_else(0, || Ok(c_int::from(unsafe { text(kind)? }.to_bytes() == MOUNT_TYPE.as_bytes())))
}

/// As [`llapi_is_lustre_mnttype`], for an entry of getmntent(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_is_lustre_mnt(entry: *const libc::mntent) -> c_int {
    or_else(0, || Ok(unsafe { llapi_is_lustre_mnttype(shared(entry)?.mnt_type) }))
}

/// Stores `fsname-instance`, as in names of parameters. -ENOTTY, -ENOENT, -ENAMETOOLONG.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_getname(path: *const c_char, name: *mut c_char, room: usize) -> c_int {
    or_minus_errno(|| {
        let info = mounts::info(At::Path(unsafe { pathname(path)? }))?;
        let found = format!("{}-{}", info.fsname, info.instance);
        unsafe { put_text(name, room, found.as_bytes(), Errno::ENAMETOOLONG) }.map(|()| 0)
    })
}

/// Stores the two parts of [`llapi_getname`] separately. Writes nothing if one does not fit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_get_fsname_instance(
    path: *const c_char,
    fsname: *mut c_char,
    fsname_room: usize,
    instance: *mut c_char,
    instance_room: usize,
) -> c_int {
    or_minus_errno(|| {
        let info = mounts::info(At::Path(unsafe { pathname(path)? }))?;
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

/// Stores the file system's name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_get_fsname(path: *const c_char, fsname: *mut c_char, room: usize) -> c_int {
    or_minus_errno(|| {
        let info = mounts::info(At::Path(unsafe { pathname(path)? }))?;
        unsafe { put_text(fsname, room, info.fsname.as_bytes(), Errno::ENAMETOOLONG) }.map(|()| 0)
    })
}

/// Stores the instance, which distinguishes this mount from other mounts of the host.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_get_instance(path: *const c_char, instance: *mut c_char, room: usize) -> c_int {
    or_minus_errno(|| {
        let info = mounts::info(At::Path(unsafe { pathname(path)? }))?;
        unsafe { put_text(instance, room, info.instance.as_bytes(), Errno::ENAMETOOLONG) }.map(|()| 0)
    })
}

/// Lists the pools of a file system, by its name or a path on it. Stores each as `fsname.pool` in
/// `buffer`, and pointers to them in `list`. Returns their number. -EOVERFLOW: they do not fit.
/// -ENODEV, -ENOTTY, -ENOENT: no such mount.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_get_poollist(
    name: *const c_char,
    list: *mut *mut c_char,
    list_size: c_int,
    buffer: *mut c_char,
    buffer_size: c_int,
) -> c_int {
    or_minus_errno(|| {
        let root = mounts::root_of(unsafe { pathname(name)? })?;
        let fsname = mounts::info(At::Path(&root))?.fsname;
        let names = mounts::pools(At::Path(&root))?.into_iter().map(|pool| format!("{fsname}.{}", pool.name));
        unsafe { put_list(names, list, list_size, buffer, buffer_size) }
    })
}

/// Lists the OSTs of a pool, `fsname.pool`. Stores the uuid of each in `buffer`, and pointers to
/// them in `members`. Returns their number. -EINVAL: invalid name. -ENOENT: no such pool.
/// -EOVERFLOW, -ENODEV as [`llapi_get_poollist`].
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
        let root = mounts::root_of(Path::new(fsname))?;
        let osts = mounts::pool_of(At::Path(&root), name.as_bytes())?;
        let uuids = osts.iter().map(|ost| format!("{}_UUID", target_name(fsname, TargetKind::Ost, *ost)));
        unsafe { put_list(uuids, members, list_size, buffer, buffer_size) }
    })
}

/// Opens the root of a mount, by its file system's name or a path on it, for functions whose names
/// end in `_at`. Returns 0. -ENODEV, -ENOTTY: no such mount.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_root_path_open(device: *const c_char, fd: *mut c_int) -> c_int {
    or_minus_errno(|| {
        let root = mounts::root_of(unsafe { pathname(device)? })?;
        let root = mounts::info(At::Path(&root))?.mountpoint;
        if fd.is_null() {
            return Err(Errno::EINVAL);
        }
        let file = open::plain(Path::new(&root), OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, 0)?;
        unsafe { put(fd, open::give(file)) }.map(|()| 0)
    })
}

/// Writes strings one after another into a buffer, and pointers to them into a list. Returns their
/// number.
///
/// # Safety
/// `list` is null, or points to room for that many pointers. `buffer` is null, or points to room
/// for that many bytes.
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
