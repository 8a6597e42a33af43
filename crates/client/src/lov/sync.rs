//! Making data durable, and the space of the OSTs.

use sheen_layout::{Layout, MDT_OST, Stripe};
use sheen_rpc::ImportState;
use sheen_rt::join::join_all;
use sheen_wire::{
    Bulk, Errno, Fid, StatFs,
    ost::{Reply, Request},
};

use super::{Lov, Ost, split::by_ost};
use crate::failure::Result;

impl Lov {
    /// Makes all data written to the file's objects durable. For mirrors other than the written
    /// one, this covers the OSTs that this client wrote to.
    ///
    /// # Errors
    /// EIO: an OST failed, or an earlier write of this client was lost in a power failure of the
    /// OST's host. The loss is reported once.
    pub async fn sync(&self, layout: &Layout) -> Result<()> {
        let mut synced = self.sync_one(layout).await;
        for mirror in layout.mirrors() {
            let is_written = |s: &Stripe| self.unsynced.before(layout.fid(), s.ost).is_some();
            if mirror.stripes().iter().any(is_written) {
                synced = synced.and(self.sync_one(mirror).await);
            }
        }
        synced
    }

    async fn sync_one(&self, layout: &Layout) -> Result<()> {
        self.settle_file(layout).await;
        let earlier = self.take_error(layout).map_or(Ok(()), |errno| Err(errno.into()));
        let groups = by_ost(layout, 0..layout.stripe_count())?;
        let file = layout.fid();
        let calls = groups.into_iter().map(|(ost, stripes)| {
            let objects = stripes.into_iter().map(|s| layout.stripes()[s].object).collect();
            async move {
                let before = self.unsynced.before(file, ost);
                let epoch = self.sync_rpc(ost, objects).await?;
                Ok(self.unsynced.synced(file, ost, before, epoch)?)
            }
        });
        let synced: Result<()> = join_all(calls).await.into_iter().collect();
        earlier.and(synced)
    }

    /// Makes all data written to any active OST durable, and all data that this client wrote to the
    /// MDT's data service.
    ///
    /// # Errors
    /// As [`Lov::sync`].
    pub async fn sync_all(&self) -> Result<()> {
        self.settle_all().await;
        let before = self.unsynced.before_all();
        // An MDT may have no data service: skip an import that was never connected.
        let used = |ost: &Ost| ost.osc.index() != MDT_OST || ost.osc.import().state() != ImportState::New;
        let osts = self.all().into_iter().filter(|ost| ost.osc.active() && used(ost)).map(|ost| ost.osc.index());
        let calls = osts.map(|ost| async move { Ok((ost, self.sync_rpc(ost, Vec::new()).await?)) });
        let answers = join_all(calls).await;
        let answered: Vec<(u32, u64)> = answers.iter().flatten().copied().collect();
        let failed = self.all().into_iter().filter(|ost| ost.writeback.has_failed()).count();
        self.unsynced.synced_all(before, &answered)?;
        if failed > 0 {
            return Err(Errno::EIO.into());
        }
        answers.into_iter().try_for_each(|answer: Result<_>| answer.map(drop))
    }

    /// Makes the changes durable that this client retains, because it is going to drop them.
    pub async fn sync_retained(&self) {
        let retains = |ost: &Ost| ost.osc.active() && ost.osc.import().retained_bytes() > 0;
        let osts = self.all().into_iter().filter(|ost| retains(ost)).map(|ost| ost.osc.index());
        // An OST that fails here logs it.
        let _ = join_all(osts.map(|ost| self.sync_rpc(ost, Vec::new()))).await;
    }

    /// Sends a sync request. Returns the epoch of the OST's data.
    async fn sync_rpc(&self, ost: u32, objects: Vec<Fid>) -> Result<u64> {
        match self.call(ost, Request::Sync { objects }, Bulk::new()).await?.0 {
            Reply::Done { epoch, .. } => Ok(epoch),
            _ => Err(Errno::EPROTO.into()),
        }
    }

    /// Requests the space of one OST.
    pub async fn statfs_ost(&self, ost: u32) -> Result<StatFs> {
        match self.call(ost, Request::StatFs, Bulk::new()).await?.0 {
            Reply::StatFs(statfs) => Ok(statfs),
            _ => Err(Errno::EPROTO.into()),
        }
    }
}
