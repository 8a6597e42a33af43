//! The client's parameters and devices, under Lustre's names.
//!
//! Parameters hold weak references, so that they do not keep an unmounted file system alive. The
//! parameters of a mount are removed when its [`Registered`] is dropped.

mod connect_flags;
mod import;
mod import_stats;
mod tuning;
mod waits;

use std::sync::Arc;

use sheen_layout::{MDT_OST, STRIPE_SIZE_DEFAULT};
use sheen_ldlm::client::Tunables;
use sheen_params::{Device, Param, Params, Snapshot, Unit, waits_text};
use sheen_rpc::{Import, RPCS_IN_FLIGHT_LIMIT};
use sheen_rt::Rt;
use sheen_wire::{Errno, Protocol, StatFs, bulk::BULK_BYTES_MAX, mgs::TargetKind, mgs::target_name};

use crate::{
    Client,
    cache::cache_stats_text,
    io_stats::IoTable,
    limits::PAGE_BYTES,
    llite::{read_ahead_text, statahead_text, summary},
    locks::LockTable,
    lov::Ost,
    mdc::{MDC_RPCS_IN_FLIGHT_MIN, Mdc},
    osc::Osc,
    registered::{Registered, osc_dir},
    rpc_stats::rpc_stats_text,
    writeback::MAX_DIRTY_MB_LIMIT,
};

use connect_flags::ConnectFlags;
use import::{ImportView, srpc_info, state_text, timeouts_text, unstable_stats};
use import_stats::{import_stats, md_stats};
use waits::waits;

/// Maximum age of an unused lock in milliseconds: a day.
const LRU_MAX_AGE_MS: u64 = 24 * 3600 * 1000;
/// Maximum of `lockless_write_kb`: 1 GiB, more than any write.
const LOCKLESS_WRITE_KB_LIMIT: u64 = 1 << 20;

/// Registers the parameters and devices of a mount, except those of its OSTs.
pub fn register_client(params: Params, client: &Arc<Client>) -> Registered {
    let (fsname, instance, uuid) = (&client.fsname, &client.instance, &client.uuid);
    let (lov, lmv) = (format!("{fsname}-clilov-{instance}"), format!("{fsname}-clilmv-{instance}"));
    let (mdc_dir, lov_dir, llite_dir) =
        (format!("mdc.{}", client.mdc.name()), format!("lov.{lov}"), format!("llite.{fsname}-{instance}"));
    register_mdc(&params, &mdc_dir, &client.mdc, &client.rt);
    register_locks(&params, client.mdc.name(), client.mdc.locks());
    register_lov(&params, &lov_dir, client);
    register_llite(&params, &llite_dir, client);
    let mgc = client.mgc_name();
    params.add_device(&mgc, device("mgc", &mgc, uuid));
    params.add_device(&lov, device("lov", &lov, uuid));
    params.add_device(&lmv, device("lmv", &lmv, uuid));
    let mdc = Arc::downgrade(&client.mdc);
    let (name, of) = (client.mdc.name().to_owned(), uuid.clone());
    params.add_device(client.mdc.name(), move || {
        import_device("mdc", &name, &of, true, mdc.upgrade().map(|m| m.import().clone()))
    });
    let locks_dir = format!("ldlm.namespaces.{}", client.mdc.name());
    let devices = vec![mgc, lov, lmv, client.mdc.name().to_owned()];
    Registered {
        params,
        lov: Arc::downgrade(&client.lov),
        names: vec![mdc_dir, lov_dir, llite_dir, locks_dir],
        devices,
    }
}

/// Registers the parameters of a lock table: `ldlm.namespaces.<name>.*`.
pub fn register_locks(params: &Params, name: &str, locks: &Arc<LockTable>) {
    let put = |what: &str, param| params.register(&format!("ldlm.namespaces.{name}.{what}"), param);
    put("lock_count", number(locks, |l| l.stats().lock_count));
    put("lock_unused_count", number(locks, |l| l.stats().lock_unused_count));
    let (get, set) = (Arc::downgrade(locks), Arc::downgrade(locks));
    let lru_size = move |value: &str| {
        let locks = set.upgrade().ok_or(Errno::ENODEV)?;
        if value.trim() == "clear" {
            locks.clear();
            return Ok(());
        }
        // In Lustre, 0 lets the client choose.
        let lru_size = match value.trim().parse().map_err(|_| Errno::EINVAL)? {
            0 => Tunables::default().lru_size,
            lru_size => lru_size,
        };
        locks.set_tunables(Tunables { lru_size, ..locks.tunables() });
        Ok(())
    };
    let shown = move || get.upgrade().map_or_else(String::new, |l| l.tunables().lru_size.to_string());
    put("lru_size", Param::text_rw(shown, lru_size));
    let (get, set) = (Arc::downgrade(locks), Arc::downgrade(locks));
    put(
        "lru_max_age",
        Param::u64(
            1..=LRU_MAX_AGE_MS,
            move || get.upgrade().map_or(0, |l| l.tunables().lru_max_age_ms),
            move |lru_max_age_ms| {
                let locks = set.upgrade().ok_or(Errno::ENODEV)?;
                locks.set_tunables(Tunables { lru_max_age_ms, ..locks.tunables() });
                Ok(())
            },
        )
        .unit(Unit::Msecs),
    );
}

/// Registers the parameters of an OSC of a mount: an OST, or the MDT's data service.
pub fn register_ost(params: &Params, ost: &Arc<Ost>, client_uuid: &str, rt: &Rt) {
    let osc = &ost.osc;
    let dir = osc_dir(osc);
    let put = |name: &str, param| params.register(&format!("{dir}.{name}"), param);
    let import = |osc: &Osc| osc.import().clone();
    let (get, set) = (Arc::downgrade(ost), Arc::downgrade(ost));
    put(
        "max_rpcs_in_flight",
        Param::u64(
            1..=RPCS_IN_FLIGHT_LIMIT as u64,
            move || get.upgrade().map_or(0, |ost| ost.osc.import().max_rpcs_in_flight() as u64),
            move |n| set.upgrade().ok_or(Errno::ENODEV)?.writeback.set_max_rpcs_in_flight(n as usize),
        ),
    );
    put("checksums", checksums(osc, import));
    put("import", text(osc, |osc| ImportView::of(osc.import(), osc.name(), osc.active()).text()));
    register_import(params, &dir, osc, import, rt);
    put("unstable_stats", text(osc, |osc| unstable_stats(osc.import().retained_bytes() as u64)));
    let clock = rt.clone();
    let rpc_stats = move |osc: &Osc| osc.pages().snapshot(osc.import().stats().in_flight, clock.wall());
    let (get, clear) = read_and_clear(osc, rpc_stats, |osc| osc.pages().clear());
    put("rpc_stats", Param::histogram(get, rpc_stats_text, clear));
    let (get, set) = (Arc::downgrade(osc), Arc::downgrade(osc));
    let active = Param::bool(
        move || get.upgrade().is_some_and(|osc| osc.active()),
        move |on| set.upgrade().map(|osc| osc.set_active(on)).ok_or(Errno::ENODEV),
    );
    put("active", active);
    tuning::register_connection(params, &dir, "ost", osc, Osc::import);
    register_flow(params, &dir, ost);
    register_space(params, &dir, osc, |osc| osc.space());
    register_locks(params, osc.name(), osc.locks());
    if osc.index() == MDT_OST {
        // Lustre's name for it, because Lustre has one device for everything on the MDT.
        register_flow(params, &format!("mdc.{}", osc.name().replacen("-dom-", "-mdc-", 1)), ost);
        return;
    }
    let (weak, name, uuid) = (Arc::downgrade(osc), osc.name().to_owned(), client_uuid.to_owned());
    params.add_device(osc.name(), move || {
        let osc = weak.upgrade();
        import_device("osc", &name, &uuid, osc.as_ref().is_some_and(|o| o.active()), osc.map(|o| o.import().clone()))
    });
}

/// Registers the parameters that show the state and the requests of an import.
fn register_import<T: Send + Sync + 'static, P: Protocol>(
    params: &Params,
    dir: &str,
    owner: &Arc<T>,
    import: fn(&T) -> Arc<Import<P>>,
    rt: &Rt,
) {
    let put = |name: &str, param| params.register(&format!("{dir}.{name}"), param);
    put("connect_flags", text(owner, move |o| ConnectFlags::of_import(&import(o)).text()));
    put("srpc_info", text(owner, move |o| srpc_info(&import(o))));
    put("state", text(owner, move |o| state_text(import(o).state(), &import(o).state_history())));
    let clock = rt.clone();
    put("timeouts", text(owner, move |o| timeouts_text(import(o).stats().idle, clock.wall())));
    let clock = rt.clone();
    let requests = move |o: &T| import_stats::<P>(&import(o).stats(), clock.wall());
    put("stats", counters(owner, requests, Snapshot::stats_text, move |o| import(o).clear_stats()));
}

/// Registers the parameters of request sizes, dirty data and grant.
fn register_flow(params: &Params, dir: &str, ost: &Arc<Ost>) {
    let put = |name: &str, param| params.register(&format!("{dir}.{name}"), param);
    put("max_pages_per_rpc", pages_per_rpc(&ost.osc, |osc| osc.import().clone()));
    put("cur_dirty_bytes", number(ost, |ost| ost.writeback.dirty_bytes()).unit(Unit::Bytes));
    put("cur_grant_bytes", number(ost, |ost| ost.writeback.grant_bytes()).unit(Unit::Bytes));
    let (get, set) = (Arc::downgrade(ost), Arc::downgrade(ost));
    put(
        "max_dirty_mb",
        Param::u64(
            1..=MAX_DIRTY_MB_LIMIT,
            move || get.upgrade().map_or(0, |ost| ost.writeback.max_dirty_mb()),
            move |mb| set.upgrade().map(|ost| ost.writeback.set_max_dirty_mb(mb)).ok_or(Errno::ENODEV),
        )
        .unit(Unit::Mib),
    );
}

fn register_mdc(params: &Params, dir: &str, mdc: &Arc<Mdc>, rt: &Rt) {
    let put = |name: &str, param| params.register(&format!("{dir}.{name}"), param);
    let import = |mdc: &Mdc| mdc.import().clone();
    let (get, set) = (Arc::downgrade(mdc), Arc::downgrade(mdc));
    put(
        "max_rpcs_in_flight",
        Param::u64(
            MDC_RPCS_IN_FLIGHT_MIN as u64..=RPCS_IN_FLIGHT_LIMIT as u64,
            move || get.upgrade().map_or(0, |mdc| mdc.import().max_rpcs_in_flight() as u64),
            move |n| set.upgrade().ok_or(Errno::ENODEV)?.set_max_rpcs_in_flight(n as usize),
        ),
    );
    let (get, set) = (Arc::downgrade(mdc), Arc::downgrade(mdc));
    put(
        "max_mod_rpcs_in_flight",
        Param::u64(
            1..=RPCS_IN_FLIGHT_LIMIT as u64 - 1,
            move || get.upgrade().map_or(0, |mdc| mdc.max_mod_rpcs_in_flight() as u64),
            move |n| set.upgrade().ok_or(Errno::ENODEV)?.set_max_mod_rpcs_in_flight(n as usize),
        ),
    );
    put("checksums", checksums(mdc, import));
    put("import", text(mdc, |mdc| ImportView::of(mdc.import(), mdc.name(), true).text()));
    register_import(params, dir, mdc, import, rt);
    let clock = rt.clone();
    let operations = move |mdc: &Mdc| md_stats(&mdc.import().stats(), clock.wall());
    put("md_stats", counters(mdc, operations, Snapshot::stats_text, |mdc| mdc.import().clear_stats()));
    put("active", Param::u64_ro(|| 1));
    tuning::register_connection(params, dir, "mds", mdc, Mdc::import);
    register_space(params, dir, mdc, |mdc| mdc.space());
}

fn register_lov(params: &Params, dir: &str, client: &Arc<Client>) {
    let put = |name: &str, param| params.register(&format!("{dir}.{name}"), param);
    put("stripecount", Param::u64_ro(|| 1));
    put("stripesize", Param::u64_ro(|| u64::from(STRIPE_SIZE_DEFAULT)).unit(Unit::Bytes));
    put("stripeoffset", Param::text(|| "-1".into()));
    put("stripetype", Param::u64_ro(|| 1));
    put("numobd", number(client, |c| c.lov.osts().len() as u64));
    put("activeobd", number(client, |c| c.lov.osts().iter().filter(|ost| ost.osc.active()).count() as u64));
    let target_obd = |c: &Client| {
        let line = |osc: &Osc| {
            let name = target_name(&c.fsname, TargetKind::Ost, osc.index());
            format!("{}: {name}_UUID {}\n", osc.index(), if osc.active() { "ACTIVE" } else { "INACTIVE" })
        };
        c.lov.osts().iter().map(|ost| line(&ost.osc)).collect()
    };
    put("target_obd", text(client, target_obd));
    let uuid = client.uuid.clone();
    put("uuid", Param::text(move || uuid.clone()));
}

fn register_llite(params: &Params, dir: &str, client: &Arc<Client>) {
    let put = |name: &str, param| params.register(&format!("{dir}.{name}"), param);
    let (uuid, stats) = (client.uuid.clone(), client.stats.clone());
    put("uuid", Param::text(move || uuid.clone()));
    put("mount_point", text(client, Client::mount_point));
    put("fstype", Param::text(|| "sheen".into()));
    put("client_type", Param::text(|| "local client".into()));
    put("stats", counters(&stats, |s| s.snapshot(), Snapshot::stats_text, |s| s.clear()));
    put("root_fid", text(client, |client| client.root().to_string()));
    put("open_files", number(client, |c| c.files.len() as u64));
    put("cached_inodes", number(client, |c| c.cache.meta.lock().len() as u64));
    put("cache_stats", counters(client, |c| c.cache.hits.snapshot(), cache_stats_text, |c| c.cache.hits.clear()));
    let (get, set) = (Arc::downgrade(client), Arc::downgrade(client));
    put(
        "statahead_max",
        Param::u64(
            // Lustre's guides set more than a reply has room for. Such a value counts as the limit.
            0..=u64::MAX,
            move || get.upgrade().map_or(0, |c| c.statahead.max()),
            move |max| set.upgrade().map(|c| c.statahead.set_max(max)).ok_or(Errno::ENODEV),
        ),
    );
    tuning::register_statahead(params, dir, client);
    let (get, set) = (Arc::downgrade(client), Arc::downgrade(client));
    let writeback = Param::bool(
        move || get.upgrade().is_some_and(|c| c.lov.keeping()),
        move |on| set.upgrade().map(|c| c.lov.set_keeping(on)).ok_or(Errno::ENODEV),
    );
    put("writeback", writeback);
    let (get, set) = (Arc::downgrade(client), Arc::downgrade(client));
    put(
        "lockless_write_kb",
        Param::u64(
            0..=LOCKLESS_WRITE_KB_LIMIT,
            move || get.upgrade().map_or(0, |c| c.lov.lockless_bytes() >> 10),
            move |kb| set.upgrade().map(|c| c.lov.set_lockless_bytes(kb << 10)).ok_or(Errno::ENODEV),
        )
        .unit(Unit::Kib),
    );
    put("read_ahead_stats", counters(client, |c| c.read_ahead.snapshot(), read_ahead_text, |c| c.read_ahead.clear()));
    let (get, set) = (Arc::downgrade(client), Arc::downgrade(client));
    let patterns = Param::order(
        move || get.upgrade().map_or_else(String::new, |c| access_patterns_text(&c)),
        move |_| set.upgrade().map(|c| c.access_patterns.clear()).ok_or(Errno::ENODEV),
    );
    put("access_patterns", patterns);
    put("extents_stats", io_table(client, IoTable::Extents));
    put("extents_stats_per_process", io_table(client, IoTable::Processes));
    put("offset_stats", io_table(client, IoTable::Offsets));
    put("statahead_stats", counters(client, |c| c.statahead.snapshot(), statahead_text, |c| c.statahead.clear()));
    put("waits", text(client, |client| waits_text(&waits(client))));
    put("cached_layouts", number(client, |c| c.layouts.len() as u64));
    register_space(params, dir, client, |c| {
        summary(&c.mdc.space(), c.lov.osts().into_iter().filter(|ost| ost.osc.active()).map(|ost| ost.osc.space()))
    });
}

/// Creates a parameter of sizes or offsets of reads and writes.
fn io_table(client: &Arc<Client>, table: IoTable) -> Param {
    let (get, set) = (Arc::downgrade(client), Arc::downgrade(client));
    Param::text_rw(
        move || get.upgrade().map_or_else(String::new, |c| c.io_stats.text(table)),
        move |value| set.upgrade().map(|c| c.io_stats.set(table, value)).ok_or(Errno::ENODEV),
    )
}

fn access_patterns_text(client: &Client) -> String {
    let open = client.files.all();
    client.access_patterns.text(open.iter().map(|file| (file.fid(), &file.accesses)))
}

/// Registers the space of a target under Lustre's names, as of the last statfs reply (`df` requests
/// a new one).
fn register_space<T: Send + Sync + 'static>(
    params: &Params,
    dir: &str,
    owner: &Arc<T>,
    space: impl Fn(&T) -> StatFs + Clone + Send + Sync + 'static,
) {
    let put = |name: &str, param| params.register(&format!("{dir}.{name}"), param);
    let read = |of: fn(&StatFs) -> u64| {
        let space = space.clone();
        number(owner, move |owner| of(&space(owner)))
    };
    put("blocksize", read(|s| u64::from(s.bsize)).unit(Unit::Bytes));
    put("kbytestotal", read(|s| kbytes(s, s.blocks)).unit(Unit::Kib));
    put("kbytesfree", read(|s| kbytes(s, s.bfree)).unit(Unit::Kib));
    put("kbytesavail", read(|s| kbytes(s, s.bavail)).unit(Unit::Kib));
    put("filestotal", read(|s| s.files));
    put("filesfree", read(|s| s.ffree));
}

fn kbytes(space: &StatFs, blocks: u64) -> u64 {
    u64::try_from(u128::from(blocks) * u128::from(space.bsize) / 1024).unwrap_or(u64::MAX)
}

fn number<T: Send + Sync + 'static>(owner: &Arc<T>, get: impl Fn(&T) -> u64 + Send + Sync + 'static) -> Param {
    let owner = Arc::downgrade(owner);
    Param::u64_ro(move || owner.upgrade().map_or(0, |o| get(&o)))
}

fn text<T: Send + Sync + 'static>(owner: &Arc<T>, get: impl Fn(&T) -> String + Send + Sync + 'static) -> Param {
    let owner = Arc::downgrade(owner);
    Param::text(move || owner.upgrade().map_or_else(String::new, |o| get(&o)))
}

/// Creates a parameter for counters.
fn counters<T: Send + Sync + 'static>(
    owner: &Arc<T>,
    get: impl Fn(&T) -> Snapshot + Send + Sync + 'static,
    text: fn(&Snapshot) -> String,
    clear: impl Fn(&T) + Send + Sync + 'static,
) -> Param {
    let (get, clear) = read_and_clear(owner, get, clear);
    Param::counters(get, text, clear)
}

/// Returns the functions of a parameter that reads and clears statistics.
fn read_and_clear<T: Send + Sync + 'static>(
    owner: &Arc<T>,
    get: impl Fn(&T) -> Snapshot + Send + Sync + 'static,
    clear: impl Fn(&T) + Send + Sync + 'static,
) -> (impl Fn() -> Snapshot + Send + Sync + 'static, impl Fn() -> Result<(), Errno> + Send + Sync + 'static) {
    let (read, write) = (Arc::downgrade(owner), Arc::downgrade(owner));
    (
        move || read.upgrade().map(|o| get(&o)).unwrap_or_default(),
        move || write.upgrade().map(|o| clear(&o)).ok_or(Errno::ENODEV),
    )
}

/// Creates a parameter for a writable number of an import.
fn setting<T: Send + Sync + 'static, P: Protocol>(
    owner: &Arc<T>,
    max: u64,
    import: fn(&T) -> Arc<Import<P>>,
    get: fn(&Import<P>) -> u64,
    set: fn(&Import<P>, u64) -> Result<(), Errno>,
) -> Param {
    let (read, write) = (Arc::downgrade(owner), Arc::downgrade(owner));
    Param::u64(
        1..=max,
        move || read.upgrade().map_or(0, |o| get(&import(&o))),
        move |v| write.upgrade().map_or(Err(Errno::ENODEV), |o| set(&import(&o), v)),
    )
}

fn pages_per_rpc<T: Send + Sync + 'static, P: Protocol>(owner: &Arc<T>, import: fn(&T) -> Arc<Import<P>>) -> Param {
    let max = BULK_BYTES_MAX as u64 / PAGE_BYTES;
    let set = |i: &Import<P>, v| i.set_max_pages_per_rpc(v as u32);
    setting(owner, max, import, |i| u64::from(i.max_pages_per_rpc()), set).unit(Unit::Pages)
}

fn checksums<T: Send + Sync + 'static, P: Protocol>(owner: &Arc<T>, import: fn(&T) -> Arc<Import<P>>) -> Param {
    let (read, write) = (Arc::downgrade(owner), Arc::downgrade(owner));
    Param::bool(
        move || read.upgrade().is_some_and(|o| import(&o).checksums()),
        move |on| write.upgrade().map(|o| import(&o).set_checksums(on)).ok_or(Errno::ENODEV),
    )
}

fn device(kind: &'static str, name: &str, uuid: &str) -> impl Fn() -> Device + Send + Sync + use<> {
    let device = Device::new(kind, name, uuid);
    move || device.clone()
}

fn import_device<P: Protocol>(
    kind: &str,
    name: &str,
    uuid: &str,
    active: bool,
    import: Option<Arc<Import<P>>>,
) -> Device {
    let mut device = Device::new(kind, name, uuid);
    device.peer = import.and_then(|i| i.current_nid()).map(|nid| nid.to_string());
    if !active {
        device.status = "IN".into();
    }
    device
}
