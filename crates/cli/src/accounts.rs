//! User accounts of this host, from the C library.

use std::{
    ffi::{CStr, CString},
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
    look_up(by_name).or_else(|| account_of(text.parse().ok()?))
}

/// Returns the user of this id, with all groups. `None`: as [`account`].
pub fn account_of(uid: u32) -> Option<User> {
    look_up(|entry, strings, found| {
        // SAFETY: all pointers are valid for the call.
        unsafe { libc::getpwuid_r(uid, entry, strings.as_mut_ptr(), strings.len(), found) }
    })
}

/// Calls a function that fills an entry, whose strings lie in the slice.
fn look_up(
    call: impl FnOnce(*mut libc::passwd, &mut [libc::c_char], *mut *mut libc::passwd) -> libc::c_int,
) -> Option<User> {
    let (mut entry, mut strings) = (MaybeUninit::<libc::passwd>::uninit(), vec![0; STRINGS_MAX]);
    let mut found = ptr::null_mut();
    let status = call(entry.as_mut_ptr(), &mut strings, &mut found);
    if status != 0 || found.is_null() {
        return None;
    }
    // SAFETY: the call has filled the entry: it set `found`.
    let entry = unsafe { entry.assume_init() };
    // SAFETY: the name is a string in `strings`.
    let name = unsafe { CStr::from_ptr(entry.pw_name) };
    let (uid, gid) = (entry.pw_uid, entry.pw_gid);
    let mut groups = vec![0; GROUPS_MAX];
    let mut count = libc::c_int::try_from(GROUPS_MAX).ok()?;
    // SAFETY: `groups` has room for `count` ids.
    let all = unsafe { libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &mut count) };
    groups.truncate(usize::try_from(count).ok().filter(|_| all >= 0)?);
    groups.retain(|group| *group != gid);
    Some(User { uid, gid, groups })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn account_is_found_by_name_and_number() {
        let root = account("root").unwrap();
        assert_eq!((root.uid, root.gid), (0, 0));
        assert_eq!(account("0"), Some(root.clone()));
        assert_eq!(account_of(0), Some(root));
        assert_eq!((account("no such user"), account("a\0b"), account("4000000000")), (None, None, None));
    }
}
