//! Quotas of space. The OSTs count the bytes of their objects' owners, and the MDT divides the
//! limits among them ([`crate::state::quota`]). Files are counted and limited by the namespace.
//!
//! * `master`: limits and allowances, for each OST;
//! * `owners`: owners of objects, which the OSTs ask for or which have changed;
//! * `query`: answers to `lfs quota`;
//! * `rules`: the limits of ids, read from the namespace, and helpers of the other modules;
//! * `shown`: parameters with Lustre's names.
//!
//! OSTs do not connect to the MDT. The MDT holds a request open at each OST, which the OST answers
//! when it needs something.
//!
//! Invariants:
//! * Before an OST charges an object to an id with a limit there, it knows that the id has one. The
//!   limit of a pool is none on other OSTs.
//! * An allowance of 0 asks an OST to return what it has. It is no answer to a want, so a write
//!   that waits there goes on waiting. Answers are at least 1 byte.
//! * The division counts an allowance before the OST gets it, and no longer only after the OST has
//!   returned it. So a lost message never lets the allowances exceed a limit.
//! * An OST that does not answer delays the allowances of others by at most 2 s, and owners of
//!   objects by at most 30 s.

mod master;
mod owners;
mod query;
mod rules;
mod shown;

use std::sync::Arc;

use sheen_rt::JoinHandle;
use sheen_wire::quota::Limits;

use crate::mdt::Mdt;
use crate::state::osp::Osp;
use crate::state::quota::Line;

pub(crate) use owners::confirm;
pub(crate) use shown::{register, register_pool, unregister, unregister_pool};

/// Serves the needs of one OST, as a part of its task ([`crate::osp`]).
pub(crate) async fn run(mdt: &Arc<Mdt>, osp: &Arc<Osp>) {
    tokio::select! {
        biased;
        () = master::run(mdt, osp) => {}
        () = owners::answer_unowned(mdt, osp) => {}
        () = owners::answer_lost(mdt, osp) => {}
    }
}

/// Starts the tasks that serve all OSTs.
pub(crate) fn spawn(mdt: &Arc<Mdt>) -> [JoinHandle<()>; 3] {
    [
        mdt.rt.spawn("mdt-quota-limits", master::follow_limits(mdt.clone())),
        mdt.rt.spawn("mdt-quota-refresh", master::refresh(mdt.clone())),
        mdt.rt.spawn("mdt-quota-owners", owners::follow_log(mdt.clone())),
    ]
}

/// Returns the text of the parameter `quota`: the limits of space, one in a line.
pub(crate) fn text(mdt: &Mdt) -> String {
    let line = |Line { id, scope, rule, used, allowed }: Line| {
        let Limits { soft, hard } = rule.limits;
        let (kind, id) = (id.kind.name(), id.id);
        let pool = scope.map(|pool| format!("pool: {pool}, ")).unwrap_or_default();
        format!("- {{ {kind}: {id}, {pool}soft: {soft}, hard: {hard}, used: {used}, allowed: {allowed} }}\n")
    };
    mdt.quotas.divide(|division| division.lines().map(line).collect())
}
