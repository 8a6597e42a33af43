//! User accounts of this host, from the C library.

use std::ffi::CString;

use sheen_wire::auth::{GROUPS_MAX, User};

/// Returns a user, by name or number, with all groups. `None`: this host has no such user.
pub fn account(text: &str) -> Option<User> {
    let name = CString::new(text).ok()?;
    // SAFETY: `name` ends with a NUL. The result lies in the library's own memory until the next
    // such call. Only the thread that runs the command calls this.
    let found = unsafe { libc::getpwnam(name.as_ptr()).as_ref() };
    let found = found.or_else(|| {
        let uid = text.parse().ok()?;
        // SAFETY: as above.
        unsafe { libc::getpwuid(uid).as_ref() }
    })?;
    let (uid, gid) = (found.pw_uid, found.pw_gid);
    let mut groups = vec![0; GROUPS_MAX];
    let mut count = libc::c_int::try_from(GROUPS_MAX).ok()?;
    // SAFETY: `pw_name` is a string of the entry above, and `groups` has room for `count` ids.
    let all = unsafe { libc::getgrouplist(found.pw_name, gid, groups.as_mut_ptr(), &mut count) };
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
        assert_eq!(account("0"), Some(root));
        assert_eq!((account("no such user"), account("a\0b"), account("4000000000")), (None, None, None));
    }
}
