//! renameat2(2).

use bytes::Bytes;
use sheen_wire::{
    Fid, Result,
    mds::{Request, rename::WHITEOUT},
};

use crate::{Caller, Client, mdc, stats::Op};

impl Client {
    /// Renames an entry; `flags` are those of [`sheen_wire::mds::rename`].
    ///
    /// # Errors
    /// Those of renameat2(2).
    pub async fn rename(
        &self,
        who: &Caller,
        parent: Fid,
        name: &Bytes,
        new_parent: Fid,
        new_name: &Bytes,
        flags: u32,
    ) -> Result<()> {
        let _timer = self.stats.time(Op::Rename);
        self.check_not_virtual(parent)?;
        self.check_not_virtual(new_parent)?;
        let whiteout = if flags & WHITEOUT == 0 { None } else { Some(Box::new(self.mdc.next_fid().await?)) };
        let request = |cred| {
            let (name, new_name) = (name.clone(), new_name.clone());
            Request::Rename { cred, parent, name, new_parent, new_name, flags, whiteout: whiteout.clone() }
        };
        let replaces = flags & !WHITEOUT == 0 && (parent, name) != (new_parent, new_name);
        let last = if replaces { self.only_name(new_parent, new_name) } else { None };
        let given_up = last.map(|fid| self.without_open(fid)).unwrap_or_default();
        let change = self.cache.change_names(&[(parent, name), (new_parent, new_name)]);
        // Both names may exist afterwards: after an exchange, or if the first becomes a whiteout.
        self.cache.adds(parent, name);
        self.cache.adds(new_parent, new_name);
        let answer = self.mdc.request_as(who, request).with_converts(&given_up).send().await;
        change.end_with_invalidations(&answer);
        let answer = answer?;
        last.into_iter().for_each(|fid| self.files.note_orphan(fid));
        self.mdc.locks().cancel_deleted(&answer.deleted);
        mdc::done(answer.reply)
    }
}
