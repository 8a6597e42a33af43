//! swap_layouts: two files exchange their objects, and with them their bytes.
//!
//! What others have of them goes as when a file is moved ([`super::moved`]); this client is to the OSTs one of the others. So nothing is
//! written or dropped here that the OSTs would not ask for, but for what is under locks of the MDT, which spares whoever asks.

use sheen_wire::{
    Errno, Fid, Result, Time,
    mds::{Request, flags},
};

use crate::{Caller, Client, OpenFile, mdc};

impl Client {
    /// Exchanges the layouts of an open file and of another one that is open on this mount. Owner, mode and times stay where they are.
    /// Nothing is done for one and the same file, as in Lustre.
    ///
    /// # Errors
    /// EINVAL: one is no regular file with a layout, or the other one is not open here. EACCES: the caller may not write to both. EPERM: they
    /// are not of the same user and group. EOPNOTSUPP: one is mirrored or begins on the MDT. EBUSY: somebody does not let go of one; nothing
    /// is changed. What the MDT answers.
    pub async fn swap_layouts(&self, who: &Caller, file: &OpenFile, other: Fid) -> Result<()> {
        if file.flags() & flags::DIRECTORY != 0 {
            return Err(Errno::EINVAL);
        }
        let fids = [file.fid(), other];
        if file.fid() == other {
            return Ok(());
        }
        // Whoever has it open was let through to it.
        self.files.any(other).ok_or(Errno::EINVAL)?;
        let mut mtimes = [Time::default(); 2];
        for (fid, mtime) in fids.into_iter().zip(&mut mtimes) {
            let open = self.files.any(fid);
            *mtime = self.getattr(fid, open.as_deref()).await?.attr.mtime;
        }
        let (reads, nonce) = (fids.map(|fid| self.page_reads(fid)), self.rt.random_u64());
        let request = |cred| Request::SwapLayouts { cred, fids, mtimes, nonce };
        let change = self.cache.change(&fids, false);
        let answer = self.mdc.call_as(who, request).await;
        change.end(&answer);
        for (fid, before) in fids.into_iter().zip(reads) {
            // A failure shows at the next use.
            let _ = self.ask_where(fid).await;
            self.drop_holes(fid, before, false).await;
        }
        answer.and_then(mdc::done)
    }
}
