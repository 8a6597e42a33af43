//! Data on the MDT (Lustre's DoM): a data service beside the MDT, in the same process, stores the
//! first component of files.
//!
//! The data service is an OST, with these differences:
//! * It has the MDT's own addresses, the name `<fsname>-MDTxxxx-dom` and the MDT's uuid. The MGS
//!   does not know it.
//! * The allocator places nothing on it. A file's object there has the file's own FID with a
//!   version above 0. The version is a new one each time that the file gets a component on the MDT.
//!
//! The MDT treats it as an OST ([`Osp`] of index [`MDT_OST`]), so objects of deleted
//! files are destroyed in the same way.
//!
//! Invariants:
//! * A new file gets no data on the MDT while the MDT has less free space than its threshold.
//! * After an unclean stop the objects of files that the crash lost are destroyed. Names of objects
//!   (FID and version) are never used twice, and only a write to a file that the MDT has reported
//!   to the client creates an object. So an object that is listed first, and then has no file,
//!   never gets one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use sheen_layout::{Layout, MDT_OST, STRIPE_SIZE_UNIT, codec::Magic};
use sheen_lnet::Nid;
use sheen_params::{Param, Unit};
use sheen_rpc::{Export, Import, ImportConfig};
use sheen_rt::JoinHandle;
use sheen_wire::mds::{self, Call, InlineDom, Reply};
use sheen_wire::mgs::data_name;
use sheen_wire::ost::Request;
use sheen_wire::{Bulk, Errno, Fid, FileKind, Result};
use tracing::{info, warn};

use crate::mdt::Mdt;
use crate::osp;
use crate::state::data_service::DataService;
use crate::state::osp::Osp;

/// File in the MDT's directory. Present while the MDT is served, and after a crash until the orphan
/// objects are removed.
pub(crate) const RUNNING: &str = "running";
/// Number of objects whose files are looked up at once; the MDT executes nothing else meanwhile.
/// After a crash each may have to be read from the disk.
const OBJECTS_PER_CHECK: usize = 16;
/// Pause before a failed removal is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// Maximum of `dom_stripesize` in bytes: Lustre's limit.
const DOM_BYTES_LIMIT: u64 = 1 << 30;

/// Returns whether a layout is composite. Only a composite layout can have a component on the MDT.
fn is_composite(layout: &[u8]) -> bool {
    layout.get(..4) == Some(&(Magic::CompV1 as u32).to_le_bytes())
}

impl Mdt {
    /// Sets the service that stores the MDT's DoM data. Only the first call has an effect.
    pub fn set_data_service(&self, service: Arc<dyn DataService>) {
        // An MDT has one data service. A second one would be a mistake of the caller; the first
        // stays.
        let _ = self.data_service.set(service);
    }

    /// Returns the inline DoM data for a reply to a lookup, if all of the file's data lies on the
    /// MDT.
    pub(crate) fn inline_dom(&self, export: &Export, call: &Call, reply: &Reply) -> Option<(InlineDom, Bulk)> {
        let (Some(cookie), mds::Request::Lookup { .. }, Reply::Entry(entry)) = (call.inline_dom, &call.request, reply)
        else {
            return None;
        };
        let service = self.data_service.get()?;
        if !self.may_read(export, entry.attr.fid) {
            return None;
        }
        let bytes =
            entry.layout.as_ref().filter(|bytes| entry.attr.kind == FileKind::Regular && is_composite(bytes))?;
        let layout = Layout::decode(bytes).ok().filter(|layout| layout.mdt_end() > 0 && !layout.is_mirrored())?;
        let [only] = layout.stripes() else { return None };
        service.inline_dom(export.client(), only.object, cookie)
    }
}

/// Starts connecting to the MDT's data service, if there is one. It starts after the MDT.
pub(crate) fn connect(mdt: &Arc<Mdt>) {
    if !mdt.config.holds_data {
        return;
    }
    let name = data_name(&mdt.name);
    // As towards an OST, a new client in each life of the MDT.
    let life = format!("{}-{:016x}", mdt.uuid, mdt.incarnation);
    let import = Import::new(mdt.net.clone(), ImportConfig::new(&life, &name, vec![Nid::Lo]).of(&mdt.uuid));
    let osp = Arc::new(Osp::new(MDT_OST, name, mdt.uuid.clone(), 0, import));
    let task = mdt.rt.spawn("osp", osp::run(mdt.clone(), osp.clone()));
    mdt.osts.put(osp, task);
}

/// Returns the maximum bytes of a new file on the MDT; 0 without a data service, or if space is
/// low.
pub(crate) fn bytes_max(mdt: &Mdt) -> u64 {
    let Some(data) = mdt.osts.data() else { return 0 };
    mdt.osts.used(mdt.rt.now());
    let space = data.statfs();
    let free_mb = space.bavail.saturating_mul(u64::from(space.bsize)) >> 20;
    let low = data.has_answered() && free_mb < mdt.tunables.dom_threshold_free_mb.load(Relaxed);
    if low { 0 } else { mdt.tunables.dom_bytes_max.load(Relaxed) }
}

/// Starts to remove orphan objects if the last stop was unclean. Until the removal is complete,
/// every stop counts as unclean.
pub(crate) fn clean(mdt: &Arc<Mdt>) -> Option<JoinHandle<()>> {
    let data = mdt.osts.data()?;
    let path = mdt.config.dir.join(RUNNING);
    let known = mdt.rt.disk().metadata(&path).is_ok();
    if let Err(e) = mdt.rt.disk().write_atomic(&path, b"") {
        warn!("{}: cannot write {}: {e}; a crash may leave orphan objects on the MDT", mdt.name, path.display());
    }
    if !known {
        mdt.is_clean.store(true, Relaxed);
        return None;
    }
    let mdt = mdt.clone();
    Some(mdt.rt.clone().spawn("mdt-orphans", async move {
        mdt.recovery.ended().await;
        while let Err(e) = remove_orphans(&mdt, &data).await {
            if mdt.commits.is_damaged() {
                return;
            }
            warn!("{}: removing objects of lost files from the MDT failed ({e}); retrying in 1 s", mdt.name);
            mdt.rt.sleep(RETRY).await;
        }
        mdt.is_clean.store(true, Relaxed);
    }))
}

/// Records that the MDT stopped cleanly.
pub(crate) fn ended(mdt: &Mdt) {
    if mdt.is_clean.load(Relaxed) {
        // If this fails, the next start only searches once more than needed.
        let _ = mdt.rt.disk().remove_file(mdt.config.dir.join(RUNNING));
    }
}

async fn remove_orphans(mdt: &Mdt, data: &Osp) -> Result<()> {
    let (mut after, mut removed) = (Fid::ZERO, 0);
    loop {
        let objects = data.list(after).await?;
        let Some(last) = objects.last() else { break };
        after = *last;
        for some in objects.chunks(OBJECTS_PER_CHECK) {
            let begun = mdt.rt.now();
            let lost = lost(mdt, some)?;
            // Pause for as long as the check took: clients that reconnect get half of the time.
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

/// Returns the objects that belong to no file.
fn lost(mdt: &Mdt, objects: &[Fid]) -> Result<Vec<Fid>> {
    let mut core = mdt.core.lock();
    let mut lost = Vec::new();
    for object in objects {
        match core.ns.has_object(*object) {
            Ok(true) => {}
            Ok(false) => lost.push(*object),
            Err(errno) => {
                if let Some(fault) = core.ns.take_fault() {
                    mdt.store_failed("finding the file of an object", &fault);
                }
                return Err(errno);
            }
        }
    }
    // A damaged store does not say which files exist.
    if mdt.commits.is_damaged() { Err(Errno::EIO) } else { Ok(lost) }
}

/// Registers `lod.*.dom_*`, with Lustre's names.
pub(crate) fn register(mdt: &Arc<Mdt>, put: impl Fn(&str, Param)) {
    // `step`: what one step of the parameter adds to the field.
    let field = |max: u64, step: u64, unit: Unit, of: fn(&Mdt) -> &AtomicU64, taken: fn(u64) -> u64| {
        let (read, write) = (Arc::downgrade(mdt), Arc::downgrade(mdt));
        Param::u64(
            0..=max / step,
            move || read.upgrade().map_or(0, |mdt| of(&mdt).load(Relaxed) / step),
            move |v| write.upgrade().map(|mdt| of(&mdt).store(taken(v * step), Relaxed)).ok_or(Errno::ENODEV),
        )
        .unit(unit)
    };
    put("dom_stripesize", field(DOM_BYTES_LIMIT, 1, Unit::Bytes, |mdt| &mdt.tunables.dom_bytes_max, rounded));
    put("dom_stripesize_max_kb", field(DOM_BYTES_LIMIT, 1024, Unit::Kib, |mdt| &mdt.tunables.dom_bytes_max, rounded));
    put("dom_threshold_free_mb", field(u64::MAX, 1, Unit::Mib, |mdt| &mdt.tunables.dom_threshold_free_mb, |mb| mb));
}

/// Rounds as Lustre does: down to whole units of 64 KiB, but at least to one unit unless it is 0.
fn rounded(bytes: u64) -> u64 {
    let unit = u64::from(STRIPE_SIZE_UNIT);
    if bytes == 0 { 0 } else { (bytes - bytes % unit).max(unit) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dom_stripesize_rounds_down_to_64k_units() {
        assert_eq!([0, 1, 65536, 100_000, 1 << 20].map(rounded), [0, 65536, 65536, 65536, 1 << 20]);
        assert_eq!(rounded(DOM_BYTES_LIMIT), DOM_BYTES_LIMIT);
    }
}
