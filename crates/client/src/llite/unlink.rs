//! Removal of entries. The MDT deletes a file's objects when the file has no name and no open file
//! left.

use bytes::Bytes;
use sheen_wire::{Fid, Result, mds::Request};

use crate::{Caller, Client, mdc, stats::Op};

impl Client {
    /// Removes a name of a file that is not a directory.
    ///
    /// # Errors
    /// ENOENT, EISDIR, EACCES, EPERM.
    pub async fn unlink(&self, who: &Caller, parent: Fid, name: &Bytes) -> Result<()> {
        let _timer = self.stats.time(Op::Unlink);
        self.remove(who, parent, name, false).await
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// ENOENT, ENOTDIR, ENOTEMPTY, EACCES, EPERM.
    pub async fn rmdir(&self, who: &Caller, parent: Fid, name: &Bytes) -> Result<()> {
        let _timer = self.stats.time(Op::Rmdir);
        self.remove(who, parent, name, true).await
    }

    async fn remove(&self, who: &Caller, parent: Fid, name: &Bytes, dir: bool) -> Result<()> {
        self.check_not_virtual(parent)?;
        let request = |cred| Request::Unlink { cred, parent, name: name.clone(), dir };
        let last = if dir { None } else { self.only_name(parent, name) };
        let closed = self.closes.any().then(|| self.cache.meta.lock().name(parent, name)).flatten();
        let given_up = last.map(|fid| self.without_open(fid)).unwrap_or_default();
        let dir = self.asking(parent);
        let change = self.cache.change_names(&[(parent, name)]);
        // A close that is still unsent goes first: without it the MDT would treat the file as open.
        let closed = async {
            if let Some(fid) = closed {
                self.closes.tell_of(fid).await
            }
        };
        let ((), answer) =
            tokio::join!(biased; closed, self.mdc.request_as(who, request).with_converts(&given_up).send());
        let dir = dir.changed(change.end_with_invalidations(&answer));
        let answer = answer?;
        self.cache_dir(answer.dir, &dir);
        last.into_iter().for_each(|fid| self.files.note_orphan(fid));
        self.mdc.locks().cancel_deleted(&answer.deleted);
        mdc::done(answer.reply)
    }
}
