//! One OST as seen by a client (Lustre's osc): its import, the locks held from it, whether it is
//! active, and its last known space.
//!
//! All requests that read or change data go through it, so that none reaches an OST which an
//! administrator has switched off.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;
use sheen_lnet::Live;
use sheen_rpc::Import;
use sheen_rt::Rt;
use sheen_wire::{Bulk, Errno, Ost, Result, StatFs, ost};

use crate::{connection::import_state, locks::LockTable, rpc_stats::PagesPerRpc};

/// An OST.
pub struct Osc {
    index: u32,
    name: String,
    import: Arc<Import<Ost>>,
    locks: Arc<LockTable>,
    active: AtomicBool,
    space: Mutex<StatFs>,
    pages: PagesPerRpc,
}

impl fmt::Debug for Osc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Osc").field(&self.name).finish()
    }
}

impl Osc {
    /// Creates the client of an OST's import. `name`: `sheen-OST0000-osc-ff3298de21e05800`.
    pub fn new(rt: &Rt, index: u32, name: String, import: Arc<Import<Ost>>) -> Osc {
        let locks = LockTable::new(rt, false);
        let called = Arc::downgrade(&locks);
        import.on_callback(move |callback| {
            if let Some(locks) = called.upgrade() {
                locks.called_back(callback);
            }
        });
        let (active, space) = (AtomicBool::new(true), Mutex::default());
        Osc { index, name, import, locks, active, space, pages: PagesPerRpc::default() }
    }

    /// Returns the locks that this client holds from the OST.
    pub fn locks(&self) -> &Arc<LockTable> {
        &self.locks
    }

    /// Returns the index of the OST.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Returns the name of the device.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the import.
    pub fn import(&self) -> &Arc<Import<Ost>> {
        &self.import
    }

    /// Whether the OST is active (`osc.*.active`).
    pub fn active(&self) -> bool {
        self.active.load(Relaxed)
    }

    /// Deactivates or activates the OST.
    pub fn set_active(&self, active: bool) {
        self.active.store(active, Relaxed);
    }

    /// Checks whether the OST can take requests, for `lfs check`: ESHUTDOWN if it is inactive,
    /// ENOTCONN while it is disconnected.
    pub fn state(&self) -> Result<()> {
        if self.active() { import_state(&self.import) } else { Err(Errno::ESHUTDOWN) }
    }

    /// Whether the OST is known not to answer now: it is inactive or disconnected.
    pub fn is_away(&self) -> bool {
        !self.active() || self.import.is_away()
    }

    /// Returns the maximum bulk size of a request, in bytes.
    pub fn max_bytes_per_rpc(&self) -> u64 {
        self.import.max_bulk_bytes() as u64
    }

    /// Returns the space as of the last statfs reply; zeros before the first.
    pub fn space(&self) -> StatFs {
        *self.space.lock()
    }

    /// Returns the size statistics of reads and writes.
    pub fn pages(&self) -> &PagesPerRpc {
        &self.pages
    }

    /// Sends a request that is valid only under a lock which this client holds.
    ///
    /// # Errors
    /// As [`Osc::call`]. EIO: the OST evicted this client before it answered.
    pub async fn call_guarded(&self, request: ost::Request, bulk: Bulk) -> Result<(ost::Reply, Bulk)> {
        self.begin(&request, &bulk)?;
        let response = Box::pin(self.import.call_guarded(request, bulk)).await?;
        Ok((response.body, response.bulk))
    }

    /// Sends a request like [`Osc::call_guarded`], without waiting for the slots of other requests.
    /// For flushes, which other clients may wait for.
    ///
    /// # Errors
    /// As [`Osc::call_guarded`].
    pub async fn call_urgent(&self, request: ost::Request, bulk: Bulk) -> Result<ost::Reply> {
        self.begin(&request, &bulk)?;
        Ok(Box::pin(self.import.call_urgent(request, bulk)).await?.body)
    }

    /// Checks that the OST is active, and counts the request in the statistics.
    fn begin(&self, request: &ost::Request, bulk: &Bulk) -> Result<()> {
        if !self.active() {
            return Err(Errno::EIO);
        }
        match request {
            ost::Request::Read { parts } => self.pages.read(parts.iter().map(|p| u64::from(p.len)).sum()),
            ost::Request::Write { .. } => self.pages.write(bulk.len() as u64),
            _ => {}
        }
        Ok(())
    }

    /// Sends a request.
    ///
    /// # Errors
    /// EIO: the OST is inactive. Otherwise the error of the OST.
    pub async fn call(&self, request: ost::Request, bulk: Bulk) -> Result<(ost::Reply, Bulk)> {
        self.begin(&request, &bulk)?;
        let waits =
            matches!(&request, ost::Request::Enqueue { locks, .. } if locks.iter().any(|lock| !lock.flags.nowait));
        let response = match waits {
            // Boxed, for the reason given in `Mdc::send`.
            true => Box::pin(self.import.call_patient(request, bulk)).await?,
            false => Box::pin(self.import.call(request, bulk)).await?,
        };
        if let ost::Reply::StatFs(space) = &response.body {
            *self.space.lock() = *space;
        }
        Ok((response.body, response.bulk))
    }

    /// Reads one part of an object. An OST in this process may return the location of the bytes
    /// (`Live`) instead of a bulk.
    ///
    /// # Errors
    /// As [`Osc::call`].
    pub async fn read_in_place(&self, part: ost::Part) -> Result<(ost::Reply, Bulk, Option<Live>)> {
        if !self.active() {
            return Err(Errno::EIO);
        }
        self.pages.read(part.len.into());
        let response =
            Box::pin(self.import.call_in_place(ost::Request::Read { parts: vec![part] }, Bulk::new())).await?;
        Ok((response.body, response.bulk, response.live))
    }
}
