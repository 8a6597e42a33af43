//! The MDT as a client sees it (Lustre's mdc): its import, the names for new files, and the second try where the MDT needs to know
//! the caller's groups.
//!
//! Invariants: a FID is handed out once; a new sequence is asked for while half of the present one is left, so creating a file does
//! not wait for one.

use std::{fmt, sync::Arc};

use parking_lot::Mutex;
use sheen_rpc::Import;
use sheen_rt::Rt;
use sheen_wire::{
    Bulk, Cred, Errno, Fid, Mds, Result, StatFs,
    fid::SEQ_WIDTH,
    mds::{Entry, Reply, Request},
};

use crate::types::{Caller, GroupSource};

/// The MDT.
pub struct Mdc {
    rt: Rt,
    name: String,
    import: Arc<Import<Mds>>,
    groups: Arc<dyn GroupSource>,
    space: Mutex<StatFs>,
    sequence: Mutex<Sequence>,
    /// Held while a sequence is asked for in the foreground.
    fetching: tokio::sync::Mutex<()>,
}

/// Names that may be handed out.
#[derive(Default)]
struct Sequence {
    seq: u64,
    /// Ids handed out so far; [`SEQ_WIDTH`] when there are none left.
    used: u32,
    spare: Option<u64>,
    prefetching: bool,
}

impl Sequence {
    const EMPTY: Sequence = Sequence { seq: 0, used: SEQ_WIDTH, spare: None, prefetching: false };

    /// The next name, and whether it is time to ask for another sequence.
    fn next(&mut self) -> Option<(Fid, bool)> {
        if self.used >= SEQ_WIDTH {
            self.seq = self.spare.take()?;
            self.used = 0;
        }
        self.used += 1;
        let ask = self.used > SEQ_WIDTH / 2 && self.spare.is_none() && !self.prefetching;
        self.prefetching |= ask;
        Some((Fid::new(self.seq, self.used), ask))
    }
}

impl fmt::Debug for Mdc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Mdc").field(&self.name).finish()
    }
}

impl Mdc {
    /// An MDT behind an import. `name`: `sheen-MDT0000-mdc-ff3298de21e05800`.
    pub fn new(rt: Rt, name: String, import: Arc<Import<Mds>>, groups: Arc<dyn GroupSource>) -> Mdc {
        let (space, sequence) = (Mutex::default(), Mutex::new(Sequence::EMPTY));
        Mdc { rt, name, import, groups, space, sequence, fetching: tokio::sync::Mutex::new(()) }
    }

    /// Name of the device.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The connection.
    pub fn import(&self) -> &Arc<Import<Mds>> {
        &self.import
    }

    /// Whether it can carry requests, for `lfs check`: ENOTCONN while there is no connection.
    pub fn state(&self) -> Result<()> {
        crate::osc::import_state(&self.import)
    }

    /// The space last heard of; zeros before.
    pub fn space(&self) -> StatFs {
        *self.space.lock()
    }

    /// Keeps in mind what was just heard of the space.
    pub fn note_space(&self, space: StatFs) {
        *self.space.lock() = space;
    }

    /// Sends a request that does not depend on who asks.
    pub async fn call(&self, request: Request) -> Result<Reply> {
        Ok(self.import.call(request, Bulk::new()).await?.body)
    }

    /// Sends a request in somebody's name; once more with all the groups if the MDT says that they matter.
    pub async fn call_as(&self, who: &Caller, request: impl Fn(Cred) -> Request) -> Result<Reply> {
        match self.call(request(who.cred.clone())).await {
            Err(Errno::NEED_GROUPS) => {
                let groups = self.groups.groups(who.pid).unwrap_or_default();
                let cred = Cred { uid: who.cred.uid, gid: who.cred.gid, groups: Some(groups) };
                match self.call(request(cred)).await {
                    Err(Errno::NEED_GROUPS) => Err(Errno::EPROTO),
                    answer => answer,
                }
            }
            answer => answer,
        }
    }

    /// A name for a new file.
    pub async fn next_fid(self: &Arc<Self>) -> Result<Fid> {
        loop {
            let next = self.sequence.lock().next();
            if let Some((fid, ask)) = next {
                if ask {
                    self.prefetch();
                }
                return Ok(fid);
            }
            self.reserve_fids().await?;
        }
    }

    /// Sees to it that there is a sequence in reserve.
    pub async fn reserve_fids(&self) -> Result<()> {
        let _one_at_a_time = self.fetching.lock().await;
        let present = self.sequence.lock().spare.is_some();
        if !present {
            let seq = self.alloc_seq().await?;
            self.sequence.lock().spare = Some(seq);
        }
        Ok(())
    }

    fn prefetch(self: &Arc<Self>) {
        let mdc = self.clone();
        drop(self.rt.spawn("alloc_seq", async move {
            let answer = mdc.alloc_seq().await;
            let mut sequence = mdc.sequence.lock();
            sequence.prefetching = false;
            // A failure shows where the names run out, to somebody who can be told.
            if let Ok(seq) = answer {
                sequence.spare.get_or_insert(seq);
            }
        }));
    }

    async fn alloc_seq(&self) -> Result<u64> {
        match self.call(Request::AllocSeq).await? {
            Reply::Seq(seq) => Ok(seq),
            _ => Err(Errno::EPROTO),
        }
    }
}

/// The reply of a request that is answered `Ok`.
pub fn done(reply: Reply) -> Result<()> {
    match reply {
        Reply::Ok => Ok(()),
        _ => Err(Errno::EPROTO),
    }
}

/// The reply of a request that is answered `Entry`.
pub fn entry(reply: Reply) -> Result<Entry> {
    match reply {
        Reply::Entry(entry) => Ok(entry),
        _ => Err(Errno::EPROTO),
    }
}

/// The reply of a request that is answered `Bytes`.
pub fn bytes(reply: Reply) -> Result<bytes::Bytes> {
    match reply {
        Reply::Bytes(bytes) => Ok(bytes),
        _ => Err(Errno::EPROTO),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_run_on_into_the_next_sequence_without_a_repeat() {
        let mut s = Sequence { spare: Some(7), ..Sequence::EMPTY };
        let mut asked = 0;
        for i in 1..=SEQ_WIDTH {
            let (fid, ask) = s.next().unwrap();
            assert_eq!(fid, Fid::new(7, i));
            if ask {
                asked += 1;
                s.prefetching = false;
                s.spare = Some(8);
            }
        }
        assert_eq!(asked, 1);
        assert_eq!(s.next().unwrap().0, Fid::new(8, 1));
        let mut dry = Sequence { seq: 8, used: SEQ_WIDTH - 1, spare: None, prefetching: true };
        assert!(dry.next().is_some() && dry.next().is_none());
    }
}
