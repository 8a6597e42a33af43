//! The waits and statistics of all Sheen processes of this machine at one moment.

use std::{
    collections::{BTreeMap, HashSet},
    path::PathBuf,
    time::Instant,
};

use sheen_control::{GREETING_TIMEOUT, Replies, Reply, Request, Silent, ask_all, sockets};
use sheen_params::{Snapshot, TypedParam, Value, Wait, parse_waits};
use sheen_wire::Errno;

use crate::time_limits::scaled;

/// The lists of waits: of MDTs, OSTs, data services and mounts.
const WAITS: &str = "*.*.waits";
/// The statistics of targets, and those by job.
const STATS: [&str; 6] = [
    "mdt.*.md_stats",
    "obdfilter.*.stats",
    "dom.*-dom.stats",
    "mdt.*.job_stats",
    "obdfilter.*.job_stats",
    "dom.*-dom.job_stats",
];

/// The work of a target, or of a job on all targets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Requests to read.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Requests to write.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// All other operations.
    pub others: u64,
}

/// The values of one moment.
#[derive(Debug)]
pub struct Sample {
    /// The moment.
    pub at: Instant,
    /// Number of processes that have answered.
    pub processes: usize,
    /// The processes that did not answer in time.
    pub silent: Vec<Silent>,
    /// The waits, the oldest first.
    pub waits: Vec<Wait>,
    /// Counts by target.
    pub targets: BTreeMap<String, Counts>,
    /// Counts by job.
    pub jobs: BTreeMap<String, Counts>,
}

impl Sample {
    /// Asks all processes that the user can reach. `fsname`: only for this file system.
    pub fn take(fsname: Option<&str>) -> Sample {
        let ask = |sockets: &[PathBuf], request| ask_all(sockets, &of(fsname, request), scaled(GREETING_TIMEOUT));
        let patterns = || [WAITS].into_iter().chain(STATS).map(str::to_owned);
        let mut sockets = sockets();
        let Replies { mut replies, silent, .. } =
            ask(&sockets, Request::GetTypedAny { patterns: patterns().collect() });
        let mut sample = Sample {
            at: Instant::now(),
            processes: replies.len(),
            silent,
            waits: Vec::new(),
            targets: BTreeMap::new(),
            jobs: BTreeMap::new(),
        };
        if replies.iter().any(is_unsent) {
            // A stopped process would delay each of the other requests.
            sockets.retain(|socket| sample.silent.iter().all(|silent| silent.socket != *socket));
            replies = patterns().flat_map(|pattern| ask(&sockets, Request::GetTyped { pattern }).replies).collect();
        }
        let mut texts = Vec::new();
        for reply in &replies {
            if let Reply::Typed(params) = reply {
                params.iter().for_each(|param| sample.add(param, &mut texts));
            }
        }
        sample.waits = waits_in(&texts);
        sample
    }

    /// Adds a parameter. The text of a list of waits is added to `texts`.
    fn add(&mut self, param: &TypedParam, texts: &mut Vec<String>) {
        match &param.value {
            Value::Text(text) => texts.push(text.clone()),
            Value::Counters(counts) => {
                if let Some(target) = param.name.split('.').nth(1) {
                    self.targets.entry(target.to_owned()).or_default().add(counts);
                }
            }
            Value::Jobs(jobs) => {
                for job in jobs {
                    self.jobs.entry(job.job.clone()).or_default().add(&job.counts);
                }
            }
            _ => {}
        }
    }
}

impl Counts {
    fn add(&mut self, counts: &Snapshot) {
        for sample in &counts.samples {
            match sample.name.as_str() {
                "read_bytes" => {
                    self.reads += sample.count;
                    self.read_bytes += sample.sum.unwrap_or_default();
                }
                "write_bytes" => {
                    self.writes += sample.count;
                    self.write_bytes += sample.sum.unwrap_or_default();
                }
                // The times of the same requests.
                "read" | "write" => {}
                _ => self.others += sample.count,
            }
        }
    }
}

/// Whether a process did not send all values in one reply: there are too many jobs, or the process
/// is of an earlier release.
fn is_unsent(reply: &Reply) -> bool {
    matches!(reply, Reply::Error { errno } if [Errno::EMSGSIZE.0, Errno::EPROTO.0].contains(errno))
}

fn of(fsname: Option<&str>, request: Request) -> Request {
    match fsname {
        Some(fsname) => Request::Of { fsname: fsname.to_owned(), request: Box::new(request) },
        None => request,
    }
}

/// Returns the waits in the values of parameters, the oldest first. A wait of a mount is left out
/// if a server lists it as well, because only the server knows the holders.
fn waits_in(texts: &[String]) -> Vec<Wait> {
    let objects = texts.iter().flat_map(|text| parse_waits(text));
    let all: Vec<Wait> = objects.filter_map(|object| serde_json::from_str(object).ok()).collect();
    // Only mounts name the state of a connection.
    let (mut waits, mut of_mounts): (Vec<Wait>, Vec<Wait>) = all.into_iter().partition(|wait| wait.state.is_empty());
    remove_known(&mut of_mounts, &waits);
    waits.extend(of_mounts);
    waits.sort_by(|a, b| b.secs.total_cmp(&a.secs));
    waits
}

/// Removes the waits of mounts that servers list. An operation has the same id on both sides, and
/// another kind: a server that waits for cancels lets the mount wait for a reply. If a side does
/// not know the id, the lock identifies the wait.
fn remove_known(of_mounts: &mut Vec<Wait>, of_servers: &[Wait]) {
    let operations: HashSet<(&str, &str, &str)> =
        of_servers.iter().filter(|wait| !wait.op.is_empty()).map(operation_of).collect();
    let locks: HashSet<(&str, &str, &str, &str, bool)> =
        of_servers.iter().map(|wait| lock_of(wait, !wait.op.is_empty())).collect();
    of_mounts.retain(|wait| {
        let has_op = !wait.op.is_empty();
        let is_known_lock =
            || locks.contains(&lock_of(wait, false)) || (!has_op && locks.contains(&lock_of(wait, true)));
        let is_known =
            (has_op && operations.contains(&operation_of(wait))) || (!wait.object.is_empty() && is_known_lock());
        !is_known
    });
}

fn operation_of(wait: &Wait) -> (&str, &str, &str) {
    (&wait.target, &wait.client, &wait.op)
}

/// Returns the lock for which a client waits, and whether the server knows the operation.
fn lock_of(wait: &Wait, has_op: bool) -> (&str, &str, &str, &str, bool) {
    (&wait.target, &wait.client, &wait.object, &wait.mode, has_op)
}

#[cfg(test)]
mod tests {
    use sheen_params::{Sample as Value, WaitKind, waits_text};

    use super::*;

    fn wait(secs: f64, client: &str, state: &str) -> Wait {
        let [client, state, object] = [client, state, "[0x1:0x2:0x0]"].map(str::to_owned);
        Wait { secs, kind: WaitKind::Lock, client, state, object, ..Wait::default() }
    }

    #[test]
    fn wait_of_a_mount_is_left_out_if_the_server_lists_it() {
        let server = waits_text(&[wait(1.0, "a", "")]);
        let mount = waits_text(&[wait(1.5, "a", "FULL"), wait(2.0, "b", "FULL")]);
        let found: Vec<(String, String)> =
            waits_in(&[server, mount]).into_iter().map(|wait| (wait.client, wait.state)).collect();
        assert_eq!(found, [("b".to_owned(), "FULL".to_owned()), ("a".to_owned(), String::new())]);
        assert!(waits_in(&["waits:\n- { broken\n".to_owned()]).is_empty());
    }

    #[test]
    fn operation_of_a_mount_is_left_out_if_the_server_lists_its_id() {
        let of = |kind, op: &str, wait| Wait { kind, op: op.to_owned(), ..wait };
        let no_object = Wait { object: String::new(), ..wait(1.0, "a", "FULL") };
        let server = waits_text(&[of(WaitKind::Cancel, "7:1", wait(1.0, "a", ""))]);
        let mount = waits_text(&[
            of(WaitKind::Reply, "7:1", no_object.clone()),
            of(WaitKind::Reply, "7:2", no_object),
            of(WaitKind::Lock, "7:3", wait(1.0, "a", "FULL")),
            of(WaitKind::Reply, "7:1", wait(1.0, "b", "FULL")),
            of(WaitKind::Lock, "", wait(1.0, "a", "FULL")),
        ]);
        let found: Vec<(String, String)> =
            waits_in(&[server, mount]).into_iter().map(|wait| (wait.client, wait.op)).collect();
        let want = [("a", "7:1"), ("a", "7:2"), ("a", "7:3"), ("b", "7:1")];
        assert_eq!(found, want.map(|(client, op)| (client.to_owned(), op.to_owned())));
        // A server that does not know the operation.
        let server = waits_text(&[wait(1.0, "a", "")]);
        let mount = waits_text(&[of(WaitKind::Lock, "7:3", wait(1.0, "a", "FULL"))]);
        assert_eq!(waits_in(&[server, mount]).len(), 1);
    }

    #[test]
    fn waits_of_unknown_kinds_are_shown() {
        let newer = "waits:\n- { \"secs\": 1.000, \"kind\": \"quota\", \"target\": \"t\", \"new\": [ 1 ] }\n";
        let found = waits_in(&[newer.to_owned()]);
        assert_eq!((found.len(), found[0].kind, found[0].target.as_str()), (1, WaitKind::Other, "t"));
        assert_eq!(serde_json::to_value(WaitKind::Other).unwrap(), "other");
    }

    #[test]
    fn reads_and_writes_are_counted_once() {
        let bytes = |name: &str, count, sum| Value { sum: Some(sum), ..Value::of_count(name, "bytes", count) };
        let samples = vec![
            bytes("read_bytes", 2, 8192),
            bytes("write_bytes", 3, 4096),
            Value::of_count("read", "usecs", 2),
            Value::of_count("write", "usecs", 3),
            Value::of_count("getattr", "usecs", 5),
            Value::of_count("sync", "usecs", 1),
        ];
        let mut counts = Counts::default();
        counts.add(&Snapshot { samples, ..Snapshot::default() });
        let want = Counts { reads: 2, read_bytes: 8192, writes: 3, write_bytes: 4096, others: 6 };
        assert_eq!(counts, want);
    }
}
