//! Parameters and devices of an OST for `lctl`: `obdfilter.<target>.*`,
//! `ldlm.namespaces.filter-<target>_UUID.*`, and the devices `OSS` and the target. The data service
//! of an MDT has its parameters under `dom.<target>.*`, and no devices.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use sheen_params::{Device, Param, Params, Snapshot, Unit, job_stats::CLEANUP_SECS_MAX, waits_text};
use sheen_wire::{Errno, StatFs, bulk::BULK_BYTES_MAX, ost::OBJECT_SIZE_MAX};

use crate::{Ost, brw_stats, quota_params};

/// Longest time from a change to a commit, in milliseconds.
const COMMIT_INTERVAL_MAX: u64 = 60_000;
/// Most seconds for which an object must be at rest before it gets checksums: a day.
const SCRUB_QUIET_MAX: u64 = 86_400;
/// Highest speed of a scrub in MiB per second.
const SCRUB_SPEED_MAX: u64 = 1 << 20;
/// Name of the device of all OSTs of a process.
const OSS: &str = "OSS";
/// Value of `disk_model` without a model.
const NO_DISK: &str = "none";
/// Kind of an OST's device.
const OST_KIND: &str = "obdfilter";

/// Returns the begin of the names of a target's parameters.
pub fn dir(name: &str, is_of_mdt: bool) -> String {
    let kind = if is_of_mdt { "dom" } else { "obdfilter" };
    format!("{kind}.{name}")
}

/// Returns the begin of the names that Lustre gives to parameters of the local file system
/// (`osd-ldiskfs`, `osd-zfs`).
fn osd_dir(ost: &Ost) -> String {
    format!("osd-sheen.{}", ost.name)
}

/// Registers the OST's parameters and devices.
pub fn register(ost: &Arc<Ost>, params: &Params) {
    let dir = dir(&ost.name, ost.is_of_mdt);
    let weak = Arc::downgrade(ost);
    let put = |name: &str, param| params.register(&format!("{dir}.{name}"), param);
    let space = |f: fn(StatFs) -> u64| {
        let weak = weak.clone();
        Param::u64_ro(move || read(&weak, |ost| ost.store.statfs().map(f).unwrap_or(0)))
    };
    put("kbytestotal", space(|s| kib(s.blocks, s.bsize)).unit(Unit::Kib));
    put("kbytesfree", space(|s| kib(s.bfree, s.bsize)).unit(Unit::Kib));
    put("kbytesavail", space(|s| kib(s.bavail, s.bsize)).unit(Unit::Kib));
    put("filestotal", space(|s| s.files));
    put("filesfree", space(|s| s.ffree));
    put("blocksize", space(|s| s.bsize.into()).unit(Unit::Bytes));
    let number = |f: fn(&Ost) -> u64| {
        let weak = weak.clone();
        Param::u64_ro(move || read(&weak, f))
    };
    put("brw_size", number(|_| BULK_BYTES_MAX as u64 >> 20).unit(Unit::Mib));
    put("maxbytes", number(|_| OBJECT_SIZE_MAX).unit(Unit::Bytes));
    put("num_exports", number(Ost::exports));
    put("tot_granted", number(Ost::granted).unit(Unit::Bytes));
    put("open_files", number(|ost| ost.store.open_files() as u64));
    let uuid = format!("{}_UUID", ost.name);
    put("uuid", Param::text(move || uuid.clone()));
    put("stats", stats(&weak));
    for dir in [&dir, &osd_dir(ost)] {
        params.register(&format!("{dir}.brw_stats"), brw_stats_param(&weak));
    }
    ost.export_stats.register();
    put("job_stats", job_stats(&weak));
    let of = weak.clone();
    put("waits", Param::text(move || read(&of, |ost| waits_text(&ost.locks.lockd().waits(&ost.name)))));
    put("job_cleanup_interval", Param::atomic(0..=CLEANUP_SECS_MAX, ost.jobs.cleanup_secs()).unit(Unit::Secs));
    let interval = number_in(&weak, 1..=COMMIT_INTERVAL_MAX, |ost| &ost.commits.interval_ms);
    put("commit_interval_ms", interval.unit(Unit::Msecs));
    scrub(&weak, &put);
    let of = weak.clone();
    put("quota", Param::text(move || read(&of, Ost::quota_text)));
    quota_params::register(ost, params, &osd_dir(ost));
    let of = weak.clone();
    sheen_recoveryd::register(&ost.recovery, &dir, params, move || of.upgrade().map(|ost| ost.commits.last()));
    ost.locks.register(params);
    if !ost.is_of_mdt {
        params.register(&format!("{dir}.degraded"), degraded(&weak));
        params.register(&format!("{dir}.survey"), survey(&weak));
        params.register(&format!("{dir}.disk_model"), disk_model(&weak));
        devices(ost, params);
    }
}

/// Unregisters the OST's parameters and its device, and the device `OSS` with the last OST.
pub fn unregister(ost: &Ost, params: &Params) {
    params.unregister(&dir(&ost.name, ost.is_of_mdt));
    params.unregister(&osd_dir(ost));
    ost.locks.unregister(params);
    params.remove_device(&ost.name);
    if params.devices().iter().all(|device| device.kind != OST_KIND) {
        params.remove_device(OSS);
    }
}

/// Lustre's `stats` file; setting it to any value clears the counters.
fn stats(weak: &Weak<Ost>) -> Param {
    let (get, set) = (weak.clone(), weak.clone());
    Param::counters(
        move || read(&get, |ost| ost.stats.snapshot(ost.rt.wall())),
        Snapshot::stats_text,
        move || change(&set, |ost| ost.stats.clear(ost.rt.wall())),
    )
}

fn brw_stats_param(weak: &Weak<Ost>) -> Param {
    let (get, set) = (weak.clone(), weak.clone());
    Param::histogram(
        move || read(&get, |ost| ost.brw_stats.snapshot(ost.rt.wall())),
        brw_stats::text,
        move || change(&set, |ost| ost.brw_stats.clear(ost.rt.wall())),
    )
}

fn job_stats(weak: &Weak<Ost>) -> Param {
    let (get, remove) = (weak.clone(), weak.clone());
    Param::jobs(
        move || read(&get, |ost| ost.jobs.snapshot(ost.moment())),
        move |job| change(&remove, |ost| ost.jobs.remove(job)),
    )
}

/// The parameters of the scrub.
fn scrub(weak: &Weak<Ost>, put: &impl Fn(&str, Param)) {
    let of = weak.clone();
    let status = |ost: &Ost| ost.scrubber.status(ost.rt.wall(), &ost.store.damage_report());
    put("lfsck_scrub", Param::text(move || read(&of, status)));
    let (get, set) = (weak.clone(), weak.clone());
    let run = move |on| change(&set, |ost| if on { ost.scrubber.start() } else { ost.scrubber.stop() });
    put("lfsck_scrub_run", Param::bool(move || read(&get, |ost| ost.scrubber.is_running()), run));
    let (get, set) = (weak.clone(), weak.clone());
    let on = move |on| change(&set, |ost| ost.scrubber.on.store(on, Relaxed));
    put("checksums_at_rest", Param::bool(move || read(&get, |ost| ost.scrubber.on.load(Relaxed)), on));
    let quiet = number_in(weak, 0..=SCRUB_QUIET_MAX, |ost| &ost.scrubber.quiet_secs);
    put("scrub_quiet_secs", quiet.unit(Unit::Secs));
    let speed = number_in(weak, 0..=SCRUB_SPEED_MAX, |ost| &ost.scrubber.pace.mib_per_second);
    put("scrub_speed_mb", speed.unit(Unit::Mib));
}

/// The loads of `sheen lab survey`: an order starts one, or stops it.
fn survey(weak: &Weak<Ost>) -> Param {
    let (get, set) = (weak.clone(), weak.clone());
    Param::order(
        move || read(&get, |ost| ost.survey.status()),
        move |order| set.upgrade().ok_or(Errno::ENODEV)?.order_survey(order),
    )
}

/// The modelled disk, or `none`.
fn disk_model(weak: &Weak<Ost>) -> Param {
    let (get, set) = (weak.clone(), weak.clone());
    let text = |ost: &Ost| ost.disk.spec().map_or_else(|| NO_DISK.into(), |spec| spec.to_string());
    Param::text_rw(
        move || read(&get, text),
        move |text| {
            let ost = set.upgrade().ok_or(Errno::ENODEV)?;
            let spec = if text.trim() == NO_DISK { None } else { Some(text.parse().map_err(|_| Errno::EINVAL)?) };
            ost.disk.set(spec);
            Ok(())
        },
    )
}

/// A number that can be set within bounds.
fn number_in(weak: &Weak<Ost>, range: RangeInclusive<u64>, field: fn(&Ost) -> &AtomicU64) -> Param {
    let (get, set) = (weak.clone(), weak.clone());
    let store = move |value| change(&set, |ost| field(ost).store(value, Relaxed));
    Param::u64(range, move || read(&get, |ost| field(ost).load(Relaxed)), store)
}

/// `degraded`: set to 1 by a monitor of the disks below while they are being repaired.
fn degraded(weak: &Weak<Ost>) -> Param {
    let (get, set) = (weak.clone(), weak.clone());
    Param::bool(
        move || read(&get, |ost| ost.degraded.load(Relaxed)),
        move |on| change(&set, |ost| ost.degraded.store(on, Relaxed)),
    )
}

fn devices(ost: &Arc<Ost>, params: &Params) {
    params.add_device(OSS, || Device::new("ost", OSS, "OSS_uuid"));
    let (name, weak) = (ost.name.clone(), Arc::downgrade(ost));
    params.add_device(&ost.name, move || {
        Device::new(OST_KIND, &name, &format!("{name}_UUID")).exports(read(&weak, Ost::exports))
    });
}

fn read<T: Default>(weak: &Weak<Ost>, f: impl FnOnce(&Ost) -> T) -> T {
    weak.upgrade().map(|ost| f(&ost)).unwrap_or_default()
}

fn change(weak: &Weak<Ost>, f: impl FnOnce(&Ost)) -> Result<(), Errno> {
    weak.upgrade().map(|ost| f(&ost)).ok_or(Errno::ENODEV)
}

fn kib(blocks: u64, bsize: u32) -> u64 {
    u64::try_from(u128::from(blocks) * u128::from(bsize) / 1024).unwrap_or(u64::MAX)
}
