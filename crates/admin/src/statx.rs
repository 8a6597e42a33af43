//! statx(2) with file types that are always known.

use rustix::fs::AtFlags;
use sheen_wire::{FileKind, Result};

/// Calls `ask` with the given flags of statx(2). If the result has no file type, calls `ask` again
/// without STATX_DONT_SYNC, which is stat(2).
///
/// With STATX_DONT_SYNC the kernel returns its cached attributes. They have no file type if an
/// invalidation came while the kernel added the inode to its cache. The kernel hashes the inode and
/// then stores the attributes of the reply. If an invalidation comes between these steps, it drops
/// the attributes. stat(2) asks the mount.
///
/// # Errors
/// The error of `ask`.
pub fn with_type<T>(flags: AtFlags, ask: impl Fn(AtFlags) -> Result<T>, mode: impl Fn(&T) -> u32) -> Result<T> {
    let answer = ask(flags)?;
    let has_type = FileKind::from_mode(mode(&answer)).is_some();
    if has_type { Ok(answer) } else { ask(flags - AtFlags::STATX_DONT_SYNC) }
}

#[cfg(test)]
mod tests {
    use sheen_wire::Errno;

    use super::*;

    #[test]
    fn with_type_asks_again_if_kernel_returns_no_type() {
        let nofollow = AtFlags::SYMLINK_NOFOLLOW;
        let ask = |flags: AtFlags| Ok((flags, if flags.contains(AtFlags::STATX_DONT_SYNC) { 0 } else { 0o100644 }));
        let answer = with_type(AtFlags::STATX_DONT_SYNC | nofollow, ask, |(_, mode)| *mode);
        assert_eq!(answer, Ok((nofollow, 0o100644)));
        let known = |flags| Ok((flags, 0o040755));
        let answer = with_type(AtFlags::STATX_DONT_SYNC, known, |(_, mode)| *mode);
        assert_eq!(answer, Ok((AtFlags::STATX_DONT_SYNC, 0o040755)));
        let missing = |_| Err::<u32, _>(Errno::ENOENT);
        assert_eq!(with_type(AtFlags::STATX_DONT_SYNC, missing, |mode| *mode), Err(Errno::ENOENT));
    }
}
