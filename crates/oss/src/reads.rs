//! Reads, and seeks for data and holes, of objects that other clients may have cached. The OST
//! makes clients with dirty data flush first. So a client that reads without locks and past all
//! caches sees what other clients have written.
//!
//! Invariants:
//! * for each byte, a read returns what any client had written before the read began;
//! * where locks conflict, each object of a request is read by itself, as soon as its own locks are
//!   granted. These are released right after. So the OST never waits for a
//!   lock while it holds another one;
//! * a read waits only if a writer precedes it: a client may cancel its lock only after it has read
//!   under that lock, and waiting requests wait for that cancel.

use std::{collections::BTreeMap, sync::Arc};

use sheen_lnet::Nid;
use sheen_lockd::Glimpse;
use sheen_objects::{change, runs};
use sheen_rpc::{Export, Response};
use sheen_wire::{
    Bulk, Fid, Result,
    ldlm::{Mode, Policy, Resource},
    ost::{Part, Reply, Seek},
};

use crate::{Ost, Store, locks};

impl Ost {
    /// Whether the OST has all bytes that other clients have written to the parts.
    pub(crate) fn is_written(&self, export: &Arc<Export>, parts: &[Part]) -> bool {
        runs(parts).all(|run| {
            let extent = change::inside(run.offset, run.len as u64);
            extent.is_none_or(|extent| self.locks.no_other_writer(export, Resource::extent(run.object), &extent))
        })
    }

    /// Answers a read of a client in this process with the place in the file: the client passes the
    /// file's pages on by itself. A PR lock protects the pages until the client is done, because a
    /// truncate zeroes the rest of the last remaining page in place. `None`: the caller has to read
    /// the bytes.
    ///
    /// # Errors
    /// As [`Ost::read_written`].
    pub(crate) fn in_place(&self, export: &Arc<Export>, parts: &[Part]) -> Result<Option<Response<Reply>>> {
        let Some(part) = Store::for_in_place(parts).filter(|_| export.nid() == Nid::Lo) else { return Ok(None) };
        let Some(extent) = change::inside(part.offset, part.len.into()) else { return Ok(None) };
        let lock = self.locks.lockd().local(&[(Resource::extent(part.object), Mode::Pr, extent)], Some(export));
        // Do not wait: requests queued before this lock may wait for a lock under which the client
        // does this very read.
        if !lock.is_granted() {
            return Ok(None);
        }
        let Some(mut live) = self.store.in_place(part)? else { return Ok(None) };
        live.held = Some(Arc::new(lock));
        Ok(Some(Response::with_live(Reply::Read(vec![part.len]), live)))
    }

    /// Reads the parts after other clients have flushed their dirty data there.
    ///
    /// # Errors
    /// Errors of the local file system. ESHUTDOWN: the OST stops.
    #[cold]
    pub(crate) async fn read_written(&self, export: &Arc<Export>, parts: &[Part]) -> Result<Response<Reply>> {
        let remote = export.nid() != Nid::Lo;
        let mut objects: BTreeMap<Fid, Vec<Part>> = BTreeMap::new();
        parts.iter().for_each(|part| objects.entry(part.object).or_default().push(*part));
        let each = objects.into_iter().map(async |(object, parts)| {
            let extent = |part: &Part| change::inside(part.offset, part.len.into());
            let wants: Vec<_> =
                parts.iter().filter_map(extent).map(|e| (Resource::extent(object), Mode::Pr, e)).collect();
            let mut lock = None;
            if self.has_unwritten(export, object).await? {
                lock.insert(self.locks.lockd().local(&wants, Some(export))).wait().await;
            }
            let read = if remote { self.store.read_and_sum(&parts) } else { self.store.read(&parts) };
            drop(lock);
            read.map(|(lens, bulk)| (object, (lens.into_iter(), bulk, 0)))
        });
        let mut read =
            self.locks.unless_stopping(locks::all(each)).await?.into_iter().collect::<Result<BTreeMap<_, _>>>()?;
        let (mut lens, mut bulk) = (Vec::with_capacity(parts.len()), Bulk::new());
        for part in parts {
            if let Some((each, bytes, at)) = read.get_mut(&part.object)
                && let Some(len) = each.next()
            {
                bulk.append(bytes.slice(*at, len as usize));
                *at += len as usize;
                lens.push(len);
            }
        }
        Ok(Response::with_bulk(Reply::Read(lens), bulk))
    }

    /// Whether another client that holds write locks on an object has data that the OST does not
    /// have. A client that holds locks for an append has none while it waits for further locks, and
    /// must not delay readers.
    async fn has_unwritten(&self, export: &Arc<Export>, object: Fid) -> Result<bool> {
        let known = self.locks.glimpse(export, &[(Resource::extent(object), 0)]).await?;
        Ok(known.iter().any(|known| *known != Glimpse::default()))
    }

    /// Makes other clients flush their dirty data of an object.
    ///
    /// # Errors
    /// ESHUTDOWN: the OST stops.
    pub(crate) async fn write_back(&self, export: &Arc<Export>, object: Fid) -> Result<()> {
        let (resource, whole) = (Resource::extent(object), Policy::extent(0, u64::MAX));
        if !self.locks.no_other_writer(export, resource, &whole) && self.has_unwritten(export, object).await? {
            let mut lock = self.locks.lockd().local(&[(resource, Mode::Pr, whole)], Some(export));
            self.locks.unless_stopping(lock.wait()).await?;
        }
        Ok(())
    }

    /// Returns the next data or hole, after other clients have flushed their dirty data from
    /// `offset` on.
    ///
    /// # Errors
    /// As [`Ost::read_written`].
    pub(crate) async fn seek(&self, export: &Arc<Export>, object: Fid, offset: u64, what: Seek) -> Result<Option<u64>> {
        let (resource, rest) = (Resource::extent(object), Policy::extent(offset, u64::MAX));
        if self.locks.no_other_writer(export, resource, &rest) || !self.has_unwritten(export, object).await? {
            return self.store.seek(object, offset, what);
        }
        let mut lock = self.locks.lockd().local(&[(resource, Mode::Pr, rest)], Some(export));
        self.locks.unless_stopping(lock.wait()).await?;
        let found = self.store.seek(object, offset, what);
        drop(lock);
        found
    }
}
