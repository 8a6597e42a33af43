//! The quotas of the file system of the tests.

use std::collections::{BTreeMap, BTreeSet};

use sheen_wire::{
    Errno, PoolName, Result,
    quota::{Answer, Change, Grace, Id, Kind, Limits, NewLimits, Query, Report, Setting, TargetReport, Usage},
};

/// Most ids in one answer, so that tests with few ids see several.
const PAGE: usize = 2;
/// The pools of the file system.
const POOLS: [&str; 3] = ["empty", "p1", "p2"];

/// Quotas. Nothing is enforced.
#[derive(Default)]
pub struct Quotas {
    used: BTreeMap<Id, (Usage, Usage)>,
    own: BTreeMap<(Id, Option<PoolName>), Setting>,
    /// The ids with records, which a list shows also without files and limits.
    known: BTreeSet<Id>,
    defaults: BTreeMap<(Kind, Option<PoolName>), Setting>,
    graces: BTreeMap<(Kind, Option<PoolName>), Grace>,
    /// A target is missing in the sums.
    pub inexact: bool,
}

impl Quotas {
    /// Sets the use of an id.
    pub fn set_use(&mut self, id: Id, space: Usage, files: Usage) {
        self.used.insert(id, (space, files));
        self.known.insert(id);
    }

    /// Answers like the MDT. All data is in each pool.
    pub fn answer(&self, query: &Query) -> Result<Answer> {
        check_pool(query.pool())?;
        let inexact = self.inexact;
        Ok(match *query {
            Query::Of { id, pool, targets } => {
                let report = self.report(id, pool);
                let targets = if targets { targets_of(&report, inexact) } else { Vec::new() };
                Answer::Of { report, targets, inexact }
            }
            Query::All { kind, pool, first } => {
                let mut ids: Vec<_> = self.known.iter().filter(|id| id.kind == kind && id.id >= first).collect();
                let more = ids.len() > PAGE;
                ids.truncate(PAGE);
                let ids = ids.into_iter().map(|id| (id.id, self.report(*id, pool))).collect();
                Answer::All { ids, more, inexact }
            }
            Query::Default { kind, pool } => {
                Answer::Default { setting: self.default(kind, pool), grace: self.grace(kind, pool) }
            }
        })
    }

    /// Changes quotas like the MDT.
    pub fn change(&mut self, change: &Change) -> Result<()> {
        if !change.removes() {
            check_pool(change.pool())?;
        }
        let apply = |to: Setting, space: NewLimits, files: NewLimits| -> Result<Setting> {
            Ok(Setting { space: space.apply(to.space)?, files: files.apply(to.files)? })
        };
        match *change {
            Change::Limits { id, pool, space, files } => {
                let own = self.own.get(&(id, pool)).copied().unwrap_or_else(|| self.default(id.kind, pool));
                self.own.insert((id, pool), apply(own, space, files)?);
                self.known.insert(id);
            }
            Change::UseDefault { id, pool } | Change::Delete { id, pool } => {
                self.own.remove(&(id, pool));
            }
            Change::Default { kind, pool, space, files } => {
                let default = apply(self.default(kind, pool), space, files)?;
                self.defaults.insert((kind, pool), default);
            }
            Change::Grace { kind, pool, space, files } => {
                let old = self.grace(kind, pool);
                let new = Grace { space: space.unwrap_or(old.space), files: files.unwrap_or(old.files) };
                self.graces.insert((kind, pool), new);
            }
        }
        Ok(())
    }

    fn default(&self, kind: Kind, pool: Option<PoolName>) -> Setting {
        self.defaults.get(&(kind, pool)).copied().unwrap_or_default()
    }

    fn grace(&self, kind: Kind, pool: Option<PoolName>) -> Grace {
        self.graces.get(&(kind, pool)).copied().unwrap_or_default()
    }

    fn report(&self, id: Id, pool: Option<PoolName>) -> Report {
        let (space, files) = self.used.get(&id).copied().unwrap_or_default();
        let own = self.own.get(&(id, pool)).copied();
        let limits = own.unwrap_or_else(|| self.default(id.kind, pool));
        let with = |usage: Usage, limits: Limits| Usage { limits, ..usage };
        Report { space: with(space, limits.space), files: with(files, limits.files), uses_default: own.is_none() }
    }
}

fn check_pool(pool: Option<PoolName>) -> Result<()> {
    if pool.is_none_or(|pool| POOLS.contains(&pool.as_str())) { Ok(()) } else { Err(Errno::ENOENT) }
}

/// Returns the parts of one MDT and two OSTs. All data is on the second OST.
fn targets_of(report: &Report, inexact: bool) -> Vec<TargetReport> {
    let limited = report.space.limits.hard > 0;
    let target = |name: &str, space, files, allowed| TargetReport {
        target: format!("lustre-{name}"),
        space,
        files,
        space_allowed: limited.then_some(allowed),
    };
    vec![
        target("MDT0000", Some(0), report.files.used, 0),
        target("OST0000", if inexact { None } else { Some(0) }, 0, 0),
        target("OST0001", Some(report.space.used), u64::from(report.space.used > 0), report.space.used + (1 << 20)),
    ]
}
