//! The engine: opens a store, executes requests, seals and commits batches.

use std::sync::Arc;

use sheen_layout::{Layout, MDT_OST};
use sheen_wire::{
    self as wire, Fid, FileKind, Time, fid,
    mds::{Reply, Request},
};

use crate::{
    Batch, ClientId, Config, Destroy, Done, Env, Namespace, OrphanRange, Store, StoreError,
    changelog::Changelog,
    clients::Clients,
    error::OpResult,
    format,
    handles::Handles,
    held::Replaced,
    ids::{Objects, Sequences},
    interface::Cx,
    key, ops,
    quotas::Quotas,
    record::{Counters, Inode, Super, decode, encode},
    relayouts::{Swaps, Takes},
    replies::{Origin, Replies},
    tables::{Tables, read},
};

impl<S: Store> Namespace<S> {
    /// Opens a store. Formats it if it is empty and was not formatted before. Commits once before
    /// it returns: the reservation of ids, and orphan ranges that it found. A store of an earlier
    /// format also gets [`crate::STORE_FORMAT`] and the numbers of files. `random` makes open-file
    /// handles differ from those before a restart.
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
        tables.quotas = Quotas::open(tables.store(), format::counts_files(known_format))?;
        let mut ns = Namespace {
            handles: Handles::new(random, config.open_files_max),
            replaced: Replaced::default(),
            orphan: None,
            objects: Objects::open(&mut tables, mdt)?,
            sequences: Sequences::open(counters.seq_reserved, mdt),
            swaps: Swaps::open(tables.store())?,
            takes: Takes::new(),
            replies: Replies::open(tables.store())?,
            clients: Clients::open(&mut tables)?,
            changelog: Changelog::open(tables.store())?,
            replaying: None,
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

    /// Executes one request. After an error, nothing has changed. `StatFs` is answered from
    /// [`Env::statfs`]. `Sync` returns `Ok` at once: the service does the waiting
    /// ([`Namespace::needs_commit`]). [`crate::OpError::CommitFirst`] asks for a commit and a
    /// second call.
    pub fn execute(&mut self, client: ClientId, request: &Request, env: &mut dyn Env) -> OpResult<Done> {
        self.execute_from(client, None, request, env)
    }

    /// As [`Namespace::execute`]. A request with an `origin` that was executed before, also by an
    /// earlier life of the MDT, is answered and not executed again.
    pub fn execute_from(
        &mut self,
        client: ClientId,
        origin: Option<Origin>,
        request: &Request,
        env: &mut dyn Env,
    ) -> OpResult<Done> {
        let time = env.now();
        let mut cx = Cx { client, now: time, env };
        let before = origin.as_ref().and_then(|origin| self.replies.begin(origin));
        let result = match before {
            Some(_) => self.answer_again(&mut cx, request),
            None => ops::execute(self, &mut cx, request),
        };
        if let (Ok(reply), Some(origin), None) = (&result, &origin, before) {
            self.record_executed(origin, request, reply);
        }
        let orphan = self.orphan.take();
        if let (Err(_), Some(orphan)) = (&result, orphan) {
            self.handles.close(orphan.handle);
        }
        let (changed, invalidations) = self.tables.end();
        let transno = before.unwrap_or_default().max(changed);
        result.map(|reply| Done { reply, transno, time, invalidations, orphan, repeated: before.is_some() })
    }

    /// Ends an operation of the MDT itself.
    pub(crate) fn done(&mut self, result: wire::Result<()>, time: Time) -> wire::Result<Done> {
        let (transno, invalidations) = self.tables.end();
        result.map(|()| Done { reply: Reply::Ok, transno, time, invalidations, orphan: None, repeated: false })
    }

    /// Closes all files of a client that disconnected or was evicted. The last close of an orphan
    /// deletes it.
    pub fn disconnect(&mut self, client: ClientId) {
        for (handle, fid) in self.handles.of(client) {
            // If the store fails here, the orphan's record remains for the next recovery, and
            // `take_fault` returns the error.
            let _ = self.close_handle(handle, fid);
        }
        self.tables.end();
    }

    /// Returns everything that changed since the last seal, as one batch to commit. `None` if
    /// nothing changed, or while the last batch is not yet reported by [`Namespace::committed`].
    pub fn seal(&mut self) -> Option<Batch> {
        let sealed = self.try_seal();
        self.tables.fail(sealed).ok().flatten()
    }

    fn try_seal(&mut self) -> Result<Option<Batch>, StoreError> {
        if self.tables.is_committing() {
            return Ok(None);
        }
        self.objects.flush(&mut self.tables)?;
        self.replies.flush(&mut self.tables)?;
        self.changelog.flush(&mut self.tables)?;
        for (key, record) in self.tables.quotas.take_changes()? {
            self.tables.set_raw(key, record);
        }
        if self.tables.is_clean() && !self.sequences.is_dirty() {
            return Ok(None);
        }
        self.counters.transno = self.tables.last_transno();
        self.counters.seq_reserved = self.sequences.reserved();
        self.tables.set_raw(key::COUNTERS.to_vec(), Some(encode(&self.counters, Vec::new())?));
        self.objects.sealed();
        self.sequences.sealed();
        let batch = self.tables.seal();
        if self.changelog.has_unneeded() {
            // So that further batches delete the others.
            self.tables.add_bytes(1);
        }
        Ok(Some(batch))
    }

    /// Records that the sealed batch that ends with `last` is durable.
    pub fn committed(&mut self, last: u64) {
        if self.tables.committed(last) {
            self.objects.committed();
            self.sequences.committed();
            self.changelog.committed();
        }
    }

    /// Returns the last transno that is durable.
    pub fn last_committed(&self) -> u64 {
        self.tables.last_committed()
    }

    /// Returns the last transno assigned.
    pub fn last_transno(&self) -> u64 {
        self.tables.last_transno()
    }

    /// Returns the size of the next batch: (operations, approximate bytes). Bookkeeping such as
    /// [`Namespace::destroyed`] counts only in bytes. With 0 bytes nothing waits for a commit,
    /// unless a request got [`crate::OpError::CommitFirst`].
    pub fn dirty(&self) -> (u64, usize) {
        self.tables.dirty()
    }

    /// For `Sync { fid }`: returns the transno up to which the service must commit to make the file
    /// (`None`: everything) durable. `None` if it is durable already.
    pub fn needs_commit(&self, fid: Option<Fid>) -> Option<u64> {
        match fid {
            Some(fid) => self.tables.uncommitted(fid),
            None => Some(self.last_transno()).filter(|last| *last > self.last_committed()),
        }
    }

    /// Returns up to `limit` entries of the unlink log with a number above `after`. Includes only
    /// entries that are durable and not yet [`Namespace::destroyed`]. Skips the new names reserved
    /// by a layout swap or a `TakeLayout` in progress. Start with `after` 0, continue from the last
    /// number, start over to retry.
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
                    // Objects of all components: a component that was never written has none, one
                    // on the MDT always has one.
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

    /// Removes these entries from the unlink log with the next batch: their objects are destroyed.
    pub fn destroyed(&mut self, seqnos: &[u64]) {
        for seqno in seqnos {
            self.tables.set_raw(key::destroy(*seqno), None);
        }
    }

    /// Returns the ranges of object ids that may hold objects of creates lost in a crash. The
    /// service destroys these objects with `DestroyRange`.
    pub fn orphan_ranges(&self) -> Vec<OrphanRange> {
        self.objects.orphans()
    }

    /// Forgets this range with the next batch: its objects are destroyed.
    pub fn range_destroyed(&mut self, range: &OrphanRange) {
        self.objects.orphan_range_destroyed(&mut self.tables, range);
    }

    /// Ends recovery, when all clients have had their chance to `Reopen`: deletes the orphans that
    /// no client has open, and forgets the clients that did not come back.
    pub fn finish_recovery(&mut self) -> Result<(), StoreError> {
        self.forget_absent_clients();
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

    /// Releases unused id reservations, before the last seal of a clean stop. Nothing may be
    /// executed afterwards. `is_relied_on`: clients have locks, or programs run from files. Clients
    /// report this to the next life before others can interfere, so that life begins with a
    /// recovery.
    pub fn stop(&mut self, is_relied_on: bool) {
        // Otherwise changes that were not replayed yet would be lost.
        if !is_relied_on && !self.clients.recovering {
            self.stop_clean();
        }
        self.objects.release_unused();
        self.sequences.release_unused();
    }

    /// Whether an entry of the unlink log holds new object names that an operation in progress is
    /// about to assign.
    fn is_naming(&self, seqno: u64) -> bool {
        self.swaps.has(seqno) || self.takes.values().any(|begun| begun.logged == seqno)
    }

    /// Whether an object on the MDT belongs to a file (possibly an orphan), or is about to belong
    /// to one.
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
}

/// Refuses a store that lacks a record written by formatting. Without the counters, for example,
/// the MDT would hand out FIDs again.
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
