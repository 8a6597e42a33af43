//! `lfs migrate`, with `--block` and without.

use sheen_wire::{Errno, Fid};

use super::Tool;
use crate::sim::copy::migrate;

impl Tool {
    /// Migrates a file to new objects. It may fail with EBUSY if programs write meanwhile, and with
    /// EOPNOTSUPP if the file is mirrored.
    pub(super) async fn migrate(&mut self, fid: Fid) {
        let striping = self.stage.plan.striping(&mut self.rng);
        let group = self.rng.bool().then(|| self.rng.u64(1..1 << 40));
        let what = format!("migrates {fid} to {striping:?}{}", if group.is_some() { ", blocking" } else { "" });
        let asked = striping.asked().encode().into();
        let may = if self.stage.plan.has_mirrors() { &[Errno::EBUSY, Errno::EOPNOTSUPP][..] } else { &[Errno::EBUSY] };
        self.used(&what, may, migrate(self.mount(), fid, asked, group)).await;
    }
}
