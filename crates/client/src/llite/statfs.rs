//! statfs(2): space from the OSTs, inodes from the MDT.

use std::time::Duration;

use sheen_rt::join::join_all;
use sheen_wire::{
    Errno, Result, StatFs,
    mds::{Reply, Request},
};

use crate::{Client, failure::Failure, stats::Op};

/// Block size of the reply, in bytes; targets may have others.
const BLOCK_BYTES: u32 = 4096;
/// Longest wait for a target before the reply leaves it out (Lustre's lazystatfs).
const TARGET_WAIT: Duration = Duration::from_secs(5);

impl Client {
    /// Returns space and inodes of the file system, without OSTs that do not answer or are
    /// inactive. If the MDT does not answer, the inodes are those of its last answer.
    ///
    /// # Errors
    /// Any other error of the MDT.
    pub async fn statfs(&self) -> Result<StatFs> {
        let _timer = self.stats.time(Op::Statfs);
        let osts: Vec<u32> = self.lov.osts().iter().filter(|ost| ost.osc.active()).map(|ost| ost.osc.index()).collect();
        let (mdt, osts) = tokio::join!(self.statfs_mdt(), join_all(osts.into_iter().map(|ost| self.statfs_ost(ost))));
        let mdt = match mdt {
            Err(Errno::ETIMEDOUT) => self.mdc.space(),
            answer => answer?,
        };
        Ok(summary(&mdt, osts.into_iter().flatten()))
    }

    /// Returns the space of one OST. ETIMEDOUT after [`TARGET_WAIT`], and at once if the OST is
    /// disconnected. (rm -r and find call statfs only for the type of the file system, and must not
    /// wait.)
    pub(crate) async fn statfs_ost(&self, ost: u32) -> Result<StatFs> {
        let answer = self.lov.unless_ost_unavailable(ost, self.lov.statfs_ost(ost));
        let answer = self.rt.timeout(TARGET_WAIT, answer).await.ok().flatten();
        answer.unwrap_or(Err(Errno::ETIMEDOUT.into())).map_err(Failure::into_errno)
    }

    /// Returns space and inodes of the MDT; ETIMEDOUT after [`TARGET_WAIT`].
    pub(crate) async fn statfs_mdt(&self) -> Result<StatFs> {
        let answer = self.rt.timeout(TARGET_WAIT, self.mdc.request(Request::StatFs).reply()).await;
        match answer.unwrap_or(Err(Errno::ETIMEDOUT))? {
            Reply::StatFs(statfs) => {
                self.mdc.note_space(statfs);
                Ok(statfs)
            }
            _ => Err(Errno::EPROTO),
        }
    }
}

/// Adds up as Lustre does. The blocks are those of the OSTs. The inodes in use are those of the
/// MDT. The free inodes are the free inodes of the MDT or the free objects of the OSTs, whichever
/// are fewer, because each file needs both.
pub(crate) fn summary(mdt: &StatFs, osts: impl Iterator<Item = StatFs>) -> StatFs {
    let blocks = |s: &StatFs, n: u64| {
        let bytes = u128::from(n) * u128::from(s.bsize);
        u64::try_from(bytes / u128::from(BLOCK_BYTES)).unwrap_or(u64::MAX)
    };
    let mut sum = StatFs { bsize: BLOCK_BYTES, ..StatFs::default() };
    for ost in osts {
        sum.blocks = sum.blocks.saturating_add(blocks(&ost, ost.blocks));
        sum.bfree = sum.bfree.saturating_add(blocks(&ost, ost.bfree));
        sum.bavail = sum.bavail.saturating_add(blocks(&ost, ost.bavail));
        sum.files = sum.files.saturating_add(ost.files);
        sum.ffree = sum.ffree.saturating_add(ost.ffree);
    }
    if sum.files == 0 || sum.ffree >= mdt.ffree {
        (sum.files, sum.ffree) = (mdt.files, mdt.ffree);
    } else {
        sum.files = mdt.files.saturating_sub(mdt.ffree).saturating_add(sum.ffree);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statfs_summary_adds_up_as_lustre_does() {
        let mdt = StatFs { files: 1000, ffree: 600, bsize: 4096, ..StatFs::default() };
        let small = StatFs { bsize: 1024, blocks: 400, bfree: 200, bavail: 100, files: 500, ffree: 100, state: 0 };
        let large = StatFs { bsize: 8192, blocks: 10, bfree: 5, bavail: 5, files: 500, ffree: 100, state: 0 };
        let sum = summary(&mdt, [small, large].into_iter());
        assert_eq!((sum.bsize, sum.blocks, sum.bfree, sum.bavail), (4096, 120, 60, 35));
        assert_eq!((sum.files, sum.ffree), (600, 200), "400 in use, 200 more can be made");
        let none = summary(&mdt, std::iter::empty());
        assert_eq!((none.blocks, none.files, none.ffree), (0, 1000, 600));
        let many = summary(&mdt, [StatFs { files: 9000, ffree: 8000, ..small }].into_iter());
        assert_eq!((many.files, many.ffree), (1000, 600));
    }
}
