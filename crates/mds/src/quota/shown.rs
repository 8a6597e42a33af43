//! Parameters of quotas in Lustre's form: the limits (`qmt.*`, of Lustre's quota master), and the
//! files of the MDT (`osd-sheen.*.quota_slave.*`).

use std::iter;
use std::sync::Arc;

use parking_lot::MutexGuard;
use sheen_params::Param;
use sheen_params::quotas::{IDS_MAX, LimitsRow, UsageRow, accounting_text, limits_text};
use sheen_wire::quota::{Id, Kind};
use sheen_wire::{PoolName, Time};

use super::rules::IDS_AT_ONCE;
use crate::mdt::Mdt;
use crate::state::core::Core;
use crate::state::quota::{Line, Scope};

/// Kinds with the words for them, in names and in titles.
const KINDS: [(Kind, &str, &str); 3] =
    [(Kind::User, "user", "usr"), (Kind::Group, "group", "grp"), (Kind::Project, "project", "prj")];
/// Stands for all targets in names. A pool of this name has no parameters.
const NO_POOL: &str = "0x0";
/// Limits that are read while the division is locked once.
const LINES_AT_ONCE: usize = 64;
/// Unit of limits of space: KiB.
const KIB: u64 = 1024;

/// Registers the parameters, without those of pools.
pub(crate) fn register(mdt: &Arc<Mdt>) {
    register_space(mdt, NO_POOL, None);
    for (kind, name, short) in KINDS {
        put(mdt, &format!("{}.md-{NO_POOL}.glb-{short}", dir(mdt)), move |mdt| limits_of_files(mdt, kind, short));
        put(mdt, &format!("{}.acct_{name}", slave_dir(mdt)), move |mdt| accounting(mdt, kind, short));
    }
    put(mdt, &format!("{}.info", slave_dir(mdt)), info);
}

/// Registers the limits of space within a pool.
pub(crate) fn register_pool(mdt: &Arc<Mdt>, pool: &str) {
    if let Ok(name) = PoolName::new(pool)
        && pool != NO_POOL
    {
        register_space(mdt, pool, Some(name));
    }
}

/// Unregisters the limits of space within a pool.
pub(crate) fn unregister_pool(mdt: &Mdt, pool: &str) {
    if pool != NO_POOL {
        mdt.params.unregister(&format!("{}.dt-{pool}", dir(mdt)));
    }
}

/// Unregisters all of them.
pub(crate) fn unregister(mdt: &Mdt) {
    mdt.params.unregister(&dir(mdt));
    mdt.params.unregister(&slave_dir(mdt));
}

fn register_space(mdt: &Arc<Mdt>, name: &str, scope: Scope) {
    for (kind, _, short) in KINDS {
        let text = move |mdt: &Mdt| limits_of_space(mdt, kind, short, scope);
        put(mdt, &format!("{}.dt-{name}.glb-{short}", dir(mdt)), text);
    }
}

fn put(mdt: &Arc<Mdt>, name: &str, text: impl Fn(&Mdt) -> String + Send + Sync + 'static) {
    let weak = Arc::downgrade(mdt);
    let text = move || weak.upgrade().map(|mdt| text(&mdt)).unwrap_or_default();
    mdt.params.register(name, Param::text(text));
}

fn dir(mdt: &Mdt) -> String {
    format!("qmt.{}-QMT{:04x}", mdt.config.fsname, mdt.config.index)
}

fn slave_dir(mdt: &Mdt) -> String {
    format!("osd-sheen.{}.quota_slave", mdt.name)
}

fn limits_of_space(mdt: &Mdt, kind: Kind, short: &str, scope: Scope) -> String {
    let grace = mdt.core.lock().ns.quota_grace(kind, scope).space;
    let row = |Line { id, rule, used, allowed, .. }: Line| LimitsRow {
        id: id.id,
        hard: rule.limits.hard / KIB,
        soft: rule.limits.soft / KIB,
        granted: allowed.max(used).div_ceil(KIB),
        time: end(rule.since, rule.grace),
    };
    let (mut rows, mut next) = (Vec::new(), Some(0));
    while let Some(first) = next.filter(|_| rows.len() < IDS_MAX) {
        let lines = mdt.quotas.divide(|division| division.lines_of(Id { kind, id: first }, scope, LINES_AT_ONCE));
        let last = lines.last().filter(|_| lines.len() == LINES_AT_ONCE);
        next = last.and_then(|line| line.id.id.checked_add(1));
        rows.extend(lines.into_iter().map(row));
    }
    limits_text("dt", short, iter::once(grace_row(grace)).chain(rows))
}

fn limits_of_files(mdt: &Mdt, kind: Kind, short: &str) -> String {
    let grace = mdt.core.lock().ns.quota_grace(kind, None).files;
    let mut rows = vec![grace_row(grace)];
    for_each_id(mdt, kind, |core, id| {
        let limits = core.ns.quota_setting(id, None).0.files;
        if !limits.is_none() {
            let (granted, time) = (core.ns.files_used(id), end(core.ns.files_grace(id), grace));
            rows.push(LimitsRow { id: id.id, hard: limits.hard, soft: limits.soft, granted, time });
        }
        rows.len() <= IDS_MAX
    });
    limits_text("md", short, rows)
}

/// Returns the files of users, groups or projects. Their data on the MDT is shown by its data
/// service.
fn accounting(mdt: &Mdt, kind: Kind, short: &str) -> String {
    let mut rows = Vec::new();
    for_each_id(mdt, kind, |core, id| {
        let inodes = core.ns.files_used(id);
        if inodes > 0 {
            rows.push(UsageRow { id: id.id, inodes, kbytes: 0 });
        }
        rows.len() < IDS_MAX
    });
    accounting_text(short, rows)
}

fn info(mdt: &Mdt) -> String {
    let state = "glb[1],slv[1],reint[0]";
    format!(
        "target name:    {}\npool ID:        0\ntype:           md\nquota enabled:  ugp\nconn to master: setup\n\
         space acct:     ugp\nuser uptodate:  {state}\ngroup uptodate: {state}\nproject uptodate: {state}\n",
        mdt.name
    )
}

/// Returns the row of id 0, which has the grace time.
fn grace_row(time: u64) -> LimitsRow {
    LimitsRow { id: 0, hard: 0, soft: 0, granted: 0, time }
}

/// Returns the seconds since 1970 at which a soft limit acts as a hard one; 0: it is not exceeded.
fn end(since: Option<Time>, grace: u64) -> u64 {
    since.map_or(0, |since| u64::try_from(since.sec).unwrap_or(0).saturating_add(grace))
}

/// Calls `f` with the ids that have files or limits of their own, until it returns false. The MDT
/// executes requests between them.
fn for_each_id(mdt: &Mdt, kind: Kind, mut f: impl FnMut(&Core, Id) -> bool) {
    let mut next = Some(0);
    while let Some(first) = next {
        let core = mdt.core.lock();
        let ids = core.ns.quota_ids(kind, None, first, IDS_AT_ONCE);
        if !ids.iter().all(|id| f(&core, Id { kind, id: *id })) {
            return;
        }
        next = ids.last().filter(|_| ids.len() == IDS_AT_ONCE).and_then(|last| last.checked_add(1));
        MutexGuard::unlock_fair(core); // requests wait for it
    }
}
