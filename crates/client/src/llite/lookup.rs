//! Finding an entry of a directory.

use bytes::Bytes;
use sheen_wire::{Fid, Result, mds::Request};

use crate::{Caller, Client, EntryAttr, mdc, stats::Op};

impl Client {
    /// The file behind a name; `.` and `..` are understood.
    ///
    /// # Errors
    /// ENOENT: no such entry. EACCES: the directory may not be searched. ENAMETOOLONG.
    pub async fn lookup(&self, who: &Caller, parent: Fid, name: &Bytes) -> Result<EntryAttr> {
        let _timer = self.stats.time(Op::Lookup);
        if let Some(answer) = self.virtual_lookup(who, parent, name).await {
            return answer;
        }
        let reply = self.mdc.call_as(who, |cred| Request::Lookup { cred, parent, name: name.clone() }).await?;
        self.merged(mdc::entry(reply)?).await
    }
}
