//! The id of the present mount of a file system.
//!
//! With the last unmount the kernel drops the superblock of a file system, and the pages that it
//! has cached for it. Then it may have lost changes: a file system that has shut down after an
//! error drops what it could not write.
//!
//! Some file systems have a directory in sysfs for each superblock. The kernel gives the number of
//! its inode once in a boot, and all mount namespaces see the same one. A service that systemd
//! starts has a namespace of its own each time, so the number of the mount itself is not as good.
//! It serves where sysfs has no directory.

use std::{fs, io, os::unix::fs::MetadataExt, path::Path};

use rustix::{
    fs::{AtFlags, CWD, StatxFlags, major, minor, statfs, statx},
    io::Errno,
};

/// File systems whose directory in `/sys/fs/TYPE` has the name of the device, and ends with the
/// superblock.
const WITH_DIRECTORY: [&str; 3] = ["ext4", "xfs", "f2fs"];
/// `f_type` of tmpfs. After an unmount none of its files exist, so its device says enough.
const TMPFS: i64 = 0x0102_1994;
/// `STATX_MNT_ID_UNIQUE` (Linux 6.8): `stx_mnt_id` is given once in a boot.
const MNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// Returns the id of the mount that contains `path`.
pub(super) fn of(path: &Path) -> io::Result<u64> {
    let device = fs::metadata(path)?.dev();
    let (kind, number) = match superblock(device) {
        Some(inode) => (1, inode),
        None if statfs(path)?.f_type == TMPFS => (2, 0),
        None => (3, mount(path)?),
    };
    Ok(crate::stable_hash(&[kind, device, number].map(u64::to_le_bytes).concat()))
}

/// Returns the number of the inode in sysfs of the superblock on a device. `None`: it has none, or
/// sysfs is not mounted.
fn superblock(device: u64) -> Option<u64> {
    let device = fs::read_link(format!("/sys/dev/block/{}:{}", major(device), minor(device))).ok()?;
    let of_type = |name: &str| fs::metadata(Path::new("/sys/fs").join(name).join(device.file_name()?)).ok();
    WITH_DIRECTORY.into_iter().find_map(of_type).map(|directory| directory.ino())
}

/// Returns the number of the mount that contains `path`; 0 if the kernel does not know it.
fn mount(path: &Path) -> io::Result<u64> {
    let either = StatxFlags::MNT_ID.union(MNT_ID_UNIQUE);
    match statx(CWD, path, AtFlags::empty(), either) {
        Ok(found) if found.stx_mask & either.bits() != 0 => Ok(found.stx_mnt_id),
        Ok(_) | Err(Errno::NOSYS) => Ok(0),
        Err(e) => Err(e.into()),
    }
}
