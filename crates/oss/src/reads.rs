//! Reads, and looks for data and holes, of what others may have in their caches: whoever has locks
//! under which there may be something unwritten is made to write it first. So who reads without
//! locks of his own, past all caches, reads what others have written.
//!
//! Invariants:
//! * a read returns what everybody had written before it began, of each byte;
//! * the objects of one request are read one by one where somebody is in the way, each as soon as
//!   its own locks are granted, which are given back then. So the OST waits for no lock while it
//!   holds another;
//! * nobody waits who has no writer before him: a client may give its lock back only after it has
//!   read under it, and those that wait wait for that.

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

use crate::{Ost, Store, locks, service::READ_BYTES};

impl Ost {
    /// Whether all that was written to the parts is here.
    pub(crate) fn is_written(&self, export: &Arc<Export>, parts: &[Part]) -> bool {
        runs(parts).all(|run| {
            let extent = change::inside(run.offset, run.len as u64);
            extent.is_none_or(|extent| self.locks.nobody_writes(export, Resource::extent(run.object), &extent))
        })
    }

    /// A read of a client in this process, which hands the file's pages on itself. Nobody changes
    /// them until it has: a truncate blanks the rest of the last page that it leaves, whoever may
    /// hold it. `None`: to be read here.
    ///
    /// # Errors
    /// As [`Ost::read_written`].
    pub(crate) fn in_place(&self, export: &Arc<Export>, parts: &[Part]) -> Result<Option<Response<Reply>>> {
        let Some(part) = Store::for_in_place(parts).filter(|_| export.nid() == Nid::Lo) else { return Ok(None) };
        let Some(extent) = change::inside(part.offset, part.len.into()) else { return Ok(None) };
        let lock = self.locks.lockd().local(&[(Resource::extent(part.object), Mode::Pr, extent)], Some(export));
        // Not waited for: those before it may wait for a lock under which the client reads just
        // this.
        if !lock.is_granted() {
            return Ok(None);
        }
        let Some(mut live) = self.store.in_place(part)? else { return Ok(None) };
        live.held = Some(Arc::new(lock));
        self.stats.record_at(READ_BYTES, part.len.into());
        Ok(Some(Response::with_live(Reply::Read(vec![part.len]), live)))
    }

    /// Reads the parts, when those who write there have done so.
    ///
    /// # Errors
    /// What the local file system says. ESHUTDOWN: the OST stops.
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
        self.stats.record_at(READ_BYTES, bulk.len() as u64);
        Ok(Response::with_bulk(Reply::Read(lens), bulk))
    }

    /// Whether somebody who has locks for writing to an object also keeps something that is not
    /// here. Who holds locks for an append has nothing, and waits for further ones meanwhile: that
    /// must not hold up who reads.
    async fn has_unwritten(&self, export: &Arc<Export>, object: Fid) -> Result<bool> {
        let known = self.locks.glimpse(export, &[(Resource::extent(object), 0)]).await?;
        Ok(known.iter().any(|known| *known != Glimpse::default()))
    }

    /// Has others write what they keep of an object.
    ///
    /// # Errors
    /// ESHUTDOWN: the OST stops.
    pub(crate) async fn write_back(&self, export: &Arc<Export>, object: Fid) -> Result<()> {
        let (resource, whole) = (Resource::extent(object), Policy::extent(0, u64::MAX));
        if !self.locks.nobody_writes(export, resource, &whole) && self.has_unwritten(export, object).await? {
            let mut lock = self.locks.lockd().local(&[(resource, Mode::Pr, whole)], Some(export));
            self.locks.unless_stopping(lock.wait()).await?;
        }
        Ok(())
    }

    /// The next data or hole, when those who write behind the offset have done so.
    ///
    /// # Errors
    /// As [`Ost::read_written`].
    pub(crate) async fn seek(&self, export: &Arc<Export>, object: Fid, offset: u64, what: Seek) -> Result<Option<u64>> {
        let (resource, rest) = (Resource::extent(object), Policy::extent(offset, u64::MAX));
        if self.locks.nobody_writes(export, resource, &rest) || !self.has_unwritten(export, object).await? {
            return self.store.seek(object, offset, what);
        }
        let mut lock = self.locks.lockd().local(&[(resource, Mode::Pr, rest)], Some(export));
        self.locks.unless_stopping(lock.wait()).await?;
        let found = self.store.seek(object, offset, what);
        drop(lock);
        found
    }
}
