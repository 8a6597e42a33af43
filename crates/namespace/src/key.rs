//! Keys of the store. The first byte selects the table. Numbers are big-endian, so that keys sort
//! as numbers do.
//!
//! | table | key after the table byte | value |
//! |---|---|---|
//! | `s` | | [`crate::record::Super`] |
//! | `c` | | [`crate::record::Counters`] |
//! | `f` | | format of the store (u32), module `format`; none in format 1 |
//! | `o` | OST index (u32) | [`crate::record::OstIds`] |
//! | `r` | OST index (u32), first id (u32) | last id of an orphan range (u32) |
//! | `i` | FID | [`crate::record::Inode`] |
//! | `e` | directory's FID, hash of the name (u64) | [`crate::record::Bucket`] |
//! | `x` | FID | [`crate::record::Xattrs`] |
//! | `p` | FID | unit: an orphan (as ext4's "pending delete") |
//! | `u` | number (u64) | unlink log: bytes of a layout whose objects are to be destroyed |
//! | `y` | uuid of a client | its requests that were executed: pairs of xid and transno (u64) |
//! | `k` | uuid of a client | unit: the client is on the list, module `clients` |
//! | `q` | | unit: the last stop was clean |
//! | `h` | | [`crate::changelog::State`] |
//! | `j` | | [`crate::ChangelogGc`]; none: the defaults |
//! | `l` | number of its last record (u64) | a chunk of the changelog |
//! | `w` | | numbers of the last completed layout swaps, each u64 |
//! | `n` | kind (u8), id (u32) | number of files of a user, group or project (u64) |
//! | `d` | kind (u8), id (u32) | [`crate::quotas::IdRecord`] |
//! | `g` | kind (u8) | [`crate::quotas::KindRecord`] |
//! | `b` | kind (u8), id (u32), name of a pool | [`crate::pool_quotas::PoolIdRecord`] |
//! | `m` | kind (u8), name of a pool | [`crate::pool_quotas::PoolKindRecord`] |
//! | `a` | FID | unit: an entry of the owner log, module `owner_log` |
//!
//! A layout in the unlink log belongs to a deleted file, or holds objects removed from a file.

use sheen_wire::{
    Fid, PoolName,
    quota::{Id, Kind},
};

pub(crate) const SUPER: &[u8] = b"s";
pub(crate) const COUNTERS: &[u8] = b"c";
pub(crate) const FORMAT: &[u8] = b"f";
pub(crate) const SWAPS: &[u8] = b"w";
pub(crate) const CLEAN: &[u8] = b"q";
pub(crate) const CHANGELOG_STATE: &[u8] = b"h";
pub(crate) const CHANGELOG_GC: &[u8] = b"j";
/// The table of executed requests.
pub(crate) const REPLIES: u8 = b'y';
/// The table of clients.
pub(crate) const CLIENTS: u8 = b'k';
/// The table of records of the changelog.
pub(crate) const CHANGELOG: u8 = b'l';
/// The table of files in use by user, group and project.
pub(crate) const USAGE: u8 = b'n';
/// The table of limits of users, groups and projects.
pub(crate) const LIMITS: u8 = b'd';
/// The table of default limits and grace times.
pub(crate) const DEFAULTS: u8 = b'g';
/// The table of limits of users, groups and projects within pools.
pub(crate) const POOL_LIMITS: u8 = b'b';
/// The table of default limits and grace times within pools.
pub(crate) const POOL_DEFAULTS: u8 = b'm';
/// The table of the owner log.
pub(crate) const OWNERS: u8 = b'a';
/// Largest key of the other tables: table, FID, hash.
const _: () = assert!(1 + 16 + 8 <= crate::Batch::KEY_BYTES_MAX);
/// Longest name of a client in bytes. A uuid has 36.
const CLIENT_BYTES_MAX: usize = 63;
const _: () = assert!(CLIENT_BYTES_MAX < crate::Batch::KEY_BYTES_MAX);

fn with(table: u8, parts: &[&[u8]]) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + 16 + 8);
    key.push(table);
    parts.iter().for_each(|p| key.extend_from_slice(p));
    key
}

pub(crate) fn inode(fid: Fid) -> Vec<u8> {
    with(b'i', &[&fid.to_key()])
}

pub(crate) fn entry(dir: Fid, hash: u64) -> Vec<u8> {
    with(b'e', &[&dir.to_key(), &hash.to_be_bytes()])
}

/// The hash in a key of [`entry`].
pub(crate) fn entry_hash(key: &[u8]) -> Option<u64> {
    key.get(17..25).and_then(|h| h.try_into().ok()).map(u64::from_be_bytes)
}

pub(crate) fn xattrs(fid: Fid) -> Vec<u8> {
    with(b'x', &[&fid.to_key()])
}

pub(crate) fn ost(ost: u32) -> Vec<u8> {
    with(b'o', &[&ost.to_be_bytes()])
}

/// The OST index in a key of [`ost`] or [`orphan_range`].
pub(crate) fn ost_index(key: &[u8]) -> Option<u32> {
    key.get(1..5).and_then(|k| k.try_into().ok()).map(u32::from_be_bytes)
}

pub(crate) fn orphan_range(ost: u32, first: u32) -> Vec<u8> {
    with(b'r', &[&ost.to_be_bytes(), &first.to_be_bytes()])
}

/// The first id in a key of [`orphan_range`].
pub(crate) fn orphan_first(key: &[u8]) -> Option<u32> {
    key.get(5..9).and_then(|k| k.try_into().ok()).map(u32::from_be_bytes)
}

pub(crate) fn orphan(fid: Fid) -> Vec<u8> {
    with(b'p', &[&fid.to_key()])
}

/// The FID in a key of [`orphan`].
pub(crate) fn orphan_fid(key: &[u8]) -> Option<Fid> {
    key.get(1..17).and_then(|k| k.try_into().ok()).map(Fid::from_key)
}

pub(crate) fn destroy(seqno: u64) -> Vec<u8> {
    with(b'u', &[&seqno.to_be_bytes()])
}

/// The number in a key of [`destroy`].
pub(crate) fn destroy_seqno(key: &[u8]) -> Option<u64> {
    key.get(1..9).and_then(|k| k.try_into().ok()).map(u64::from_be_bytes)
}

/// The chunk of the changelog that ends with this record.
pub(crate) fn changelog(last: u64) -> Vec<u8> {
    with(CHANGELOG, &[&last.to_be_bytes()])
}

/// The number in a key of [`changelog`].
pub(crate) fn changelog_last(key: &[u8]) -> Option<u64> {
    key.get(1..9).and_then(|k| k.try_into().ok()).map(u64::from_be_bytes)
}

/// Returns `None` for a name longer than [`CLIENT_BYTES_MAX`].
pub(crate) fn replies(client: &str) -> Option<Vec<u8>> {
    (client.len() <= CLIENT_BYTES_MAX).then(|| with(REPLIES, &[client.as_bytes()]))
}

/// Returns `None` for a name longer than [`CLIENT_BYTES_MAX`].
pub(crate) fn client(client: &str) -> Option<Vec<u8>> {
    (client.len() <= CLIENT_BYTES_MAX).then(|| with(CLIENTS, &[client.as_bytes()]))
}

/// The client in a key of [`replies`] or [`client`].
pub(crate) fn client_of(key: &[u8]) -> Option<&str> {
    std::str::from_utf8(key.get(1..)?).ok()
}

/// The key of an id in [`USAGE`] or [`LIMITS`].
pub(crate) fn quota(table: u8, id: Id) -> Vec<u8> {
    with(table, &[&[id.kind as u8], &id.id.to_be_bytes()])
}

/// The id in a key of [`quota`].
pub(crate) fn quota_id(key: &[u8]) -> Option<Id> {
    let id = key.get(2..).and_then(|k| k.try_into().ok()).map(u32::from_be_bytes)?;
    Some(Id { kind: quota_kind(key)?, id })
}

/// The key of a kind in [`DEFAULTS`].
pub(crate) fn defaults(kind: Kind) -> Vec<u8> {
    with(DEFAULTS, &[&[kind as u8]])
}

/// The kind in a key of [`quota`] or [`defaults`].
pub(crate) fn quota_kind(key: &[u8]) -> Option<Kind> {
    Kind::ALL.get(usize::from(*key.get(1)?)).copied()
}

/// The key of an id in [`POOL_LIMITS`].
pub(crate) fn pool_quota(id: Id, pool: PoolName) -> Vec<u8> {
    with(POOL_LIMITS, &[&[id.kind as u8], &id.id.to_be_bytes(), pool.as_str().as_bytes()])
}

/// The id and the pool in a key of [`pool_quota`].
pub(crate) fn pool_quota_id(key: &[u8]) -> Option<(Id, PoolName)> {
    Some((quota_id(key.get(..6)?)?, pool_name(key.get(6..)?)?))
}

/// The key of a kind in [`POOL_DEFAULTS`].
pub(crate) fn pool_defaults(kind: Kind, pool: PoolName) -> Vec<u8> {
    with(POOL_DEFAULTS, &[&[kind as u8], pool.as_str().as_bytes()])
}

/// The kind and the pool in a key of [`pool_defaults`].
pub(crate) fn pool_quota_kind(key: &[u8]) -> Option<(Kind, PoolName)> {
    Some((quota_kind(key)?, pool_name(key.get(2..)?)?))
}

fn pool_name(bytes: &[u8]) -> Option<PoolName> {
    PoolName::new(std::str::from_utf8(bytes).ok()?).ok()
}

/// The key of a FID in a table whose keys are FIDs.
pub(crate) fn of_fid(table: u8, fid: Fid) -> Vec<u8> {
    with(table, &[&fid.to_key()])
}

/// Returns the first key of a table, and the first key past it.
pub(crate) fn table(table: u8) -> ([u8; 1], [u8; 1]) {
    ([table], [table + 1])
}
