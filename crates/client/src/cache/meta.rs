//! Cached attributes, names and link targets of inodes, under inodebits locks.
//!
//! Each inode has a record:
//! * its attributes are cached under a lock on [`ATTR`];
//! * the names that lead to it are cached with the record (LOOKUP);
//! * the names known to be absent in a directory are cached with the directory's record (UPDATE);
//! * its extended attributes are cached under XATTR.
//!
//! When the locks of an inode lose bits, the data that these bits guarded is dropped
//! ([`Meta::drop_bits`]). The loss of LOOKUP drops the whole record. A caller first takes the lock
//! ([`crate::locks::LockTable::matching`]), and then reads the record.
//!
//! **Own changes** cause no blocking callback: the server spares the locks of the client that makes
//! the change. So a change ([`Meta::begin`], [`Meta::end`]) drops what it changed before it
//! returns. A reply is not cached if a change ended after the request was sent, because the reply
//! may predate the change ([`Token`]). The ends of changes are counted in shards, by hash of the
//! FID. A collision costs one request. While a change is in progress, another client may have seen
//! its result already. So the cache does not return what the change may affect.
//!
//! **New directories**: the client knows every name in a directory that it created, as long as it
//! holds the directory's lock. These are the names that it added itself, each noted before the
//! request is sent ([`Meta::adds`]). Every other name is absent ([`Meta::is_absent`]). So a program
//! that unpacks an archive causes no lookup before each create.
//!
//! **Inline DoM data**: the contents of small files on the MDT come with their names
//! ([`sheen_wire::mds::InlineDom`]) and stay cached until they are read. They belong to the merged
//! attributes, which include those of the objects, and are dropped with them.
//!
//! Bounds: the number of records (LRU), the names and extended attributes per record, and in total
//! the absent names, the names in new directories, and the inline DoM data.

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::num::NonZeroUsize;
use std::sync::Arc;

use bytes::Bytes;
use lru::LruCache;
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};
use sheen_layout::Layout;
use sheen_wire::{
    Attr, Bulk, Errno, Fid, Result,
    ldlm::bits,
    mds::{INLINE_DOM_BYTES_MAX, NAME_MAX},
};

/// Bits that must be locked to cache the attributes of an inode.
pub const ATTR: u64 = bits::LOOKUP | bits::UPDATE | bits::PERM;
/// Maximum number of names cached per inode.
const NAMES_MAX: usize = 8;
/// Maximum number of absent names cached in total.
const ABSENT_MAX: usize = 65_536;
/// Maximum number of names noted in new directories in total, some 16 bytes each.
const NOTED_MAX: usize = 262_144;
/// Maximum number of extended attributes cached per inode, and the maximum size of a value in
/// bytes.
const XATTRS_MAX: usize = 4;
const XATTR_BYTES_MAX: usize = 1024;
/// Maximum size of all cached inline DoM data, in bytes.
const CONTENTS_MAX: u64 = 8 << 20;
/// Minimum size that a small file counts for in [`CONTENTS_MAX`], in bytes.
const CONTENT_MIN: u64 = 1024;
/// Number of shards that count the ends of changes: 8 kB.
const SHARDS: usize = 1024;
/// Maximum number of inodes of one change for which the reply may be cached.
const OWN_MAX: usize = 2;

/// Cached record of an inode.
#[derive(Default)]
struct Inode {
    known: Option<Known>,
    /// The keys in [`Meta::names`] that lead to this inode.
    names: Vec<(Fid, Bytes)>,
    /// Whether the inode has no extended attributes of the cacheable kind.
    no_xattrs: bool,
    /// Most inodes have none. A mount caches the records of many thousand inodes.
    rare: Option<Box<Rare>>,
}

/// Cached data of some inodes.
#[derive(Default)]
struct Rare {
    /// All bytes of a small file, until they are read. Present only if [`Known::merged`] is, and
    /// valid as long.
    content: Option<Bulk>,
    link: Option<Bytes>,
    xattrs: Vec<(Bytes, Result<Bytes>)>,
    absent: FxHashSet<Bytes>,
    /// For a new directory: hashes of the names that may exist in it. All others are absent.
    noted: Option<FxHashSet<u64>>,
}

impl Inode {
    fn rare(&self) -> Option<&Rare> {
        self.rare.as_deref()
    }

    fn add_rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    fn drop_content(&mut self) {
        if let Some(rare) = &mut self.rare {
            rare.content = None;
        }
    }

    fn drop_xattrs(&mut self) {
        self.no_xattrs = false;
        if let Some(rare) = &mut self.rare {
            rare.xattrs.clear();
        }
    }

    /// Drops the absent names. Returns how many there were.
    fn drop_absent(&mut self) -> usize {
        self.rare.as_mut().map_or(0, |rare| std::mem::take(&mut rare.absent).len())
    }

    /// Drops the names noted in a new directory. Returns how many there were.
    fn drop_noted(&mut self) -> usize {
        self.rare.as_mut().and_then(|rare| rare.noted.take()).map_or(0, |noted| noted.len())
    }
}

/// Cached attributes of an inode.
#[derive(Clone)]
pub struct Known {
    /// The MDT's attributes.
    pub attr: Attr,
    /// The layout. `None`: a file without objects, or not a regular file.
    pub layout: Option<Arc<Layout>>,
    /// The attributes merged with those of the objects, as long as all objects are locked.
    pub merged: Option<Attr>,
}

/// Counters of the changes to an inode, as long as a change is in progress.
#[derive(Clone, Copy, Default)]
struct Changing {
    /// Changes in progress.
    now: u32,
    /// Those of them that affect more than the data in objects.
    attrs: u32,
    /// Changes begun since the entry was created.
    begun: u64,
}

/// The point in time at which a request was sent, relative to changes.
#[derive(Clone, Copy, Debug)]
pub struct Token {
    seq: u64,
    /// Set for the reply to a change: the number of the change's end, and its inodes. Only if no
    /// other change of these inodes was in progress.
    own: Option<(u64, [Fid; OWN_MAX])>,
}

/// A change in progress.
#[derive(Clone, Debug)]
pub struct Begun {
    seq: u64,
    /// Whether no other change of these inodes was in progress.
    alone: bool,
    /// Whether the change affects only the data in objects.
    data: bool,
    /// The changed inodes, and the number of this change among the changes of the inode.
    own: Vec<(Fid, u64)>,
}

/// The cache. See the module's documentation.
pub struct Meta {
    inodes: LruCache<Fid, Inode, FxBuildHasher>,
    names: FxHashMap<(Fid, Bytes), Fid>,
    absent: usize,
    noted: usize,
    /// Files with inline DoM data, and the sizes that they count for: roughly oldest first.
    contents: VecDeque<(Fid, u64)>,
    contents_bytes: u64,
    changing: FxHashMap<Fid, Changing>,
    /// Value of [`Meta::seq`] at the end of the last change, by shard.
    ended: Vec<u64>,
    /// Number of changes ended so far, plus the number of times that the cache was cleared.
    seq: u64,
    /// Value of [`Meta::seq`] when the cache was last cleared.
    cleared: u64,
}

fn hash(name: &Bytes) -> u64 {
    FxBuildHasher.hash_one(name)
}

fn shard(fid: Fid) -> usize {
    (FxBuildHasher.hash_one(fid) >> 40) as usize % SHARDS
}

impl Meta {
    /// Creates a cache of at most `max` inodes.
    pub fn new(max: usize) -> Meta {
        // Entries are evicted by hand, because the names must be removed together with an inode.
        let inodes = LruCache::with_hasher(NonZeroUsize::new(max).unwrap_or(NonZeroUsize::MIN), FxBuildHasher);
        Meta {
            inodes,
            names: FxHashMap::default(),
            absent: 0,
            noted: 0,
            contents: VecDeque::new(),
            contents_bytes: 0,
            changing: FxHashMap::default(),
            ended: vec![0; SHARDS],
            seq: 0,
            cleared: 0,
        }
    }

    /// Returns the number of cached inodes.
    pub fn len(&self) -> usize {
        self.inodes.len()
    }

    /// Returns a token to cache the reply of a request. Take it before the request is sent.
    pub fn token(&self) -> Token {
        Token { seq: self.seq, own: None }
    }

    fn fresh(&self, fid: Fid, token: &Token) -> bool {
        let ended = self.ended[shard(fid)];
        // The change's own reply is fresh only for the change's own inodes. Another inode of the
        // same shard may have been changed by a different change, whose end the shard's counter no
        // longer shows.
        let own = || token.own.is_some_and(|(seq, fids)| ended == seq && fids.contains(&fid));
        self.cleared <= token.seq && !self.changing.contains_key(&fid) && (ended <= token.seq || own())
    }

    /// Returns the attributes of an inode. Not while this client changes them: another client may
    /// have seen the change.
    pub fn get(&mut self, fid: Fid) -> Option<Known> {
        if self.is_changing(fid) { None } else { self.inodes.get(&fid)?.known.clone() }
    }

    /// Returns the layout of the cached attributes, valid or not.
    pub fn last_layout(&mut self, fid: Fid) -> Option<Arc<Layout>> {
        self.inodes.get(&fid)?.known.as_ref()?.layout.clone()
    }

    /// Whether this client is changing more of an inode than the data in its objects.
    pub fn is_changing(&self, fid: Fid) -> bool {
        self.changing.get(&fid).is_some_and(|changing| changing.attrs > 0)
    }

    /// Returns the attributes of an inode merged with those of its objects. Not during a change by
    /// this client: another program may already have seen the new size.
    pub fn merged(&mut self, fid: Fid) -> Option<Attr> {
        if self.changing.contains_key(&fid) {
            return None;
        }
        self.inodes.get(&fid)?.known.as_ref()?.merged
    }

    /// Caches attributes. The caller holds a lock on [`ATTR`], and on LAYOUT if the layout is not
    /// settled. Returns whether they are newer than the last own change, and so were cached.
    pub fn put(&mut self, fid: Fid, attr: Attr, layout: Option<Arc<Layout>>, token: &Token) -> bool {
        if !self.fresh(fid, token) {
            return false;
        }
        let inode = self.inode(fid);
        let moved = |known: &Known| match (&known.layout, &layout) {
            (Some(known), Some(layout)) => known.generation() != layout.generation(),
            (None, Some(_)) => true,
            (_, None) => false,
        };
        if inode.known.as_ref().is_none_or(|known| known.attr != attr || moved(known)) {
            inode.known = Some(Known { attr, layout, merged: None });
            inode.drop_content();
        }
        true
    }

    /// Caches the attributes merged with those of the objects. The caller holds the locks on all
    /// objects.
    pub fn put_merged(&mut self, fid: Fid, attr: &Attr, merged: Attr, token: &Token) {
        if self.fresh(fid, token)
            && let Some(known) = self.inodes.get_mut(&fid).and_then(|inode| inode.known.as_mut())
            && known.attr == *attr
        {
            known.merged = Some(merged);
        }
    }

    /// Caches all bytes of a small file, which came with the attributes that were just cached
    /// ([`Meta::put_merged`]).
    pub fn put_content(&mut self, fid: Fid, content: Bulk, token: &Token) {
        let counts = (content.len() as u64).max(CONTENT_MIN);
        if content.len() as u64 > INLINE_DOM_BYTES_MAX || !self.fresh(fid, token) {
            return;
        }
        let Some(inode) = self.inodes.get_mut(&fid) else { return };
        if inode.known.as_ref().is_none_or(|known| known.merged.is_none()) {
            return;
        }
        inode.add_rare().content = Some(content);
        self.contents.push_back((fid, counts));
        self.contents_bytes += counts;
        while self.contents_bytes > CONTENTS_MAX
            && let Some((oldest, counts)) = self.contents.pop_front()
        {
            self.contents_bytes -= counts;
            if let Some(inode) = self.inodes.peek_mut(&oldest) {
                inode.drop_content();
            }
        }
    }

    /// Whether the inline DoM data of a file is cached.
    pub fn has_content(&self, fid: Fid) -> bool {
        self.inodes.peek(&fid).and_then(Inode::rare).is_some_and(|rare| rare.content.is_some())
    }

    /// Returns a range of a small file, clipped to its size, if its layout has this generation. The
    /// caller holds the lock on its object. A read of the whole file removes the data from the
    /// cache.
    pub fn content(&mut self, fid: Fid, generation: u32, offset: u64, len: u64) -> Option<Bulk> {
        // During a change, another program may already have read the new data.
        if self.changing.contains_key(&fid) {
            return None;
        }
        let inode = self.inodes.peek_mut(&fid)?;
        let layout = inode.known.as_ref()?.layout.as_ref()?;
        if layout.generation() != generation {
            return None;
        }
        let cached = &mut inode.rare.as_mut()?.content;
        let content = cached.as_ref()?;
        let end = content.len() as u64;
        if offset == 0 && len >= end {
            return cached.take();
        }
        let start = offset.min(end);
        Some(content.slice(start as usize, len.min(end - start) as usize))
    }

    /// Applies a new access time from the MDT. If other attributes differ as well, the reply may be
    /// older than the cache, and is ignored. The access time itself may be outdated; the next read
    /// corrects it.
    pub fn accessed(&mut self, attr: &Attr) {
        if let Some(known) = self.inodes.peek_mut(&attr.fid).and_then(|inode| inode.known.as_mut())
            && known.attr == (Attr { atime: known.attr.atime, ..*attr })
        {
            known.attr.atime = attr.atime;
            known.merged.iter_mut().for_each(|merged| merged.atime = attr.atime);
        }
    }

    /// Returns the inode of a name. The caller ensures that the inode is locked.
    pub fn name(&self, parent: Fid, name: &Bytes) -> Option<Fid> {
        self.names.get(&(parent, name.clone())).copied()
    }

    /// Returns the parent directory of a known name of an inode. A directory has only one. The
    /// caller ensures that the inode is locked.
    pub fn parent(&self, fid: Fid) -> Option<Fid> {
        self.inodes.peek(&fid)?.names.first().map(|(parent, _)| *parent)
    }

    /// Caches a name. The caller holds a lock on the inode's LOOKUP.
    pub fn put_name(&mut self, parent: Fid, name: &Bytes, fid: Fid, token: &Token) {
        if !self.fresh(parent, token) || !self.fresh(fid, token) {
            return;
        }
        match self.names.get(&(parent, name.clone())).copied() {
            Some(there) if there == fid => return,
            Some(_) => self.drop_name(parent, name),
            None => {}
        }
        let inode = self.inode(fid);
        if inode.names.len() < NAMES_MAX {
            // `name` may be a part of a large message, which it would keep in memory.
            let name = Bytes::copy_from_slice(name);
            inode.names.reserve_exact(1);
            inode.names.push((parent, name.clone()));
            self.names.insert((parent, name), fid);
        }
    }

    /// Whether a name is known to be absent. The caller ensures that the directory is locked.
    pub fn is_absent(&mut self, parent: Fid, name: &Bytes) -> bool {
        self.inodes.peek(&parent).and_then(Inode::rare).is_some_and(|dir| {
            // For an invalid name, the MDT returns the error.
            let noted = dir.noted.as_ref().filter(|_| name.len() <= NAME_MAX);
            dir.absent.contains(name) || noted.is_some_and(|noted| !noted.contains(&hash(name)))
        })
    }

    /// Marks a directory as new and empty. The caller holds the lock on [`ATTR`] that came with the
    /// reply.
    pub fn put_empty(&mut self, dir: Fid, token: &Token) {
        if self.fresh(dir, token)
            && let Some(inode) = self.inodes.get_mut(&dir)
        {
            inode.add_rare().noted.get_or_insert_default();
        }
    }

    /// Notes that this client is about to add a name to a directory. Call it after the change has
    /// begun and before the request is sent, whatever the reply will be.
    pub fn adds(&mut self, dir: Fid, name: &Bytes) {
        let full = self.noted >= NOTED_MAX;
        let Some(inode) = self.inodes.peek_mut(&dir) else { return };
        if full {
            self.noted -= inode.drop_noted();
        } else if let Some(noted) = inode.rare.as_mut().and_then(|rare| rare.noted.as_mut()) {
            self.noted += usize::from(noted.insert(hash(name)));
        }
    }

    /// Caches that a name is absent. The caller holds a lock on the directory's UPDATE.
    pub fn put_absent(&mut self, parent: Fid, name: &Bytes, token: &Token) {
        if self.absent < ABSENT_MAX
            && self.fresh(parent, token)
            && let Some(dir) = self.inodes.get_mut(&parent)
        {
            self.absent += usize::from(dir.add_rare().absent.insert(name.clone()));
        }
    }

    /// Returns the target of a symbolic link.
    pub fn link(&mut self, fid: Fid) -> Option<Bytes> {
        self.inodes.get(&fid)?.rare()?.link.clone()
    }

    /// Caches the target of a symbolic link, if the inode is cached. A target never changes.
    pub fn put_link(&mut self, fid: Fid, target: &Bytes) {
        if let Some(inode) = self.inodes.get_mut(&fid) {
            inode.add_rare().link = Some(target.clone());
        }
    }

    /// Returns an extended attribute, or ENODATA if it is known not to exist. The caller ensures
    /// that XATTR is locked.
    pub fn xattr(&mut self, fid: Fid, name: &Bytes) -> Option<Result<Bytes>> {
        let inode = self.inodes.get(&fid)?;
        if inode.no_xattrs {
            return Some(Err(Errno::ENODATA));
        }
        inode.rare()?.xattrs.iter().find(|(n, _)| n == name).map(|(_, value)| value.clone())
    }

    /// Caches that an inode has no extended attributes, if the inode is cached. The caller holds a
    /// lock on XATTR.
    pub fn put_no_xattrs(&mut self, fid: Fid, token: &Token) {
        if self.fresh(fid, token)
            && let Some(inode) = self.inodes.get_mut(&fid)
        {
            inode.no_xattrs = true;
        }
    }

    /// Caches an extended attribute. The caller holds a lock on XATTR.
    pub fn put_xattr(&mut self, fid: Fid, name: &Bytes, value: &Result<Bytes>, token: &Token) {
        let keep = match value {
            Ok(value) => value.len() <= XATTR_BYTES_MAX,
            Err(errno) => *errno == Errno::ENODATA,
        };
        if keep
            && self.fresh(fid, token)
            && let Some(inode) = self.inodes.get_mut(&fid)
        {
            let xattrs = &mut inode.add_rare().xattrs;
            if xattrs.len() < XATTRS_MAX && xattrs.iter().all(|(n, _)| n != name) {
                xattrs.push((name.clone(), value.clone()));
            }
        }
    }

    /// Drops the data that these bits of an inode guard. LOOKUP guards the whole record.
    pub fn drop_bits(&mut self, fid: Fid, dropped: u64) {
        if dropped & bits::LOOKUP != 0 {
            if let Some(inode) = self.inodes.pop(&fid) {
                self.unlinked(inode);
            }
        } else if let Some(inode) = self.inodes.peek_mut(&fid) {
            if dropped & bits::XATTR != 0 {
                inode.drop_xattrs();
            }
            if dropped & (ATTR | bits::LAYOUT) != 0 {
                inode.known = None;
                inode.drop_content();
                self.absent -= inode.drop_absent();
                self.noted -= inode.drop_noted();
            }
        }
    }

    /// Drops the merged attributes and the inline DoM data of an inode.
    pub fn unmerge(&mut self, fid: Fid) {
        if let Some(inode) = self.inodes.peek_mut(&fid) {
            inode.known.iter_mut().for_each(|known| known.merged = None);
            inode.drop_content();
        }
    }

    /// Drops the changeable data of an inode, except the names that lead to it and the names noted
    /// in it ([`Meta::adds`]).
    fn changed(&mut self, fid: Fid) {
        if let Some(inode) = self.inodes.peek_mut(&fid) {
            inode.known = None;
            inode.drop_content();
            inode.drop_xattrs();
            self.absent -= inode.drop_absent();
        }
    }

    /// Drops a name.
    pub fn drop_name(&mut self, parent: Fid, name: &Bytes) {
        let Some(fid) = self.names.remove(&(parent, name.clone())) else { return };
        if let Some(inode) = self.inodes.peek_mut(&fid) {
            inode.names.retain(|(p, n)| *p != parent || n != name);
        }
    }

    /// Drops everything, and invalidates all tokens.
    pub fn clear(&mut self) {
        self.seq += 1;
        self.cleared = self.seq;
        self.inodes.clear();
        self.names.clear();
        self.contents.clear();
        (self.absent, self.noted, self.contents_bytes) = (0, 0, 0);
    }

    /// Begins a change of these inodes. `data`: only the data in the objects changes.
    pub fn begin(&mut self, fids: &[Fid], data: bool) -> Begun {
        let mut begun = Begun { seq: self.seq, alone: true, data, own: Vec::with_capacity(fids.len()) };
        for fid in fids {
            if begun.own.iter().any(|(own, _)| own == fid) {
                continue;
            }
            let changing = self.changing.entry(*fid).or_default();
            begun.alone &= changing.now == 0;
            changing.now += 1;
            changing.attrs += u32::from(!data);
            changing.begun += 1;
            begun.own.push((*fid, changing.begun));
        }
        begun
    }

    /// Ends a change, and drops what it changed. `also`: further changed inodes. Returns a token to
    /// cache the reply.
    pub fn end(&mut self, begun: &Begun, also: &[Fid]) -> Token {
        self.seq += 1;
        let mut alone = begun.alone;
        for (fid, count) in &begun.own {
            if let Some(changing) = self.changing.get_mut(fid) {
                alone &= changing.begun == *count;
                changing.now -= 1;
                changing.attrs -= u32::from(!begun.data);
                if changing.now == 0 {
                    self.changing.remove(fid);
                }
            }
        }
        for fid in begun.own.iter().map(|(fid, _)| fid).chain(also) {
            self.ended[shard(*fid)] = self.seq;
            if begun.data { self.unmerge(*fid) } else { self.changed(*fid) }
        }
        let mut fids = [Fid::ZERO; OWN_MAX];
        fids.iter_mut().zip(&begun.own).for_each(|(to, (fid, _))| *to = *fid);
        Token { seq: begun.seq, own: alone.then_some((self.seq, fids)) }
    }

    fn inode(&mut self, fid: Fid) -> &mut Inode {
        if !self.inodes.contains(&fid) {
            while self.inodes.len() >= self.inodes.cap().get()
                && let Some((_, oldest)) = self.inodes.pop_lru()
            {
                self.unlinked(oldest);
            }
        }
        self.inodes.get_or_insert_mut(fid, Inode::default)
    }

    fn unlinked(&mut self, mut inode: Inode) {
        self.absent -= inode.drop_absent();
        self.noted -= inode.drop_noted();
        for key in inode.names {
            self.names.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use sheen_wire::{FileKind, Time};

    use super::*;

    const DIR: Fid = Fid::new(0x2_0000_0401, 1);
    const FILE: Fid = Fid::new(0x2_0000_0401, 2);

    fn attr(fid: Fid) -> Attr {
        Attr::new(fid, FileKind::Dir, 0, Time::default())
    }

    #[test]
    fn reply_requested_before_end_of_change_is_not_cached() {
        let mut meta = Meta::new(10);
        let before = meta.token();
        let change = meta.begin(&[FILE], false);
        let during = meta.token();
        meta.put(FILE, attr(FILE), None, &during);
        assert!(meta.get(FILE).is_none(), "a change is under way");
        let own = meta.end(&change, &[]);
        meta.put(FILE, attr(FILE), None, &before);
        meta.put(FILE, attr(FILE), None, &during);
        assert!(meta.get(FILE).is_none(), "the answers may be from before");
        meta.put(FILE, attr(FILE), None, &own);
        assert!(meta.get(FILE).is_some(), "the change's own answer is from after");

        let (one, two) = (meta.begin(&[FILE], false), meta.begin(&[FILE], false));
        for change in [one, two] {
            let own = meta.end(&change, &[]);
            meta.put(FILE, attr(FILE), None, &own);
            assert!(meta.get(FILE).is_none(), "which of two is from after the other is not known");
        }
        assert!(meta.changing.is_empty());

        let (before, change) = (meta.token(), meta.begin(&[DIR], false));
        meta.put(FILE, attr(FILE), None, &before);
        meta.end(&change, &[FILE]);
        assert!(meta.get(FILE).is_none(), "it turned out to be changed as well");
        meta.put(FILE, attr(FILE), None, &before);
        assert!(meta.get(FILE).is_none());
        let token = meta.token();
        meta.clear();
        meta.put(FILE, attr(FILE), None, &token);
        assert!(meta.get(FILE).is_none(), "asked of a server that has forgotten this client");
    }

    #[test]
    fn attributes_are_not_returned_while_they_are_being_changed() {
        let mut meta = Meta::new(10);
        let token = meta.token();
        meta.put(FILE, attr(FILE), None, &token);
        let write = meta.begin(&[FILE], true);
        assert!(meta.get(FILE).is_some(), "a write changes the objects alone");
        let change = meta.begin(&[FILE], false);
        assert!(meta.get(FILE).is_none() && meta.is_changing(FILE), "another client may have seen the change");
        meta.end(&write, &[]);
        assert!(meta.get(FILE).is_none());
        let own = meta.end(&change, &[]);
        assert!(meta.get(FILE).is_none() && !meta.is_changing(FILE), "they are outdated");
        let fresh = meta.token();
        meta.put(FILE, attr(FILE), None, &own);
        assert!(meta.get(FILE).is_none(), "the write ended in between");
        meta.put(FILE, attr(FILE), None, &fresh);
        assert!(meta.get(FILE).is_some());
    }

    #[test]
    fn reply_to_change_is_not_cached_for_other_inode_in_same_shard() {
        let mut meta = Meta::new(10);
        let other = (3..).map(|oid| Fid::new(DIR.seq, oid)).find(|fid| shard(*fid) == shard(DIR)).unwrap();
        let (create, chmod) = (meta.begin(&[DIR], false), meta.begin(&[other], false));
        meta.end(&chmod, &[]);
        let own = meta.end(&create, &[]);
        meta.put(other, attr(other), None, &own);
        assert!(meta.get(other).is_none(), "it may be from before the other change");
        meta.put(DIR, attr(DIR), None, &own);
        assert!(meta.get(DIR).is_some());
    }

    #[test]
    fn evicted_inode_drops_its_names() {
        let mut meta = Meta::new(2);
        let (token, name) = (meta.token(), Bytes::from_static(b"f"));
        meta.put(DIR, attr(DIR), None, &token);
        meta.put_name(DIR, &name, FILE, &token);
        meta.put_absent(DIR, &Bytes::from_static(b"g"), &token);
        assert_eq!(meta.name(DIR, &name), Some(FILE));
        for oid in 3..10 {
            let fid = Fid { oid, ..FILE };
            meta.put(fid, attr(fid), None, &token);
        }
        assert_eq!((meta.len(), meta.names.len(), meta.absent), (2, 0, 0));
        assert_eq!(meta.name(DIR, &name), None);
    }

    #[test]
    fn new_directory_reports_all_other_names_as_absent() {
        let (mut meta, name) = (Meta::new(10), |n: &'static str| Bytes::from_static(n.as_bytes()));
        let token = meta.token();
        meta.put(DIR, attr(DIR), None, &token);
        assert!(!meta.is_absent(DIR, &name("a")), "it may have been there before");
        meta.put_empty(DIR, &token);
        assert!(meta.is_absent(DIR, &name("a")) && meta.is_absent(DIR, &name("b")));
        assert!(!meta.is_absent(DIR, &Bytes::from(vec![b'a'; NAME_MAX + 1])), "no name");
        meta.adds(DIR, &name("a"));
        assert!(!meta.is_absent(DIR, &name("a")), "from before it is asked for");
        let own = meta.begin(&[DIR], false);
        meta.end(&own, &[]);
        assert!(!meta.is_absent(DIR, &name("a")) && meta.is_absent(DIR, &name("b")), "own changes are known");
        meta.drop_bits(DIR, bits::UPDATE);
        assert!(!meta.is_absent(DIR, &name("b")), "without the lock anybody may put names there");
        assert_eq!(meta.noted, 0);
    }

    #[test]
    fn names_noted_in_new_directories_are_bounded() {
        let mut meta = Meta::new(10);
        let token = meta.token();
        meta.put(DIR, attr(DIR), None, &token);
        meta.put_empty(DIR, &token);
        (0..=NOTED_MAX).for_each(|n| meta.adds(DIR, &Bytes::from(n.to_string())));
        assert_eq!(meta.noted, 0);
        assert!(!meta.is_absent(DIR, &Bytes::from_static(b"none")), "it is not known any more");
    }

    #[test]
    fn inline_dom_data_is_dropped_with_merged_attributes_and_bounded() {
        let stripes = vec![sheen_layout::Stripe { object: Fid::new(7, 7), ost: 0 }];
        let layout = |fid| Some(Arc::new(Layout::new(fid, 1 << 16, None, stripes.clone()).unwrap()));
        let put = |meta: &mut Meta, fid: Fid, bytes: usize| {
            let token = meta.token();
            meta.put(fid, attr(fid), layout(fid), &token);
            meta.put_merged(fid, &attr(fid), attr(fid), &token);
            meta.put_content(fid, Bulk::from(Bytes::from(vec![1; bytes])), &token);
        };
        let mut meta = Meta::new(10_000);
        let there = |meta: &mut Meta, fid| meta.content(fid, 0, 1, 2).map(|content| content.len());
        put(&mut meta, FILE, 100);
        assert_eq!(there(&mut meta, FILE), Some(2));
        assert_eq!(meta.content(FILE, 0, 99, 10).unwrap().len(), 1);
        assert_eq!(meta.content(FILE, 0, 200, 10).unwrap().len(), 0);
        assert!(meta.content(FILE, 1, 1, 2).is_none(), "of another layout");
        let change = meta.begin(&[FILE], true);
        assert!(there(&mut meta, FILE).is_none(), "somebody may have seen the change");
        assert!(meta.merged(FILE).is_none() && meta.get(FILE).is_some());
        meta.end(&change, &[]);
        assert!(there(&mut meta, FILE).is_none());

        for drop in [|meta: &mut Meta| meta.unmerge(FILE), |meta: &mut Meta| meta.drop_bits(FILE, bits::UPDATE)] {
            put(&mut meta, FILE, 100);
            assert!(there(&mut meta, FILE).is_some());
            drop(&mut meta);
            assert!(there(&mut meta, FILE).is_none());
        }
        let token = meta.token();
        meta.put_content(FILE, Bulk::new(), &token);
        assert!(meta.content(FILE, 0, 0, 1).is_none(), "without attributes nothing drops it");
        put(&mut meta, FILE, 100);
        assert_eq!(meta.content(FILE, 0, 0, 100).unwrap().len(), 100);
        assert!(meta.content(FILE, 0, 0, 100).is_none(), "the reader has it now");

        let files = CONTENTS_MAX / INLINE_DOM_BYTES_MAX + 10;
        (0..files as u32).for_each(|n| put(&mut meta, Fid::new(DIR.seq, 10 + n), INLINE_DOM_BYTES_MAX as usize));
        let cached = (0..files as u32).filter(|n| there(&mut meta, Fid::new(DIR.seq, 10 + n)).is_some()).count();
        assert_eq!(cached as u64, CONTENTS_MAX / INLINE_DOM_BYTES_MAX);
        (0..100_000).for_each(|_| put(&mut meta, FILE, 0));
        assert!(meta.contents.len() as u64 <= CONTENTS_MAX / CONTENT_MIN);
    }
}
