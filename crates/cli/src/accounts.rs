//! User accounts of this host, from the C library.

use std::{
    ffi::{CStr, CString},
    io,
    mem::MaybeUninit,
    ptr,
};

use sheen_wire::auth::{GROUPS_MAX, User};

/// Bytes for the strings of an account.
const STRINGS_MAX: usize = 64 << 10;

/// Returns a user, by name or number, with all groups. `None`: this host has no such user, or it is
/// in too many groups.
pub fn account(text: &str) -> Option<User> {
    let name = CString::new(text).ok()?;
    let by_name = |entry: *mut libc::passwd, strings: &mut [libc::c_char], found: *mut *mut libc::passwd| {
        // SAFETY: all pointers are valid for the call, and `name` ends with a NUL.
        unsafe { libc::getpwnam_r(name.as_ptr(), entry, strings.as_mut_ptr(), strings.len(), found) }
    };
    let found = look_up(by_name).ok().flatten();
    found.or_else(|| account_of(text.parse().ok()?).ok().flatten())
}

/// Returns the user of this id, with all groups. `None`: as [`account`].
///
/// # Errors
/// The directory of users does not answer.
pub fn account_of(uid: u32) -> io::Result<Option<User>> {
    look_up(|entry, strings, found| {
        // SAFETY: all pointers are valid for the call.
        unsafe { libc::getpwuid_r(uid, entry, strings.as_mut_ptr(), strings.len(), found) }
    })
}

/// Calls a function that fills an entry, whose strings lie in the slice. Returns the user.
fn look_up(
    call: impl FnOnce(*mut libc::passwd, &mut [libc::c_char], *mut *mut libc::passwd) -> libc::c_int,
) -> io::Result<Option<User>> {
    let (mut entry, mut strings) = (MaybeUninit::<libc::passwd>::uninit(), vec![0; STRINGS_MAX]);
    let mut found = ptr::null_mut();
    let status = call(entry.as_mut_ptr(), &mut strings, &mut found);
    // As getpwnam(3) says, these mean that there is no such user, too.
    if found.is_null() && matches!(status, 0 | libc::ENOENT | libc::ESRCH | libc::EBADF | libc::EPERM) {
        return Ok(None);
    }
    if found.is_null() {
        return Err(io::Error::from_raw_os_error(status));
    }
    // SAFETY: the call has filled the entry: it set `found`.
    let entry = unsafe { entry.assume_init() };
    // SAFETY: the name is a string in `strings`.
    let name = unsafe { CStr::from_ptr(entry.pw_name) };
    Ok(groups_of(name, entry.pw_gid).map(|groups| User { uid: entry.pw_uid, gid: entry.pw_gid, groups, nodemap: None }))
}

/// Returns the supplementary groups of a user, sorted. `None`: there are too many.
fn groups_of(name: &CStr, gid: u32) -> Option<Vec<u32>> {
    let mut groups = vec![0; GROUPS_MAX];
    let mut count = libc::c_int::try_from(GROUPS_MAX).ok()?;
    // SAFETY: `groups` has room for `count` ids.
    let all = unsafe { libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &mut count) };
    groups.truncate(usize::try_from(count).ok().filter(|_| all >= 0)?);
    groups.retain(|group| *group != gid);
    groups.sort_unstable();
    groups.dedup();
    Some(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn account_is_found_by_name_and_number() {
        let root = account("root").unwrap();
        assert_eq!((root.uid, root.gid), (0, 0));
        assert_eq!(account("0"), Some(root.clone()));
        assert_eq!(account_of(0).unwrap(), Some(root));
        assert_eq!((account("no such user"), account("a\0b"), account("4000000000")), (None, None, None));
    }
}
