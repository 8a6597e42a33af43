//! The lab on mounts: all tools of `sheen lab`.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use sheen_tests::{
    Fs, Guarded, Ran, can_mount,
    mounts::{LIMIT, TwoMounts},
    noise, processes, run, run_within, sheen, two_mounts,
};

/// Returns the arguments of `sheen` for a tool of the lab. `{a}` and `{b}` stand for the mount
/// points.
fn words(at: &TwoMounts, line: &str) -> Vec<String> {
    let [a, b] = [at.fs.path("."), at.second.path(".")].map(|path| path.display().to_string());
    let word = |word: &str| word.replace("{a}", &a).replace("{b}", &b);
    std::iter::once("lab".to_owned()).chain(line.split_whitespace().map(word)).collect()
}

fn lab(at: &TwoMounts, line: &str) -> Ran {
    run(sheen(), words(at, line))
}

/// Runs a tool and returns its record.
#[track_caller]
fn record(at: &TwoMounts, line: &str) -> Value {
    let ran = lab(at, &format!("{line} --format json"));
    assert!(!ran.err.contains("size by stat"), "{line}: {}", ran.err);
    serde_json::from_str(&ran.ok()).expect("JSON")
}

fn is_empty(dir: &Path) -> bool {
    fs::read_dir(dir).expect("a directory").next().is_none()
}

#[test]
fn ior_transfers_the_right_bytes_in_all_shapes() {
    let at = two_mounts!(LIMIT);
    for shape in [
        "",
        "-C -g",
        "-F -C -Q 2",
        "-F -u -Z -X 3",
        "-F -z -Z -Z",
        "-z",
        "-m -i 2",
        "-Y --posix.odirect -t 4k -b 16k",
        "-t 47008 -b 94016 -s 3 -l offset",
        "-l random -D 100 --wear-out",
        "-l i --iterations 2",
        "-E",
    ] {
        let line = format!("ior -N 4 --mounts {{a}}/,{{b}}/ -o f -w -W -r -R -e -G 7 -t 8k -b 64k {shape}");
        let record = record(&at, &line);
        let [write, read] = ["write", "read"].map(|access| {
            let results = record["tests"][0]["Results"].as_array().expect("phases");
            results.iter().find(|phase| phase["access"] == access).expect(access).clone()
        });
        let parameters = &record["tests"][0]["Parameters"];
        let all =
            ["tasks", "segments", "block"].map(|key| parameters[key].as_u64().expect(key)).iter().product::<u64>();
        let expected = if shape.contains("iterations") { 4 * 2 * 8192 } else { all };
        assert_eq!((&write["bytes"], &read["bytes"]), (&expected.into(), &expected.into()), "{shape}");
        assert_eq!(record["tests"][0]["errors"], 0, "{shape}");
        assert!(is_empty(&at.fs.mnt), "{shape}: files are left");
    }
}

#[test]
fn ior_check_finds_data_of_another_run() {
    let at = two_mounts!(LIMIT);
    lab(&at, "ior -N 2 -w -k -G 1 -o {a}/f").ok();
    lab(&at, "ior -N 2 -r -R -C -G 1 -o {b}/f").ok();
    let wrong = lab(&at, "ior -N 2 -r -R -G 2 -o {b}/f");
    assert_eq!((wrong.code, wrong.err.contains("the data of 8 transfers is wrong")), (1, true), "{wrong:?}");
    assert!(at.fs.path("f").exists(), "a run that only reads removes nothing");
}

#[test]
fn ior_removes_only_files_that_it_has_created() {
    let at = two_mounts!(LIMIT);
    let mine = at.fs.path("mine");
    fs::write(&mine, "a user's bytes").expect("written");
    // Interrupted before it writes.
    let mut command = Command::new(sheen());
    command.args(words(&at, "ior -w -E -d 100000 -o {a}/mine")).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut tool = Guarded(command.spawn().expect("the tool starts"));
    let mut lines = BufReader::new(tool.0.stdout.take().expect("piped")).lines();
    assert!(lines.any(|line| line.expect("UTF-8").starts_with("------")), "the run has begun");
    kill_process(Pid::from_child(&tool.0), Signal::INT).expect("the tool runs");
    assert_eq!((lines.last().is_some(), tool.0.wait().expect("ended").code()), (true, Some(130)));
    assert_eq!(fs::read(&mine).expect("the file is there"), b"a user's bytes");
    // Written, with the files of other tasks.
    fs::create_dir(at.fs.path("0")).expect("a directory");
    fs::write(at.fs.path("0/f.00000000"), "old").expect("written");
    lab(&at, "ior -N 2 -w -E -F -u -o {a}/f").ok();
    assert_eq!(fs::metadata(at.fs.path("0/f.00000000")).expect("the file is there").len(), 1 << 20);
    assert!(!at.fs.path("1").exists(), "a directory of the run is left");
    // Without -E, the old file is replaced, and its directory stays.
    lab(&at, "ior -w -F -u -o {a}/f").ok();
    assert!(at.fs.path("0").exists() && is_empty(&at.fs.path("0")));
}

#[test]
fn ior_refuses_bad_parameters_before_it_begins() {
    let at = two_mounts!(LIMIT);
    for (line, message) in [
        ("ior -t 3 -b 8 -o {a}/f", "not a multiple of the transfer size"),
        ("ior -t 4q -o {a}/f", "is not a size"),
        ("ior -O flux=1 -o {a}/f", "unknown directive"),
        ("ior -w -o {a}/no/f", "cannot open"),
        ("ior -r -o {a}/f", "cannot open"),
        ("ior --mounts {a}/,{b}/ -o /elsewhere/f", "is not in the first mount"),
        ("ior -D 99999999999 -o {a}/f", "is not in 0..="),
        ("ior -t 8191t -b 8191t -o {a}/f", "of memory"),
        ("ior -w -o {a}/f --json {a}/no/j", "cannot write"),
        ("ior -r -o {a}/f --status-file {a}/s", "cannot read"),
        ("mdtest -n 2 -d {a}/md --report {a}/no/r", "cannot write"),
        ("mdtest -d {a}/md", "no items"),
        ("mdtest -n 2 -T -d {a}/md", "cannot stat"),
        ("io500", "name a directory"),
        ("io500 -d {a}/no", "-d: cannot open"),
        ("io500 --mounts {a}/,{b}/no", "/no: No such file"),
        ("ior -w --mounts {a}/,{b}/no -o f", "--mounts: cannot open"),
        ("mdtest -n 2 --mounts {a}/no,{b}/ -d md", "--mounts: cannot open"),
        ("io500 -d {a}/ --easy-transfer 3 --easy-block 8", "not a multiple"),
        ("io500 -d {a}/ --stonewall 0", "is not in 1..="),
    ] {
        let refused = lab(&at, line);
        let last = refused.err.lines().last().unwrap_or_default();
        assert!(refused.code != 0 && refused.err.contains(message) && last.len() < 200, "{line}: {refused:?}");
        assert!(is_empty(&at.fs.mnt), "{line}");
    }
}

#[test]
fn mdtest_counts_all_items_and_leaves_none() {
    let at = two_mounts!(LIMIT);
    for (shape, phases, items) in [
        ("-n 20", 10, 80),
        ("-n 20 -u -N 1 -Y", 10, 80),
        ("-n 20 -u -N 3 -b 2 -z 2 -t", 10, 56),
        ("-n 20 -F -L -b 2 -z 2 -R -w 5000 -e 3901 -X -y", 6, 80),
        ("-I 2 -D -z 1", 6, 16),
        ("-n 20 -F -W 100 -N 1", 6, 80),
    ] {
        let record = record(&at, &format!("mdtest --tasks 4 --mounts {{a}}/,{{b}}/ -d new/md {shape}"));
        let results = record["Results"].as_array().expect("phases");
        assert_eq!(results.len(), phases, "{shape}");
        let trees = |phase: &&Value| phase["operation"].as_str().expect("a name").starts_with("Tree");
        for phase in results.iter().filter(|phase| !trees(phase)) {
            assert_eq!((&phase["items"], &phase["errors"]), (&items.into(), &0.into()), "{shape}: {phase}");
        }
        assert!(is_empty(&at.fs.mnt), "{shape}: something is left");
    }
    // A directory of the same name belongs to the user.
    let mine = at.fs.path("y/test-dir.0-0/mine");
    fs::create_dir_all(&mine).expect("a directory");
    let refused = lab(&at, "mdtest --tasks 2 -n 2 -u -d {a}/x@{a}/y");
    assert!(refused.err.contains("exists already") && mine.exists() && !at.fs.path("x").exists(), "{refused:?}");
    fs::remove_dir_all(at.fs.path("y")).expect("removed");
    // Phases of several runs.
    lab(&at, "mdtest --tasks 2 -n 10 -F -C -d {a}/md").ok();
    lab(&at, "mdtest --tasks 2 -n 10 -F -T -N 1 -d {b}/md").ok();
    lab(&at, "mdtest --tasks 2 -n 10 -F -r -N 1 -d {b}/md").ok();
    assert!(is_empty(&at.fs.path("md")), "the items are removed");
}

#[test]
fn io500_runs_all_phases_and_leaves_no_file() {
    let at = two_mounts!(LIMIT);
    let few = "--tasks 2 --stonewall 100 --easy-transfer 64k --easy-block 256k --segments 3 -n 12";
    let record = record(&at, &format!("io500 --mounts {{a}}/,{{b}}/ {few} -i 2"));
    let runs = record["runs"].as_array().expect("runs");
    assert_eq!((runs.len(), &record["official"]), (2, &false.into()));
    for run in runs {
        let results = run["Results"].as_array().expect("phases");
        assert_eq!(results.len(), 12);
        for phase in results {
            assert!(phase["score"].as_f64().expect("a number") > 0.0, "{phase}");
            let fault = phase["invalid"].as_str();
            let short = fault == Some("all data was written before the stonewall: raise the maximum");
            // No name of 12 files contains 01.
            let empty = fault == Some("find has found nothing: raise the stonewall");
            let expected = match phase["phase"].as_str().expect("a name") {
                "find" => empty,
                name if name.ends_with("write") => short,
                _ => fault.is_none(),
            };
            assert!(expected, "{phase}");
        }
        let score = |name: &str| run["score"][name].as_f64().expect("a number");
        let total = (score("bandwidth") * score("metadata")).sqrt();
        assert!((score("total") / total - 1.0).abs() < 1e-9, "{run}");
    }
    assert!(is_empty(&at.fs.mnt), "files are left");
}

#[test]
fn io500_finds_files_that_are_newer_than_its_timestamp() {
    let at = two_mounts!(LIMIT);
    let few = "--stonewall 100 --easy-transfer 64k --easy-block 64k --segments 1 -n 102";
    let out = lab(&at, &format!("io500 -d {{a}}/ --tasks 1 {few}")).ok();
    let find = out.lines().find(|line| line.contains(" find ")).expect("a result");
    assert!(find.starts_with("[RESULT]") && !find.contains("INVALID"), "file.mdtest.0.101 has been found: {out}");
    assert!(out.lines().any(|line| line.starts_with("[SCORE ] Bandwidth ")), "{out}");
}

#[test]
fn interrupted_run_removes_its_files_and_prints_its_results() {
    let at = two_mounts!(LIMIT);
    for (line, phase, shown) in [
        ("ior -N 2 -w -i 100000 -t 4k -b 64k -o {a}/f", "write ", "Max Write: "),
        ("mdtest --tasks 2 -n 2 -i 100000 -F -v -d {a}/md", "V-1: ", "File creation"),
        ("io500 -d {a}/ --stonewall 100 --easy-transfer 4k --easy-block 4k", "[RESULT]", "[SCORE ] none"),
    ] {
        let mut command = Command::new(sheen());
        command.args(words(&at, line)).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut tool = Guarded(command.spawn().expect("the tool starts"));
        let mut lines = BufReader::new(tool.0.stdout.take().expect("piped")).lines();
        assert!(lines.any(|line| line.expect("UTF-8").starts_with(phase)), "{line}: no phase has ended");
        kill_process(Pid::from_child(&tool.0), Signal::INT).expect("the tool runs");
        let out: Vec<String> = lines.map(|line| line.expect("UTF-8")).collect();
        assert_eq!(tool.0.wait().expect("ended").code(), Some(130), "{out:?}");
        assert!(out.iter().any(|line| line.trim_start().starts_with(shown)), "{out:?}");
        assert!(is_empty(&at.fs.mnt), "{line}: files are left");
        assert!(processes(&["lab".as_ref(), "task".as_ref()]).is_empty(), "tasks are left");
    }
}

#[test]
fn report_and_records_are_written() {
    let at = two_mounts!(LIMIT);
    let dir = tempfile::tempdir().expect("a directory");
    for tool in ["ior -N 2 -i 2 -o {a}/f", "mdtest --tasks 2 -n 4 -i 2 -d {a}/md"] {
        let [html, svg, json] = ["r.html", "r.svg", "r.json"].map(|name| dir.path().join(name));
        lab(&at, &format!("{tool} --report {} --json {}", html.display(), json.display())).ok();
        lab(&at, &format!("{tool} --report {}", svg.display())).ok();
        let [html, svg, json] = [html, svg, json].map(|path| fs::read_to_string(path).expect("written"));
        assert!(html.starts_with("<!doctype html>") && html.contains("<svg "), "{html}");
        assert!(svg.starts_with("<svg "), "{svg}");
        let record: Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(record["file system"][0], "fuse.sheen");
        assert!(record["machine"]["processors"].as_u64() > Some(0) && record["summary"][0].is_object());
        assert!(record["rounds"] == 2 && record["warnings"].is_array(), "{record}");
        assert!(record["tables"][0]["rows"][0].is_array(), "{record}");
    }
}

#[test]
fn net_measures_all_points() {
    let at = two_mounts!(LIMIT);
    for (to, points) in [("", 2 + 2 * 2 * 2), ("--to 0@lo --tests write,read", 2 * 2 * 2)] {
        let found = record(&at, &format!("net {to} --sizes 4k,1m --in-flight 1,3 --time 1 -i 2"));
        let results = found["Results"].as_array().expect("rates");
        assert_eq!(results.len(), points, "{to}: {found}");
        for rates in results {
            let runs = rates["requests"].as_array().expect("runs");
            assert!(runs.len() == 2 && runs.iter().all(|rate| rate.as_f64() > Some(0.0)), "{to}: {rates}");
        }
    }
    for (line, message) in [
        ("net --to nonsense", "is not a NID"),
        ("net --to 0@lo --delays 1", "have no latency"),
        ("wan --delays 0", "a latency above 0"),
        ("net --in-flight 1000", "is more than 256"),
    ] {
        let refused = lab(&at, line);
        assert!(refused.code == 1 && refused.err.contains(message), "{line}: {refused:?}");
    }
}

#[test]
fn net_resolves_the_name_of_a_host() {
    if !can_mount() {
        return println!("skipped: needs /dev/fuse");
    }
    let place = tempfile::tempdir().expect("a directory");
    let fs = Fs::up_at(place.path(), "127.0.0.1:0");
    let source = fs.status()["source"].as_str().expect("a source").replace("127.0.0.1", "localhost");
    let (name, _) = source.split_once(":/").expect("a NID");
    assert!(name.starts_with("localhost:"), "{name}");
    let line = format!("lab net --to {name} --tests ping --in-flight 1 --time 1 -i 1");
    let out = run(sheen(), line.split_whitespace()).ok();
    assert!(out.lines().any(|line| line.starts_with("ping ")), "{out}");
}

#[test]
fn wan_adds_latency_and_fits_its_model() {
    let at = two_mounts!(LIMIT);
    let record = record(&at, "wan --delays 1.5,3 --sizes 4k,8k --in-flight 1,2 --time 10 -i 1");
    let trips: Vec<(f64, f64)> = serde_json::from_value(record["round trips"].clone()).expect("round trips");
    assert_eq!(trips.iter().map(|(added, _)| *added).collect::<Vec<_>>(), [1.5, 3.0]);
    assert!(trips.iter().all(|(added, measured)| measured >= added), "{trips:?}");
    let model = &record["models"][0][1];
    assert_eq!((&model["base"]["delay"], &model["base"]["size"]), (&1.5.into(), &4096.into()));
    assert!(model["k"].as_f64() > Some(0.0) && model["points"].as_array().map(Vec::len) == Some(7), "{model}");
}

#[test]
fn wan_measures_file_operations_and_takes_its_delays_back() {
    let at = two_mounts!(LIMIT);
    let few = "--delays 1,3 --sizes 4k --in-flight 1 --time 1 -i 1";
    let record = record(&at, &format!("wan --files {{b}} --clients 1,3 {few}"));
    let files = record["files"].as_array().expect("costs");
    let stripes: Vec<u64> = files.iter().map(|costs| costs["stripes"].as_u64().expect("a number")).collect();
    assert_eq!(stripes, [1, 2, 4, 8, 16]);
    for costs in files {
        let create = costs["milliseconds"][1][0].as_f64().expect("a time");
        assert!(create >= 3.0, "a create takes a round trip or more: {costs}");
    }
    let clients = record["clients"].as_array().expect("costs");
    assert_eq!(clients.iter().map(|costs| costs["clients"].as_u64()).collect::<Vec<_>>(), [Some(1), Some(3)]);
    let refused = lab(&at, &format!("wan --files {{a}} {few}"));
    assert!(refused.code == 1 && refused.err.contains("its process contains servers"), "{refused:?}");
    assert!(is_empty(&at.fs.mnt), "files are left");
    // Processes with the same value share a line.
    assert_eq!(run(sheen(), ["lctl", "get_param", "-n", "lnet.delay_us"]).ok(), "0\n");
}

/// Whether a directory of own file systems has neither files nor mounts.
fn is_clean(scratch: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/mounts").expect("the mount table");
    is_empty(scratch) && !mounts.contains(scratch.to_str().expect("UTF-8"))
}

#[test]
fn overstripe_measures_all_points_on_its_own_file_system() {
    if !can_mount() {
        return println!("skipped: needs /dev/fuse");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let [scratch, disk, html] = ["scratch", "disk", "r.html"].map(|name| dir.path().join(name));
    fs::write(&disk, "write=400 object=200 # MiB/s\n").expect("written");
    let line = format!(
        "lab overstripe --scratch {} --ost-model {} --report {} --nodes 2 --stripes 1-2 -t 64k -b 256k -i 2 \
         --locks growing,adaptive --read --format json",
        scratch.display(),
        disk.display(),
        html.display()
    );
    let out = run(sheen(), line.split_whitespace()).ok();
    let record: Value = serde_json::from_str(&out).expect("JSON");
    let points = record["Results"].as_array().expect("points");
    let names: Vec<_> = points.iter().map(|p| (&p["curve"]["locks"], p["layout"].to_string())).collect();
    let layouts = ["{\"Shared\":1}", "{\"Shared\":2}", "\"Files\""];
    let wanted = ["growing", "adaptive"].map(|locks| layouts.map(|layout| (Value::from(locks), layout.to_owned())));
    assert_eq!(names, wanted.iter().flatten().map(|(locks, layout)| (locks, layout.clone())).collect::<Vec<_>>());
    for point in points {
        let low = |key: &str| point[key][1].as_f64().expect("a rate");
        assert!(low("write") > 0.0 && low("read") > 0.0 && point["grants"].is_number(), "{point}");
    }
    assert_eq!(record["summary"].as_array().map(Vec::len), Some(2));
    assert!(fs::read_to_string(html).expect("a report").contains("<svg "));
    assert!(is_clean(&scratch), "the file system is left");
}

#[test]
fn interrupted_overstripe_removes_its_file_system() {
    if !can_mount() {
        return println!("skipped: needs /dev/fuse");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let scratch = dir.path().join("scratch");
    let line = "lab overstripe --nodes 1 --stripes 1 -t 64k -b 64k -i 1000 --scratch";
    let mut command = Command::new(sheen());
    command.args(line.split_whitespace()).arg(&scratch).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut tool = Guarded(command.spawn().expect("the tool starts"));
    let mut lines = BufReader::new(tool.0.stdout.take().expect("piped")).lines();
    assert!(lines.any(|line| line.expect("UTF-8").contains("node")), "the run has begun");
    kill_process(Pid::from_child(&tool.0), Signal::INT).expect("the tool runs");
    lines.for_each(drop);
    assert_eq!(tool.0.wait().expect("ended").code(), Some(130));
    assert!(is_clean(&scratch), "the file system is left");
}

#[test]
fn overstripe_leaves_files_and_locks_of_an_existing_file_system_as_they_were() {
    let at = two_mounts!(LIMIT);
    fs::write(at.fs.path("mine"), "data").expect("written");
    let expand = "ldlm.namespaces.filter-*-OST*.lock_expand";
    run(sheen(), ["lctl", "set_param", &format!("{expand}=0")]).ok();
    let few = "overstripe --stripes 1 -t 64k -b 128k -i 1";
    let record = record(&at, &format!("{few} --mounts {{a}},{{b}} --osts 1,0 --locks growing"));
    assert_eq!(record["Results"].as_array().map(Vec::len), Some(2));
    let expands = run(sheen(), ["lctl", "get_param", "-n", expand]).ok();
    assert!(expands.lines().all(|value| value == "0"), "{expands}");
    let names: Vec<_> =
        fs::read_dir(&at.fs.mnt).expect("a directory").map(|e| e.expect("an entry").file_name()).collect();
    assert_eq!(names, ["mine"]);
    for (line, message) in [
        ("--mounts {a},/", "cannot find the mount of /"),
        ("--mounts {a} --nodes 2", "--nodes: 2 is more than 1"),
        ("--mounts {a} --osts 77", "setstripe"),
    ] {
        let refused = lab(&at, &format!("{few} {line}"));
        assert!(refused.code == 1 && refused.err.contains(message), "{line}: {refused:?}");
    }
    assert_eq!(fs::read_dir(&at.fs.mnt).expect("a directory").count(), 1, "files are left");
}

#[test]
fn modelled_disks_are_set_at_the_start_and_by_a_parameter() {
    let Some(fs) = Fs::up_or_skip(1) else { return };
    let model = || run(sheen(), ["lctl", "get_param", "-n", "obdfilter.*.disk_model"]).ok();
    assert_eq!(model().trim(), "none");
    fs.stop().ok();
    fs.start(&["--ost-model", "hdd"]).ok();
    assert_eq!(model().trim(), "write=150 read=160 object=0 latency_us=0 seek_us=8000 cache=64");
    run(sheen(), ["lctl", "set_param", "obdfilter.*.disk_model=flash"]).ok();
    assert_eq!(model().trim(), "write=480 read=520 object=290 latency_us=80 seek_us=0 cache=64");
    fs.stop().ok();
    let refused = fs.start(&["--ost-model", "/nonexistent"]);
    assert!(refused.code == 2 && refused.err.contains("not hdd or flash, and the file cannot be read"), "{refused:?}");
    fs.start(&[]).ok();
    assert_eq!(model().trim(), "none");
}

/// Runs a tool with its models in `store`.
fn with_models(at: &TwoMounts, store: &Path, line: &str) -> Ran {
    let mut command = Command::new(sheen());
    command.args(words(at, line)).env("SHEEN_LAB_DIR", store);
    run_within(command, LIMIT)
}

#[test]
fn model_is_calibrated_and_predicts_runs_of_ior() {
    let at = two_mounts!(LIMIT);
    let dir = tempfile::tempdir().expect("a directory");
    let store = dir.path().join("models");
    let model = |line: &str| with_models(&at, &store, line);
    let none = model("model {a}");
    assert!(none.code == 1 && none.err.contains("run `sheen lab model --calibrate"), "{none:?}");
    let no_mount = model("model --calibrate /");
    assert!(no_mount.code == 1 && no_mount.err.contains("cannot find the mount of /"), "{no_mount:?}");
    let mounts = || fs::read_to_string("/proc/mounts").expect("mounts").lines().count();
    let before = mounts();
    let calibrated = model("model --calibrate {a} --nodes 2 --size 1m -i 1 --format json").ok();
    assert_eq!((mounts(), is_empty(&at.fs.mnt)), (before, true), "mounts or files are left");
    let calibrated: Value = serde_json::from_str(&calibrated).expect("JSON");
    let of = |direction: &str| {
        let all = calibrated["Results"].as_array().expect("results").iter();
        all.filter(|result| result["direction"] == direction).count()
    };
    assert_eq!((of("write"), of("read")), (35, 23), "reads need two nodes");
    assert!(calibrated["summary"]["write"]["median"].is_number(), "{}", calibrated["summary"]);

    let ior = "ior -N 2 --mounts {a},{b} -r -C -t 64k -b 256k -o {a}/f";
    let predicted = model(&format!("{ior} -w -e")).ok();
    assert!(predicted.contains("predicted write") && predicted.contains("predicted read"), "{predicted}");
    let buffered = model(&format!("{ior} -w --format json")).ok();
    let buffered: Value = serde_json::from_str(&buffered).expect("JSON");
    let directions: Vec<_> =
        buffered["predictions"].as_array().expect("a list").iter().map(|p| &p["direction"]).collect();
    assert_eq!(directions, ["read"], "writes without fsync may stay in the cache");
    let html = dir.path().join("r.html");
    let shown = model(&format!("model {{b}} --format json --report {}", html.display())).ok();
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    assert_eq!(shown["summary"]["runs"], 3, "{shown}");
    assert!(fs::read_to_string(html).expect("a report").contains("<svg "));
}

/// Changes the stored model of writes: only objects limit them.
fn only_objects_limit(store: &Path) {
    let models = fs::read_dir(store).expect("a directory").map(|entry| entry.expect("an entry").path());
    let path = models.into_iter().find(|path| path.extension().is_some_and(|e| e == "json")).expect("a model");
    let mut model: Value = serde_json::from_slice(&fs::read(&path).expect("readable")).expect("JSON");
    let costs = model["write"].as_object_mut().expect("costs");
    costs.iter_mut().for_each(|(name, cost)| *cost = if name == "object_mib" { 1.0 } else { 1e-9 }.into());
    fs::write(path, model.to_string()).expect("writable");
}

#[test]
fn advice_is_given_measured_and_applied() {
    let at = two_mounts!(LIMIT);
    let dir = tempfile::tempdir().expect("a directory");
    let store = dir.path().join("models");
    let lab = |line: &str| with_models(&at, &store, line);
    let json =
        |line: &str| -> Value { serde_json::from_str(&lab(&format!("{line} --format json")).ok()).expect("JSON") };
    let none = lab("advise {a}");
    assert!(none.code == 1 && none.err.contains("run `sheen lab model --calibrate"), "{none:?}");
    let published = lab("advise -N 48 -w -t 16m -b 16m -s 64 --system flash").ok();
    assert!(published.contains("recommended  8 stripes of 16 MiB on 1 OST"), "{published}");
    lab("model --calibrate {a} --nodes 2 --size 1m -i 1").ok();
    only_objects_limit(&store);

    let job = "advise -w -N 2 -t 64k -b 64k -s 64";
    let measured = json(&format!("{job} --measure -i 1 {{a}}"));
    let count = |key: &str| measured[key].as_array().map(Vec::len);
    assert!(count("candidates") == count("measured") && measured["reached"].is_number(), "{measured}");
    assert!(is_empty(&at.fs.mnt), "files are left");

    fs::write(at.fs.path("old"), noise(1, 1 << 20)).expect("written");
    for (path, key) in [("{a}", "setstripe"), ("{a}/old", "migrate")] {
        let applied = json(&format!("{job} --apply {path}"));
        assert!(applied["gain"].as_f64() > Some(1.05), "{applied}");
        let command = applied["command"].as_str().expect("a command");
        assert!(command.starts_with(&format!("lfs {key} -C 128 ")), "32 stripes on each of 4 OSTs: {command}");
        let again = json(&format!("{job} {path}"));
        assert_eq!((&again["command"], again["present"]["shape"]["stripes"].as_u64()), (&Value::Null, Some(128)));
    }
    assert_eq!(at.fs.lfs("getstripe -d -c .").ok().trim(), "128");
    assert!(fs::read(at.fs.path("old")).expect("readable") == noise(1, 1 << 20));

    // Jobs that the mounts observe.
    fs::create_dir(at.fs.path("dir")).expect("created");
    let sheen = sheen();
    let ior = format!(
        "{} lab ior -w -e -k -g -N 4 --mounts {{a}},{{b}} -t 64k -b 64k -s 8 -o {{a}}/dir/file",
        sheen.display()
    );
    let watched = |path: &str, ior: &str| -> Value {
        let out = lab(&format!("advise {path} --format json --watch {ior}")).ok();
        serde_json::from_str(&out).expect("JSON")
    };
    let missing = dir.path().join("missing/file");
    let refused = lab(&format!("advise {{a}}/dir --json {} --watch touch {{a}}/dir/ran", missing.display()));
    assert!(refused.code == 1 && refused.err.contains("cannot write"), "{refused:?}");
    assert!(!at.fs.path("dir/ran").exists(), "the job ran");
    let shared = watched("{a}/dir", &ior);
    // The number of tasks is a mean over the time, and so a matter of luck in a short job.
    let is = |found: &Value, block: u64| {
        let job = &found["job"];
        let tasks = job["tasks"].as_u64().expect("a number");
        assert!((1..=4).contains(&tasks) && job["nodes"].as_u64() <= Some(2), "{found}");
        assert_eq!((job["transfer"].as_u64(), job["block"].as_u64()), (Some(65_536), Some(block)), "{found}");
    };
    is(&shared, 65_536);
    assert!(shared["observed"].as_str().expect("text").starts_with("Observed: 2 MiB written by "), "{shared}");
    assert_eq!(shared["recommended"]["rates"].as_array().map(Vec::len), Some(1), "the job reads nothing");
    let again = json("advise {b}/dir/file");
    is(&again, 65_536);
    let files = watched("{b}/dir", &format!("{ior} -F"));
    is(&files, 8 * 65_536);
    let text = files["observed"].as_str().expect("text");
    assert!(text.starts_with("Observed: 2 MiB written on 2 mounts in 4 files of "), "{files}");
    fs::write(dir.path().join("small"), "a").expect("written");
    let copy = format!("cp {} {{b}}/dir", dir.path().join("small").display());
    let small = watched("{a}/dir", &copy);
    let command = small["command"].as_str().expect("a command");
    assert!(command.starts_with("lfs setstripe -E 64K -L mdt -E 256M -c 1 "), "{command}");
    let marked = || {
        let csv = lab("advise -w -F -t 4k --format csv {a}/dir").ok();
        csv.lines().filter(|line| line.starts_with("1,")).map(str::to_owned).collect::<Vec<_>>()
    };
    let rows = marked();
    assert!(rows.len() == 1 && rows[0].contains("-E 64K -L mdt "), "{rows:?}");
    at.fs.lfs("setstripe -E 64K -L mdt -E -1 -c 1 dir").ok();
    let there = watched("{a}/dir", &format!("{copy}/again"));
    assert!(
        there["command"].is_null() && there["reason"].as_str().expect("text").contains("are on the MDT"),
        "{there}"
    );
    assert!(there["recommended"].is_null() && there["layout"].as_array().is_some_and(Vec::is_empty), "{there}");
    assert!(marked().is_empty(), "nothing is recommended");
    let other = lab("advise {a}/old");
    assert!(other.code == 1 && other.err.contains("no mount of this host has observed such accesses"), "{other:?}");
    let dump = run(sheen, ["lctl", "get_param", "llite.*.access_patterns"]).ok();
    fs::write(dir.path().join("dump"), dump).expect("written");
    let elsewhere = json(&format!("advise --observed {} {{a}}/dir", dir.path().join("dump").display()));
    assert!(elsewhere["observed"].as_str().expect("text").contains(" on 1 mount in "), "the same mounts: {elsewhere}");
    rpc_parameters_are_advised_and_set(&at, json, dir.path());
}

/// `json` runs a tool with the model of the file system, and returns its record.
fn rpc_parameters_are_advised_and_set(at: &TwoMounts, json: impl Fn(&str) -> Value, dir: &Path) {
    fs::create_dir(at.fs.path("far")).expect("created");
    let near = json("advise -w -N 2 -t 1m -b 16m {b}/far");
    let rpcs = &near["rpcs"];
    assert!(rpcs["round_trip_ms"].as_f64() > Some(0.0) && rpcs["present"]["max_rpcs_in_flight"] == 8, "{near}");
    assert!(rpcs["recommended"].is_null() && near["rpcs command"].is_null(), "each node has one request: {near}");

    let job = "advise -w -F -N 256 --nodes 1 -t 1m -b 1g --round-trip 20 --ost-rate 1000";
    let report = dir.join("far.html");
    let far = json(&format!("{job} --apply --report {} {{b}}/far", report.display()));
    let in_flight = far["rpcs"]["recommended"]["max_rpcs_in_flight"].as_u64().expect("a recommendation");
    assert!(in_flight > 8 && far["rpcs"]["gain"].as_f64() > Some(1.05), "{far}");
    let command = far["rpcs command"].as_str().expect("a command");
    assert!(command.starts_with(&format!("lctl set_param osc.{}-OST*-osc-", at.fsname)), "{command}");
    assert!(command.ends_with(&format!(".max_rpcs_in_flight={in_flight}")), "{command}");
    assert!(fs::read_to_string(report).expect("a report").contains("<h2>RPC parameters</h2>"));
    let set = at.param("osc.{}-OST*.max_rpcs_in_flight");
    let (set, left): (Vec<_>, Vec<_>) = set.lines().partition(|line| line.ends_with(&format!("={in_flight}")));
    assert!(!set.is_empty() && set.len() == left.len(), "one of two mounts: {set:?} {left:?}");
    let again = json(&format!("{job} {{b}}/far"));
    assert!(again["rpcs"]["recommended"].is_null() && again["rpcs command"].is_null(), "{again}");
    let reason = again["rpcs"]["reason"].as_str().expect("text");
    assert!(reason.starts_with("The present RPC parameters suffice"), "{reason}");
}

#[test]
fn workloads_measure_all_patterns_with_the_right_data() {
    if !can_mount() {
        return println!("skipped: needs /dev/fuse");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let [scratch, html] = ["scratch", "r.html"].map(|name| dir.path().join(name));
    let line = format!(
        "lab workloads --scratch {} --report {} --only ior,netflow --nodes 1 --osts 2 --ior-factor 1048576 \
         --netflow-factor 10240 -i 1 --format json",
        scratch.display(),
        html.display()
    );
    let out = run(sheen(), line.split_whitespace()).ok();
    let record: Value = serde_json::from_str(&out).expect("JSON");
    let results = |n: usize| record["Results"][n]["results"].as_array().expect("results");
    // Six patterns: write and read; two phases in two variations.
    assert_eq!((results(0).len(), results(1).len()), (12, 24));
    let seconds = &record["seconds"];
    let [ior, netflow, total] = ["/workloads/IOR", "/workloads/netflow", "/total"].map(|name| seconds.pointer(name));
    let [ior, netflow, total] = [ior, netflow, total].map(|value| value.and_then(Value::as_f64).expect("seconds"));
    assert!(ior > 0.0 && netflow > 0.0 && ior + netflow < total, "{seconds}");
    for measured in results(0).iter().chain(results(1)) {
        assert!(measured["values"][0].as_f64() > Some(0.0) && measured["gains"][0].as_f64() > Some(0.0), "{measured}");
    }
    assert!(fs::read_to_string(html).expect("a report").matches("<svg ").count() == 2);
    assert!(is_clean(&scratch), "the file system is left");
    let refused = run(sheen(), "lab workloads --only blast --proteins /nonexistent".split_whitespace());
    assert!(refused.code == 1 && refused.err.contains("--only: "), "{refused:?}");
}

#[test]
fn workloads_measure_an_existing_file_system_and_leave_its_files() {
    let at = two_mounts!(LIMIT);
    fs::write(at.fs.path("mine"), "data").expect("written");
    let few = "workloads --ior-factor 1048576 --netflow-factor 10240 -i 1";
    let found = record(&at, &format!("{few} --only ior,netflow --mounts {{a}},{{b}}"));
    assert!(found["Parameters"]["nodes"] == 2 && found["Parameters"]["osts"] == 4, "{found}");
    let results = |n: usize| found["Results"][n]["results"].as_array().map(Vec::len);
    assert_eq!((results(0), results(1)), (Some(12), Some(24)));
    for (line, message) in [
        ("--only ior --mounts {a},/", "cannot find the mount of /"),
        ("--only ior --mounts {a},{a}", "is named twice"),
        ("--only ior --mounts {a},{b}/none", "cannot find the mount of"),
    ] {
        let refused = lab(&at, &format!("{few} {line}"));
        assert!(refused.code == 1 && refused.err.contains(message), "{line}: {refused:?}");
    }
    let names: Vec<_> =
        fs::read_dir(&at.fs.mnt).expect("a directory").map(|e| e.expect("an entry").file_name()).collect();
    assert_eq!(names, ["mine"]);
}

#[test]
fn layouts_run_named_experiments_beside_the_static_ones() {
    if !can_mount() {
        return println!("skipped: needs /dev/fuse");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let [scratch, json] = ["scratch", "r.json"].map(|name| dir.path().join(name));
    let line = format!(
        "lab layouts --scratch {} --json {} --experiment IOR.6,netflow.2 --nodes 1 --osts 2 --ior-factor 1048576 \
         --netflow-factor 10240 -i 1",
        scratch.display(),
        json.display()
    );
    let out = run(sheen(), line.split_whitespace()).ok();
    let said = |start: &str, part: &str| out.lines().any(|line| line.starts_with(start) && line.contains(part));
    assert!(said("read, MiB/s: best static IOR.", ", best dynamic IOR.6 (gain "), "{out}");
    assert!(said("sequential reads, MiB/s (synchronous): best static netflow.2", ""), "{out}");
    let record: Value = serde_json::from_slice(&fs::read(json).expect("a record")).expect("JSON");
    let experiments = |n: usize| -> Vec<&str> {
        let results = record["Results"][n]["results"].as_array().expect("results");
        results.iter().map(|measured| measured["experiment"].as_str().expect("a name")).collect()
    };
    let of_ior = ["IOR.1", "IOR.2", "IOR.3", "IOR.6"];
    assert_eq!(experiments(0), [of_ior, of_ior].concat(), "writes and reads, with the static experiments");
    assert_eq!(experiments(1), ["netflow.2"; 4], "a static experiment alone");
    for workload in record["Results"].as_array().expect("workloads") {
        for measured in workload["results"].as_array().expect("results") {
            assert!(measured["static_gains"][0].as_f64() > Some(0.0), "{measured}");
        }
    }
    assert!(is_clean(&scratch), "the file system is left");
    let unknown = run(sheen(), "lab layouts --experiment IOR.7".split_whitespace());
    assert!(unknown.code == 2 && unknown.err.contains("the paper has the experiments IOR.1-6"), "{unknown:?}");
    let missing = run(sheen(), "lab layouts --experiment blast.3 --proteins /nonexistent".split_whitespace());
    assert!(missing.code == 1 && missing.err.contains("--experiment: "), "{missing:?}");
}

/// Starts a tool as a launcher of MPI does, with `size` processes. Returns what the first one
/// prints, and the exit codes of the others.
fn launch(at: &TwoMounts, size: usize, line: &str, dir: &Path) -> (Ran, Vec<Option<i32>>) {
    let command = |rank: usize| {
        let mut command = Command::new(sheen());
        command.args(words(at, line)).arg("--rendezvous").arg(dir);
        command.envs([
            ("OMPI_COMM_WORLD_RANK", rank.to_string()),
            ("OMPI_COMM_WORLD_SIZE", size.to_string()),
            ("PMIX_NAMESPACE", "of-this-test".to_owned()),
        ]);
        command
    };
    let start = |rank| Guarded(command(rank).stdout(Stdio::null()).spawn().expect("a task starts"));
    let mut others: Vec<Guarded> = (1..size).map(start).collect();
    let first = sheen_tests::run_command(command(0));
    (first, others.iter_mut().map(|task| task.0.wait().expect("ended").code()).collect())
}

#[test]
fn tasks_of_a_launcher_work_in_step() {
    let at = two_mounts!(LIMIT);
    let dir = tempfile::tempdir().expect("a directory");
    let well = vec![Some(0), Some(0)];
    let (first, others) = launch(&at, 3, "ior -w -r -W -C -F -e -t 4k -b 64k -i 2 -o {a}/f --format json", dir.path());
    let record: Value = serde_json::from_str(&first.ok()).expect("JSON");
    assert_eq!((&record["tests"][0]["Parameters"]["tasks"], others), (&3.into(), well.clone()));
    let (first, others) =
        launch(&at, 3, "io500 --mounts {a}/,{b}/ --stonewall 1 --easy-block 4m --segments 20 -n 150", dir.path());
    assert!(first.ok().contains("[SCORE ] Bandwidth "), "a score");
    assert_eq!(others, well);
    // The error of a task ends the run everywhere.
    let (first, others) = launch(&at, 2, "ior -r -t 4k -b 64k -o {a}/missing", dir.path());
    assert!(first.code == 1 && first.err.contains("cannot open"), "{first:?}");
    assert_eq!(others, [Some(0)], "the first one reports it");
    let (first, _) = launch(&at, 2, "mdtest --tasks 3 -n 1 -d {a}/md", dir.path());
    assert!(first.code == 1 && first.err.contains("leave out the number of tasks"), "{first:?}");
    assert!(is_empty(&at.fs.mnt) && is_empty(dir.path()), "files are left");
}
