//! `exports.NID.*`: the requests that a target has executed for the clients of each host.
//!
//! A NID names a host, and the statistics of its clients are added up. A host appears with the
//! first request that is counted, and disappears with its last export. (Lustre's remain until
//! `exports.clear`.) A client that reconnects from another address still counts for the first one.
//!
//! Invariants:
//! * There are statistics of at most [`HOSTS_MAX`] hosts. Clients of further hosts are not counted.
//! * A sample takes no lock, except the first one of an export.
//! * An export that has ended has no part in the parameters.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use sheen_lnet::Nid;
use sheen_params::{Param, Params, Snapshot, Stats};
use sheen_rt::Rt;
use sheen_wire::Errno;

use crate::{Export, host_stats::HostStats};

/// Maximum number of hosts with statistics on a target.
const HOSTS_MAX: usize = 4096;
/// The value of `exports.clear`, as in Lustre.
const CLEAR: &str = "Write into this file to clear all nid stats and stale nid entries\n";

/// Names and units of counters.
type Counters = &'static [(&'static str, &'static str)];

/// The statistics of a target's clients, by host.
pub struct ExportStats {
    rt: Rt,
    params: Params,
    /// Begin of the names of the parameters, with `/` between components: a NID contains dots.
    dir: String,
    counters: Counters,
    hosts: Mutex<Hosts>,
}

/// The lock is held while parameters are registered, so that they match the list. Their functions
/// do not take it, except that of `exports.clear`.
#[derive(Default)]
struct Hosts {
    by_name: BTreeMap<String, Arc<HostStats>>,
    /// Names of the hosts, by the ids of the exports.
    of_exports: BTreeMap<u64, String>,
}

impl ExportStats {
    /// Creates statistics without hosts. `dir`: begin of the names of the target's parameters, such
    /// as `mdt.sheen-MDT0000`. `counters`: names and units.
    pub fn new(rt: &Rt, params: &Params, dir: &str, counters: Counters) -> Arc<ExportStats> {
        let dir = format!("{}/exports", dir.replace('.', "/"));
        Arc::new(ExportStats { rt: rt.clone(), params: params.clone(), dir, counters, hosts: Mutex::default() })
    }

    /// Registers `exports.clear`. The other parameters are registered with the first request of a
    /// host. They are all unregistered with those of the target.
    pub fn register(self: &Arc<Self>) {
        let stats: Weak<ExportStats> = Arc::downgrade(self);
        let clear = move |_: &str| stats.upgrade().map(|stats| stats.clear()).ok_or(Errno::ENODEV);
        self.params.register(&format!("{}/clear", self.dir), Param::order(|| CLEAR.to_owned(), clear));
    }

    /// Adds a sample of a client. `at`: index of the counter in the list given to
    /// [`ExportStats::new`].
    pub fn record(&self, export: &Export, at: usize, value: u64) {
        if let Some(host) = export.host_stats.get_or_init(|| self.join(export)) {
            host.stats.record_at(at, value);
        }
    }

    /// Handles the end of a client, as [`crate::Service::disconnected`].
    pub fn disconnected(&self, export: &Export) {
        let mut hosts = self.hosts.lock();
        let Some(name) = hosts.of_exports.remove(&export.id()) else { return };
        let Some(host) = hosts.by_name.get(&name) else { return };
        let is_last = {
            let mut clients = host.clients.lock();
            clients.remove(&export.id());
            clients.is_empty()
        };
        if is_last {
            hosts.by_name.remove(&name);
            self.params.unregister(&format!("{}/{name}", self.dir));
        }
    }

    /// Resets the statistics of all hosts.
    fn clear(&self) {
        let now = self.rt.wall();
        self.hosts.lock().by_name.values().for_each(|host| host.stats.clear(now));
    }

    /// Adds an export to its host. `None`: there are too many hosts.
    fn join(&self, export: &Export) -> Option<Arc<HostStats>> {
        let name = name_of(export.nid());
        let mut hosts = self.hosts.lock();
        let known = hosts.by_name.get(&name).cloned();
        if known.is_none() && hosts.by_name.len() >= HOSTS_MAX {
            return None;
        }
        let host = known.unwrap_or_else(|| self.add(&mut hosts, &name));
        host.clients.lock().insert(export.id(), export.client().to_owned());
        hosts.of_exports.insert(export.id(), name);
        drop(hosts);
        if export.is_ended() {
            self.disconnected(export); // it disconnected meanwhile, and that may not be reported again
        }
        Some(host)
    }

    /// Adds a host, and registers its parameters.
    fn add(&self, hosts: &mut Hosts, name: &str) -> Arc<HostStats> {
        let stats = Stats::without_histograms(self.counters, self.rt.wall());
        let host = Arc::new(HostStats { stats, clients: Mutex::default() });
        hosts.by_name.insert(name.to_owned(), host.clone());
        let (read, clear, rt, clock) = (host.clone(), host.clone(), self.rt.clone(), self.rt.clone());
        let stats = Param::counters(
            move || read.stats.snapshot(rt.wall()),
            Snapshot::stats_text,
            move || {
                clear.stats.clear(clock.wall());
                Ok(())
            },
        );
        self.params.register(&format!("{}/{name}/stats", self.dir), stats);
        let of = host.clone();
        let uuids = move || of.clients.lock().values().cloned().collect::<Vec<_>>().join("\n");
        self.params.register(&format!("{}/{name}/uuid", self.dir), Param::text(uuids));
        host
    }
}

/// Returns the name of a host. The port of a client's connection is not part of it.
fn name_of(nid: Nid) -> String {
    nid.ip().map_or_else(|| nid.to_string(), |ip| format!("{}@tcp", ip.to_canonical()))
}

#[cfg(test)]
mod tests {
    use sheen_rt::sim::{Sim, SimConfig};

    use super::*;

    const COUNTERS: Counters = &[("read_bytes", "bytes"), ("read", "usecs")];

    fn start() -> (Sim, Params, Arc<ExportStats>) {
        let (sim, params) = (Sim::new(1, SimConfig::default()), Params::default());
        let stats = ExportStats::new(&sim.rt(1), &params, "obdfilter.sheen-OST0000", COUNTERS);
        stats.register();
        (sim, params, stats)
    }

    fn export(client: &str, id: u64, address: &str) -> Arc<Export> {
        Export::new(client, id, 0, Nid::Tcp(address.parse().unwrap()))
    }

    /// Returns the names of the hosts.
    fn hosts(params: &Params) -> Vec<String> {
        let nodes = params.list("obdfilter.sheen-OST0000.exports.*").unwrap();
        let names = nodes.into_iter().filter(|node| node.dir);
        names.filter_map(|node| Some(node.name.split_once(".exports.")?.1.to_owned())).collect()
    }

    fn value(params: &Params, name: &str) -> String {
        params.get(&format!("obdfilter.*.exports.{name}")).unwrap()[0].value.clone()
    }

    #[test]
    fn export_stats_add_up_the_clients_of_a_host() {
        let (_sim, params, stats) = start();
        let here = [export("a", 1, "10.0.0.1:50001"), export("b", 2, "10.0.0.1:50002")];
        let local = Export::new("mdt", 3, 0, Nid::Lo);
        let six = export("c", 4, "[fd00::1]:50001");
        here.iter().for_each(|export| stats.record(export, 0, 4096));
        stats.record(&local, 1, 7);
        stats.record(&six, 1, 7);
        assert_eq!(hosts(&params), ["0@lo", "10.0.0.1@tcp", "fd00::1@tcp"]);
        let text = value(&params, "10.0.0.1@tcp.stats");
        let line = "read_bytes                          2 samples [bytes] 4096 4096 8192 33554432\n";
        assert!(text.ends_with(line) && text.starts_with("snapshot_time "), "{text}");
        assert_eq!(value(&params, "10.0.0.1@tcp.uuid"), "a\nb");

        stats.disconnected(&here[0]);
        assert_eq!(value(&params, "10.0.0.1@tcp.uuid"), "b");
        assert!(value(&params, "10.0.0.1@tcp.stats").ends_with(line));
        here.iter().for_each(|export| stats.disconnected(export));
        assert_eq!(hosts(&params), ["0@lo", "fd00::1@tcp"]);
    }

    #[test]
    fn export_stats_are_cleared_for_one_host_or_for_all() {
        let (_sim, params, stats) = start();
        let exports = [export("a", 1, "10.0.0.1:50001"), export("b", 2, "10.0.0.2:50001")];
        let count = |host: &str| value(&params, &format!("{host}@tcp.stats")).lines().skip(3).count();
        exports.iter().for_each(|export| stats.record(export, 1, 5));
        params.set("obdfilter.*.exports.10.0.0.1@tcp.stats", "0").unwrap();
        assert_eq!((count("10.0.0.1"), count("10.0.0.2")), (0, 1));
        exports.iter().for_each(|export| stats.record(export, 1, 5));
        assert!(value(&params, "clear").starts_with("Write into this file"));
        params.set("obdfilter.*.exports.clear", "1").unwrap();
        assert_eq!((count("10.0.0.1"), count("10.0.0.2")), (0, 0));
    }

    #[test]
    fn export_stats_omit_exports_that_have_ended() {
        let (_sim, params, stats) = start();
        let late = export("late", 1, "10.0.0.1:50001");
        late.evict("a test");
        stats.record(&late, 1, 5);
        assert_eq!(hosts(&params), [""; 0]);
    }

    #[test]
    fn export_stats_have_a_bounded_number_of_hosts() {
        let (_sim, params, stats) = start();
        let exports: Vec<_> = (0..HOSTS_MAX as u64 + 9)
            .map(|id| export("a", id, &format!("10.0.{}.{}:50001", id >> 8, id & 255)))
            .collect();
        exports.iter().for_each(|export| stats.record(export, 1, 5));
        assert_eq!(hosts(&params).len(), HOSTS_MAX);
        exports.iter().for_each(|export| stats.disconnected(export));
        assert_eq!(hosts(&params), [""; 0]);
    }
}
