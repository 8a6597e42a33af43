//! readdir: entries of a directory, in the order of their cookies.
//!
//! * An entry's cookie is the keyed hash of its name, and stays the same while the entry exists. A
//!   reader continues after a cookie. It sees every entry that exists from its first to its last
//!   call exactly once, even if other entries are added and removed meanwhile.
//! * The client adds `.` and `..`. A removed directory is empty. ENOTDIR for any other file.
//! * Until the end, each call returns at least one entry, and as many as fit `max_bytes` in the
//!   kernel's format.

use sheen_wire::{
    self as wire, Fid,
    mds::{DirEntry, Entry, Reply},
};

use super::{names::COOKIE_INDEX_BITS, nodes::entry};
use crate::{Namespace, Store};

/// Maximum reply to one request, in bytes.
const BYTES_MAX: usize = 1 << 20;
/// Bytes of `struct fuse_dirent` before the name; names are padded to 8.
const DIRENT_BYTES: usize = 24;
/// Bytes that attributes add (`struct fuse_entry_out`).
const ATTR_BYTES: usize = 128;
/// Entries read from the tables at once.
const CHUNK_MAX: usize = 1024;

impl<S: Store> Namespace<S> {
    pub(crate) fn readdir(&mut self, fid: Fid, cookie: u64, max_bytes: u32, attrs: bool) -> wire::Result<Reply> {
        self.dir(fid)?;
        let mut room = (max_bytes as usize).min(BYTES_MAX);
        let mut entries: Vec<DirEntry> = Vec::new();
        let (mut after, mut from) = (cookie, cookie >> COOKIE_INDEX_BITS);
        loop {
            let least = DIRENT_BYTES + 8 + if attrs { ATTR_BYTES } else { 0 };
            let chunk = (room / least + 1).min(CHUNK_MAX);
            let buckets = self.tables.buckets(fid, from, chunk)?;
            for (hash, bucket) in &buckets {
                for dentry in bucket.iter() {
                    let cookie = hash << COOKIE_INDEX_BITS | u64::from(dentry.index);
                    if cookie <= after {
                        continue;
                    }
                    let mut bytes = DIRENT_BYTES + dentry.name.len().next_multiple_of(8);
                    let entry = if attrs { self.entry_of(dentry.fid)? } else { None };
                    if let Some(entry) = &entry {
                        bytes += ATTR_BYTES + entry.layout.as_ref().map_or(0, |l| l.len());
                    }
                    if bytes > room && !entries.is_empty() {
                        return Ok(Reply::Entries { entries, eof: false });
                    }
                    room = room.saturating_sub(bytes);
                    let (name, fid, kind) = (dentry.name.to_bytes(), dentry.fid, dentry.kind);
                    entries.push(DirEntry { name, fid, kind, cookie, entry });
                    after = cookie;
                }
            }
            match buckets.last() {
                Some((hash, _)) if buckets.len() == chunk => from = hash + 1,
                _ => return Ok(Reply::Entries { entries, eof: true }),
            }
        }
    }

    fn entry_of(&mut self, fid: Fid) -> wire::Result<Option<Entry>> {
        Ok(self.tables.inode(fid)?.map(|inode| entry(fid, &inode)))
    }
}
