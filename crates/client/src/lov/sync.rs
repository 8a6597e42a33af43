//! Making data durable, and the space of the OSTs.

use sheen_layout::Layout;
use sheen_wire::{
    Bulk, Errno, Fid, Result, StatFs,
    ost::{Reply, Request},
};

use super::{Lov, split::by_ost};
use crate::join::join_all;

impl Lov {
    /// Answers when all that was written to the file's objects is durable.
    pub async fn sync(&self, layout: &Layout) -> Result<()> {
        let groups = by_ost(layout, 0..layout.stripe_count())?;
        let calls = groups.into_iter().map(|(ost, stripes)| {
            let objects = stripes.into_iter().map(|s| layout.stripes()[s].object).collect();
            self.sync_rpc(ost, objects)
        });
        join_all(calls).await.into_iter().collect()
    }

    /// Answers when all that was written to any active OST is durable.
    pub async fn sync_all(&self) -> Result<()> {
        let calls = self.all().into_iter().filter(|osc| osc.active()).map(|osc| self.sync_rpc(osc.index(), Vec::new()));
        join_all(calls).await.into_iter().collect()
    }

    async fn sync_rpc(&self, ost: u32, objects: Vec<Fid>) -> Result<()> {
        match self.call(ost, Request::Sync { objects }, Bulk::new()).await?.0 {
            Reply::Ok => Ok(()),
            _ => Err(Errno::EPROTO),
        }
    }

    /// Space of one OST.
    pub async fn statfs_ost(&self, ost: u32) -> Result<StatFs> {
        match self.call(ost, Request::StatFs, Bulk::new()).await?.0 {
            Reply::StatFs(statfs) => Ok(statfs),
            _ => Err(Errno::EPROTO),
        }
    }
}
