//! `lfs mirror extend`, `resync`, `split` and `verify`, with the same calls as in
//! `crates/cli/src/lfs/mirror/`.

use std::sync::Arc;

use bytes::Bytes;
use sheen_layout::Layout;
use sheen_wire::{Errno, Fid, Result, mds::flags, mirror::MirrorChange};

use super::{ROOT_USER, Tool};
use crate::sim::{
    copy::{change, open_mirror, resync},
    race::{
        bytes::{Seen, runs},
        span::Span,
        stage::Stage,
    },
    striping::{STRIPINGS, Striping, layout},
};

/// Maximum number of mirrors of a file.
const MIRRORS: usize = 4;
/// Errors of a tool that conflicts with another user of the file. That may be a writer, a client
/// that would not learn of a new mirror, or a tool that removes the source or the target of a copy.
const BUSY: [Errno; 3] = [Errno::EBUSY, Errno::EUCLEAN, Errno::EINVAL];

impl Tool {
    /// Runs one of these tools that suits the file.
    pub(super) async fn mirror(&mut self, fid: Fid) {
        let known = layout(self.mount(), fid).await;
        let Ok(known) = known else { return };
        let ids = known.mirror_ids();
        let stale = known.stale_mirrors();
        match self.rng.u32(0..10) {
            _ if !known.is_mirrored() => self.extend(fid).await,
            0 if ids.len() < MIRRORS => self.extend(fid).await,
            1 => {
                let id = ids[self.rng.usize(0..ids.len())];
                let split = change(self.mount(), fid, MirrorChange::Split { mirror: id, into: None });
                self.used(&format!("splits mirror {id} from {fid}"), &BUSY, split).await;
            }
            2..5 => self.verify(fid, &known).await,
            _ if stale.is_empty() => {
                // A mirror that is in sync may be resynced as well.
                let id = ids[self.rng.usize(0..ids.len())];
                self.resync(fid, vec![id]).await;
            }
            _ => self.resync(fid, stale).await,
        }
    }

    async fn extend(&mut self, fid: Fid) {
        let striping = STRIPINGS[self.rng.usize(0..STRIPINGS.len())];
        let template = Striping::mirrors(&[striping]).encode();
        let what = format!("adds a mirror to {fid}, {striping:?}");
        self.used(&what, &BUSY, self.extended(fid, template)).await;
    }

    async fn extended(&self, fid: Fid, template: Vec<u8>) -> Result<()> {
        let ids = async || layout(self.mount(), fid).await.map(|layout| layout.mirror_ids());
        let before: Vec<u16> = ids().await?.into_iter().map(|id| id.max(1)).collect();
        change(self.mount(), fid, MirrorChange::Extend { template }).await?;
        let added: Vec<u16> = ids().await?.into_iter().filter(|id| !before.contains(id)).collect();
        let done = resync(self.mount(), self.rt(), fid, &added).await;
        if done.is_err() {
            for mirror in added {
                let _ = change(self.mount(), fid, MirrorChange::Split { mirror, into: None }).await;
            }
        }
        done
    }

    async fn resync(&self, fid: Fid, ids: Vec<u16>) {
        self.used(&format!("resyncs mirrors {ids:?} of {fid}"), &BUSY, resync(self.mount(), self.rt(), fid, &ids))
            .await;
    }

    /// Reads a mirror. If it was in sync all the time, its data must be what a reader of the file
    /// may see.
    async fn verify(&self, fid: Fid, before: &Layout) {
        let Some(file) = self.stage.files.iter().position(|f| *f == fid) else { return };
        let fresh: Vec<u16> = before.fresh_mirrors().iter().map(|m| m.mirror_id()).collect();
        for id in fresh {
            let what = format!("reads mirror {id} of {fid}");
            self.used(&what, &BUSY, self.verified(file, fid, id, before.generation())).await;
        }
    }

    async fn verified(&self, file: usize, fid: Fid, id: u16, generation: u32) -> Result<()> {
        let from = self.stage.clock.tick();
        let bytes = self.read_mirror(fid, id).await?;
        let span = Span { from, to: self.stage.clock.tick() };
        if layout(self.mount(), fid).await?.generation() == generation {
            let runs = runs(0, std::iter::once(&bytes[..]));
            self.note(&format!("mirror {id} of file {file} at {span:?}: {runs:?}"));
            let size = (!bytes.is_empty()).then_some((bytes.len() as u64, false));
            let seen = Seen { span, client: self.client, offset: 0, runs, size };
            self.stage.record().saw(file, seen);
        }
        Ok(())
    }

    async fn read_mirror(&self, fid: Fid, id: u16) -> Result<Bytes> {
        let open = open_mirror(self.mount(), fid, id, flags::RDONLY).await?;
        let read = self.mount().read_as(&open, 0, 4 * self.stage.plan.reach as usize + (1 << 20), false).await;
        let closed = self.mount().release(open).await;
        let bytes = read?.into_bytes();
        closed.map(|()| bytes)
    }
}

/// Asserts that after the race all mirrors can be resynced, and that they are then equal.
///
/// # Panics
/// If that is not so.
pub async fn check_mirrors(stage: &Arc<Stage>, seed: u64) {
    let client = *stage.living().first().expect("one lives");
    let tool = Tool { client, ..Tool::new(stage, 0, seed) };
    for fid in stage.files.iter().copied().chain([stage.log, stage.counter]) {
        let known = layout(tool.mount(), fid).await.expect("the race is over");
        if !known.is_mirrored() {
            continue;
        }
        if !known.stale_mirrors().is_empty() {
            let mut done = resync(tool.mount(), tool.rt(), fid, &known.stale_mirrors()).await;
            if done == Err(Errno::EIO) && stage.record().troubles.iter().any(|t| t.client == client) {
                // The client reports its lost data once.
                done = resync(tool.mount(), tool.rt(), fid, &known.stale_mirrors()).await;
            }
            let full = done == Err(Errno::ENOSPC) && stage.plan.tight.is_some();
            assert!(full || done.is_ok(), "the mirrors of {fid} cannot be resynced: {done:?}; {:?}", stage.plan);
        }
        let known = layout(tool.mount(), fid).await.expect("the race is over");
        let file = tool.mount().open(ROOT_USER, fid, flags::RDONLY | flags::DIRECT).await.expect("the race is over");
        let read = tool.mount().read_as(&file, 0, 4 * stage.plan.reach as usize + (1 << 20), false).await;
        let bytes = read.expect("the race is over").into_bytes();
        tool.mount().release(file).await.expect("it is open");
        for id in known.fresh_mirrors().iter().map(|m| m.mirror_id()) {
            let mirror = tool.read_mirror(fid, id).await;
            assert!(mirror.as_ref() == Ok(&bytes), "mirror {id} of {fid} differs: {:?}", stage.plan);
        }
    }
}
