//! One OST as a client sees it (Lustre's osc): its import, whether it is in use, and what was last
//! heard of its space.

use std::{
    fmt,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;
use sheen_lnet::Live;
use sheen_rpc::{Import, ImportState};
use sheen_rt::Rt;
use sheen_wire::{Bulk, Errno, Ost, Protocol, Result, StatFs, ost};

use crate::{cache::OstLocks, locks::LockTable, lov::Lov, rpc_stats::PagesPerRpc, writeback::Writeback};

/// Bytes of a page, in which `max_pages_per_rpc` counts whatever the host's pages are.
pub const PAGE_BYTES: u64 = 4096;
/// Bulk of a request to an OST that is not known yet: Lustre's 1024 pages.
pub const BYTES_PER_RPC_DEFAULT: u64 = 1024 * PAGE_BYTES;

/// An OST.
pub struct Osc {
    index: u32,
    name: String,
    import: Arc<Import<Ost>>,
    locks: Arc<LockTable>,
    /// Behind the locks, which know it weakly.
    _owner: Arc<OstLocks>,
    active: AtomicBool,
    space: Mutex<StatFs>,
    pages: Arc<PagesPerRpc>,
    writeback: Arc<Writeback>,
}

impl fmt::Debug for Osc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Osc").field(&self.name).finish()
    }
}

impl Osc {
    /// An OST behind an import. `name`: `sheen-OST0000-osc-ff3298de21e05800`.
    pub fn new(rt: &Rt, index: u32, name: String, import: Arc<Import<Ost>>, lov: &Lov) -> Osc {
        let (active, space) = (AtomicBool::new(true), Mutex::default());
        let pages: Arc<PagesPerRpc> = Arc::default();
        let writeback = Writeback::new(rt, index, &import, lov.unsynced(), &pages, lov.kept());
        let locks = LockTable::new(rt, false);
        let owner = OstLocks::new(lov.cache(), &import, &locks, &writeback);
        let weak: Weak<OstLocks> = Arc::downgrade(&owner);
        locks.set_owner(weak);
        let called = Arc::downgrade(&locks);
        import.on_callback(move |callback| {
            if let Some(locks) = called.upgrade() {
                locks.called_back(callback);
            }
        });
        let (forgotten, kept) = (Arc::downgrade(&locks), Arc::downgrade(&writeback));
        import.on_restart(move |ost| {
            if let Some(locks) = forgotten.upgrade() {
                locks.forget();
            }
            let kept = kept.upgrade();
            Box::pin(async move {
                if let Some(kept) = kept {
                    kept.lost(ost.evicted()).await;
                }
                Ok(())
            })
        });
        Osc { index, name, import, locks, _owner: owner, active, space, pages, writeback }
    }

    /// This client's locks.
    pub fn locks(&self) -> &Arc<LockTable> {
        &self.locks
    }

    /// What it does not have yet of what was written.
    pub fn writeback(&self) -> &Arc<Writeback> {
        &self.writeback
    }

    /// Index of the OST.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Name of the device.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The connection.
    pub fn import(&self) -> &Arc<Import<Ost>> {
        &self.import
    }

    /// Whether it is in use (`osc.*.active`).
    pub fn active(&self) -> bool {
        self.active.load(Relaxed)
    }

    /// Takes it out of use, or into it again.
    pub fn set_active(&self, active: bool) {
        self.active.store(active, Relaxed);
    }

    /// Whether it can carry requests, for `lfs check`: ESHUTDOWN where it is out of use, ENOTCONN
    /// while there is no connection.
    pub fn state(&self) -> Result<()> {
        if self.active() { import_state(&self.import) } else { Err(Errno::ESHUTDOWN) }
    }

    /// Whether it is known that a request would not be answered now: it is out of use, or away.
    pub fn is_away(&self) -> bool {
        !self.active() || self.import.is_away()
    }

    /// Largest bulk of a request, in bytes.
    pub fn max_bytes_per_rpc(&self) -> u64 {
        self.import.max_bulk_bytes() as u64
    }

    /// The space last heard of; zeros before.
    pub fn space(&self) -> StatFs {
        *self.space.lock()
    }

    /// How large reads and writes were.
    pub fn pages(&self) -> &PagesPerRpc {
        &self.pages
    }

    /// Sends a request that is right only under a lock that this client has.
    ///
    /// # Errors
    /// As [`Osc::call`]; EIO: the OST gave this client up meanwhile.
    pub async fn call_guarded(&self, request: ost::Request, bulk: Bulk) -> Result<(ost::Reply, Bulk)> {
        self.begin(&request, &bulk)?;
        let response = Box::pin(self.import.call_guarded(request, bulk)).await?;
        Ok((response.body, response.bulk))
    }

    /// Counts a request, if it can be sent.
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
    /// EIO: the OST was taken out of use. Else what it answers.
    pub async fn call(&self, request: ost::Request, bulk: Bulk) -> Result<(ost::Reply, Bulk)> {
        self.begin(&request, &bulk)?;
        let waits =
            matches!(&request, ost::Request::Enqueue { locks, .. } if locks.iter().any(|lock| !lock.flags.nowait));
        let response = match waits {
            // In memory of their own, as in the mdc.
            true => Box::pin(self.import.call_patient(request, bulk)).await?,
            false => Box::pin(self.import.call(request, bulk)).await?,
        };
        if let ost::Reply::StatFs(space) = &response.body {
            *self.space.lock() = *space;
        }
        Ok((response.body, response.bulk))
    }

    /// Reads one piece of an object, which may be left where it is: then there is no bulk.
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

/// Whether an import can carry requests. One that was never needed can.
pub fn import_state<P: Protocol>(import: &Import<P>) -> Result<()> {
    match import.state() {
        ImportState::New | ImportState::Full => Ok(()),
        ImportState::Closed => Err(Errno::ESHUTDOWN),
        _ => Err(Errno::ENOTCONN),
    }
}
