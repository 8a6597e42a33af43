//! Loads that an OST makes itself, as Lustre's obdfilter-survey does: without clients, network and
//! locks. `sheen lab survey` starts one after the other through the parameter `survey`.
//!
//! Invariants:
//! * the objects are of a sequence of their own ([`SEQ`]), so no file is changed;
//! * a load takes at most half of the space that is available and not granted to clients;
//! * at most one load runs at a time. The stop of the OST ends it;
//! * a write is timed until the bytes are durable. A read comes from the disk as far as the local
//!   file system can drop its cache.

use std::sync::Arc;

use bytes::Bytes;
use sheen_rpc::Pass;
use sheen_rt::Instant;
use sheen_wire::{
    Bulk, Errno, Fid, Result,
    echo::{self, SEQ},
};
use tracing::warn;

use crate::{
    Ost, Store,
    loads::{Load, Test},
};

impl Ost {
    /// Executes an order: a load, or `stop`. Returns when the load has begun.
    ///
    /// # Errors
    /// EINVAL: the order is invalid. EBUSY: a load runs. ENOSPC: it would take more than half of
    /// the free space. ESHUTDOWN: the OST is stopping.
    pub(crate) fn order_survey(self: &Arc<Ost>, order: &str) -> Result<()> {
        if order.trim() == "stop" {
            self.survey.stop();
            return Ok(());
        }
        let load: Load = order.parse()?;
        let space = self.store.statfs()?;
        let free = space.bavail.saturating_mul(space.bsize.into());
        // The objects of a load before this one are free for it.
        let free = free.saturating_add(self.survey.written());
        if load.test == Test::Write && load.shape.bytes > free / 2 {
            return Err(Errno::ENOSPC);
        }
        let pass = self.gate.enter().ok_or(Errno::ESHUTDOWN)?;
        self.survey.begin(load)?;
        if self.gate.enter().is_none() {
            // The stop may have been before the begin.
            self.survey.stop();
        }
        let ost = self.clone();
        drop(self.rt.spawn("ost-survey", ost.survey(load, pass)));
        Ok(())
    }

    async fn survey(self: Arc<Ost>, load: Load, _pass: Pass) {
        let done = match self.prepare(load) {
            Ok(()) => {
                let start = self.rt.now();
                self.load(load).await.map(|()| self.rt.now().since(start))
            }
            Err(errno) => Err(errno),
        };
        self.survey.end(load, done);
    }

    /// Drops what a read would find in memory.
    fn prepare(&self, load: Load) -> Result<()> {
        if load.test == Test::Read {
            for object in echo::objects(load.shape.objects) {
                self.rt.block_in_place(|| self.store.drop_cached(object))?;
            }
        }
        Ok(())
    }

    async fn load(self: &Arc<Ost>, load: Load) -> Result<()> {
        if load.test == Test::Remove {
            return self.store.destroy_range(SEQ, 0, u32::MAX).await;
        }
        let begin = |thread| self.rt.spawn("ost-survey-thread", self.clone().load_thread(load, thread));
        let threads: Vec<_> = (0..load.shape.threads).map(begin).collect();
        let mut result = Ok(());
        for thread in threads {
            let done = thread.await.unwrap_or(Err(Errno::EIO));
            result = result.and(done);
        }
        result?;
        if load.test == Test::Write {
            self.store.sync(&echo::objects(load.shape.objects)).await?;
            self.disk.wait(self.disk.sync()).await;
        }
        Ok(())
    }

    async fn load_thread(self: Arc<Ost>, load: Load, thread: u32) -> Result<()> {
        let mut done = 0;
        loop {
            let ost = self.clone();
            let (all, until) = self.rt.run_blocking(move || ost.transfer(load, thread, done)).await?;
            self.disk.wait(until).await;
            if until.is_none() {
                return Ok(());
            }
            done = all;
        }
    }

    /// Transfers the records of one thread after the first `done` ones, until one has to wait for
    /// the disk. Returns the number of records that are done, and the end of the wait. `None`: all
    /// are done.
    fn transfer(&self, load: Load, thread: u32, mut done: usize) -> Result<(usize, Option<Instant>)> {
        // Not zeros, which a local file system may store as holes.
        let data = Bytes::from(vec![0xa5; load.shape.record as usize]);
        for part in load.shape.records(thread).skip(done) {
            if self.survey.is_stopped() {
                return Err(Errno::EINTR);
            }
            let until = if load.test == Test::Write {
                self.store.write(Fid::ZERO, &[part], &Bulk::from(data.clone()), false, None)?;
                self.disk.write(&[part])
            } else {
                let (_, read) = self.store.read(&[part])?;
                if read.len() != part.len as usize {
                    return Err(Errno::ENODATA); // nothing has been written there
                }
                self.disk.read(&[part], &[u64::MAX])
            };
            self.survey.count(part.len.into());
            done += 1;
            if until.is_some() {
                return Ok((done, until));
            }
        }
        Ok((done, None))
    }
}

/// Removes the objects that a killed process has left. Errors are logged: they only cost space.
pub(crate) async fn remove_leftovers(store: &Store) {
    let removed = match store.sequences() {
        Ok(seqs) if !seqs.contains(&SEQ) => Ok(()),
        Ok(_) => store.destroy_range(SEQ, 0, u32::MAX).await,
        Err(errno) => Err(errno),
    };
    if let Err(errno) = removed {
        warn!("cannot remove the objects of a survey: {errno}");
    }
}
