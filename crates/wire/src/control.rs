//! Virtual extended attributes of every path of a mount, by which `lfs` gets its information.
//!
//! `lfs` needs no ioctl and no socket: it reads these attributes, which the client answers itself
//! and never lists. Their presence also tells a tool that a path lies on Sheen: other file systems
//! return EOPNOTSUPP or ENODATA. Structs travel as JSON. Names and paths, which are bytes and not
//! text, are NUL-terminated.

use std::borrow::Cow;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{
    Errno, Fid, StatFs,
    mgs::{POOL_MEMBERS_MAX, Pool, TargetKind},
};

/// [`MountInfo`] as JSON.
pub const MOUNT: &str = "sheen.mount";
/// `Vec<`[`TargetInfo`]`>` as JSON: MDTs, then OSTs, each by index, including inactive ones.
pub const DF: &str = "sheen.df";
/// `Vec<`[`ImportInfo`]`>` as JSON: OSTs, MDTs, then the MGS.
pub const CHECK: &str = "sheen.check";
/// The FID of the path's inode as text: `[0x200000401:0x1:0x0]`.
pub const FID: &str = "sheen.fid";
/// The index of the MDT that holds the path's inode, as decimal text.
pub const MDT: &str = "sheen.mdt";
/// The generation of the path's layout, as decimal text, because `lustre.lov` of a plain layout
/// does not contain it. ENODATA: the path has no layout.
pub const GENERATION: &str = "sheen.layout_gen";
/// Parents and names of the path's inode: [`encode_parents`].
pub const PARENTS: &str = "sheen.parents";
/// Followed by a FID as text: the paths of that file from the root, without leading `/` (so the
/// root itself is an empty path): [`encode_paths`]. ENOENT: no such file. EPERM: the caller is not
/// the superuser.
pub const PATHS_PREFIX: &str = "sheen.paths.";
/// The pools of the file system: [`encode_pools`]. E2BIG: they do not fit an extended attribute;
/// ask the MGS.
pub const POOLS: &str = "sheen.pools";
/// Followed by `MDT.START`, the index of an MDT and a number: durable records of its changelog from
/// that number on, [`crate::changelog::encode`]. As many as fit an extended attribute, or none if
/// there are none yet. EPERM: the caller is not the superuser, or the client has limits.
pub const CHANGELOG_PREFIX: &str = "sheen.changelog.";
/// As [`CHANGELOG_PREFIX`], and waits for a record if there are none yet: for 10 seconds at most,
/// and not at all if many readers of the mount wait. A signal ends the wait (EINTR). So a reader
/// that got none pauses if less than a second has passed.
pub const CHANGELOG_WAIT_PREFIX: &str = "sheen.changelog_wait.";
/// Setting it to `MDT USER END` moves the clear point of a user of an MDT's changelog:
/// [`crate::mds::Request::ChangelogClear`]. EPERM: as [`CHANGELOG_PREFIX`].
pub const CHANGELOG_CLEAR: &str = "sheen.changelog_clear";
/// Common prefix of the names above.
pub const PREFIX: &str = "sheen.";
/// Prefix for reading these attributes and those of `lustre.`. It leads to the same attribute, but
/// needs no permission except on the directories: the kernel lets everybody read names with this
/// prefix. For other names the kernel checks the file's mode first. It then asks the mount for all
/// attributes including the size, which waits for a disconnected OST. As in Lustre, a layout is no
/// secret.
const OPEN_PREFIX: &str = "system.";

/// Returns the name by which a program reads an attribute of a mount without waiting for OSTs.
pub fn open_name(name: &str) -> Cow<'_, str> {
    if is_ours(name.as_bytes()) { format!("{OPEN_PREFIX}{name}").into() } else { name.into() }
}

/// Returns the attribute that a program reads by this name.
pub fn attribute_name(name: &Bytes) -> Bytes {
    match name.strip_prefix(OPEN_PREFIX.as_bytes()) {
        Some(ours) if is_ours(ours) => name.slice(OPEN_PREFIX.len()..),
        _ => name.clone(),
    }
}

/// Whether reading the attribute of this name may wait for others. The name may have the prefix of
/// [`open_name`].
pub fn is_wait(name: &[u8]) -> bool {
    name.strip_prefix(OPEN_PREFIX.as_bytes()).unwrap_or(name).starts_with(CHANGELOG_WAIT_PREFIX.as_bytes())
}

fn is_ours(name: &[u8]) -> bool {
    name.starts_with(PREFIX.as_bytes()) || name.starts_with(b"lustre.")
}

/// A mount.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MountInfo {
    /// Name of the file system.
    pub fsname: String,
    /// Distinguishes this mount from others of the process or host in names of parameters: 16 hex
    /// digits, `ff3298de21e05800`.
    pub instance: String,
    /// The client's uuid, `a0804f4e-2ee2-4146-8b63-d3b44aeb271d`.
    pub client_uuid: String,
    /// NIDs of the MGS.
    pub mgs_nids: Vec<String>,
    /// Mount point.
    pub mountpoint: String,
    /// Stripe count of a file without settings of its own; -1 is all OSTs. From the root's default,
    /// if it has one.
    pub default_stripe_count: i32,
    /// Stripe size of such a file, in bytes. From the root's default, if it has one.
    pub default_stripe_size: u32,
}

/// A target and its space.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TargetInfo {
    /// Kind.
    pub kind: TargetKind,
    /// Index among its kind.
    pub index: u32,
    /// `sheen-OST0000_UUID`.
    pub uuid: String,
    /// Not deactivated by `active=0`.
    pub active: bool,
    /// Space, or the error why it is unknown.
    pub statfs: Result<StatFs, Errno>,
}

/// Kind of an import's target.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ImportKind {
    /// Object storage target.
    Ost,
    /// Metadata target.
    Mdt,
    /// Management server.
    Mgs,
}

/// A connection of the mount to a target.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ImportInfo {
    /// Kind of the target.
    pub kind: ImportKind,
    /// `sheen-OST0000-osc-ff3298de21e05800`, `sheen-MDT0000-mdc-ff3298de21e05800`,
    /// `MGC10.0.0.1@tcp`.
    pub name: String,
    /// `Ok` while it can carry requests, else the reason: ESHUTDOWN if it was deactivated, ENOTCONN
    /// while it reconnects.
    pub state: Result<(), Errno>,
}

/// Encodes the value of [`PATHS_PREFIX`]: each path followed by a NUL.
pub fn encode_paths(paths: &[Bytes]) -> Vec<u8> {
    let mut out = Vec::new();
    for path in paths {
        out.extend_from_slice(path);
        out.push(0);
    }
    out
}

/// Decodes the value of [`encode_paths`].
pub fn decode_paths(value: &[u8]) -> Vec<&[u8]> {
    let mut paths: Vec<&[u8]> = value.split(|b| *b == 0).collect();
    paths.pop(); // what follows the last NUL
    paths
}

/// Encodes the value of [`PARENTS`]: for each name `[0x200000402:0x180:0x0]/name` followed by a
/// NUL.
pub fn encode_parents(parents: &[(Fid, Bytes)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (parent, name) in parents {
        out.extend_from_slice(parent.to_string().as_bytes());
        out.push(b'/');
        out.extend_from_slice(name);
        out.push(0);
    }
    out
}

/// Encodes the value of [`POOLS`]: a line for each pool, in the order of their names: `fast 1,3-5`.
/// The indices are those of its OSTs, in the order in which they were added. An empty pool has
/// none: `fast `.
pub fn encode_pools(pools: &[Pool]) -> String {
    let mut out = String::new();
    for pool in pools {
        out.push_str(&pool.name);
        for (n, run) in pool.osts.chunk_by(|a, b| a.checked_add(1) == Some(*b)).enumerate() {
            out.push(if n == 0 { ' ' } else { ',' });
            match run {
                [first, .., last] => out.push_str(&format!("{first}-{last}")),
                _ => out.extend(run.iter().map(u32::to_string)),
            }
        }
        out.push_str(if pool.osts.is_empty() { " \n" } else { "\n" });
    }
    out
}

/// Decodes the value of [`encode_pools`]; `None` for anything else, or more OSTs than there can be.
pub fn decode_pools(value: &[u8]) -> Option<Vec<Pool>> {
    let mut left = POOL_MEMBERS_MAX;
    let mut pool = |line: &str| {
        let (name, runs) = line.split_once(' ')?;
        let mut osts = Vec::new();
        for run in runs.split(',').filter(|run| !run.is_empty()) {
            let (first, last) = run.split_once('-').unwrap_or((run, run));
            let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
            left = left.checked_sub(usize::try_from(last.checked_sub(first)?).ok()?.checked_add(1)?)?;
            osts.extend(first..=last);
        }
        Some(Pool { name: name.to_owned(), osts })
    };
    std::str::from_utf8(value).ok()?.lines().map(&mut pool).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_attributes_are_read_under_the_system_prefix() {
        for ours in [FID, "lustre.lov", MOUNT] {
            let open = open_name(ours);
            assert!(open.starts_with("system.") && attribute_name(&Bytes::from(open.into_owned())) == ours);
            assert_eq!(attribute_name(&Bytes::from_static(ours.as_bytes())), ours);
        }
        for other in ["user.x", "system.posix_acl_access", "trusted.lov", "system.", "lustre"] {
            assert_eq!(open_name(other), other);
            assert_eq!(attribute_name(&Bytes::from(other)), other);
        }
    }

    #[test]
    fn only_the_changelog_s_attribute_for_followers_waits() {
        for (name, waits) in [
            ("sheen.changelog_wait.0.7", true),
            ("system.sheen.changelog_wait.0.7", true),
            ("sheen.changelog.0.7", false),
            ("sheen.changelog_clear", false),
            ("user.sheen.changelog_wait.0.7", false),
            ("system.posix_acl_access", false),
        ] {
            assert_eq!(is_wait(name.as_bytes()), waits, "{name}");
        }
    }

    #[test]
    fn pools_encode_as_lines_with_ost_ranges() {
        let pool = |name: &str, osts: &[u32]| Pool { name: name.into(), osts: osts.into() };
        let pools = [pool("all", &[0, 1, 2, 3]), pool("empty", &[]), pool("fast", &[7, 1, 2, 5, 4])];
        let text = encode_pools(&pools);
        assert_eq!(text, "all 0-3\nempty \nfast 7,1-2,5,4\n");
        assert_eq!(decode_pools(text.as_bytes()).as_deref(), Some(&pools[..]));
        assert_eq!(decode_pools(b""), Some(Vec::new()));
        for wrong in ["fast", "fast x", "fast 2-1", "fast 1-", "fast 0-4294967295", "a 0-65000\nb 0-65000"] {
            assert_eq!(decode_pools(wrong.as_bytes()), None, "{wrong}");
        }
        assert_eq!(decode_pools(&[0xff]), None);
    }

    #[test]
    fn paths_round_trip_with_any_bytes() {
        let paths = [Bytes::from_static(b"u/fA"), Bytes::from_static(b""), Bytes::from_static(b"\xff/x")];
        assert_eq!(decode_paths(&encode_paths(&paths)), paths);
        assert!(decode_paths(&encode_paths(&[])).is_empty());
        assert!(decode_paths(b"").is_empty());
    }

    #[test]
    fn parents_encode_as_lfs_prints_them() {
        let parents = [(Fid::new(0x200000402, 0x180), Bytes::from_static(b"fA"))];
        assert_eq!(encode_parents(&parents), b"[0x200000402:0x180:0x0]/fA\0");
    }
}
