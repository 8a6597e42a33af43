//! The state that requests change.

use rustc_hash::{FxHashMap, FxHashSet};
use sheen_layout::Placer;
use sheen_namespace::{Done, Namespace};
use sheen_wire::mds::{Change, Reply, Request};

use crate::state::authors::Authors;
use crate::state::changelog_readers::ChangelogReaders;
use crate::store::RedbStore;

/// Begin of the names of the extended attributes that set a layout.
const LOV: &[u8] = b"lustre.lov";

/// State that requests change.
pub(crate) struct Core {
    pub ns: Namespace<RedbStore>,
    pub placer: Placer,
    /// Used while `commit_on_sharing` is on.
    pub authors: Authors,
    /// Number of commit rounds begun so far.
    pub round: u64,
    /// Connected exports that have sent a request.
    pub exports: FxHashSet<u64>,
    /// Connected exports whose clients are on the durable list, each with the round that makes this
    /// durable (0: it is).
    pub listed: FxHashMap<u64, u64>,
    pub changelog_readers: ChangelogReaders,
}

impl Core {
    /// Returns what a replay of a request needs that was just executed. `None`: it is not replayed.
    pub fn decided(&mut self, request: &Request, done: &Done) -> Option<Change> {
        if done.transno == 0 || !request.is_replayed() {
            return None;
        }
        // A close of orphans only: a recovery deletes them at its end.
        if matches!(&done.reply, Reply::Attrs(attrs) if attrs.is_empty()) {
            return None;
        }
        // The replies to the others have the layout.
        let layout = match request {
            Request::SetXattr { fid, name, .. } if name.starts_with(LOV) => self.ns.layout(*fid).ok().flatten(),
            _ => None,
        };
        Some(Change { time: done.time, layout: layout.map(|layout| layout.encode().into()), proof: None })
    }
}
