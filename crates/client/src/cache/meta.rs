//! Attributes, names and link targets of inodes, under inodebits locks.
//!
//! An inode's record lives under a lock on [`ATTR`]; names that lead to it live with it (LOOKUP),
//! names that are known to be missing in it live with the directory (UPDATE), extended attributes
//! with XATTR. When a part of its locks goes, what it guarded is dropped ([`Meta::drop_bits`]);
//! with LOOKUP all of it. Whoever uses a record makes sure that the lock is there
//! ([`crate::locks::LockTable::matching`]) first, then looks.
//!
//! **Own changes** call nobody back here: the server spares the locks of whoever changes. So a
//! change ([`Meta::begin`], [`Meta::end`]) drops what it changed before it returns, and what was
//! asked for before a change ended is not put in after it: the answer may be from before
//! ([`Token`]). When changes ended is counted in shards, by hash: a collision costs a request.
//!
//! **New directories**: of a directory that this client made it knows every name, as long as it
//! holds its lock: those that it put there itself, noted before it asks for them ([`Meta::adds`]).
//! Any other is missing ([`Meta::is_absent`]). So who unpacks an archive asks for no name before
//! making it.
//!
//! **Contents** of small files on the MDT come with their names ([`sheen_wire::mds::Beginning`])
//! and stay until they are read. They live with the attributes that the objects are merged into:
//! whatever drops these drops them.
//!
//! Bounded: records (LRU), names per record, missing names and names in new directories in total,
//! extended attributes per record, contents in total.

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
    mds::{BEGINNING_BYTES_MAX, NAME_MAX},
};

/// What must be locked for the attributes of an inode to be kept.
pub const ATTR: u64 = bits::LOOKUP | bits::UPDATE | bits::PERM;
/// Names kept of one inode.
const NAMES_MAX: usize = 8;
/// Missing names kept in all.
const ABSENT_MAX: usize = 65_536;
/// Names in new directories noted in all: some 16 bytes each.
const NOTED_MAX: usize = 262_144;
/// Extended attributes kept of one inode, and their largest value in bytes.
const XATTRS_MAX: usize = 4;
const XATTR_BYTES_MAX: usize = 1024;
/// Contents of small files that are kept until they are read, in bytes, all together.
const CONTENTS_MAX: u64 = 8 << 20;
/// What a small file counts as, at least.
const CONTENT_MIN: u64 = 1024;
/// Shards in which it is noted when changes ended: 8 kB.
const SHARDS: usize = 1024;
/// Inodes of one change whose answer may be put in.
const OWN_MAX: usize = 2;

/// What is known of an inode.
#[derive(Default)]
struct Inode {
    known: Option<Known>,
    /// All bytes of a small file, until they are read. There only if [`Known::merged`] is, and as
    /// good.
    content: Option<Bulk>,
    link: Option<Bytes>,
    xattrs: Xattrs,
    /// The names under which it is in [`Meta::names`].
    names: Vec<(Fid, Bytes)>,
    absent: FxHashSet<Bytes>,
    /// Of a new directory: hashes of the names that may be there. All others are missing.
    noted: Option<FxHashSet<u64>>,
}

/// Extended attributes of an inode.
#[derive(Default)]
struct Xattrs {
    /// There are none that would be kept.
    none: bool,
    kept: Vec<(Bytes, Result<Bytes>)>,
}

impl Xattrs {
    fn clear(&mut self) {
        self.none = false;
        self.kept.clear();
    }
}

/// Attributes of an inode.
#[derive(Clone)]
pub struct Known {
    /// As the MDT gave them.
    pub attr: Attr,
    /// Where the data is; `None`: a file without objects, or no file.
    pub layout: Option<Arc<Layout>>,
    /// With those of the objects merged in, while all objects are locked.
    pub merged: Option<Attr>,
}

/// Changes of an inode, while there are some.
#[derive(Clone, Copy, Default)]
struct Changing {
    /// Under way.
    now: u32,
    /// Begun since there are some.
    begun: u64,
}

/// When something was asked for.
#[derive(Clone, Copy, Debug)]
pub struct Token {
    seq: u64,
    /// It was a change itself, of these inodes, which met no other of them and ended as this one.
    own: Option<(u64, [Fid; OWN_MAX])>,
}

/// A change under way.
#[derive(Clone, Debug)]
pub struct Begun {
    seq: u64,
    /// No other was under way.
    alone: bool,
    /// What is changed, and the how manyth change of it this is.
    own: Vec<(Fid, u64)>,
}

/// See the module.
pub struct Meta {
    inodes: LruCache<Fid, Inode, FxBuildHasher>,
    names: FxHashMap<(Fid, Bytes), Fid>,
    absent: usize,
    noted: usize,
    /// Files whose contents were put in last, and what they count as: about oldest first.
    contents: VecDeque<(Fid, u64)>,
    contents_bytes: u64,
    changing: FxHashMap<Fid, Changing>,
    /// [`Meta::seq`] at the end of the last change, by shard.
    ended: Vec<u64>,
    /// Changes ended so far, and times that all was dropped.
    seq: u64,
    /// [`Meta::seq`] when all was dropped last.
    cleared: u64,
}

fn hash(name: &Bytes) -> u64 {
    FxBuildHasher.hash_one(name)
}

fn shard(fid: Fid) -> usize {
    (FxBuildHasher.hash_one(fid) >> 40) as usize % SHARDS
}

impl Meta {
    /// Keeps at most `max` inodes.
    pub fn new(max: usize) -> Meta {
        // Evicted by hand, because names go with an inode.
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

    /// How many inodes are kept.
    pub fn len(&self) -> usize {
        self.inodes.len()
    }

    /// To be taken before something is asked for that is to be put in.
    pub fn token(&self) -> Token {
        Token { seq: self.seq, own: None }
    }

    fn fresh(&self, fid: Fid, token: &Token) -> bool {
        let ended = self.ended[shard(fid)];
        // Another change may have ended in the same shard, of an inode that only the shard has in
        // common with this one's.
        let own = || token.own.is_some_and(|(seq, fids)| ended == seq && fids.contains(&fid));
        self.cleared <= token.seq && !self.changing.contains_key(&fid) && (ended <= token.seq || own())
    }

    /// The attributes of an inode.
    pub fn get(&mut self, fid: Fid) -> Option<Known> {
        self.inodes.get(&fid)?.known.clone()
    }

    /// Puts attributes in. The caller uses a lock on [`ATTR`], and on LAYOUT if the layout is one
    /// that may change. Whether they are from after the last own change.
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
            inode.content = None;
        }
        true
    }

    /// Puts attributes in with those of the objects merged in. The caller uses the locks on all
    /// objects.
    pub fn put_merged(&mut self, fid: Fid, attr: &Attr, merged: Attr, token: &Token) {
        if self.fresh(fid, token)
            && let Some(known) = self.inodes.get_mut(&fid).and_then(|inode| inode.known.as_mut())
            && known.attr == *attr
        {
            known.merged = Some(merged);
        }
    }

    /// Puts in all bytes of a small file, which came with the attributes that were just put in
    /// ([`Meta::put_merged`]).
    pub fn put_content(&mut self, fid: Fid, content: Bulk, token: &Token) {
        let counts = (content.len() as u64).max(CONTENT_MIN);
        if content.len() as u64 > BEGINNING_BYTES_MAX || !self.fresh(fid, token) {
            return;
        }
        let Some(inode) = self.inodes.get_mut(&fid) else { return };
        if inode.known.as_ref().is_none_or(|known| known.merged.is_none()) {
            return;
        }
        inode.content = Some(content);
        self.contents.push_back((fid, counts));
        self.contents_bytes += counts;
        while self.contents_bytes > CONTENTS_MAX
            && let Some((oldest, counts)) = self.contents.pop_front()
        {
            self.contents_bytes -= counts;
            if let Some(inode) = self.inodes.peek_mut(&oldest) {
                inode.content = None;
            }
        }
    }

    /// Whether a small file's bytes are here.
    pub fn has_content(&self, fid: Fid) -> bool {
        self.inodes.peek(&fid).is_some_and(|inode| inode.content.is_some())
    }

    /// A range of a small file whose layout is of this generation, up to its end. The caller uses
    /// the lock on its object. Who asks for all of it has it from then on.
    pub fn content(&mut self, fid: Fid, generation: u32, offset: u64, len: u64) -> Option<Bulk> {
        // While it is being changed somebody may have seen it changed.
        if self.changing.contains_key(&fid) {
            return None;
        }
        let inode = self.inodes.peek_mut(&fid)?;
        let layout = inode.known.as_ref()?.layout.as_ref()?;
        if layout.generation() != generation {
            return None;
        }
        let end = inode.content.as_ref()?.len() as u64;
        if offset == 0 && len >= end {
            return inode.content.take();
        }
        let start = offset.min(end);
        inode.content.as_ref().map(|content| content.slice(start as usize, len.min(end - start) as usize))
    }

    /// The MDT says when an inode was read last. Where it says something else as well, it may be
    /// older than what is known, and is not taken. (So may the access time, which the next read
    /// sets right.)
    pub fn accessed(&mut self, attr: &Attr) {
        if let Some(known) = self.inodes.peek_mut(&attr.fid).and_then(|inode| inode.known.as_mut())
            && known.attr == (Attr { atime: known.attr.atime, ..*attr })
        {
            known.attr.atime = attr.atime;
            known.merged.iter_mut().for_each(|merged| merged.atime = attr.atime);
        }
    }

    /// The inode behind a name. The caller makes sure that it is locked.
    pub fn name(&self, parent: Fid, name: &Bytes) -> Option<Fid> {
        self.names.get(&(parent, name.clone())).copied()
    }

    /// The directory in which an inode has a name that is known: of a directory the only one. The
    /// caller makes sure that it is locked.
    pub fn parent(&self, fid: Fid) -> Option<Fid> {
        self.inodes.peek(&fid)?.names.first().map(|(parent, _)| *parent)
    }

    /// Puts a name in. The caller uses a lock on the inode's LOOKUP.
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
            inode.names.push((parent, name.clone()));
            self.names.insert((parent, name.clone()), fid);
        }
    }

    /// Whether a name is known to be missing. The caller makes sure that the directory is locked.
    pub fn is_absent(&mut self, parent: Fid, name: &Bytes) -> bool {
        self.inodes.peek(&parent).is_some_and(|dir| {
            // Of what can be no name the MDT says so.
            let noted = dir.noted.as_ref().filter(|_| name.len() <= NAME_MAX);
            dir.absent.contains(name) || noted.is_some_and(|noted| !noted.contains(&hash(name)))
        })
    }

    /// A directory was just made: it is empty. The caller uses the lock on [`ATTR`] that came with
    /// the answer.
    pub fn put_empty(&mut self, dir: Fid, token: &Token) {
        if self.fresh(dir, token)
            && let Some(inode) = self.inodes.get_mut(&dir)
        {
            inode.noted.get_or_insert_default();
        }
    }

    /// This client is about to put a name into a directory. To be called when the change has begun
    /// and before the MDT is asked, whatever it answers.
    pub fn adds(&mut self, dir: Fid, name: &Bytes) {
        let full = self.noted >= NOTED_MAX;
        if let Some(inode) = self.inodes.peek_mut(&dir)
            && let Some(noted) = &mut inode.noted
        {
            if full {
                self.noted -= noted.len();
                inode.noted = None;
            } else {
                self.noted += usize::from(noted.insert(hash(name)));
            }
        }
    }

    /// A name is missing. The caller uses a lock on the directory's UPDATE.
    pub fn put_absent(&mut self, parent: Fid, name: &Bytes, token: &Token) {
        if self.absent < ABSENT_MAX
            && self.fresh(parent, token)
            && let Some(dir) = self.inodes.get_mut(&parent)
        {
            self.absent += usize::from(dir.absent.insert(name.clone()));
        }
    }

    /// The target of a symbolic link.
    pub fn link(&mut self, fid: Fid) -> Option<Bytes> {
        self.inodes.get(&fid)?.link.clone()
    }

    /// Puts a target in, where the inode is known. (It never changes.)
    pub fn put_link(&mut self, fid: Fid, target: &Bytes) {
        if let Some(inode) = self.inodes.get_mut(&fid) {
            inode.link = Some(target.clone());
        }
    }

    /// An extended attribute, or that there is none. The caller makes sure that XATTR is locked.
    pub fn xattr(&mut self, fid: Fid, name: &Bytes) -> Option<Result<Bytes>> {
        let inode = self.inodes.get(&fid)?;
        let none = inode.xattrs.none.then_some(Err(Errno::ENODATA));
        none.or_else(|| inode.xattrs.kept.iter().find(|(n, _)| n == name).map(|(_, value)| value.clone()))
    }

    /// Puts in that there are no extended attributes, where the inode is known. The caller uses a
    /// lock on XATTR.
    pub fn put_no_xattrs(&mut self, fid: Fid, token: &Token) {
        if self.fresh(fid, token)
            && let Some(inode) = self.inodes.get_mut(&fid)
        {
            inode.xattrs.none = true;
        }
    }

    /// Puts an extended attribute in. The caller uses a lock on XATTR.
    pub fn put_xattr(&mut self, fid: Fid, name: &Bytes, value: &Result<Bytes>, token: &Token) {
        let keep = match value {
            Ok(value) => value.len() <= XATTR_BYTES_MAX,
            Err(errno) => *errno == Errno::ENODATA,
        };
        if keep
            && self.fresh(fid, token)
            && let Some(inode) = self.inodes.get_mut(&fid)
            && inode.xattrs.kept.len() < XATTRS_MAX
            && inode.xattrs.kept.iter().all(|(n, _)| n != name)
        {
            inode.xattrs.kept.push((name.clone(), value.clone()));
        }
    }

    /// Drops what is guarded by these bits of an inode: with LOOKUP, everything.
    pub fn drop_bits(&mut self, fid: Fid, gone: u64) {
        if gone & bits::LOOKUP != 0 {
            if let Some(inode) = self.inodes.pop(&fid) {
                self.unlinked(inode);
            }
        } else if let Some(inode) = self.inodes.peek_mut(&fid) {
            if gone & bits::XATTR != 0 {
                inode.xattrs.clear();
            }
            if gone & (ATTR | bits::LAYOUT) != 0 {
                inode.known = None;
                inode.content = None;
                self.absent -= inode.absent.len();
                inode.absent.clear();
                self.noted -= inode.noted.take().map_or(0, |noted| noted.len());
            }
        }
    }

    /// Drops what an inode's objects say.
    pub fn unmerge(&mut self, fid: Fid) {
        if let Some(inode) = self.inodes.peek_mut(&fid) {
            inode.known.iter_mut().for_each(|known| known.merged = None);
            inode.content = None;
        }
    }

    /// Drops what can change of an inode, but not the names that lead to it, nor which may be in it
    /// ([`Meta::adds`]).
    fn changed(&mut self, fid: Fid) {
        if let Some(inode) = self.inodes.peek_mut(&fid) {
            inode.known = None;
            inode.content = None;
            inode.xattrs.clear();
            self.absent -= inode.absent.len();
            inode.absent.clear();
        }
    }

    /// Drops a name.
    pub fn drop_name(&mut self, parent: Fid, name: &Bytes) {
        let Some(fid) = self.names.remove(&(parent, name.clone())) else { return };
        if let Some(inode) = self.inodes.peek_mut(&fid) {
            inode.names.retain(|(p, n)| *p != parent || n != name);
        }
    }

    /// Drops everything, and what is on its way.
    pub fn clear(&mut self) {
        self.seq += 1;
        self.cleared = self.seq;
        self.inodes.clear();
        self.names.clear();
        self.contents.clear();
        (self.absent, self.noted, self.contents_bytes) = (0, 0, 0);
    }

    /// Begins a change of these inodes.
    pub fn begin(&mut self, fids: &[Fid]) -> Begun {
        let mut begun = Begun { seq: self.seq, alone: true, own: Vec::with_capacity(fids.len()) };
        for fid in fids {
            if begun.own.iter().any(|(own, _)| own == fid) {
                continue;
            }
            let changing = self.changing.entry(*fid).or_default();
            begun.alone &= changing.now == 0;
            changing.now += 1;
            changing.begun += 1;
            begun.own.push((*fid, changing.begun));
        }
        begun
    }

    /// Ends a change: drops what it changed, which may be more than what it was begun with
    /// (`also`); `data`: only in the objects. The token is for what its answer says.
    pub fn end(&mut self, begun: &Begun, data: bool, also: &[Fid]) -> Token {
        self.seq += 1;
        let mut alone = begun.alone;
        for (fid, count) in &begun.own {
            if let Some(changing) = self.changing.get_mut(fid) {
                alone &= changing.begun == *count;
                changing.now -= 1;
                if changing.now == 0 {
                    self.changing.remove(fid);
                }
            }
        }
        for fid in begun.own.iter().map(|(fid, _)| fid).chain(also) {
            self.ended[shard(*fid)] = self.seq;
            if data { self.unmerge(*fid) } else { self.changed(*fid) }
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

    fn unlinked(&mut self, inode: Inode) {
        self.absent -= inode.absent.len();
        self.noted -= inode.noted.map_or(0, |noted| noted.len());
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
        let (kind, t) = (FileKind::Dir, Time::default());
        Attr {
            fid,
            kind,
            perm: 0,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            blocks: 0,
            atime: t,
            mtime: t,
            ctime: t,
            btime: t,
            mtime_set: t,
        }
    }

    #[test]
    fn what_was_asked_before_a_change_ended_is_not_put_in() {
        let mut meta = Meta::new(10);
        let before = meta.token();
        let change = meta.begin(&[FILE]);
        let during = meta.token();
        meta.put(FILE, attr(FILE), None, &during);
        assert!(meta.get(FILE).is_none(), "a change is under way");
        let own = meta.end(&change, false, &[]);
        meta.put(FILE, attr(FILE), None, &before);
        meta.put(FILE, attr(FILE), None, &during);
        assert!(meta.get(FILE).is_none(), "the answers may be from before");
        meta.put(FILE, attr(FILE), None, &own);
        assert!(meta.get(FILE).is_some(), "the change's own answer is from after");

        let (one, two) = (meta.begin(&[FILE]), meta.begin(&[FILE]));
        for change in [one, two] {
            let own = meta.end(&change, false, &[]);
            meta.put(FILE, attr(FILE), None, &own);
            assert!(meta.get(FILE).is_none(), "which of two is from after the other is not known");
        }
        assert!(meta.changing.is_empty());

        let (before, change) = (meta.token(), meta.begin(&[DIR]));
        meta.put(FILE, attr(FILE), None, &before);
        meta.end(&change, false, &[FILE]);
        assert!(meta.get(FILE).is_none(), "it turned out to be changed as well");
        meta.put(FILE, attr(FILE), None, &before);
        assert!(meta.get(FILE).is_none());
        let token = meta.token();
        meta.clear();
        meta.put(FILE, attr(FILE), None, &token);
        assert!(meta.get(FILE).is_none(), "asked of a server that has forgotten this client");
    }

    #[test]
    fn an_answer_says_nothing_of_an_inode_that_another_change_met_in_the_same_shard() {
        let mut meta = Meta::new(10);
        let other = (3..).map(|oid| Fid::new(DIR.seq, oid)).find(|fid| shard(*fid) == shard(DIR)).unwrap();
        let (create, chmod) = (meta.begin(&[DIR]), meta.begin(&[other]));
        meta.end(&chmod, false, &[]);
        let own = meta.end(&create, false, &[]);
        meta.put(other, attr(other), None, &own);
        assert!(meta.get(other).is_none(), "it may be from before the other change");
        meta.put(DIR, attr(DIR), None, &own);
        assert!(meta.get(DIR).is_some());
    }

    #[test]
    fn names_go_with_their_inode_and_inodes_are_bounded() {
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
    fn of_a_new_directory_every_name_is_known_that_was_not_put_there() {
        let (mut meta, name) = (Meta::new(10), |n: &'static str| Bytes::from_static(n.as_bytes()));
        let token = meta.token();
        meta.put(DIR, attr(DIR), None, &token);
        assert!(!meta.is_absent(DIR, &name("a")), "it may have been there before");
        meta.put_empty(DIR, &token);
        assert!(meta.is_absent(DIR, &name("a")) && meta.is_absent(DIR, &name("b")));
        assert!(!meta.is_absent(DIR, &Bytes::from(vec![b'a'; NAME_MAX + 1])), "no name");
        meta.adds(DIR, &name("a"));
        assert!(!meta.is_absent(DIR, &name("a")), "from before it is asked for");
        let own = meta.begin(&[DIR]);
        meta.end(&own, false, &[]);
        assert!(!meta.is_absent(DIR, &name("a")) && meta.is_absent(DIR, &name("b")), "own changes are known");
        meta.drop_bits(DIR, bits::UPDATE);
        assert!(!meta.is_absent(DIR, &name("b")), "without the lock anybody may put names there");
        assert_eq!(meta.noted, 0);
    }

    #[test]
    fn names_in_new_directories_are_bounded() {
        let mut meta = Meta::new(10);
        let token = meta.token();
        meta.put(DIR, attr(DIR), None, &token);
        meta.put_empty(DIR, &token);
        (0..=NOTED_MAX).for_each(|n| meta.adds(DIR, &Bytes::from(n.to_string())));
        assert_eq!(meta.noted, 0);
        assert!(!meta.is_absent(DIR, &Bytes::from_static(b"none")), "it is not known any more");
    }

    #[test]
    fn contents_go_with_what_the_objects_say_and_are_bounded() {
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
        let change = meta.begin(&[FILE]);
        assert!(there(&mut meta, FILE).is_none(), "somebody may have seen the change");
        meta.end(&change, true, &[]);
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

        let files = CONTENTS_MAX / BEGINNING_BYTES_MAX + 10;
        (0..files as u32).for_each(|n| put(&mut meta, Fid::new(DIR.seq, 10 + n), BEGINNING_BYTES_MAX as usize));
        let kept = (0..files as u32).filter(|n| there(&mut meta, Fid::new(DIR.seq, 10 + n)).is_some()).count();
        assert_eq!(kept as u64, CONTENTS_MAX / BEGINNING_BYTES_MAX);
        (0..100_000).for_each(|_| put(&mut meta, FILE, 0));
        assert!(meta.contents.len() as u64 <= CONTENTS_MAX / CONTENT_MIN);
    }
}
