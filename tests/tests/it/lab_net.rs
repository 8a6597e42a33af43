//! `sheen lab net` between two servers.

use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use sheen_tests::{
    Guarded, Ran,
    cluster::{Cluster, bash},
    run, run_command, sheen,
    wait::eventually,
};

/// Options of a short measurement.
const SHORT: &str = "--tests ping --in-flight 1 --time 1 -i 1";

fn net(line: &str) -> Ran {
    run(sheen(), format!("lab net {line}").split_whitespace())
}

/// Starts a file system with two OSSs, which serve two OSTs each.
#[track_caller]
fn two_osss() -> Option<Cluster> {
    let mut cluster = Cluster::start_or_skip()?;
    let (dir, nid) = (cluster.base.join("oss2"), cluster.second_oss());
    cluster.spawn_as("oss2", "oss", &dir, &nid, &[], Command::new(sheen()));
    eventually("the second OSS is ready", || cluster.log().matches("OSTs of many ready").count() == 2);
    Some(cluster)
}

#[test]
fn net_measures_between_two_servers() {
    let Some(cluster) = two_osss() else { return };
    let (report, mds, oss) = (cluster.base.join("r.html"), cluster.nid("mds"), cluster.second_oss());
    for (from, to) in [("many-OST0000", "many-OST0002"), ("many-MDT0000", "many-OST0001"), (&*oss, &*mds)] {
        let few = "--sizes 4k,64k --in-flight 1,3 --delays 0,1 --time 1 -i 2";
        let line = format!("--from {from} --to {to} {few} --format json --report {}", report.display());
        let record: Value = serde_json::from_str(&net(&line).ok()).expect("JSON");
        let parameters = &record["Parameters"];
        assert_eq!((&parameters["from"], &parameters["to"]), (&from.into(), &to.into()), "{record}");
        let results = record["Results"].as_array().expect("rates");
        assert_eq!(results.len(), 2 * (2 + 2 * 2 * 2), "{record}");
        for rates in results {
            let runs = rates["requests"].as_array().expect("runs");
            assert!(runs.len() == 2 && runs.iter().all(|rate| rate.as_f64() > Some(0.0)), "{rates}");
        }
        let trips: Vec<(f64, f64)> = serde_json::from_value(record["round trips"].clone()).expect("round trips");
        assert_eq!(trips.iter().map(|(added, _)| *added).collect::<Vec<_>>(), [0.0, 1.0]);
        assert!(trips.iter().all(|(added, measured)| measured >= added), "{trips:?}");
        let html = fs::read_to_string(&report).expect("a report");
        assert!(html.contains(&format!("from {from} to {to}")), "{html}");
    }
    let out = net(&format!("--from many-OST0003 --to many-MDT0000 {SHORT}")).ok();
    assert!(out.starts_with("requests from many-OST0003 to many-MDT0000, one connection\n"), "{out}");
    assert!(out.lines().any(|line| line.starts_with("ping ")), "{out}");
}

#[test]
fn net_refuses_pairs_that_cannot_be_measured() {
    let Some(cluster) = Cluster::start_or_skip() else { return };
    let by_nid = format!("--from {} --to many-OST0001", cluster.nid("oss"));
    for (line, message) in [
        ("--from many-OST0009 --to many-MDT0000", "--from many-OST0009: is not a NID"),
        ("--from many-MDT0000 --to many-OST0009", "--to many-OST0009: is not a NID"),
        ("--from many-OST0000 --to many-OST0001", "--from many-OST0000 and --to many-OST0001 are one server"),
        (&*by_nid, "are one server"),
        ("--from many-MDT0000 --to 0@lo", "0@lo means this process alone"),
        ("--from many-MDT0000 --to many-OST0000 --time 60001", "more than 60000"),
        ("--from 127.0.0.1:1@tcp --to many-OST0000", "127.0.0.1:1@tcp: cannot reach selftest"),
        ("--from many-MDT0000 --to 127.0.0.1:1@tcp", "from many-MDT0000 to 127.0.0.1:1@tcp: cannot reach selftest"),
    ] {
        let refused = net(&format!("{line} --tests ping"));
        assert!(refused.code == 1 && refused.err.contains(message), "{line}: {refused:?}");
    }

    // An issued key suffices for requests of its own, and not for those of a server.
    let (program, keys) = (sheen().display().to_string(), cluster.base.join("theirs"));
    let add = format!("SHEEN_KEY_DIR={} {program} key add -", keys.display());
    bash(&cluster.base, &format!("{program} key issue --dir mgs --host | {add}")).ok();
    let with_issued = |nodes: &str| {
        let mut command = Command::new(sheen());
        command.args(format!("lab net {nodes} {SHORT}").split_whitespace()).env("SHEEN_KEY_DIR", &keys);
        run_command(command)
    };
    with_issued("--to many-OST0000").ok();
    let refused = with_issued("--from many-MDT0000 --to many-OST0000");
    assert!(refused.code == 1 && refused.err.contains("needs the key of the servers"), "{refused:?}");
}

#[test]
fn interrupted_measurement_between_servers_frees_the_first_one() {
    let Some(_cluster) = Cluster::start_or_skip() else { return };
    let nodes = "--from many-MDT0000 --to many-OST0000";
    let mut command = Command::new(sheen());
    command.args(format!("lab net {nodes} --tests ping --in-flight 1 --time 60000").split_whitespace());
    let mut tool = Guarded(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the tool starts"));
    let mut lines = BufReader::new(tool.0.stdout.take().expect("piped")).lines();
    assert!(lines.any(|line| line.expect("UTF-8").starts_with("round trip")), "the run has begun");
    let second = net(&format!("{nodes} {SHORT}"));
    assert!(second.code == 1 && second.err.contains("another measurement uses the first server"), "{second:?}");
    kill_process(Pid::from_child(&tool.0), Signal::INT).expect("the tool runs");
    assert_eq!(tool.0.wait().expect("ended").code(), Some(130));
    eventually("the MDS sends another load", || net(&format!("{nodes} {SHORT}")).code == 0);
}
