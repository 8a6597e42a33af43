//! The changelog as a service: reading, clearing, its users and parameters (`mdd.*`). Readers that
//! wait for records: [`crate::state::changelog_readers`].
//!
//! Only the superuser of a client without limits may use it: the records have names of all
//! directories.

use std::ops::RangeInclusive;
use std::sync::{Arc, Weak};

use sheen_namespace::{ChangelogGc, ChangelogUser, Laggard, read_changelog};
use sheen_params::{Param, Unit};
use sheen_rpc::Export;
use sheen_wire::ast::Callback;
use sheen_wire::changelog::{self, Mask};
use sheen_wire::mds::Reply;
use sheen_wire::{Cred, Errno, Mds, Result};
use tracing::warn;

use crate::mdt::Mdt;
use crate::state::core::Core;

/// Largest reply with records, in bytes, whatever the client asks for.
const BYTES_MAX: usize = 1 << 20;
/// Stands for nothing in the value of `changelog_register`.
const NONE: &str = "-";
/// Largest `changelog_max_idle_time` in seconds, as in Lustre.
const IDLE_SECS_MAX: u64 = i32::MAX as u64;
/// Largest number of seconds of the other limits, and of records.
const LIMIT_MAX: u64 = u32::MAX as u64;

impl Mdt {
    /// Returns records from number `start` on, of at most `bytes_max`. Only durable ones: a
    /// restarted MDT gives the numbers of lost records to other changes. `notify`: if there are
    /// none, the client gets a callback when there are some.
    ///
    /// # Errors
    /// EPERM: the caller is not the superuser of a client without limits. EIO: the store cannot be
    /// read.
    pub(crate) fn changelog(
        &self,
        export: &Arc<Export>,
        cred: &Cred,
        (start, bytes_max): (u64, u32),
        notify: bool,
    ) -> Result<Reply> {
        self.check_administrator(export, cred)?;
        let (first, last) = {
            let mut core = self.core.lock();
            let (first, last) = core.ns.changelog_range();
            if notify && start.max(first) > last {
                core.changelog_readers.add(export, start.max(first));
            }
            (first, last)
        };
        let bytes_max = usize::try_from(bytes_max).unwrap_or(BYTES_MAX).min(BYTES_MAX);
        let records = read_changelog(&*self.store, start.max(first), last, bytes_max).map_err(|fault| {
            self.store_failed("changelog", &fault);
            Errno::EIO
        })?;
        Ok(Reply::Bytes(changelog::encode(&records).map_err(|_| Errno::EIO)?.into()))
    }

    /// Moves the clear point of a user.
    ///
    /// # Errors
    /// EPERM: as [`Mdt::changelog`]. EROFS: the store cannot be written. Others as
    /// [`sheen_namespace::Namespace::changelog_clear`].
    pub(crate) fn clear_changelog(&self, export: &Export, cred: &Cred, user: u32, end: u64) -> Result<Reply> {
        self.check_administrator(export, cred)?;
        let now = self.rt.wall();
        self.change_users(|core| core.ns.changelog_clear(user, end, now))?;
        Ok(Reply::Ok)
    }

    fn check_administrator(&self, export: &Export, cred: &Cred) -> Result<()> {
        let nodemaps = self.nodemaps.get();
        let is_limited = self.limits(&nodemaps, export)?.is_some();
        if is_limited || cred.uid != 0 { Err(Errno::EPERM) } else { Ok(()) }
    }

    /// Changes the users of the changelog, and commits the change at once.
    fn change_users(&self, change: impl FnOnce(&mut Core) -> Result<()>) -> Result<()> {
        if self.commits.failed() {
            return Err(Errno::EROFS);
        }
        let mut core = self.core.lock();
        change(&mut core)?;
        self.wake_committer(&core);
        self.commits.urgent.notify_one();
        Ok(())
    }

    /// Goes on after a commit: deletes further records, and reports users that were deregistered,
    /// and records that were left out. Returns the clients that wait for the records that are
    /// durable now, for [`call`].
    pub(crate) fn committed_changelog(&self, core: &mut Core) -> Vec<Arc<Export>> {
        for Laggard { user, records, idle_secs } in core.ns.take_changelog_laggards() {
            warn!(
                "{}: deregistered user {} of the changelog, idle for {idle_secs} s with {records} unprocessed records; \
                 register it again, or raise mdd.{}.changelog_max_idle_time and changelog_max_idle_indexes",
                self.name,
                user.label(),
                self.name
            );
        }
        let left_out = core.ns.take_left_out_accesses();
        if left_out > 0 {
            warn!(
                "{}: the changelog lacks {left_out} records of OPEN, NOPEN and GXATR, because too many were not yet \
                 stored, or the disk is short of space",
                self.name
            );
        }
        if core.ns.has_unneeded_records() {
            self.wake_committer(core);
        }
        let (_, last) = core.ns.changelog_range();
        core.changelog_readers.take_up_to(last)
    }

    /// Returns the text of `changelog_users`, in Lustre's form.
    fn changelog_users(&self) -> String {
        let now = self.rt.wall();
        let core = self.core.lock();
        let (_, last) = core.ns.changelog_range();
        let mut text = format!("current_index: {last}\n{:<30} index (idle) mask\n", "ID");
        for user in core.ns.changelog_users() {
            let idle = now.sec.saturating_sub(user.active.sec).max(0);
            let mask = user.mask.map(|mask| format!(" mask={}", mask.to_string().replace(' ', ",")));
            let (label, mask) = (user.label(), mask.unwrap_or_default());
            text.push_str(&format!("{label:<30} {} ({idle}){mask}\n", user.cleared));
        }
        text
    }

    /// Registers a user: `NONCE NAME MASK`, where name and mask may be `-`.
    fn register_user(&self, text: &str) -> Result<()> {
        let mut words = text.trim().splitn(3, ' ');
        let (Some(nonce), Some(name), Some(mask)) = (words.next(), words.next(), words.next()) else {
            return Err(Errno::EINVAL);
        };
        let nonce = nonce.parse().map_err(|_| Errno::EINVAL)?;
        let name = if name == NONE { "" } else { name };
        let now = self.rt.wall();
        let recorded_opens = self.core.lock().ns.records_opens();
        self.change_users(|core| {
            let mask = match mask {
                NONE => None,
                mask => Some(Mask::parse(mask, core.ns.changelog_mask()).ok_or(Errno::EINVAL)?),
            };
            core.ns.changelog_register(name, mask, nonce, now)
        })?;
        self.follow_opens(recorded_opens);
        Ok(())
    }

    /// Handles another set of recorded kinds. If opens or closes are recorded from now on, clients
    /// must not open files any more without a request.
    fn follow_opens(&self, recorded_before: bool) {
        if !recorded_before && self.core.lock().ns.records_opens() {
            self.revoke_open();
        }
    }

    /// Changes the limits for idle users, and commits the change at once.
    fn change_gc(&self, change: impl FnOnce(&mut ChangelogGc)) -> Result<()> {
        self.change_users(|core| {
            let mut gc = core.ns.changelog_gc();
            change(&mut gc);
            core.ns.set_changelog_gc(gc);
            Ok(())
        })
    }

    fn set_changelog_mask(&self, text: &str) -> Result<()> {
        let recorded_opens = {
            let mut core = self.core.lock();
            let recorded_opens = core.ns.records_opens();
            let mask = Mask::parse(text, core.ns.changelog_mask()).ok_or(Errno::EINVAL)?;
            core.ns.set_changelog_mask(mask);
            recorded_opens
        };
        self.follow_opens(recorded_opens);
        Ok(())
    }
}

/// Calls clients back whose readers wait. To be called without the lock of the core.
pub(crate) fn call(readers: &[Arc<Export>]) {
    for export in readers {
        // A client without a connection asks again after some seconds.
        export.callback::<Mds>(Callback::Changelog);
    }
}

/// Returns the begin of the names of the changelog's parameters.
pub(crate) fn dir(mdt: &Mdt) -> String {
    format!("mdd.{}", mdt.name)
}

/// Registers the parameters.
pub(crate) fn register(mdt: &Arc<Mdt>) {
    let dir = dir(mdt);
    let put = |field: &str, param| mdt.params.register(&format!("{dir}.{field}"), param);
    put("changelog_users", Param::text(reading(mdt, Mdt::changelog_users)));
    let mask = reading(mdt, |mdt| mdt.core.lock().ns.changelog_mask().to_string());
    put("changelog_mask", Param::text_rw(mask, writing(mdt, Mdt::set_changelog_mask)));
    put(
        "changelog_current_mask",
        Param::text(reading(mdt, |mdt| mdt.core.lock().ns.changelog_current_mask().to_string())),
    );
    let bytes = reading(mdt, |mdt| mdt.core.lock().ns.changelog_bytes());
    put("changelog_size", Param::u64_ro(bytes).unit(Unit::Bytes));
    register_limits(mdt);
    // The users whose registration is durable: `NONCE ID` in each line. `lctl` waits for its own.
    let line = |user: &ChangelogUser| format!("{} {}\n", user.nonce, user.label());
    let registered = move |mdt: &Mdt| mdt.core.lock().ns.changelog_registered().map(line).collect::<String>();
    put("changelog_register", Param::order(reading(mdt, registered), writing(mdt, Mdt::register_user)));
    let deregister = |mdt: &Mdt, id: &str| {
        let id = id.trim().parse().map_err(|_| Errno::EINVAL)?;
        mdt.change_users(|core| core.ns.changelog_deregister(id))
    };
    // The users whose deregistration is not durable. `lctl` waits for its own.
    let leaving = |mdt: &Mdt| mdt.core.lock().ns.changelog_leaving().map(|id| format!("{id}\n")).collect::<String>();
    put("changelog_deregister", Param::order(reading(mdt, leaving), writing(mdt, deregister)));
}

/// Registers the limits for idle users, and for records of refused opens.
fn register_limits(mdt: &Arc<Mdt>) {
    let dir = dir(mdt);
    let put = |field: &str, param| mdt.params.register(&format!("{dir}.{field}"), param);
    let set = Arc::downgrade(mdt);
    let is_on = reading(mdt, |mdt| mdt.core.lock().ns.changelog_gc().is_on);
    put(
        "changelog_gc",
        Param::bool(is_on, move |on| set.upgrade().ok_or(Errno::ENODEV)?.change_gc(|gc| gc.is_on = on)),
    );
    put("changelog_max_idle_time", gc_secs(mdt, 1..=IDLE_SECS_MAX, |gc| &mut gc.idle_secs));
    put("changelog_min_gc_interval", gc_secs(mdt, 1..=LIMIT_MAX, |gc| &mut gc.interval_secs));
    let set = Arc::downgrade(mdt);
    put(
        "changelog_max_idle_indexes",
        Param::u64(1..=LIMIT_MAX, reading(mdt, |mdt| mdt.core.lock().ns.changelog_held_max()), move |records| {
            let mdt = set.upgrade().ok_or(Errno::ENODEV)?;
            mdt.core.lock().ns.set_changelog_held_max(records);
            Ok(())
        }),
    );
    let set = Arc::downgrade(mdt);
    let secs = reading(mdt, |mdt| mdt.core.lock().ns.changelog_refused_secs());
    put(
        "changelog_deniednext",
        Param::u64(0..=LIMIT_MAX, secs, move |secs| {
            let mdt = set.upgrade().ok_or(Errno::ENODEV)?;
            mdt.core.lock().ns.set_changelog_refused_secs(secs);
            Ok(())
        })
        .unit(Unit::Secs),
    );
}

/// Returns a parameter for one of the limits in seconds.
fn gc_secs(mdt: &Arc<Mdt>, range: RangeInclusive<u64>, field: fn(&mut ChangelogGc) -> &mut u64) -> Param {
    let read = reading(mdt, move |mdt| *field(&mut mdt.core.lock().ns.changelog_gc()));
    let set = Arc::downgrade(mdt);
    let write = move |secs| set.upgrade().ok_or(Errno::ENODEV)?.change_gc(|gc| *field(gc) = secs);
    Param::u64(range, read, write).unit(Unit::Secs)
}

fn reading<T: Default>(
    mdt: &Arc<Mdt>,
    f: impl Fn(&Mdt) -> T + Send + Sync + 'static,
) -> impl Fn() -> T + Send + Sync + 'static {
    let mdt: Weak<Mdt> = Arc::downgrade(mdt);
    move || mdt.upgrade().map(|mdt| f(&mdt)).unwrap_or_default()
}

fn writing(
    mdt: &Arc<Mdt>,
    f: impl Fn(&Mdt, &str) -> Result<()> + Send + Sync + 'static,
) -> impl Fn(&str) -> Result<()> + Send + Sync + 'static {
    let mdt: Weak<Mdt> = Arc::downgrade(mdt);
    move |text: &str| mdt.upgrade().ok_or(Errno::ENODEV).and_then(|mdt| f(&mdt, text))
}
