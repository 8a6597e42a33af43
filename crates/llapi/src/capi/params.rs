//! Parameters of the Sheen processes of this host: `llapi_param_get_paths`, `_get_value`,
//! `_paths_free`. They return a negated errno if they fail.
//!
//! In Lustre a path is a file of the kernel. Here it is the parameter's name, as
//! `lctl list_param` prints it, and only these functions understand it.

use std::{
    ffi::{c_char, c_int},
    io, ptr,
};

use sheen_control::{GREETING_TIMEOUT, NoReply, Reply, Request, ask, public_sockets, sockets};
use sheen_wire::{Errno, Result};

use crate::ffi::{or_minus_errno, put, put_text, text};

/// Stores the names of parameters, and of their directories, that match a pattern of `lctl`. Its
/// components are separated by `.` or `/`. Free them with [`llapi_param_paths_free`].
///
/// -ENOENT: nothing matches; -EACCES: nothing matches in the processes that this user may query;
/// -ETIMEDOUT: nothing matches, and a process does not answer; -EINVAL, -ENOMEM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_param_get_paths(pattern: *const c_char, paths: *mut libc::glob_t) -> c_int {
    or_minus_errno(|| {
        if paths.is_null() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: guaranteed by C. All fields are integers and pointers, for which zero is valid.
        unsafe { ptr::write_bytes(paths, 0, 1) };
        let request = Request::List { pattern: pattern_of(unsafe { text(pattern)? }.to_bytes())? };
        let nodes = query(&request, |reply| if let Reply::Nodes(nodes) = reply { nodes } else { Vec::new() })?;
        let mut names: Vec<String> = nodes.into_iter().map(|node| node.name).collect();
        names.sort();
        names.dedup();
        unsafe { fill(&mut *paths, &names) }.map(|()| 0)
    })
}

/// Frees what [`llapi_param_get_paths`] has stored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_param_paths_free(paths: *mut libc::glob_t) {
    // SAFETY: guaranteed by C.
    let Some(paths) = (unsafe { paths.as_mut() }) else { return };
    if paths.gl_pathv.is_null() {
        return;
    }
    for at in 0..paths.gl_pathc {
        // SAFETY: the array has so many names, each from malloc.
        unsafe { libc::free((*paths.gl_pathv.add(at)).cast()) };
    }
    // SAFETY: it is from malloc.
    unsafe { libc::free(paths.gl_pathv.cast()) };
    paths.gl_pathv = ptr::null_mut();
    paths.gl_pathc = 0;
}

/// Stores the value of a parameter as text that ends with a newline. `path`: from
/// [`llapi_param_get_paths`].
///
/// * `buf` null: stores only the size that a buffer needs, with the NUL.
/// * `*buf` null: stores a new buffer, to be freed with `free`, and the length without the NUL.
/// * Otherwise `*buf` is a buffer of `*size` bytes. Stores the length with the NUL. -EOVERFLOW: it
///   is too small; the size that is needed is stored.
///
/// -ENOENT: no such parameter, or a directory. Otherwise as [`llapi_param_get_paths`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_param_get_value(path: *const c_char, buf: *mut *mut c_char, size: *mut usize) -> c_int {
    or_minus_errno(|| {
        if size.is_null() {
            return Err(Errno::EINVAL);
        }
        let value = value_of(pattern_of(unsafe { text(path)? }.to_bytes())?)?;
        let needed = value.len() + 1;
        if buf.is_null() {
            return unsafe { put(size, needed) }.map(|()| 0);
        }
        // SAFETY: guaranteed by C.
        let given = unsafe { *buf };
        if given.is_null() {
            let copy = unsafe { copy(value.as_bytes())? };
            unsafe { put(buf, copy)? };
            return unsafe { put(size, value.len()) }.map(|()| 0);
        }
        // SAFETY: guaranteed by C.
        let room = unsafe { size.replace(needed) };
        unsafe { put_text(given, room, value.as_bytes(), Errno::EOVERFLOW) }.map(|()| 0)
    })
}

/// Returns a pattern as the control socket takes it. EINVAL: it is not UTF-8, as all names are.
fn pattern_of(bytes: &[u8]) -> Result<String> {
    std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| Errno::EINVAL)
}

/// Returns the value of a parameter. If several processes have it, the first one counts.
fn value_of(name: String) -> Result<String> {
    let request = Request::Get { pattern: name };
    let found = query(&request, |reply| if let Reply::Values(found) = reply { found } else { Vec::new() })?;
    let mut value = found.into_iter().next().ok_or(Errno::ENOENT)?.value;
    if !value.is_empty() && !value.ends_with('\n') {
        value.push('\n');
    }
    Ok(value)
}

/// Sends a request to the processes of this host one after another, because this library starts no
/// thread. Returns all values in the replies. ENOENT, or the error of a process: there is none.
fn query<T>(request: &Request, values: impl Fn(Reply) -> Vec<T>) -> Result<Vec<T>> {
    let (mut all, mut error) = (Vec::new(), Errno::ENOENT);
    for socket in sockets().into_iter().chain(public_sockets()) {
        match ask(&socket, request, GREETING_TIMEOUT) {
            Ok(Reply::Error { errno }) if errno == Errno::ENOENT.0 => {}
            Ok(Reply::Error { errno }) => error = Errno(errno),
            Ok(reply) => all.extend(values(reply)),
            Err(NoReply::Silent(_)) => error = Errno::ETIMEDOUT,
            Err(NoReply::Failed(e)) if e.kind() == io::ErrorKind::PermissionDenied => error = Errno::EACCES,
            // The process has ended.
            Err(NoReply::Failed(_)) => {}
        }
    }
    if all.is_empty() { Err(error) } else { Ok(all) }
}

/// Stores names in memory from malloc. If it fails, nothing is stored.
///
/// # Safety
/// `paths` has no names yet.
unsafe fn fill(paths: &mut libc::glob_t, names: &[String]) -> Result<()> {
    // SAFETY: malloc accepts any size. A null pointer follows the names, as after glob(3).
    let array = unsafe { libc::calloc(names.len() + 1, size_of::<*mut c_char>()) }.cast::<*mut c_char>();
    if array.is_null() {
        return Err(Errno::ENOMEM);
    }
    paths.gl_pathv = array;
    for (at, name) in names.iter().enumerate() {
        match unsafe { copy(name.as_bytes()) } {
            // SAFETY: the array has room for all names.
            Ok(name) => unsafe { array.add(at).write(name) },
            Err(e) => {
                unsafe { llapi_param_paths_free(paths) };
                return Err(e);
            }
        }
        paths.gl_pathc = at + 1;
    }
    Ok(())
}

/// Returns a copy of a text in memory from malloc, with a NUL at its end.
///
/// # Safety
/// The caller passes it to C, which frees it.
unsafe fn copy(text: &[u8]) -> Result<*mut c_char> {
    // SAFETY: malloc accepts any size, and this one is not 0.
    let room = unsafe { libc::malloc(text.len() + 1) }.cast::<c_char>();
    if room.is_null() {
        return Err(Errno::ENOMEM);
    }
    unsafe { put_text(room, text.len() + 1, text, Errno::EOVERFLOW)? };
    Ok(room)
}

#[cfg(test)]
mod tests {
    use std::{ffi::CStr, mem::zeroed};

    use super::*;

    #[test]
    fn paths_are_stored_and_freed() {
        // SAFETY: all fields are integers and pointers.
        let mut paths: libc::glob_t = unsafe { zeroed() };
        let names = ["llite.a-ff00.stats", "version"].map(str::to_owned);
        // SAFETY: `paths` has no names yet.
        unsafe { fill(&mut paths, &names) }.unwrap();
        assert_eq!(paths.gl_pathc, 2);
        // SAFETY: the array has two names and a null pointer.
        unsafe {
            assert_eq!(CStr::from_ptr(*paths.gl_pathv.add(1)), c"version");
            assert!((*paths.gl_pathv.add(2)).is_null());
            llapi_param_paths_free(&raw mut paths);
            assert!(paths.gl_pathv.is_null() && paths.gl_pathc == 0);
            // Freed twice, and null.
            llapi_param_paths_free(&raw mut paths);
            llapi_param_paths_free(ptr::null_mut());
        }
    }

    #[test]
    fn param_calls_refuse_null_pointers() {
        // SAFETY: null has a defined meaning.
        unsafe {
            assert_eq!(llapi_param_get_paths(c"version".as_ptr(), ptr::null_mut()), -Errno::EINVAL.0);
            let mut size = 0;
            assert_eq!(llapi_param_get_value(ptr::null(), ptr::null_mut(), &raw mut size), -Errno::EINVAL.0);
            assert_eq!(llapi_param_get_value(c"version".as_ptr(), ptr::null_mut(), ptr::null_mut()), -Errno::EINVAL.0);
        }
    }
}
