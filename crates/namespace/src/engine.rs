//! The engine: opening, executing, committing.

use std::{hash::Hasher, sync::Arc, time::Duration};

use sheen_layout::{Asked, Component, Layout, MDT_OST, Wanted, WantedLayout};
use sheen_wire::{
    self as wire, Errno, Fid, FileKind, StatFs, Time, fid,
    mds::{RELATIME_SECS, Reply, Request},
};
use siphasher::sip::SipHasher13;

use crate::{
    Batch, OrphanRange, Store, StoreError, format,
    handles::Handles,
    ids::{Objects, Sequences},
    key,
    nameless::Nameless,
    ops,
    record::{Counters, Inode, Super, decode, encode},
    replaced::Replaced,
    tables::{Tables, read},
};

/// Names a client's connection (the export's id) for as long as it lasts: open files belong to it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClientId(pub u64);

/// Not an error of Linux: [`Namespace::execute`] changed nothing that matters and must be called
/// again after the next commit, because ids that it needs are reserved but the reservation is not
/// durable yet. The service seals, commits, repeats (where a batch is being committed already,
/// `seal` answers `None`: wait for that one first); no client ever sees this value. Happens for the
/// first object on an OST, and when 32Ki objects of one OST are used in one commit interval.
pub const NEED_COMMIT: Errno = Errno(0x1_0002);

/// How an MDT is run.
#[derive(Clone, Debug)]
pub struct Config {
    /// Index of this MDT, at most [`sheen_wire::seq::MdtIndex::MAX`]. A store of another one is
    /// refused.
    pub mdt_index: u32,
    /// The MDT was formatted before: an empty store is refused. Formatting it would give ids out
    /// again that objects have.
    pub was_formatted: bool,
    /// Secret of directory hashes, stored in the superblock when an empty store is formatted and
    /// ignored later. Take it from the system's randomness: whoever knows it can make a directory's
    /// names collide.
    pub hash_seed: u64,
    /// Bits of a name's hash, stored like the seed: 56 ([`Config::HASH_BITS_MAX`]); fewer make
    /// tests of collisions.
    pub hash_bits: u32,
    /// Bound of the caches of clean inodes and entries, in bytes.
    pub cache_bytes_max: usize,
    /// Most files one client may have open.
    pub open_files_max: usize,
    /// Owner of the root directory, when an empty store is formatted; ignored later.
    pub root_uid: u32,
    /// Its group, likewise.
    pub root_gid: u32,
    /// Its default layout, likewise.
    pub root_layout: Asked,
    /// Access times older than this are renewed by a read even if newer than the last change.
    pub relatime: Duration,
    /// How long a file that a rename replaced can still be opened, in milliseconds, by who looked
    /// it up before. 0: not at all.
    pub keep_replaced_ms: u32,
}

impl Config {
    /// A cookie has 63 bits, 7 of which tell names of one hash apart. A million names then collide
    /// once in 10^5 directories.
    pub const HASH_BITS_MAX: u32 = 56;
}

impl Default for Config {
    fn default() -> Config {
        Config {
            mdt_index: 0,
            was_formatted: false,
            hash_seed: 0,
            hash_bits: Config::HASH_BITS_MAX,
            cache_bytes_max: 256 << 20,
            open_files_max: 1 << 20,
            root_uid: 0,
            root_gid: 0,
            root_layout: Asked::default(),
            relatime: Duration::from_secs(RELATIME_SECS),
            keep_replaced_ms: 0,
        }
    }
}

/// What is wanted of a new layout: to be resolved in this order (`sheen_layout::resolve_asked`),
/// then from the file system's defaults.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ask {
    /// What the user set on the file itself; empty where nothing.
    pub own: Asked,
    /// The default of its directory.
    pub dir: Option<Asked>,
    /// The default of the root directory.
    pub root: Option<Asked>,
}

/// What an operation needs from around it.
pub trait Env {
    /// Real time.
    fn now(&self) -> Time;
    /// Whether a user may ask for this: do all OSTs and pools in it exist (EINVAL), can the MDT
    /// hold data (EOPNOTSUPP)?
    fn check(&mut self, asked: &Asked) -> wire::Result<()>;
    /// Fills in what is left open. What the user himself asked for has been checked.
    fn resolve(&mut self, ask: &Ask) -> wire::Result<WantedLayout>;
    /// The OST of each stripe of a component (or of a plain layout), of those that are active and
    /// have space at this moment. ENOSPC, EINVAL and so on as `sheen_layout::LayoutError::errno`
    /// says. Called before the operation changes anything; the operation may still fail afterwards.
    fn place(&mut self, wanted: &Wanted) -> wire::Result<Vec<u32>>;
    /// Whether the OSTs of a component have room for so many more bytes; of one without objects,
    /// those that it could be placed on.
    fn has_room(&self, _component: &Component, _bytes: u64) -> bool {
        true
    }
    /// A component with objects took so many bytes more from an extension: they will be written.
    fn extended(&mut self, _component: &Component, _bytes: u64) {}
    /// Whether an OST can be reached.
    fn is_up(&self, _ost: u32) -> bool {
        true
    }
    /// The locks that clients have on the file, as [`sheen_wire::ldlm::bits`].
    fn locks(&self, _fid: Fid) -> Vec<(ClientId, u64)> {
        Vec::new()
    }
    /// The answer to `StatFs`, given the number of inodes in use.
    fn statfs(&self, files: u64) -> StatFs;
    /// Whether clients may have opened the file by themselves, without a handle: one of them has a
    /// lock on [`sheen_wire::ldlm::bits::OPEN`].
    fn may_be_open(&self, _fid: Fid) -> bool {
        false
    }
}

/// A request that was executed.
#[derive(Clone, Debug)]
pub struct Done {
    /// The answer.
    pub reply: Reply,
    /// Number of the change, rising; 0 if nothing changed that a crash could lose.
    pub transno: u64,
    /// What it changed of which inode, each inode once: [`sheen_wire::ldlm::bits`] that others may
    /// no longer keep. Module `touched` says what counts.
    pub touched: Vec<(Fid, u64)>,
    /// A file that it took the last name of, and that clients may have open unknown to the MDT.
    pub nameless: Option<Nameless>,
}

/// Objects of a file that is gone for good, or that were cut off one, to be removed from their
/// OSTs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Destroy {
    /// Number in the unlink log, rising.
    pub seqno: u64,
    /// The file that had them.
    pub file: Fid,
    /// (OST index, object).
    pub objects: Vec<(u32, Fid)>,
}

/// What one request brings along.
pub(crate) struct Cx<'a> {
    pub client: ClientId,
    /// The time of all that this request does.
    pub now: Time,
    pub env: &'a mut dyn Env,
}

/// The MDT's state.
pub struct Namespace<S> {
    pub(crate) tables: Tables<S>,
    pub(crate) handles: Handles,
    pub(crate) replaced: Replaced,
    /// Of the operation under way.
    pub(crate) nameless: Option<Nameless>,
    pub(crate) objects: Objects,
    pub(crate) sequences: Sequences,
    pub(crate) swaps: ops::Swaps,
    pub(crate) takes: ops::Takes,
    pub(crate) counters: Counters,
    pub(crate) config: Config,
}

impl<S: Store> Namespace<S> {
    /// Opens a store; formats it if it is empty and was not formatted before. Commits once before
    /// it returns (the reservation of ids, orphan ranges found, [`crate::STORE_FORMAT`] in a store
    /// of an earlier format). `random` makes open-file handles of this life differ from those of
    /// earlier ones.
    pub fn open(store: Arc<S>, mut config: Config, now: Time, random: u64) -> Result<Self, StoreError> {
        let known_format = format::check(&*store)?;
        let found: Option<Super> = read(&*store, key::SUPER)?;
        let mdt = format::mdt(config.mdt_index, found.as_ref(), known_format)?;
        let counters: Option<Counters> = read(&*store, key::COUNTERS)?;
        match found {
            Some(_) => check_formatted(&*store, counters.is_some())?,
            None => check_empty(&*store, config.was_formatted)?,
        }
        let counters = counters.unwrap_or_default();
        let mut tables = Tables::new(store, config.cache_bytes_max, counters.transno);
        let mut ns = Namespace {
            handles: Handles::new(random, config.open_files_max),
            replaced: Replaced::default(),
            nameless: None,
            objects: Objects::open(&mut tables, mdt)?,
            sequences: Sequences::open(counters.seq_reserved, mdt),
            swaps: ops::Swaps::open(tables.store())?,
            takes: ops::Takes::new(),
            counters,
            tables,
            config: config.clone(),
        };
        match found {
            Some(found) if found.mdt_index != config.mdt_index => {
                let (has, is) = (found.mdt_index, config.mdt_index);
                return Err(StoreError::Incompatible(format!("it belongs to MDT {has}, this is MDT {is}")));
            }
            Some(found) => (config.hash_seed, config.hash_bits) = (found.hash_seed, found.hash_bits),
            None => ns.format(now)?,
        }
        format::mark(&mut ns.tables, known_format)?;
        ns.config = config;
        if let Some(batch) = ns.try_seal()? {
            ns.tables.store().commit(&batch)?;
            ns.committed(batch.last());
        }
        Ok(ns)
    }

    fn format(&mut self, now: Time) -> Result<(), StoreError> {
        let Config { mdt_index, hash_seed, hash_bits, root_uid: uid, root_gid: gid, .. } = self.config;
        let asked = &self.config.root_layout;
        let layout = (!asked.is_default()).then(|| asked.encode().into());
        let record = Super { mdt_index, hash_seed, hash_bits };
        self.tables.set_raw(key::SUPER.to_vec(), Some(encode(&record, Vec::new())?));
        let root = Inode { nlink: 2, perm: 0o755, uid, gid, layout, ..Inode::new(FileKind::Dir, now) };
        self.tables.put_inode(fid::ROOT, root);
        self.counters.files = 1;
        self.tables.end();
        Ok(())
    }

    /// Executes one request. An error changed nothing. `StatFs` is answered from [`Env::statfs`];
    /// `Sync` answers `Ok` at once: waiting is the service's part ([`Namespace::needs_commit`]).
    /// [`NEED_COMMIT`] asks for a commit and a second call.
    pub fn execute(&mut self, client: ClientId, request: &Request, env: &mut dyn Env) -> wire::Result<Done> {
        let mut cx = Cx { client, now: env.now(), env };
        let result = ops::execute(self, &mut cx, request);
        let nameless = self.nameless.take();
        if let (Err(_), Some(nameless)) = (&result, nameless) {
            self.handles.close(nameless.handle);
        }
        let (transno, touched) = self.tables.end();
        result.map(|reply| Done { reply, transno, touched, nameless })
    }

    /// Closes all files of a client that left or was evicted. The last close of an unlinked file
    /// destroys it.
    pub fn disconnect(&mut self, client: ClientId) {
        for (handle, fid) in self.handles.of(client) {
            // A store that fails here leaves the orphan's record, for the next recovery; the fault
            // is kept.
            let _ = self.close_handle(handle, fid);
        }
        self.tables.end();
    }

    /// Everything since the last seal, as one batch to commit. `None` if nothing changed, or while
    /// the last batch is not yet reported [`Namespace::committed`].
    pub fn seal(&mut self) -> Option<Batch> {
        let sealed = self.try_seal();
        self.tables.fail(sealed).ok().flatten()
    }

    fn try_seal(&mut self) -> Result<Option<Batch>, StoreError> {
        if self.tables.is_committing() {
            return Ok(None);
        }
        self.objects.flush(&mut self.tables)?;
        if self.tables.is_clean() && !self.sequences.is_dirty() {
            return Ok(None);
        }
        self.counters.transno = self.tables.last_transno();
        self.counters.seq_reserved = self.sequences.reserved();
        self.tables.set_raw(key::COUNTERS.to_vec(), Some(encode(&self.counters, Vec::new())?));
        self.objects.sealed();
        self.sequences.sealed();
        Ok(Some(self.tables.seal()))
    }

    /// The sealed batch that ends with `last` is durable.
    pub fn committed(&mut self, last: u64) {
        if self.tables.committed(last) {
            self.objects.committed();
            self.sequences.committed();
        }
    }

    /// Last transno that is durable.
    pub fn last_committed(&self) -> u64 {
        self.tables.last_committed()
    }

    /// Last transno given.
    pub fn last_transno(&self) -> u64 {
        self.tables.last_transno()
    }

    /// What the next seal would hold: (operations, bytes, roughly). Bookkeeping such as
    /// [`Namespace::destroyed`] counts only in bytes; with 0 bytes there is nothing that waits for
    /// a commit, unless [`NEED_COMMIT`] was answered.
    pub fn dirty(&self) -> (u64, usize) {
        self.tables.dirty()
    }

    /// For `Sync { fid }`: the transno up to which must be committed for the file (with `None`:
    /// everything) to be durable; `None` if it is already.
    pub fn needs_commit(&self, fid: Option<Fid>) -> Option<u64> {
        match fid {
            Some(fid) => self.tables.uncommitted(fid),
            None => Some(self.last_transno()).filter(|last| *last > self.last_committed()),
        }
    }

    /// Up to `limit` entries of the unlink log with a number above `after` whose unlink is durable
    /// and that are not yet [`Namespace::destroyed`]; without the names of a swap of layouts that
    /// is under way. Start with 0; go on from the last; start over to retry.
    pub fn destroys(&self, after: u64, limit: usize) -> Result<Vec<Destroy>, StoreError> {
        let to = key::table(b'u').1;
        let (mut after, mut out) = (after, Vec::new());
        while out.len() < limit {
            let wanted = limit - out.len();
            let records = self.tables.store().range(&key::destroy(after.saturating_add(1)), &to, wanted)?;
            let full = records.len() == wanted;
            for (key, value) in records {
                let corrupt = |why: String| StoreError::Corrupt { key: format!("{key:02x?}"), why };
                after = key::destroy_seqno(&key).ok_or_else(|| corrupt("malformed key".into()))?;
                if !self.tables.raw_deleted(&key) && !self.is_naming(after) {
                    let layout: bytes::Bytes = decode(&key, &value)?;
                    let layout = Layout::decode(&layout).map_err(|e| corrupt(e.to_string()))?;
                    // Of all components: those that were never written into have none. The one on
                    // the MDT always counts.
                    let objects = layout.all_objects().map(|s| (s.ost, s.object)).collect();
                    out.push(Destroy { seqno: after, file: layout.fid(), objects });
                }
            }
            if !full {
                break;
            }
        }
        Ok(out)
    }

    /// The objects of these entries are gone for good; the entries go with the next batch.
    pub fn destroyed(&mut self, seqnos: &[u64]) {
        for seqno in seqnos {
            self.tables.set_raw(key::destroy(*seqno), None);
        }
    }

    /// Ranges of object ids that may hold objects of creates which a crash lost: to be removed with
    /// `DestroyRange`.
    pub fn orphan_ranges(&self) -> Vec<OrphanRange> {
        self.objects.orphans()
    }

    /// The objects of this range are gone for good; it goes with the next batch.
    pub fn range_destroyed(&mut self, range: &OrphanRange) {
        self.objects.orphan_gone(&mut self.tables, range);
    }

    /// All clients had their chance to `Reopen`: destroys unlinked files that nobody has open.
    pub fn finish_recovery(&mut self) -> Result<(), StoreError> {
        for key in self.tables.raw_keys(b'p')? {
            if let Some(fid) = key::orphan_fid(&key)
                && !self.handles.is_open(fid)
                && self.destroy_orphan(fid).is_err()
            {
                return Err(self.take_fault().unwrap_or(StoreError::Failed("cannot remove an orphan".into())));
            }
        }
        self.tables.end();
        Ok(())
    }

    /// Before the last seal of a clean stop: gives unused reservations back. Nothing may be
    /// executed afterwards.
    pub fn stop(&mut self) {
        self.objects.give_back();
        self.sequences.give_back();
    }

    /// Whether an entry of the unlink log has names that are about to become a file's.
    fn is_naming(&self, seqno: u64) -> bool {
        self.swaps.has(seqno) || self.takes.values().any(|begun| begun.logged == seqno)
    }

    /// Whether an object on the MDT is a file's, also of one without a name that is open still, or
    /// is about to become one's.
    pub fn has_object(&mut self, object: Fid) -> wire::Result<bool> {
        if self.takes.values().any(|begun| begun.object == Some(object)) || self.swaps.has_object(object) {
            return Ok(true);
        }
        let inode = self.tables.inode(Fid { ver: 0, ..object })?;
        let Some(bytes) = inode.filter(|i| i.kind == FileKind::Regular).and_then(|i| i.layout.clone()) else {
            return Ok(false);
        };
        let layout = Layout::decode(&bytes)?;
        Ok(layout.all_objects().any(|s| (s.ost, s.object) == (MDT_OST, object)))
    }

    /// Inodes in use.
    pub fn files(&self) -> u64 {
        self.counters.files
    }

    /// The last failure of the store that a request was answered EIO for; taken by this call.
    pub fn take_fault(&mut self) -> Option<StoreError> {
        self.tables.take_fault()
    }

    /// Where a name stands in its directory: a keyed hash, so that nobody can choose names that
    /// collide; not 0, so that cookies are above those of `.` and `..`.
    pub(crate) fn hash(&self, name: &[u8]) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.config.hash_seed, !self.config.hash_seed.rotate_left(32));
        hasher.write(name);
        (hasher.finish() >> (64 - self.config.hash_bits.clamp(1, Config::HASH_BITS_MAX))).max(1)
    }
}

/// Refuses a store that lacks a record which formatting wrote: without the counters, for one, it
/// would give FIDs out again.
fn check_formatted(store: &impl Store, has_counters: bool) -> Result<(), StoreError> {
    if !has_counters {
        return Err(StoreError::Incomplete("counters"));
    }
    let root = store.get(&key::inode(fid::ROOT))?;
    root.map(drop).ok_or(StoreError::Incomplete("root directory"))
}

/// Refuses a store without a superblock, unless it is new.
fn check_empty(store: &impl Store, was_formatted: bool) -> Result<(), StoreError> {
    let is_new = !was_formatted && store.range(&[0], &[u8::MAX], 1)?.is_empty();
    if is_new { Ok(()) } else { Err(StoreError::Incomplete("superblock")) }
}
