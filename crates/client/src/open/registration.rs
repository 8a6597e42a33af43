//! Registration of open files at the MDT. Local opens are registered before their lock is
//! cancelled. All open files are registered after a restart of the MDT, when its uncommitted
//! changes are replayed.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use bytes::Bytes;
use sheen_rpc::{BoxFuture, Import, Recovering};
use sheen_wire::{
    Errno, Fid, Mds, Result,
    mds::{LAYOUTS_MAX, NO_HANDLE, RELOCKS_MAX, REOPENS_MAX, Reopened, Reply, Request},
};

use super::{
    file::OpenFile,
    files::{OpenFiles, local},
};
use crate::{cache::Layouts, locks::Flocks, mdc::Mdc, replay};

impl OpenFiles {
    /// Keeps the MDT informed of open files. All of them are opened again at an MDT that was
    /// restarted or has evicted this client, so that orphans survive. Local opens are registered
    /// before their lock is cancelled.
    pub(crate) fn stay_open(self: &Arc<Self>, mdc: &Arc<Mdc>, layouts: &Arc<Layouts>) {
        let (files, layouts, locks) = (self.clone(), layouts.clone(), mdc.locks().clone());
        let weak = Arc::downgrade(mdc);
        mdc.import().on_restart(move |mdt| {
            // Drop the locks before the files are listed. A local open after this needs a lock of
            // the restarted MDT, which therefore knows the file.
            locks.forget();
            layouts.clear();
            let (files, locks, weak) = (files.clone(), locks.clone(), weak.clone());
            files.all().iter().for_each(|f| f.inode.note_restart());
            Box::pin(async move {
                if mdt.restarted() {
                    let Some(mdc) = weak.upgrade() else { return Ok(()) };
                    mdc.show_sequences(&mdt).await?;
                    let uncommitted = mdc.uncommitted();
                    let survived = replay::replay(&mdt, |lost| uncommitted.not_replayed(lost)).await?;
                    uncommitted.restarted(mdt.welcome().incarnation, survived);
                    files.report_layouts(&mdt).await?;
                }
                files.reopen(&mdt).await?;
                relock(&locks.flocks, &mdt).await?;
                mdt.call(Request::Recovered).await?;
                if let Some(mdc) = weak.upgrade() {
                    // This MDT does not know who waits.
                    mdc.changelog_readers().news.notify_waiters();
                }
                Ok(())
            })
        });
    }

    /// Reports the known layouts of open files.
    async fn report_layouts(&self, mdt: &Recovering<Mds>) -> Result<()> {
        let known: BTreeMap<Fid, Bytes> =
            (self.all().iter()).filter_map(|file| Some((file.fid(), file.inode.known()?.encode().into()))).collect();
        let known: Vec<(Fid, Bytes)> = known.into_iter().collect();
        let mut rest = &known[..];
        while !rest.is_empty() {
            let (some, others) = rest.split_at(replay::part(rest, LAYOUTS_MAX, |(_, layout)| layout.len()));
            match mdt.call(Request::AdoptLayouts { layouts: some.to_vec() }).await {
                Err(e) if !replay::is_refusal(&e) => return Err(e.errno()),
                // A layout that is not adopted counts as lost at the next use of the file.
                _ => rest = others,
            }
        }
        Ok(())
    }

    async fn reopen(&self, mdt: &Recovering<Mds>) -> Result<()> {
        let all = self.all();
        let (mut rest, mut first) = (&all[..], true);
        loop {
            let (some, others) = rest.split_at(rest.len().min(REOPENS_MAX));
            let last = others.is_empty();
            let answer = mdt.call(Request::Reopen { files: opens(some), first, last }).await?;
            for closed in self.opened(some, answer.body.reply, true)? {
                mdt.call(closed).await?;
            }
            if last {
                return Ok(());
            }
            (rest, first) = (others, false);
        }
    }

    /// Registers the local opens of a file at the MDT. `None`: there are none.
    pub(crate) fn register(
        self: &Arc<Self>,
        import: &Arc<Import<Mds>>,
        fid: Fid,
    ) -> Option<BoxFuture<'static, Result<()>>> {
        let files: Vec<_> = local(&self.files.lock(), fid).cloned().collect();
        if files.is_empty() {
            return None;
        }
        let (me, import) = (self.clone(), import.clone());
        Some(Box::pin(async move {
            for files in files.chunks(REOPENS_MAX) {
                // Urgent, because other clients may wait for the lock.
                let reopen = Request::Reopen { files: opens(files), first: false, last: false };
                let answer = import.request(reopen).urgent().send().await?;
                for closed in me.opened(files, answer.body.reply, false)? {
                    import.request(closed).urgent().send().await?;
                }
            }
            Ok(())
        }))
    }

    /// Stores the handles of files that the MDT has opened. Returns close requests for the
    /// superfluous ones: of files that were released meanwhile, and, unless `anew`, of files that
    /// already had a handle.
    fn opened(&self, files: &[Arc<OpenFile>], reply: Reply, anew: bool) -> Result<Vec<Request>> {
        let Reply::Handles(handles) = reply else { return Err(Errno::EPROTO) };
        if handles.len() != files.len() {
            return Err(Errno::EPROTO);
        }
        let mut surplus = Vec::new();
        let open = self.files.lock();
        for (file, handle) in files.iter().zip(handles) {
            let (fid, is_open) = (file.fid(), open.contains_key(&(file.fid(), file.id)));
            match handle {
                Ok(handle) if is_open && (anew || file.handle() == NO_HANDLE) => file.handle.store(handle, Relaxed),
                Ok(handle) => surplus.push(Request::close(fid, handle)),
                Err(errno) if is_open => {
                    file.lost.store(true, Relaxed);
                    tracing::warn!("{fid}: the MDT cannot open the file again: {errno}: operations return ESTALE");
                }
                Err(_) => {}
            }
        }
        Ok(surplus)
    }
}

/// Takes the locks again that programs hold. They are lost if the MDT evicted this client or is not
/// in recovery.
async fn relock(flocks: &Flocks, mdt: &Recovering<Mds>) -> Result<()> {
    let held = flocks.relocks();
    if mdt.evicted() {
        flocks.lost(&held);
        return Ok(());
    }
    for locks in held.chunks(RELOCKS_MAX) {
        match mdt.call(Request::Relock { locks: locks.to_vec() }).await {
            Ok(response) => {
                let Reply::Replayed(outcomes) = response.body.reply else { return Err(Errno::EPROTO) };
                flocks.lost(locks.iter().zip(outcomes).filter(|(_, outcome)| outcome.is_err()).map(|(lock, _)| lock));
            }
            Err(e) if replay::is_refusal(&e) => flocks.lost(locks),
            Err(broken) => return Err(broken.errno()),
        }
    }
    Ok(())
}

fn opens(files: &[Arc<OpenFile>]) -> Vec<Reopened> {
    let reopened = |file: &Arc<OpenFile>| Reopened {
        fid: file.fid(),
        flags: file.flags(),
        handle: file.handle(),
        opener: file.opener(),
    };
    files.iter().map(reopened).collect()
}
