//! fcntl(2) and flock(2): file locks of programs, managed by the MDT.

use std::pin::pin;

use sheen_rpc::{Awaited, Import};
use sheen_wire::{
    Errno, Fid, Mds, Result,
    ldlm::{Conflict, Cookie, Enqueue, Enqueued, Flags, Flock, FlockKind, LockId, Mode, Policy, Resource},
    mds::{Call, Reply, Request},
};

use crate::{Client, locks::Begun};

/// The wait for the lock would be a deadlock.
const EDEADLK: Errno = Errno(35);

impl Client {
    /// Takes a lock for a program (`Pr`: shared, read; `Pw`: exclusive, write), or releases it
    /// (`Nl`). Waits until the lock is granted or `interrupted` resolves.
    ///
    /// Locks survive a restart of the MDT, because this client takes them again. They are lost,
    /// with a warning, when the MDT evicts this client.
    ///
    /// # Errors
    /// EAGAIN: another owner holds a conflicting lock, and `wait` is false. EDEADLK: the wait would
    /// be a deadlock. EINTR: interrupted. ENOLCK: too many locks.
    pub async fn lock(
        &self,
        fid: Fid,
        flock: Flock,
        mode: Mode,
        wait: bool,
        interrupted: impl Future<Output = ()>,
    ) -> Result<()> {
        let flocks = &self.mdc.locks().flocks;
        let mut interrupted = pin!(interrupted);
        loop {
            let Begun { cookie, life, mut granted } = flocks.begin(fid, flock, mode);
            let mut waiting = Waiting { client: self, cookie, id: None };
            let flags = Flags { nowait: !wait, ..Flags::default() };
            waiting.id = match self.enqueue(fid, flock, mode, flags, cookie).await? {
                Enqueued::Waiting { id } => Some(id),
                answer => {
                    flocks.answered(cookie);
                    return match answer {
                        Enqueued::Granted { .. } if flocks.locked(life, fid, flock, mode) => Ok(()),
                        Enqueued::Granted { .. } => continue,
                        Enqueued::Deadlock => Err(EDEADLK),
                        Enqueued::Refused(errno) => Err(errno),
                        _ => Err(Errno::EAGAIN),
                    };
                }
            };
            let awaited = Awaited::Lock { resource: Resource::flock(fid), mode, policy: Policy::Flock(flock) };
            let _listed = self.mdc.import().waits().begin(awaited);
            tokio::select! {
                biased;
                answer = &mut granted => {
                    waiting.id = None;
                    if answer.is_ok() {
                        return Ok(());
                    }
                    // The MDT has lost the request: repeat it.
                }
                () = &mut interrupted => {
                    self.cancel_waiting(&mut waiting).await;
                    return if granted.try_recv().is_ok() { Ok(()) } else { Err(Errno::EINTR) };
                }
            }
        }
    }

    /// Returns a lock that conflicts with the given one (F_GETLK), if there is any.
    ///
    /// # Errors
    /// EINVAL: an invalid lock.
    pub async fn getlk(&self, fid: Fid, flock: Flock, mode: Mode) -> Result<Option<(Mode, Flock)>> {
        let flags = Flags { test: true, nowait: true, ..Flags::default() };
        match self.enqueue(fid, flock, mode, flags, Cookie::NONE).await? {
            Enqueued::WouldBlock { by: Conflict { mode, policy: Policy::Flock(flock), .. } } => Ok(Some((mode, flock))),
            Enqueued::Granted { .. } => Ok(None),
            Enqueued::Refused(errno) => Err(errno),
            _ => Err(Errno::EPROTO),
        }
    }

    /// Releases all locks of an owner on a file, as at a close.
    ///
    /// # Errors
    /// Any error of the MDT.
    pub async fn unlock_owner(&self, fid: Fid, owner: u64, kind: FlockKind) -> Result<()> {
        let all = Flock { start: 0, end: u64::MAX, owner, pid: 0, kind };
        self.mdc.locks().flocks.released(fid, all);
        self.enqueue(fid, all, Mode::Nl, Flags::default(), Cookie::NONE).await.map(drop)
    }

    async fn enqueue(&self, fid: Fid, flock: Flock, mode: Mode, flags: Flags, cookie: Cookie) -> Result<Enqueued> {
        let (resource, policy) = (Resource::flock(fid), Policy::Flock(flock));
        let enqueue = Enqueue { flags, ..Enqueue::new(resource, mode, policy, cookie) };
        match self.mdc.request(Request::Enqueue(enqueue)).reply().await? {
            Reply::Enqueued(answer) => Ok(answer),
            _ => Err(Errno::EPROTO),
        }
    }

    /// Stops waiting. The lock may be granted at the last moment.
    async fn cancel_waiting(&self, waiting: &mut Waiting<'_>) {
        // If the grant crosses the cancel, the cancel releases the lock.
        let id = waiting.id.take();
        if let (true, Some(id)) = (self.mdc.locks().flocks.end(waiting.cookie), id) {
            cancel(self.mdc.import(), id).await;
        }
    }
}

async fn cancel(import: &Import<Mds>, id: LockId) {
    let call = Call { cancels: vec![id], ..Request::Cancel.into() };
    // If this fails, the MDT has no session with this client any more.
    let _ = import.request(call).urgent().send().await;
}

/// A lock request that waits at the MDT. Dropped, it is cancelled.
struct Waiting<'a> {
    client: &'a Client,
    cookie: Cookie,
    id: Option<LockId>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.client.mdc.locks().flocks.end(self.cookie);
        if let Some(id) = self.id.take() {
            let import = self.client.mdc.import().clone();
            drop(self.client.rt.spawn("ldlm_cancel", async move { cancel(&import, id).await }));
        }
    }
}
