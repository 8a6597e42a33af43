//! Metrics for Prometheus: `--metrics` of servers, and `sheen metrics`.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use sheen_tests::{
    Fs, Guarded,
    address::own_address,
    can_mount, new_dir, run, run_command,
    sandbox::Sandbox,
    sheen,
    wait::{EVENTUALLY, eventually_some},
};

const DASHBOARD: &str = include_str!("../../../docs/monitoring/sheen.json");
/// Metrics of the dashboard that exist only while a target is in recovery, or after it.
const RECOVERY: &str = "recovery_status_";

/// Bytes that the test writes.
const BYTES: f64 = (4 << 20) as f64;

/// Sends a request to the endpoint and returns the head and the body of its reply. The body may be
/// cut off: the endpoint disconnects a client that takes longer than its time limit.
fn fetch(at: SocketAddr) -> std::io::Result<(String, String)> {
    let mut stream = TcpStream::connect(at)?;
    stream.set_read_timeout(Some(EVENTUALLY))?;
    stream.set_write_timeout(Some(EVENTUALLY))?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply)?;
    let reply = String::from_utf8_lossy(&reply);
    let (head, body) = reply.split_once("\r\n\r\n").ok_or(std::io::ErrorKind::InvalidData)?;
    Ok((head.to_owned(), body.to_owned()))
}

/// Returns the length of the body that the head of a reply announces.
fn length_of(head: &str) -> Option<usize> {
    head.lines().find_map(|line| line.strip_prefix("Content-Length: "))?.parse().ok()
}

/// Waits until the endpoint sends metrics for which `is_so` holds, and returns them. On a slow
/// machine, a reply may take longer than the time limits: it is missing, cut off, or 503.
#[track_caller]
fn metrics_when(at: SocketAddr, what: &str, is_so: impl Fn(&str) -> bool) -> String {
    eventually_some(what, || {
        let (head, body) = fetch(at).ok()?;
        if head.starts_with("HTTP/1.1 503 ") {
            return None;
        }
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains("Content-Type: application/openmetrics-text; version=1.0.0"), "{head}");
        if length_of(&head).expect("a length") != body.len() {
            return None;
        }
        assert!(body.ends_with("\n# EOF\n"), "{body}");
        is_so(&body).then_some(body)
    })
}

/// Returns the sum of the samples of this name with all these labels, such as `component="mdt"`.
fn sum(text: &str, name: &str, labels: &[&str]) -> f64 {
    let series = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('{')?.rsplit_once("} "));
    let wanted = series.filter(|(found, _)| labels.iter().all(|label| found.split(',').any(|one| one == *label)));
    wanted.map(|(_, value)| value.parse::<f64>().expect("a number")).sum()
}

/// Returns the output of `sheen metrics` once all processes have answered.
#[track_caller]
fn printed(options: &[&str]) -> String {
    eventually_some("all processes answer sheen metrics", || {
        let mut words = vec!["metrics"];
        words.extend(options);
        let ran = run(sheen(), words);
        (!ran.err.contains("is left out")).then(|| ran.ok())
    })
}

/// Returns the address of the metrics of a running file system.
#[track_caller]
fn address_of(fs: &Fs) -> SocketAddr {
    let status = fs.status();
    let text = status["metrics"].as_str().unwrap_or_else(|| panic!("no address: {status}"));
    text.parse().expect("ADDRESS:PORT")
}

#[test]
fn metrics_of_servers_are_served_and_those_of_mounts_are_printed() {
    if !can_mount() {
        return println!("skipped: /dev/fuse cannot be opened here");
    }
    let listen = format!("{}:0", own_address());
    let fs = Fs::up_in(Path::new("/dev/shm"), 2, &["--metrics", &listen]);
    let at = address_of(&fs);
    let second = fs.second_mount();
    fs.sh("mkdir dir; mkfifo dir/pipe; dd if=/dev/zero of=dir/file bs=1M count=4 conv=fsync").ok();
    assert_eq!(fs::read(second.path("dir/file")).expect("a file").len(), 4 << 20);

    let text = metrics_when(at, "the OSTs have counted all bytes", |text| {
        let written = |component| sum(text, "lustre_write_bytes_total", &[component, "operation=\"write\""]);
        let read = |component| sum(text, "lustre_read_bytes_total", &[component, "operation=\"read\""]);
        let (ost, dom) = ("component=\"ost\"", "component=\"dom\"");
        written(ost) + written(dom) >= BYTES && read(ost) + read(dom) > 0.0
    });
    for operation in ["mkdir", "mknod", "create"] {
        let labelled = format!("operation=\"{operation}\"");
        let labels = ["component=\"mdt\"", labelled.as_str()];
        assert!(sum(&text, "lustre_stats_total", &labels) >= 1.0, "{operation}: {text}");
        assert!(sum(&text, "sheen_operation_seconds_count", &labels) >= 1.0, "{operation}: {text}");
    }
    assert!(sum(&text, "lustre_capacity_kilobytes", &["target=\"sheen-OST0001\""]) > 0.0, "{text}");
    assert!(sum(&text, "lustre_connected_clients", &["target=\"sheen-MDT0000\""]) >= 2.0, "{text}");
    assert!(text.lines().any(|line| line == "lustre_health_healthy 1"), "{text}");

    let name = run(sheen(), ["lfs", "getname", &second.mnt.to_string_lossy()]).ok();
    let mount = format!("target=\"{}\"", name.trim());
    assert_eq!(sum(&text, "lustre_client_stats", &[&mount]), 0.0, "that mount is another process");
    let all = printed(&["--fsname", "sheen"]);
    assert!(sum(&all, "lustre_client_stats", &[&mount, "operation=\"open\""]) >= 1.0, "{all}");
    assert!(sum(&all, "sheen_io_size_bytes_sum", &[&mount, "operation=\"read\""]) >= BYTES, "{all}");
    assert!(sum(&all, "lustre_stats_total", &["component=\"mdt\"", "operation=\"mkdir\""]) >= 1.0, "{all}");
    assert!(all.lines().any(|line| line == "sheen_scrape_errors 0") && all.ends_with("\n# EOF\n"), "{all}");

    assert_eq!(fs.start(&["--metrics", &listen]).code, 0, "the same options: it is already running");
    let other = fs.start(&[]);
    assert!(other.code == 1 && other.err.contains("another configuration"), "{}", other.err);
}

/// Returns the names of the metrics in the expressions of the dashboard.
fn names_of_the_dashboard() -> BTreeSet<&'static str> {
    let words = DASHBOARD.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let is_metric = |word: &&str| ["lustre_", "sheen_", "recovery_"].iter().any(|prefix| word.starts_with(prefix));
    words.filter(is_metric).filter(|name| !name.starts_with(RECOVERY)).collect()
}

#[test]
fn every_metric_of_the_dashboard_has_a_sample_after_reads_and_writes() {
    Sandbox::enter("dashboard", |sandbox| {
        sandbox.up_with("sheen", "/mnt/sheen", "");
        sandbox.mount_again("/mnt/again");
        let sh = |script: &str| sandbox.sh(Path::new("/mnt/sheen"), script).ok();
        sh("lctl set_param -P jobid_var=procname_uid");
        sh("dd if=/dev/zero of=file bs=1M count=4 conv=fsync; cat /mnt/again/file >/dev/null");
        let names = names_of_the_dashboard();
        assert!(names.len() > 30, "{names:?}");
        let missing = |text: &str| -> Vec<&str> {
            let has = |name: &str| [' ', '{'].iter().any(|end| text.contains(&format!("\n{name}{end}")));
            names.iter().copied().filter(|&name| !has(name)).collect()
        };
        // A busy machine can leave a process out, once.
        eventually_some(format!("all of {names:?}"), || missing(&sh("sheen metrics")).is_empty().then_some(()));
    });
}

#[test]
fn sheen_metrics_serves_until_it_is_terminated() {
    let mut command = Command::new(sheen());
    command.args(["metrics", "--listen", &format!("{}:0", own_address())]).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = Guarded(command.spawn().expect("it starts"));
    let mut line = String::new();
    let out = child.0.stdout.take().expect("a pipe");
    BufReader::new(out).read_line(&mut line).expect("a line");
    let at = line.trim().strip_prefix("metrics at http://").and_then(|rest| rest.strip_suffix("/metrics"));
    let at = at.unwrap_or_else(|| panic!("no address: {line}")).parse().expect("ADDRESS:PORT");
    metrics_when(at, "it answers", |text| text.contains("\nsheen_scrape_processes "));
    let pid = Pid::from_child(&child.0);
    kill_process(pid, Signal::TERM).expect("it still runs");
    let status = eventually_some("it ends", || child.0.try_wait().expect("a child"));
    assert!(status.success(), "{status}");
}

#[test]
fn server_does_not_start_if_the_address_of_its_metrics_is_in_use() {
    let taken = TcpListener::bind((own_address(), 0)).expect("a free port");
    let at = taken.local_addr().expect("an address").to_string();
    let base = new_dir(&std::env::temp_dir());
    for server in ["mgs", "up"] {
        let mut command = Command::new(sheen());
        command.args([server, "--listen", "127.0.0.1:0", "--metrics", &at, "--dir"]).arg(base.join(server));
        let ran = run_command(command);
        assert_eq!(ran.code, 1, "{}", ran.err);
        assert!(ran.err.contains(&format!("cannot serve metrics at {at}")), "{}", ran.err);
        assert!(ran.err.contains("choose another port"), "{}", ran.err);
    }
    let _ = fs::remove_dir_all(base);
}
