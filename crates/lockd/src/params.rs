//! Parameters `ldlm.namespaces.<name>.*`: those of Lustre, and the tunables that only Sheen has. A
//! client's parameters of the same meaning have the same names, so that one pattern matches both.

use std::sync::{Arc, Weak};

use sheen_ldlm::{Stats, Tunables};
use sheen_params::{Param, Params, Snapshot, Unit};
use sheen_wire::Errno;

use crate::core::Core;

/// Largest value of a parameter that is a time. The engine adds times up in nanoseconds.
const SECONDS_MAX: u64 = 1 << 30;
/// Largest value of the counts.
const COUNT_MAX: u64 = 1 << 28;

fn dir(name: &str) -> String {
    format!("ldlm/namespaces/{name}")
}

pub(crate) fn register(core: &Arc<Core>, name: &str, params: &Params) {
    let dir = dir(name);
    let put = |field: &str, param| params.register(&format!("{dir}/{field}"), param);
    let count = |of: fn(&Stats) -> u64| {
        let weak = Arc::downgrade(core);
        Param::u64_ro(move || weak.upgrade().map_or(0, |core| of(&core.stats())))
    };
    put("lock_count", count(Stats::lock_count));
    put("resource_count", count(|s| s.resources));
    put("lock_timeouts", count(|s| s.evictions));
    let weak = Arc::downgrade(core);
    let clear = weak.clone();
    put(
        "stats",
        Param::counters(
            move || weak.upgrade().map(|core| snapshot(&core.stats())).unwrap_or_default(),
            |stats| stats.counts_text(|name, n| format!("{name:<25} {n}\n")),
            move || clear.upgrade().ok_or(Errno::ENODEV).map(|core| core.clear_stats()),
        ),
    );
    put("lru_size", Param::text_rw(|| "0".to_owned(), lru_size));

    let number = |max, get: fn(&Tunables) -> u64, set: fn(&mut Tunables, u64)| {
        let (read, write) = (Arc::downgrade(core), Arc::downgrade(core));
        Param::u64(1..=max, move || look(&read, get), move |v| tune(&write, |t| set(t, v)))
    };
    put("contended_locks", number(COUNT_MAX, |t| t.contended_locks.into(), |t, v| t.contended_locks = v as u32));
    let seconds = number(SECONDS_MAX, |t| t.contention_seconds, |t, v| t.contention_seconds = v);
    put("contention_seconds", seconds.unit(Unit::Secs));
    let window = number(SECONDS_MAX, |t| t.contention_window_ms, |t, v| t.contention_window_ms = v);
    put("contention_window_ms", window.unit(Unit::Msecs));
    let timeout = number(SECONDS_MAX, |t| t.lock_timeout_ms, |t, v| t.lock_timeout_ms = v);
    put("lock_timeout_ms", timeout.unit(Unit::Msecs));
    // The same in the unit of Lustre's timeouts.
    let seconds = number(SECONDS_MAX / 1000, |t| t.lock_timeout_ms.div_ceil(1000), |t, v| t.lock_timeout_ms = v * 1000);
    put("lock_timeout", seconds.unit(Unit::Secs));
    put("max_locks", number(COUNT_MAX, |t| t.max_locks as u64, |t, v| t.max_locks = v as usize));
    let per_client = number(COUNT_MAX, |t| t.max_locks_per_client as u64, |t, v| t.max_locks_per_client = v as usize);
    put("max_locks_per_client", per_client);

    let switch = |get: fn(&Tunables) -> bool, set: fn(&mut Tunables, bool)| {
        let (read, write) = (Arc::downgrade(core), Arc::downgrade(core));
        Param::bool(move || look(&read, get), move |v| tune(&write, |t| set(t, v)))
    };
    put("lock_expand", switch(|t| t.expand, |t, v| t.expand = v));
    put("lock_adaptive", switch(|t| t.adaptive, |t, v| t.adaptive = v));
}

pub(crate) fn unregister(name: &str, params: &Params) {
    params.unregister(&dir(name));
}

fn look<T: Default>(core: &Weak<Core>, get: fn(&Tunables) -> T) -> T {
    core.upgrade().map(|core| get(&core.tunables())).unwrap_or_default()
}

fn tune(core: &Weak<Core>, change: impl FnOnce(&mut Tunables)) -> Result<(), Errno> {
    core.upgrade().ok_or(Errno::ENODEV)?.tune(change);
    Ok(())
}

/// Checks a new value of `lru_size`. It has no effect: a server holds no unused locks.
fn lru_size(value: &str) -> Result<(), Errno> {
    let valid = value == "clear" || value.parse::<u64>().is_ok();
    if valid { Ok(()) } else { Err(Errno::EINVAL) }
}

/// Returns the counters: first the present numbers, then the counts since the last clear. Counts of
/// requests that Lustre also has are named as in Lustre.
fn snapshot(s: &Stats) -> Snapshot {
    Snapshot::of_counts([
        ("granted", s.granted),
        ("waiting", s.waiting),
        ("ldlm_enqueue", s.enqueues),
        ("grants", s.grants),
        ("ldlm_bl_callback", s.blocking_callbacks),
        ("ldlm_cp_callback", s.completion_callbacks),
        ("ldlm_gl_callback", s.glimpse_callbacks),
        ("ldlm_cancel", s.cancelled),
        ("local", s.own),
        ("contended", s.contended),
        ("lockless", s.lockless),
        ("refused", s.refused),
        ("deadlocks", s.deadlocks),
        ("evictions", s.evictions),
    ])
}
