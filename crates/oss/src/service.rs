//! Requests to an OST: checked, counted, handed to the [`crate::Store`].

use std::sync::Arc;

use sheen_lnet::Nid;
use sheen_objects::check;
use sheen_rpc::{BoxFuture, Export, Response, Service};
use sheen_wire::{
    Bulk, Errno, Fid, Result,
    ost::{Part, Reply, Request},
};

use crate::Ost;

/// From this many bytes on a read or write is announced to the runtime as blocking, so that other tasks of the thread move to
/// another one meanwhile. Below, the announcement costs more than the copy.
const BLOCKING_BYTES: usize = 1 << 20;
/// From this many objects on a request is announced as blocking: some microseconds each.
const BLOCKING_OBJECTS: usize = 256;

/// Up to here the attributes of objects are looked up by the task that reads the connection: some ten microseconds.
const INLINE_OBJECTS: usize = 8;

/// Counters of `obdfilter.*.stats`, by Lustre's names.
pub const COUNTERS: &[(&str, &str)] = &[
    ("read_bytes", "bytes"),
    ("write_bytes", "bytes"),
    ("read", "usecs"),
    ("write", "usecs"),
    ("getattr", "usecs"),
    ("punch", "usecs"),
    ("fallocate", "usecs"),
    ("seek", "usecs"),
    ("sync", "usecs"),
    ("destroy", "usecs"),
    ("destroy_range", "usecs"),
    ("statfs", "usecs"),
];
const READ_BYTES: usize = 0;
const WRITE_BYTES: usize = 1;

impl Service<sheen_wire::Ost> for Ost {
    fn call<'a>(
        &'a self,
        export: &'a Arc<Export>,
        request: Request,
        bulk: Bulk,
    ) -> BoxFuture<'a, Result<Response<Reply>>> {
        Box::pin(async move {
            let _pass = self.gate.enter().ok_or(Errno::ESHUTDOWN)?;
            self.seen(export);
            let start = self.rt.now();
            let op = request.op();
            let result = self.serve(export, request, bulk).await;
            self.stats.record(op, self.rt.now().since(start).as_micros() as u64);
            result
        })
    }

    fn disconnected(&self, export: &Export) {
        self.exports.write().remove(&export.id());
    }

    fn incarnation(&self) -> u64 {
        self.incarnation
    }

    fn reply_bytes(&self, request: &Request) -> usize {
        match request {
            Request::Read { parts } => parts.iter().fold(0, |sum, p| sum.saturating_add(p.len as usize)),
            _ => 0,
        }
    }

    fn inline(&self, request: &Request) -> bool {
        match request {
            Request::StatFs | Request::Seek { .. } => true,
            Request::Attrs { objects } => objects.len() < INLINE_OBJECTS,
            _ => false, // copies data, or may wait for the disk
        }
    }
}

impl Ost {
    async fn serve(&self, export: &Export, request: Request, bulk: Bulk) -> Result<Response<Reply>> {
        check::request(&request, bulk.len())?;
        let body = match request {
            Request::Read { parts } => return self.read(&parts, export.nid() != Nid::Lo),
            Request::Write { parts, sync } => {
                self.write(&parts, &bulk, export.nid() != Nid::Lo)?;
                if sync {
                    self.sync_parts(&parts).await?;
                }
                self.done()
            }
            Request::Attrs { objects } => {
                Reply::Attrs(self.perhaps_blocking(objects.len() >= BLOCKING_OBJECTS, || self.store.attrs(&objects))?)
            }
            Request::Truncate { objects } => {
                self.perhaps_blocking(objects.len() >= BLOCKING_OBJECTS, || self.store.truncate(&objects))?;
                self.done()
            }
            Request::Allocate { mode, runs } => {
                self.rt.block_in_place(|| self.store.allocate(mode, &runs))?;
                self.done()
            }
            Request::Seek { object, offset, what } => Reply::Offset(self.store.seek(object, offset, what)?),
            Request::Sync { objects } => {
                self.store.sync(&objects).await?;
                self.done()
            }
            Request::Destroy { objects } => {
                self.store.destroy(&objects).await?;
                Reply::Ok
            }
            Request::DestroyRange { seq, first, last } => {
                self.store.destroy_range(seq, first, last).await?;
                Reply::Ok
            }
            Request::StatFs => Reply::StatFs(self.store.statfs()?),
        };
        Ok(body.into())
    }

    /// Clients that have asked for something and are not gone.
    pub(crate) fn exports(&self) -> u64 {
        self.exports.read().len() as u64
    }

    fn seen(&self, export: &Export) {
        if self.exports.read().contains(&export.id()) {
            return;
        }
        self.exports.write().insert(export.id());
        if export.is_gone() {
            self.disconnected(export); // it went in between, and will not be reported again
        }
    }

    fn done(&self) -> Reply {
        Reply::Done { epoch: self.rt.boot_id() }
    }

    fn read(&self, parts: &[Part], remote: bool) -> Result<Response<Reply>> {
        if remote && let Some((lens, live)) = self.store.live(parts)? {
            self.stats.record_at(READ_BYTES, live.len() as u64);
            return Ok(Response::with_live(Reply::Read(lens), live));
        }
        let wanted: usize = parts.iter().map(|p| p.len as usize).sum();
        let blocking = wanted > BLOCKING_BYTES || parts.len() >= BLOCKING_OBJECTS;
        let (lens, bulk) = self.perhaps_blocking(blocking, || {
            if remote { self.store.read_and_sum(parts) } else { self.store.read(parts) }
        })?;
        self.stats.record_at(READ_BYTES, bulk.len() as u64);
        Ok(Response::with_bulk(Reply::Read(lens), bulk))
    }

    fn write(&self, parts: &[Part], bulk: &Bulk, remote: bool) -> Result<()> {
        self.perhaps_blocking(bulk.len() > BLOCKING_BYTES || parts.len() >= BLOCKING_OBJECTS, || {
            self.store.write(parts, bulk, remote)
        })?;
        self.stats.record_at(WRITE_BYTES, bulk.len() as u64);
        Ok(())
    }

    async fn sync_parts(&self, parts: &[Part]) -> Result<()> {
        let mut objects: Vec<Fid> = parts.iter().map(|p| p.object).collect();
        objects.sort_unstable();
        objects.dedup();
        // An empty list would mean everything.
        if objects.is_empty() { Ok(()) } else { self.store.sync(&objects).await }
    }

    fn perhaps_blocking<T>(&self, blocking: bool, f: impl FnOnce() -> T) -> T {
        if blocking { self.rt.block_in_place(f) } else { f() }
    }
}
