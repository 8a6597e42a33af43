//! Repair of damaged blocks from other mirrors of their files.
//!
//! An OST reports blocks that differ from the checksum stored with the object. The MDT knows the
//! layout of the file. It reads the same bytes of the file from another mirror, and sends them to
//! the OST.
//!
//! Invariants:
//! * the checksum alone decides which bytes are right: the MDT sends only bytes that have it. So a
//!   repair takes no lock, and programs and tools may change file and layout meanwhile. A mirror
//!   that is stale can still have the block, and is read last;
//! * the OST writes the bytes only while the block has the checksum, so no change is undone;
//! * one block of an OST is repaired after the other, in at most
//!   [`STEP_BYTES`](crate::mirror_source::STEP_BYTES) of memory. A larger block is read twice: for
//!   the checksum, and to be sent. Bytes that differ at the second read are not sent. If the repair
//!   ends in between, the block is still damaged, and the OST reports it again.

use std::sync::Arc;

use bytes::Bytes;
use sheen_layout::Layout;
use sheen_objects::stored_sums::{Crc, crc_of};
use sheen_wire::ost::{Damaged, DamagedBlock};
use sheen_wire::{Bulk, Errno, Result};
use tracing::debug;

use crate::mdt::Mdt;
use crate::mirror_source::{Place, TIMEOUT, pause, read, sources, steps};
use crate::state::osp::Osp;

/// Repairs the blocks that an OST reports, as a part of its task ([`crate::osp`]).
pub(crate) async fn run(mdt: &Arc<Mdt>, osp: &Arc<Osp>) {
    // Before, a replay may change layouts.
    mdt.recovery.ended().await;
    loop {
        let damaged = osp.repairs.blocks.next().await;
        osp.when_connected().await;
        if let Err(errno) = repair(mdt, osp, &damaged).await {
            let Damaged { object, file, block: DamagedBlock { offset, len, .. } } = damaged;
            // The OST lists the damage, and asks again later.
            debug!(
                "{}: {errno}: cannot repair {len} bytes from offset {offset} of object {object} of file {file} on {}",
                mdt.name, osp.target
            );
        }
    }
}

/// Repairs a block.
///
/// # Errors
/// ENOENT: the file is not known, or has the object in no mirror. ENODATA: no other mirror has the
/// bytes. ESTALE: the block was changed since. Others as the OSTs return them.
async fn repair(mdt: &Mdt, osp: &Osp, damaged: &Damaged) -> Result<()> {
    let layout = mdt.layout_to_repair(damaged.file)?.ok_or(Errno::ENOENT)?;
    let (mirror, stripe) = layout.find_object(osp.index, damaged.object).ok_or(Errno::ENOENT)?;
    let place = Place { mirror: layout.mirrors().get(mirror).ok_or(Errno::ENOENT)?, stripe };
    let mut failed = Errno::ENODATA;
    for source in sources(&layout, mirror) {
        match repair_from(mdt, osp, damaged, place, source).await {
            // Another source may be readable, or have the right bytes.
            Err(errno) if errno != Errno::ESTALE => failed = errno,
            done => return done,
        }
    }
    Err(failed)
}

/// Repairs a block with the bytes of one mirror.
///
/// # Errors
/// ENODATA: the mirror does not have the bytes. Others as [`repair`].
async fn repair_from(mdt: &Mdt, osp: &Osp, damaged: &Damaged, place: Place<'_>, source: &Layout) -> Result<()> {
    let (block, mut whole) = (damaged.block, Crc::default());
    let (mut sums, mut last) = (Vec::new(), Bytes::new());
    for step in steps(block.offset, block.len) {
        last = read(mdt, source, place, step).await?;
        whole.update(&last);
        sums.push(crc_of([&last[..]]));
    }
    if whole.finish() != block.sum {
        return Err(Errno::ENODATA);
    }
    let (is_small, limit) = (sums.len() == 1, TIMEOUT + pause(block.len));
    for (step, sum) in steps(block.offset, block.len).zip(sums) {
        let bytes = if is_small { last.clone() } else { read(mdt, source, place, step).await? };
        if crc_of([&bytes[..]]) != sum {
            return Err(Errno::ENODATA); // the mirror has changed
        }
        let sent = osp.repair(damaged.object, block, step.offset, Bulk::from(bytes));
        mdt.rt.timeout(limit, sent).await.map_err(|_| Errno::ETIMEDOUT)?.map_err(|e| e.errno())?;
    }
    Ok(())
}
