//! `sheen lab survey`: the disks of OSTs, and the way to them.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use sheen_tests::{Fs, Guarded, noise, run, sheen};

/// Returns the number of objects of a survey.
fn survey_objects(dir: &Path) -> usize {
    let entries = |dir: &Path| fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    let osts: Vec<PathBuf> = entries(dir);
    let slots = osts.iter().flat_map(|ost| -> Vec<PathBuf> { entries(&ost.join("O/2")) });
    slots.flat_map(|slot| -> Vec<PathBuf> { entries(&slot) }).count()
}

/// Asserts that two runs have rates of two OSTs.
fn assert_measured(rates: &Value) {
    let count = |key: &str| rates[key].as_array().expect("rates").iter().filter(|r| r.as_f64() > Some(0.0)).count();
    assert_eq!((count("total"), count("single")), (2, 4), "{rates}");
}

/// Asserts that no object of a survey is left, and that the file `f` is unchanged.
fn assert_left_nothing(up: &Fs, data: &[u8]) {
    assert_eq!(survey_objects(&up.dir()), 0, "objects are left");
    assert!(fs::read(up.path("f")).expect("read") == data);
}

#[test]
fn survey_measures_all_osts_and_changes_no_file() {
    let Some(up) = Fs::up_or_skip(2) else { return };
    let data = noise(7, 300_000);
    fs::write(up.path("f"), &data).expect("written");
    let few = "lab survey --size 256k --records 64k";
    let survey = |line: &str| run(sheen(), format!("{few} {line}").split_whitespace());
    let out = survey("--objects 1-2 --threads 1-2 -i 2 --format json").ok();
    let record: Value = serde_json::from_str(&out).expect("JSON");
    let results = record["Results"].as_array().expect("rates");
    let osts = record["Parameters"]["osts"].as_array().expect("names").len();
    assert_eq!((osts, results.len(), record["summary"].as_array().map(Vec::len)), (2, 9, Some(3)));
    for rates in results {
        assert_measured(rates);
    }
    let out = survey("--objects 2 --threads 2 --osts sheen-OST0001 --tests read").ok();
    let line = out.lines().find(|line| line.starts_with("ost ")).expect("a point");
    assert!(line.starts_with("ost  1 sz       256K rsz   64K obj    2 thr    2 read "), "{line}");
    for (line, message) in [
        ("--objects 4 --threads 2", "each object needs a thread"),
        ("--osts sheen-OST0007 --size 16m", "no process of yours on this host serves sheen-OST0007"),
        ("--objects 1 --threads 1 --size 8000t", "sheen-OST0000: --size is more than half of its free space"),
    ] {
        let refused = survey(line);
        assert!(refused.code == 1 && refused.err.contains(message), "{line}: {refused:?}");
    }
    assert_left_nothing(&up, &data);
}

#[test]
fn survey_over_the_network_measures_all_osts_and_changes_no_file() {
    let Some(up) = Fs::up_or_skip(2) else { return };
    let data = noise(8, 300_000);
    fs::write(up.path("f"), &data).expect("written");
    let survey = |line: &str| {
        run(sheen(), format!("lab survey --size 256k --records 64k --objects 1-2 {line}").split_whitespace())
    };
    for case in ["netdisk", "network"] {
        let out = survey(&format!("--case {case} --threads 1-2 -i 2 --format json")).ok();
        let record: Value = serde_json::from_str(&out).expect("JSON");
        let results = record["Results"].as_array().expect("rates");
        let osts = record["Parameters"]["osts"].as_array().expect("names").len();
        assert_eq!((&record["Parameters"]["case"], osts, results.len()), (&case.into(), 2, 9), "{record}");
        for rates in results {
            assert_measured(rates);
        }
        let out = survey(&format!("--case {case} --threads 2 --osts sheen-OST0001 --tests read -i 1")).ok();
        assert!(out.contains(&format!(" Obdfilter-survey for case={case} from ")), "{out}");
        let line = out.lines().find(|line| line.starts_with("ost ")).expect("a point");
        assert!(line.starts_with("ost  1 sz       256K rsz   64K obj    1 thr    2 read "), "{line}");
    }
    for (line, message) in [
        ("--case netdisk --objects 4 --threads 2", "each object needs a thread"),
        ("--case network --threads 300", "300 is not in 1 to 256"),
        ("--case netdisk --osts sheen-OST0007", "no process of yours on this host serves or mounts sheen-OST0007"),
        ("--case netdisk --threads 2 --size 8000t", "sheen-OST0000: --size is more than half of its free space"),
    ] {
        let refused = survey(line);
        assert!(refused.code == 1 && refused.err.contains(message), "{line}: {refused:?}");
    }
    assert_left_nothing(&up, &data);
}

#[test]
fn interrupted_survey_leaves_no_object() {
    let Some(up) = Fs::up_or_skip(1) else { return };
    for case in ["disk", "netdisk"] {
        let line = format!("lab survey --case {case} --size 64k --records 4k --objects 1 --threads 1 -i 1000");
        let mut command = Command::new(sheen());
        command.args(line.split_whitespace());
        let mut tool = Guarded(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the tool starts"));
        let mut lines = BufReader::new(tool.0.stdout.take().expect("piped")).lines();
        assert!(lines.any(|line| line.expect("UTF-8").contains("Obdfilter-survey")), "the run has begun");
        let second = run(sheen(), line.split_whitespace());
        assert!(second.code == 1 && second.err.contains("another survey runs on this host"), "{second:?}");
        kill_process(Pid::from_child(&tool.0), Signal::INT).expect("the tool runs");
        assert_eq!((lines.count(), tool.0.wait().expect("ended").code()), (0, Some(130)), "{case}");
        assert_eq!(survey_objects(&up.dir()), 0, "{case}");
    }
}

#[test]
fn restarted_ost_removes_the_objects_of_a_survey() {
    let Some(up) = Fs::up_or_skip(1) else { return };
    run(sheen(), ["lctl", "set_param", "obdfilter.*.survey=write 2 2 4096 65536"]).ok();
    let state = || run(sheen(), ["lctl", "get_param", "-n", "obdfilter.*.survey"]).ok();
    while state().contains("state: running") {}
    assert!(state().contains("state: done\ntest: write\nbytes: 65536\n"), "{}", state());
    assert_eq!(survey_objects(&up.dir()), 2);
    up.stop().ok();
    up.start(&[]).ok();
    assert_eq!(survey_objects(&up.dir()), 0);
}
