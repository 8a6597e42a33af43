//! Finding an entry of a directory.

use bytes::Bytes;
use sheen_wire::{
    Errno, Fid, Result,
    mds::{Reply, Request},
};

use crate::{Caller, Client, EntryAttr, mdc, stats::Op};

impl Client {
    /// The file behind a name; `.` and `..` are understood, also of what is no directory: so the kernel asks for a file that it knows
    /// by number alone (name_to_handle_at, open_by_handle_at, NFS). `..` is then the directory of its first name.
    ///
    /// # Errors
    /// ENOENT: no such entry. EACCES: the directory may not be searched. ENAMETOOLONG. ESTALE: `..` of a file without a name.
    pub async fn lookup(&self, who: &Caller, parent: Fid, name: &Bytes) -> Result<EntryAttr> {
        let _timer = self.stats.time(Op::Lookup);
        if let Some(answer) = self.virtual_lookup(who, parent, name).await {
            return answer;
        }
        if &name[..] == b"." {
            return self.getattr_of(parent, None).await;
        }
        match self.mdc.call_as(who, |cred| Request::Lookup { cred, parent, name: name.clone() }).await {
            Err(Errno::ENOTDIR) if &name[..] == b".." => self.directory_of(parent).await,
            reply => self.merged(mdc::entry(reply?)?).await,
        }
    }

    async fn directory_of(&self, file: Fid) -> Result<EntryAttr> {
        let Reply::Parents(names) = self.mdc.call(Request::Parents { fid: file }).await? else {
            return Err(Errno::EPROTO);
        };
        let (directory, _) = names.first().ok_or(Errno::ESTALE)?;
        self.getattr_of(*directory, None).await
    }
}
