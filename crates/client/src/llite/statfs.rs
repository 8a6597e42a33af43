//! statfs(2): space from the OSTs, inodes from the MDT.

use std::time::Duration;

use sheen_wire::{
    Errno, Result, StatFs,
    mds::{Reply, Request},
};

use crate::{Client, join::join_all, stats::Op};

/// Unit of the answer, in bytes; targets may have others.
const BLOCK_BYTES: u32 = 4096;
/// How long a target may take before the answer goes without it (Lustre's lazystatfs).
const TARGET_WAIT: Duration = Duration::from_secs(5);

impl Client {
    /// Space and inodes of the file system. An OST that does not answer or is not in use is left
    /// out.
    ///
    /// # Errors
    /// What the MDT answers.
    pub async fn statfs(&self) -> Result<StatFs> {
        let _timer = self.stats.time(Op::Statfs);
        let osts: Vec<u32> = self.lov.osts().iter().filter(|o| o.active()).map(|o| o.index()).collect();
        let (mdt, osts) = tokio::join!(self.statfs_mdt(), join_all(osts.into_iter().map(|ost| self.statfs_ost(ost))));
        Ok(summary(&mdt?, osts.into_iter().flatten()))
    }

    /// Space of one OST; ETIMEDOUT after a while, and at once where it is away. (rm -r and find ask
    /// for space only to know the type of a file system, and are not to wait for it.)
    pub(crate) async fn statfs_ost(&self, ost: u32) -> Result<StatFs> {
        let answer = self.lov.unless_ost_away(ost, self.lov.statfs_ost(ost));
        self.rt.timeout(TARGET_WAIT, answer).await.ok().flatten().unwrap_or(Err(Errno::ETIMEDOUT))
    }

    /// Space and inodes of the MDT; ETIMEDOUT after a while.
    pub(crate) async fn statfs_mdt(&self) -> Result<StatFs> {
        let answer = self.rt.timeout(TARGET_WAIT, self.mdc.call(Request::StatFs)).await;
        match answer.unwrap_or(Err(Errno::ETIMEDOUT))? {
            Reply::StatFs(statfs) => {
                self.mdc.note_space(statfs);
                Ok(statfs)
            }
            _ => Err(Errno::EPROTO),
        }
    }
}

/// Adds up as Lustre does: the blocks are the OSTs'; the inodes are the MDT's, but a file needs an
/// object too, so if the OSTs have fewer free than the MDT, theirs count, such that the number in
/// use stays right.
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
    fn adds_up_as_lustre_does() {
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
