//! The waits and statistics of all Sheen processes of this machine at one moment.

use std::{collections::BTreeMap, path::PathBuf, time::Instant};

use sheen_control::{GREETING_TIMEOUT, Replies, Reply, Request, Silent, ask_all, sockets};
use sheen_params::{Snapshot, TypedParam, Value, Wait, parse_waits};

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
        let mut sockets = sockets();
        let ask = |sockets: &[PathBuf], request| ask_all(sockets, &of(fsname, request), scaled(GREETING_TIMEOUT));
        let Replies { replies, silent, .. } = ask(&sockets, Request::Get { pattern: WAITS.to_owned() });
        // A stopped process would delay each of the other requests.
        sockets.retain(|socket| silent.iter().all(|silent| silent.socket != *socket));
        let mut sample = Sample {
            at: Instant::now(),
            processes: replies.len(),
            silent,
            waits: Vec::new(),
            targets: BTreeMap::new(),
            jobs: BTreeMap::new(),
        };
        let found =
            replies.into_iter().filter_map(|reply| if let Reply::Values(found) = reply { Some(found) } else { None });
        let texts: Vec<String> = found.flatten().map(|found| found.value).collect();
        sample.waits = waits_in(&texts);
        for pattern in STATS {
            for reply in ask(&sockets, Request::GetTyped { pattern: pattern.to_owned() }).replies {
                if let Reply::Typed(params) = reply {
                    params.iter().for_each(|param| sample.add(param));
                }
            }
        }
        sample
    }

    fn add(&mut self, param: &TypedParam) {
        match &param.value {
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

fn of(fsname: Option<&str>, request: Request) -> Request {
    match fsname {
        Some(fsname) => Request::Of { fsname: fsname.to_owned(), request: Box::new(request) },
        None => request,
    }
}

/// Returns the waits in the values of parameters, the oldest first. A lock for which a mount waits
/// is left out if the server lists the same wait, because only the server knows the holders.
fn waits_in(texts: &[String]) -> Vec<Wait> {
    let objects = texts.iter().flat_map(|text| parse_waits(text));
    let all: Vec<Wait> = objects.filter_map(|object| serde_json::from_str(object).ok()).collect();
    // Only mounts name the state of a connection.
    let (of_servers, of_mounts): (Vec<Wait>, Vec<Wait>) = all.into_iter().partition(|wait| wait.state.is_empty());
    let key = |wait: &Wait| (wait.target.clone(), wait.client.clone(), wait.object.clone(), wait.mode.clone());
    let is_known = |wait: &Wait| !wait.object.is_empty() && of_servers.iter().any(|known| key(known) == key(wait));
    let others: Vec<Wait> = of_mounts.into_iter().filter(|wait| !is_known(wait)).collect();
    let mut waits: Vec<Wait> = of_servers.into_iter().chain(others).collect();
    waits.sort_by(|a, b| b.secs.total_cmp(&a.secs));
    waits
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
