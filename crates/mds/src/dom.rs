//! Data on the MDT (Lustre's DoM): the beginnings of files, which a data service beside the MDT
//! keeps, in the same process.
//!
//! That service is an OST in all but this: it is found at the MDT's own addresses, as
//! `<fsname>-MDTxxxx-dom` with the MDT's uuid, the MGS does not know it, and nothing is placed on
//! it: a file's object there has the file's own FID, with a version above 0 that is another one
//! each time that the file begins here. The MDT sees it as it sees OSTs ([`crate::osp::Osp`], of
//! index [`MDT_OST`]), so objects of files that are gone go by the same way.
//!
//! Invariants:
//! * a new file has nothing on the MDT while the MDT has less free space than its threshold;
//! * after an end that was not in order the objects of files that it lost go. FIDs are never used
//!   twice, and an object is made by a write to a file that the MDT has told of: so what has no
//!   file when it is looked for, after the object was seen, never gets one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use sheen_layout::{Layout, MDT_OST, STRIPE_SIZE_UNIT, codec::Magic};
use sheen_lnet::Nid;
use sheen_params::Param;
use sheen_rpc::{Export, Import, ImportConfig};
use sheen_rt::JoinHandle;
use sheen_wire::ldlm::Cookie;
use sheen_wire::mds::{self, Beginning, Call, Reply};
use sheen_wire::mgs::data_name;
use sheen_wire::ost::Request;
use sheen_wire::{Bulk, Errno, Fid, FileKind, Result};
use tracing::{info, warn};

use crate::mdt::Mdt;
use crate::osp::Osp;

/// In the MDT's directory while it is served, and until what a crash left is removed.
pub(crate) const RUNNING: &str = "running";
/// Files that are looked for at once: the MDT does nothing else meanwhile. After a crash each may
/// have to be read from the disk.
const AT_ONCE: usize = 16;
/// Wait before what could not be removed is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// Most bytes of a file on the MDT that can be asked for: Lustre's limit.
const DOM_BYTES_LIMIT: u64 = 1 << 30;

/// The data service as far as the MDT asks it for something in clients' names: in this process,
/// without a request.
pub trait DataService: Send + Sync {
    /// A lock on all of an object for the client of a uuid, what the object is, and its bytes, if
    /// they are few. `None`: not now. It does not wait for anybody.
    fn beginning(&self, client: &str, object: Fid, cookie: Cookie) -> Option<(Beginning, Bulk)>;
}

/// Whether a layout has components, so that one of them may be on the MDT.
fn is_composite(layout: &[u8]) -> bool {
    layout.get(..4) == Some(&(Magic::CompV1 as u32).to_le_bytes())
}

impl Mdt {
    /// Says who serves what lies on the MDT; once.
    pub fn set_data_service(&self, service: Arc<dyn DataService>) {
        // There is one to an MDT; a second one would be a mistake of who starts it, and the first
        // stays.
        let _ = self.data_service.set(service);
    }

    /// What is to go with the answer that tells of a file, if all that there is of the file lies on
    /// the MDT.
    pub(crate) fn beginning(&self, export: &Export, call: &Call, reply: &Reply) -> Option<(Beginning, Bulk)> {
        let (Some(cookie), mds::Request::Lookup { .. }, Reply::Entry(entry)) = (call.beginning, &call.request, reply)
        else {
            return None;
        };
        let service = self.data_service.get()?;
        let bytes =
            entry.layout.as_ref().filter(|bytes| entry.attr.kind == FileKind::Regular && is_composite(bytes))?;
        let layout = Layout::decode(bytes).ok().filter(|layout| layout.mdt_end() > 0 && !layout.is_mirrored())?;
        let [only] = layout.stripes() else { return None };
        service.beginning(export.client(), only.object, cookie)
    }
}

/// Begins to look for the MDT's data service, where it has one: it starts after the MDT.
pub(crate) fn connect(mdt: &Arc<Mdt>) {
    if !mdt.config.holds_data {
        return;
    }
    let name = data_name(&mdt.name);
    // As to an OST, another client in each life.
    let life = format!("{}-{:016x}", mdt.uuid, mdt.incarnation);
    let import = Import::new(mdt.net.clone(), ImportConfig::new(&life, &name, vec![Nid::Lo]).of(&mdt.uuid));
    let osp = Osp::new(MDT_OST, name, mdt.uuid.clone(), 0, import);
    mdt.osts.set_data(mdt, Arc::new(osp));
}

/// Bytes of a file that is made now which lie on the MDT, at most; 0 where it has no data service,
/// or is low on space.
pub(crate) fn bytes_max(mdt: &Mdt) -> u64 {
    let Some(data) = mdt.osts.data() else { return 0 };
    mdt.osts.used(mdt.rt.now());
    let space = data.statfs();
    let free_mb = space.bavail.saturating_mul(u64::from(space.bsize)) >> 20;
    let low = data.heard() && free_mb < mdt.tunables.dom_threshold_free_mb.load(Relaxed);
    if low { 0 } else { mdt.tunables.dom_bytes_max.load(Relaxed) }
}

/// Begins to remove what belongs to nobody, if the last end was not in order. Until it is through,
/// no end counts as such.
pub(crate) fn clean(mdt: &Arc<Mdt>) -> Option<JoinHandle<()>> {
    let data = mdt.osts.data()?;
    let path = mdt.config.dir.join(RUNNING);
    let known = mdt.rt.disk().metadata(&path).is_ok();
    if let Err(e) = mdt.rt.disk().write_atomic(&path, b"") {
        warn!("{}: cannot write {}: {e}; what a crash leaves on the MDT may stay there", mdt.name, path.display());
    }
    if !known {
        mdt.is_clean.store(true, Relaxed);
        return None;
    }
    let mdt = mdt.clone();
    Some(mdt.rt.clone().spawn("mdt-orphans", async move {
        while let Err(e) = remove_orphans(&mdt, &data).await {
            if mdt.commits.is_damaged() {
                return;
            }
            warn!("{}: objects of lost files are not yet removed from the MDT: {e}", mdt.name);
            mdt.rt.sleep(RETRY).await;
        }
        mdt.is_clean.store(true, Relaxed);
    }))
}

/// The MDT ends in order.
pub(crate) fn ended(mdt: &Mdt) {
    if mdt.is_clean.load(Relaxed) {
        // If that fails there is only a search too many.
        let _ = mdt.rt.disk().remove_file(mdt.config.dir.join(RUNNING));
    }
}

async fn remove_orphans(mdt: &Mdt, data: &Osp) -> Result<()> {
    let (mut after, mut removed) = (Fid::ZERO, 0);
    loop {
        let objects = data.list(after).await?;
        let Some(last) = objects.last() else { break };
        after = *last;
        for some in objects.chunks(AT_ONCE) {
            let begun = mdt.rt.now();
            let lost = lost(mdt, some)?;
            // Half of the time is the clients', who are just coming back.
            mdt.rt.sleep(mdt.rt.now().since(begun)).await;
            removed += lost.len();
            if !lost.is_empty() {
                data.run(Request::Destroy { objects: lost }).await?;
            }
        }
    }
    if removed > 0 {
        info!("{}: removed {removed} objects of files that a crash lost", mdt.name);
    }
    Ok(())
}

/// Those that are no file's.
fn lost(mdt: &Mdt, objects: &[Fid]) -> Result<Vec<Fid>> {
    let mut core = mdt.core.lock();
    let mut lost = Vec::new();
    for object in objects {
        match core.ns.has_object(*object) {
            Ok(true) => {}
            Ok(false) => lost.push(*object),
            Err(errno) => {
                if let Some(fault) = core.ns.take_fault() {
                    mdt.store_failed("looking for the file of an object", &fault);
                }
                return Err(errno);
            }
        }
    }
    // A damaged store does not say which files there are.
    if mdt.commits.is_damaged() { Err(Errno::EIO) } else { Ok(lost) }
}

/// `lod.*.dom_*`, by Lustre's names.
pub(crate) fn register(mdt: &Arc<Mdt>, put: impl Fn(&str, Param)) {
    // `unit`: what is kept, of the number's steps; `bytes`: those of a step.
    let field = |max: u64, unit: u64, bytes: u64, of: fn(&Mdt) -> &AtomicU64, taken: fn(u64) -> u64| {
        let (read, write) = (Arc::downgrade(mdt), Arc::downgrade(mdt));
        Param::u64(
            0..=max / unit,
            move || read.upgrade().map_or(0, |mdt| of(&mdt).load(Relaxed) / unit),
            move |v| write.upgrade().map(|mdt| of(&mdt).store(taken(v * unit), Relaxed)).ok_or(Errno::ENODEV),
        )
        .unit(bytes)
    };
    put("dom_stripesize", field(DOM_BYTES_LIMIT, 1, 1, |mdt| &mdt.tunables.dom_bytes_max, rounded));
    put("dom_stripesize_max_kb", field(DOM_BYTES_LIMIT, 1024, 1024, |mdt| &mdt.tunables.dom_bytes_max, rounded));
    put("dom_threshold_free_mb", field(u64::MAX, 1, 1 << 20, |mdt| &mdt.tunables.dom_threshold_free_mb, |mb| mb));
}

/// As Lustre takes it: down to whole units of 64 KiB, but one at least unless it is to be none.
fn rounded(bytes: u64) -> u64 {
    let unit = u64::from(STRIPE_SIZE_UNIT);
    if bytes == 0 { 0 } else { (bytes - bytes % unit).max(unit) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_taken_as_lustre_takes_them() {
        assert_eq!([0, 1, 65536, 100_000, 1 << 20].map(rounded), [0, 65536, 65536, 65536, 1 << 20]);
        assert_eq!(rounded(DOM_BYTES_LIMIT), DOM_BYTES_LIMIT);
    }
}
