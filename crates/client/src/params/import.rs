//! `osc.*.import`, `mdc.*.import`, and the parameters that show parts of it: `state`, `timeouts`,
//! `srpc_info` and `unstable_stats`.
//!
//! Names, order and form of the fields are Lustre's. Fields that Sheen has no values for are left
//! out, such as those of adaptive timeouts. `resent` and `round_trip` are Sheen's own.

use std::{fmt::Write, time::Duration};

use sheen_params::Sample;
use sheen_rpc::{Import, ImportState, ImportStats, OpStats};
use sheen_wire::{Protocol, Replays, Time, auth::Flavor, bulk::BULK_BYTES_MAX};

use crate::limits::PAGE_BYTES;

use super::connect_flags::ConnectFlags;

/// The values that `import` shows.
#[derive(Default)]
pub struct ImportView {
    /// Name of the device.
    name: String,
    target: String,
    state: ImportState,
    flags: ConnectFlags,
    /// Incarnation of the server. `None`: never connected.
    instance: Option<u64>,
    is_active: bool,
    is_replayable: bool,
    nids: Vec<String>,
    current: Option<String>,
    evictions: u64,
    stats: ImportStats,
    peer_committed: u64,
}

impl ImportView {
    /// Returns the values of an import. `name`: that of the device. `is_active`: it was not
    /// deactivated.
    pub fn of<P: Protocol>(import: &Import<P>, name: &str, is_active: bool) -> ImportView {
        ImportView {
            name: name.to_owned(),
            target: import.target().to_owned(),
            state: import.state(),
            flags: ConnectFlags::of_import(import),
            instance: import.incarnation(),
            is_active,
            is_replayable: P::REPLAYS != Replays::Never,
            nids: import.nids().iter().map(ToString::to_string).collect(),
            current: import.current_nid().map(|nid| nid.to_string()),
            evictions: import.evictions(),
            stats: import.stats(),
            peer_committed: import.last_committed(),
        }
    }

    /// Renders the parameter.
    pub fn text(&self) -> String {
        let mut out = format!("import:\n    name: {}\n    target: {}_UUID\n", self.name, self.target);
        // Writing to a string cannot fail.
        let _ = writeln!(out, "    state: {}", self.state);
        self.write_features(&mut out);
        let _ = writeln!(out, "    import_flags: [ {} ]", self.import_flags().join(", "));
        self.write_connection(&mut out);
        self.write_rpcs(&mut out);
        let _ = writeln!(out, "    transactions:\n       peer_committed: {}", self.peer_committed);
        self.write_averages(&mut out, "read", |stats| &stats.received);
        self.write_averages(&mut out, "write", |stats| &stats.sent);
        out
    }

    fn write_features(&self, out: &mut String) {
        let _ = writeln!(out, "    connect_flags: [ {} ]\n    connect_data:", self.flags.names().join(", "));
        let _ = writeln!(out, "       flags: {:#x}", self.flags.words()[0]);
        if let Some(instance) = self.instance {
            let _ = writeln!(out, "       instance: {instance}");
        }
        if let Some(index) = target_index(&self.target) {
            let _ = writeln!(out, "       target_index: {index}");
        }
        let _ = writeln!(out, "       max_brw_size: {BULK_BYTES_MAX}");
    }

    fn import_flags(&self) -> Vec<&'static str> {
        let all = [
            (!self.is_active, "IMPF_INVALID"),
            (!self.is_active, "IMPF_DEACTIVE"),
            (self.is_replayable, "IMPF_REPLAYABLE"),
            (true, "IMPF_PINGABLE"),
            (self.stats.attempts > 0, "IMPF_CONNECT_TRIED"),
        ];
        all.into_iter().filter(|(is_set, _)| *is_set).map(|(_, name)| name).collect()
    }

    fn write_connection(&self, out: &mut String) {
        let nids: Vec<String> = self.nids.iter().map(|nid| format!("\"{nid}\"")).collect();
        let current = self.current.as_deref().unwrap_or("<none>");
        let _ = writeln!(out, "    connection:\n       failover_nids: [ {} ]", nids.join(", "));
        let _ = writeln!(out, "       current_connection: \"{current}\"");
        let _ = writeln!(out, "       connection_attempts: {}", self.stats.attempts);
        // Lustre's first generation is 1. An eviction makes the requests of a generation invalid.
        let _ = writeln!(out, "       generation: {}", self.evictions + 1);
        if let Some(idle) = self.stats.idle {
            let _ = writeln!(out, "       idle: {} sec", idle.as_secs());
        }
    }

    fn write_rpcs(&self, out: &mut String) {
        let (count, ns) = self
            .stats
            .ops
            .iter()
            .fold((0, 0u64), |(count, ns), (_, stats)| (count + stats.count, ns.saturating_add(stats.time_ns)));
        let _ = writeln!(out, "    rpcs:\n       inflight: {}", self.stats.in_flight);
        let _ = writeln!(out, "       avg_waittime: {} usecs", ns / 1000 / count.max(1));
        let _ = writeln!(out, "       resent: {}", self.stats.resent);
        let _ = writeln!(out, "       round_trip: {} usecs", self.stats.round_trip.as_micros());
    }

    /// Writes the averages of reads or writes, if there were some with data. A byte per microsecond
    /// is 1 MB/s, as in Lustre.
    fn write_averages(&self, out: &mut String, kind: &str, bytes: fn(&OpStats) -> &Sample) {
        let Some((_, stats)) = self.stats.ops.iter().find(|(op, _)| *op == kind) else { return };
        let Sample { count, sum, .. } = bytes(stats);
        let Some(per_rpc) = sum.unwrap_or(0).checked_div(*count) else { return };
        let _ = writeln!(out, "    {kind}_data_averages:\n       bytes_per_rpc: {per_rpc}");
        let usecs = stats.time_ns / 1000 / stats.count.max(1);
        if usecs > 0 {
            let hundredths = u128::from(per_rpc) * 100 / u128::from(usecs);
            let _ = writeln!(out, "       usecs_per_rpc: {usecs}");
            let _ = writeln!(out, "       MB_per_sec: {}.{:02}", hundredths / 100, hundredths % 100);
        }
    }
}

/// Returns the index in the name of a target: 10 for `sheen-OST000a` and `sheen-MDT000a-dom`.
fn target_index(target: &str) -> Option<u32> {
    let name = target.strip_suffix("-dom").unwrap_or(target);
    let (_, last) = name.rsplit_once('-')?;
    let digits = last.strip_prefix("OST").or_else(|| last.strip_prefix("MDT"))?;
    u32::from_str_radix(digits, 16).ok()
}

/// Renders `state`: the present state, and the last changes with their times in seconds since 1970.
pub fn state_text(state: ImportState, history: &[(Time, ImportState)]) -> String {
    let mut out = format!("current_state: {state}\nstate_history:\n");
    for (time, state) in history {
        // Writing to a string cannot fail.
        let _ = writeln!(out, " - [ {}, {state} ]", time.sec);
    }
    out
}

/// Renders `timeouts`: the time of the last reply. Sheen has no adaptive timeouts, whose estimates
/// are the other lines in Lustre.
pub fn timeouts_text(idle: Option<Duration>, now: Time) -> String {
    let Some(idle) = idle.map(|idle| idle.as_secs() as i64) else { return String::new() };
    format!("{:<10} : {}, {idle}s ago\n", "last reply", now.sec - idle)
}

/// Renders `osc.*.unstable_stats`.
pub fn unstable_stats(bytes: u64) -> String {
    format!("unstable_pages: {:>20}\nunstable_mb:    {:>10}\n", bytes.div_ceil(PAGE_BYTES), bytes >> 20)
}

/// Renders `srpc_info`: the protection of the connection, if there is one. Over `lo` nothing needs
/// protection.
pub fn srpc_info<P: Protocol>(import: &Import<P>) -> String {
    let over_lo = || (import.state() == ImportState::Full).then_some(Flavor::Null);
    let flavor = import.flavor().or_else(over_lo).map_or_else(|| "<none>".to_owned(), |flavor| flavor.to_string());
    format!("rpc flavor:      {flavor}\nbulk flavor:     {flavor}\n")
}

#[cfg(test)]
mod tests {
    use sheen_wire::{Ost, frame::FEATURE_OP_ID};

    use super::*;

    fn connected() -> ImportView {
        let write = OpStats {
            count: 2,
            sent: Sample { sum: Some(1_500_000), ..Sample::of_count("", "bytes", 2) },
            time_ns: 4_000_000,
            ..OpStats::default()
        };
        // It failed, so it has no data.
        let read = OpStats { count: 1, errors: 1, time_ns: 500_000, ..OpStats::default() };
        ImportView {
            name: "sheen-OST000a-osc-ff00".into(),
            target: "sheen-OST000a".into(),
            state: ImportState::Full,
            flags: ConnectFlags::of::<Ost>(FEATURE_OP_ID),
            instance: Some(7),
            is_active: true,
            is_replayable: true,
            nids: vec!["10.0.0.1@tcp".into(), "10.0.0.2:7990@tcp".into()],
            current: Some("10.0.0.1@tcp".into()),
            evictions: 1,
            stats: ImportStats {
                ops: vec![("read", read), ("write", write)],
                in_flight: 3,
                round_trip: Duration::from_micros(81),
                idle: Some(Duration::from_millis(5900)),
                attempts: 2,
                resent: 4,
                ..ImportStats::default()
            },
            peer_committed: 42,
        }
    }

    #[test]
    fn import_renders_as_in_lustre() {
        let want = r#"import:
    name: sheen-OST000a-osc-ff00
    target: sheen-OST000a_UUID
    state: FULL
    connect_flags: [ lov_index, write_grant, max_byte_per_rpc, fid_is_enabled, imp_recov, jobstats, nanoseconds_times, second_flags, lockaheadv2, lseek, op_id ]
    connect_data:
       flags: 0x800083004004000a
       instance: 7
       target_index: 10
       max_brw_size: 16777216
    import_flags: [ IMPF_REPLAYABLE, IMPF_PINGABLE, IMPF_CONNECT_TRIED ]
    connection:
       failover_nids: [ "10.0.0.1@tcp", "10.0.0.2:7990@tcp" ]
       current_connection: "10.0.0.1@tcp"
       connection_attempts: 2
       generation: 2
       idle: 5 sec
    rpcs:
       inflight: 3
       avg_waittime: 1500 usecs
       resent: 4
       round_trip: 81 usecs
    transactions:
       peer_committed: 42
    write_data_averages:
       bytes_per_rpc: 750000
       usecs_per_rpc: 2000
       MB_per_sec: 375.00
"#;
        assert_eq!(connected().text(), want);
    }

    #[test]
    fn import_without_connection_has_no_features() {
        let never = ImportView { name: "n".into(), target: "sheen-MDT0000-dom".into(), ..ImportView::default() };
        let want = r#"import:
    name: n
    target: sheen-MDT0000-dom_UUID
    state: NEW
    connect_flags: [  ]
    connect_data:
       flags: 0x0
       target_index: 0
       max_brw_size: 16777216
    import_flags: [ IMPF_INVALID, IMPF_DEACTIVE, IMPF_PINGABLE ]
    connection:
       failover_nids: [  ]
       current_connection: "<none>"
       connection_attempts: 0
       generation: 1
    rpcs:
       inflight: 0
       avg_waittime: 0 usecs
       resent: 0
       round_trip: 0 usecs
    transactions:
       peer_committed: 0
"#;
        assert_eq!(never.text(), want);
    }

    #[test]
    fn state_lists_its_history() {
        let at = |sec| Time { sec, nsec: 999 };
        let history = [(at(17), ImportState::Connecting), (at(18), ImportState::Full)];
        let want = "current_state: FULL\nstate_history:\n - [ 17, CONNECTING ]\n - [ 18, FULL ]\n";
        assert_eq!(state_text(ImportState::Full, &history), want);
        assert_eq!(state_text(ImportState::New, &[]), "current_state: NEW\nstate_history:\n");
    }

    #[test]
    fn timeouts_show_the_last_reply() {
        let now = Time { sec: 1000, nsec: 0 };
        assert_eq!(timeouts_text(Some(Duration::from_secs(30)), now), "last reply : 970, 30s ago\n");
        assert_eq!(timeouts_text(None, now), "");
    }
}
