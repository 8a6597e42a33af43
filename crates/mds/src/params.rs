//! Parameters and devices of an MDT, with Lustre's names: `mdt.*`, `lod.*`, `osp.*`, `mdd.*`
//! (module `changelog`), and `qmt.*` (module `quota`). `lov.*-mdtlov.*` has its pools, and Lustre's
//! older names of the default layout and of the number of OSTs.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use sheen_layout::{STRIPE_SIZE_MAX, STRIPE_SIZE_UNIT, STRIPES_MAX};
use sheen_params::job_stats::CLEANUP_SECS_MAX;
use sheen_params::{Device, Param, Snapshot, Unit, waits_text};
use sheen_wire::mgs::{Pool, TargetKind, target_name};
use sheen_wire::{Errno, StatFs};

use crate::mdt::Mdt;
use crate::state::lfsck::Repairs;
use crate::state::osp::{MAX_CREATE_COUNT, Osp};
use crate::{changelog, dom, jobs, quota, space};

/// Largest group id. The next number stands for no group.
const GID_MAX: i64 = u32::MAX as i64 - 1;

/// Registers the parameters and devices for as long as the MDT runs.
pub(crate) fn register(mdt: &Arc<Mdt>) {
    register_mdt(mdt);
    register_lod(mdt);
    changelog::register(mdt);
    quota::register(mdt);
    mdt.locks.server.register(&mdt.params);
    let weak = Arc::downgrade(mdt);
    let (name, uuid) = (mdt.name.clone(), format!("{}_UUID", mdt.name));
    let lod = lod_name(mdt);
    mdt.params.add_device("MDS", || Device::new("mds", "MDS", "MDS_uuid"));
    mdt.params.add_device(&lod.clone(), move || Device::new("lod", &lod, &format!("{lod}_UUID")));
    mdt.params.add_device(&name.clone(), move || {
        let exports = weak.upgrade().map_or(0, |mdt| mdt.core.lock().exports.len());
        Device::new("mdt", &name, &uuid).exports(exports as u64)
    });
}

/// Returns the begin of the names of an MDT's parameters.
pub(crate) fn dir(name: &str) -> String {
    format!("mdt.{name}")
}

/// Unregisters all of them.
pub(crate) fn unregister(mdt: &Mdt) {
    let params = &mdt.params;
    mdt.locks.server.unregister(params);
    params.unregister(&dir(&mdt.name));
    params.unregister(&changelog::dir(mdt));
    quota::unregister(mdt);
    params.unregister(&format!("lod.{}", lod_name(mdt)));
    params.unregister(&format!("lov.{}", lod_name(mdt)));
    mdt.osts.all().iter().for_each(|osp| unregister_osp(mdt, osp));
    for device in ["MDS", &lod_name(mdt), &mdt.name] {
        params.remove_device(device);
    }
}

/// Unregisters the parameters and the device of one OST.
pub(crate) fn unregister_osp(mdt: &Mdt, osp: &Osp) {
    let name = osp_name(mdt, osp);
    for kind in ["osp", "osc"] {
        mdt.params.unregister(&format!("{kind}.{name}"));
    }
    mdt.params.remove_device(&name);
}

/// Registers the parameters and the device of one OST. `active` and `max_create_count` also have
/// Lustre's older prefix `osc`, so that `osc.*.active` works for an OST on every node.
pub(crate) fn register_osp(mdt: &Arc<Mdt>, osp: &Arc<Osp>) {
    let name = osp_name(mdt, osp);
    for kind in ["osp", "osc"] {
        let put = |field: &str, param| mdt.params.register(&format!("{kind}.{name}.{field}"), param);
        put("active", active(mdt, osp));
        put("max_create_count", max_create_count(mdt, osp));
    }
    let put = |field: &str, param| mdt.params.register(&format!("osp.{name}.{field}"), param);
    space(put, {
        let osp = osp.clone();
        move || osp.statfs()
    });
    let (device, lod, osp) = (name.clone(), format!("{}_UUID", lod_name(mdt)), osp.clone());
    mdt.params.add_device(&name, move || {
        let status = if osp.active_param.load(Relaxed) { "UP" } else { "IN" };
        Device { status: status.into(), ..Device::new("osp", &device, &lod) }
    });
}

fn active(mdt: &Arc<Mdt>, osp: &Arc<Osp>) -> Param {
    let (weak, read, set) = (Arc::downgrade(mdt), osp.clone(), osp.clone());
    Param::bool(
        move || read.active_param.load(Relaxed),
        move |on| {
            set.active_param.store(on, Relaxed);
            weak.upgrade().inspect(|mdt| mdt.osts.rebuild());
            Ok(())
        },
    )
}

fn max_create_count(mdt: &Arc<Mdt>, osp: &Arc<Osp>) -> Param {
    let (weak, read, set) = (Arc::downgrade(mdt), osp.clone(), osp.clone());
    Param::u64(
        0..=MAX_CREATE_COUNT,
        move || read.max_create_count.load(Relaxed),
        move |count| {
            set.max_create_count.store(count, Relaxed);
            weak.upgrade().inspect(|mdt| mdt.osts.rebuild());
            Ok(())
        },
    )
}

/// Registers the existing pools, each with one OST in a line. Unregisters the pools of `old` that
/// were deleted.
pub(crate) fn register_pools<'a>(mdt: &Arc<Mdt>, pools: &[Pool], old: impl Iterator<Item = &'a str>) {
    let dir = format!("lov.{}.pools", lod_name(mdt));
    for pool in pools {
        let line = |ost: &u32| format!("{}_UUID\n", target_name(&mdt.config.fsname, TargetKind::Ost, *ost));
        let lines: String = pool.osts.iter().map(line).collect();
        mdt.params.register(&format!("{dir}.{}", pool.name), Param::text(move || lines.clone()));
        quota::register_pool(mdt, &pool.name);
    }
    for removed in old.filter(|name| pools.iter().all(|p| p.name != *name)) {
        mdt.params.unregister(&format!("{dir}.{removed}"));
        quota::unregister_pool(mdt, removed);
    }
}

fn register_mdt(mdt: &Arc<Mdt>) {
    let dir = dir(&mdt.name);
    let put = |field: &str, param| mdt.params.register(&format!("{dir}.{field}"), param);
    let (read, clear) = (Arc::downgrade(mdt), Arc::downgrade(mdt));
    put(
        "md_stats",
        Param::counters(
            move || read.upgrade().map(|mdt| mdt.stats.snapshot(mdt.rt.wall())).unwrap_or_default(),
            Snapshot::stats_text,
            move || put_in(&clear, |mdt| mdt.stats.clear(mdt.rt.wall())),
        ),
    );
    let (read, remove) = (Arc::downgrade(mdt), Arc::downgrade(mdt));
    put(
        "job_stats",
        Param::jobs(
            move || get(&read, |mdt| mdt.jobs.snapshot(jobs::moment(&mdt.rt))),
            move |job| put_in(&remove, |mdt| mdt.jobs.remove(job)),
        ),
    );
    let weak = Arc::downgrade(mdt);
    put("waits", Param::text(move || get(&weak, |mdt| waits_text(&mdt.locks.server.waits(&mdt.name)))));
    mdt.export_stats.register();
    put("job_cleanup_interval", Param::atomic(0..=CLEANUP_SECS_MAX, mdt.jobs.cleanup_secs()).unit(Unit::Secs));
    let interval = tunable(mdt, 1..=60_000, |mdt| &mdt.tunables.commit_interval_ms);
    put("commit_interval_ms", interval.unit(Unit::Msecs));
    put("commit_ops_max", tunable(mdt, 1..=1 << 20, |mdt| &mdt.tunables.commit_ops_max));
    put("commit_on_sharing", switch(mdt, |mdt| &mdt.tunables.commit_on_sharing));
    put("sync_permission", switch(mdt, |mdt| &mdt.tunables.sync_permission));
    put("enable_chprojid_gid", permitted_gid(mdt, |mdt| &mdt.tunables.chprojid_gid));
    put("enable_remote_dir_gid", permitted_gid(mdt, |mdt| &mdt.tunables.remote_dir_gid));
    put("num_exports", number(mdt, |mdt| mdt.core.lock().exports.len() as u64));
    put("last_committed", number(mdt, |mdt| mdt.commits.last_committed()));
    put("last_transno", number(mdt, |mdt| mdt.core.lock().ns.last_transno()));
    let weak = Arc::downgrade(mdt);
    put(
        "health",
        Param::text(move || match weak.upgrade() {
            Some(mdt) if mdt.commits.is_damaged() => "read-only: the store is damaged".into(),
            Some(mdt) if mdt.commits.failed() => "read-only: the store cannot be written".into(),
            Some(mdt) if mdt.reserve.is_short() => "no new files: the disk is full".into(),
            Some(_) => "healthy".into(),
            None => "stopped".into(),
        }),
    );
    let weak = Arc::downgrade(mdt);
    let last_transno = move || Some(weak.upgrade().map_or(0, |mdt| mdt.core.lock().ns.last_transno()));
    sheen_recoveryd::register(&mdt.recovery, &dir, &mdt.params, last_transno);
    let weak = Arc::downgrade(mdt);
    put("quota", Param::text(move || get(&weak, quota::text)));
    let weak = Arc::downgrade(mdt);
    put("lfsck_namespace", Param::text(move || get(&weak, |mdt| mdt.lfsck.status(mdt.rt.wall()))));
    let (read, set) = (Arc::downgrade(mdt), Arc::downgrade(mdt));
    let run = move |on| start_or_stop(&set, on, Repairs::Nothing);
    put("lfsck_namespace_run", Param::bool(move || get(&read, |mdt| mdt.lfsck.is_running()), run));
    let (read, set) = (Arc::downgrade(mdt), Arc::downgrade(mdt));
    let repair = move |on| start_or_stop(&set, on, Repairs::Orphans);
    put("lfsck_namespace_orphans", Param::bool(move || get(&read, |mdt| mdt.lfsck.is_running()), repair));
    let (read, set) = (Arc::downgrade(mdt), Arc::downgrade(mdt));
    let repair = move |on| start_or_stop(&set, on, Repairs::All);
    put("lfsck_namespace_repair", Param::bool(move || get(&read, |mdt| mdt.lfsck.is_running()), repair));
    let weak = Arc::downgrade(mdt);
    // As the MGS shows them, so that `lctl` can see that a change has arrived.
    let nodemaps = move |mdt: &Mdt| serde_json::to_string(&*mdt.nodemaps.get()).unwrap_or_default();
    put("nodemaps", Param::text(move || get(&weak, nodemaps)));
    let uuid = mdt.uuid.clone();
    put("uuid", Param::text(move || uuid.clone()));
    let weak = Arc::downgrade(mdt);
    space(put, move || weak.upgrade().map(|mdt| space::statfs(&mdt)).unwrap_or_default());
}

fn register_lod(mdt: &Arc<Mdt>) {
    let name = lod_name(mdt);
    let put = |field: &str, param| mdt.params.register(&format!("lod.{name}.{field}"), param);
    for kind in ["lod", "lov"] {
        register_default_layout(mdt, |field, param| mdt.params.register(&format!("{kind}.{name}.{field}"), param));
    }
    put("qos_threshold_rr", percent(mdt, |mdt| &mdt.tunables.qos_threshold_percent));
    put("qos_prio_free", percent(mdt, |mdt| &mdt.tunables.qos_prio_free_percent));
    dom::register(mdt, put);
    let weak = Arc::downgrade(mdt);
    put(
        "target_obd",
        Param::text(move || {
            let line = |osp: Arc<Osp>| {
                let state = if osp.active() { "ACTIVE" } else { "INACTIVE" };
                format!("{}: {}_UUID {state}\n", osp.index, osp.target)
            };
            weak.upgrade().map(|mdt| mdt.osts.all().into_iter().map(line).collect()).unwrap_or_default()
        }),
    );
}

/// Registers the parameters of the default layout, and the number of OSTs.
fn register_default_layout(mdt: &Arc<Mdt>, put: impl Fn(&str, Param)) {
    let (read, set) = (Arc::downgrade(mdt), Arc::downgrade(mdt));
    put(
        "stripecount",
        Param::i64(
            -1..=STRIPES_MAX as i64,
            move || get(&read, |mdt| mdt.tunables.stripe_count.load(Relaxed)),
            // 0 stands for Sheen's own default.
            move |v| put_in(&set, |mdt| mdt.tunables.stripe_count.store(if v == 0 { 1 } else { v }, Relaxed)),
        ),
    );
    let (read, set) = (Arc::downgrade(mdt), Arc::downgrade(mdt));
    put(
        "stripesize",
        Param::u64(
            u64::from(STRIPE_SIZE_UNIT)..=u64::from(STRIPE_SIZE_MAX),
            move || get(&read, |mdt| mdt.tunables.stripe_size.load(Relaxed)),
            move |v| match v % u64::from(STRIPE_SIZE_UNIT) {
                0 => put_in(&set, |mdt| mdt.tunables.stripe_size.store(v, Relaxed)),
                _ => Err(Errno::EINVAL),
            },
        )
        .unit(Unit::Bytes),
    );
    let (read, set) = (Arc::downgrade(mdt), Arc::downgrade(mdt));
    put(
        "stripeoffset",
        Param::i64(
            -1..=65534,
            move || get(&read, |mdt| mdt.tunables.stripe_offset.load(Relaxed)),
            move |v| put_in(&set, |mdt| mdt.tunables.stripe_offset.store(v, Relaxed)),
        ),
    );
    // 1 is Lustre's number of the pattern raid0.
    put("stripetype", Param::u64_ro(|| 1));
    put("numobd", number(mdt, |mdt| mdt.osts.all().len() as u64));
    put("activeobd", number(mdt, |mdt| mdt.osts.all().iter().filter(|o| o.active()).count() as u64));
}

/// Registers the parameters of space and inodes, in the units of their names.
fn space(put: impl Fn(&str, Param), statfs: impl Fn() -> StatFs + Clone + Send + Sync + 'static) {
    let kbytes = |s: &StatFs, blocks: u64| blocks.saturating_mul(u64::from(s.bsize)) / 1024;
    let read = |f: fn(&StatFs) -> u64| {
        let statfs = statfs.clone();
        Param::u64_ro(move || f(&statfs()))
    };
    let in_kbytes = |f: fn(&StatFs) -> u64| {
        let statfs = statfs.clone();
        Param::u64_ro(move || {
            let s = statfs();
            kbytes(&s, f(&s))
        })
        .unit(Unit::Kib)
    };
    put("kbytestotal", in_kbytes(|s| s.blocks));
    put("kbytesfree", in_kbytes(|s| s.bfree));
    put("kbytesavail", in_kbytes(|s| s.bavail));
    put("filestotal", read(|s| s.files));
    put("filesfree", read(|s| s.ffree));
    put("blocksize", read(|s| u64::from(s.bsize)).unit(Unit::Bytes));
}

fn lod_name(mdt: &Mdt) -> String {
    format!("{}-mdtlov", mdt.name)
}

/// Returns Lustre's name: `sheen-OST0000-osc-MDT0000`.
fn osp_name(mdt: &Mdt, osp: &Osp) -> String {
    format!("{}-osc-MDT{:04x}", osp.target, mdt.config.index)
}

fn get<T: Default>(mdt: &Weak<Mdt>, f: impl Fn(&Mdt) -> T) -> T {
    mdt.upgrade().map(|mdt| f(&mdt)).unwrap_or_default()
}

fn put_in(mdt: &Weak<Mdt>, f: impl Fn(&Mdt)) -> Result<(), Errno> {
    mdt.upgrade().map(|mdt| f(&mdt)).ok_or(Errno::ENODEV)
}

/// Starts a check, with or without repairs, or ends it.
fn start_or_stop(mdt: &Weak<Mdt>, on: bool, repairs: Repairs) -> Result<(), Errno> {
    let mdt = mdt.upgrade().ok_or(Errno::ENODEV)?;
    if on {
        return mdt.lfsck.start(repairs);
    }
    mdt.lfsck.stop();
    Ok(())
}

fn number(mdt: &Arc<Mdt>, f: fn(&Mdt) -> u64) -> Param {
    let weak = Arc::downgrade(mdt);
    Param::u64_ro(move || get(&weak, f))
}

fn tunable(mdt: &Arc<Mdt>, range: std::ops::RangeInclusive<u64>, field: fn(&Mdt) -> &AtomicU64) -> Param {
    let (read, set) = (Arc::downgrade(mdt), Arc::downgrade(mdt));
    Param::u64(
        range,
        move || get(&read, |mdt| field(mdt).load(Relaxed)),
        move |v| put_in(&set, |mdt| field(mdt).store(v, Relaxed)),
    )
}

fn switch(mdt: &Arc<Mdt>, field: fn(&Mdt) -> &AtomicBool) -> Param {
    let (read, set) = (Arc::downgrade(mdt), Arc::downgrade(mdt));
    Param::bool(
        move || get(&read, |mdt| field(mdt).load(Relaxed)),
        move |on| put_in(&set, |mdt| field(mdt).store(on, Relaxed)),
    )
}

/// A group whose members may do something; -1: all users, 0: the superuser only.
fn permitted_gid(mdt: &Arc<Mdt>, field: fn(&Mdt) -> &AtomicI64) -> Param {
    let (read, set) = (Arc::downgrade(mdt), Arc::downgrade(mdt));
    Param::i64(
        -1..=GID_MAX,
        move || get(&read, |mdt| field(mdt).load(Relaxed)),
        move |gid| put_in(&set, |mdt| field(mdt).store(gid, Relaxed)),
    )
}

fn percent(mdt: &Arc<Mdt>, field: fn(&Mdt) -> &AtomicU64) -> Param {
    let (read, set) = (Arc::downgrade(mdt), Arc::downgrade(mdt));
    Param::percent(
        move || get(&read, |mdt| field(mdt).load(Relaxed)),
        move |v| put_in(&set, |mdt| field(mdt).store(v, Relaxed)),
    )
}
