//! `sheen lab advise` with mirrors, pools and several mounts; `sheen lab ior` in pools; tools of
//! the lab with `--mounts` of an ordinary user.

use std::{fs, path::Path};

use serde_json::Value;
use sheen_tests::{Ran, noise, sandbox::Sandbox};

const MNT: &str = "/mnt/c1";
/// Directory of the models.
const MODELS: &str = "/mnt/models";
/// Both mounts.
const BOTH: &str = "/mnt/c1,/mnt/c2";

/// Starts a file system with pool `p1` on OSTs 0 and 1 and `p2` on OSTs 2 and 3, mounts it twice,
/// and calibrates a model.
fn with_model(name: &'static str, test: impl FnOnce(&Sandbox) + Send + 'static) {
    Sandbox::enter(name, |s| {
        s.up("lustre", MNT);
        s.mount_again("/mnt/c2");
        let pools = "set -e; lctl pool_new lustre.p1; lctl pool_add lustre.p1 OST0000 OST0001
            lctl pool_new lustre.p2; lctl pool_add lustre.p2 OST0002 OST0003";
        let made = s.sh(Path::new(MNT), pools);
        assert_eq!(made.code, 0, "{}", made.err);
        lab(s, "model --calibrate /mnt/c1 --nodes 2 --size 1m -i 1").ok();
        test(s);
    });
}

fn lab(s: &Sandbox, line: &str) -> Ran {
    s.sh(Path::new(MNT), &format!("SHEEN_LAB_DIR={MODELS} sheen lab {line}"))
}

/// Runs the lab as a user who is in no group.
fn nobody(s: &Sandbox, line: &str) -> Ran {
    let user = "setpriv --reuid 65534 --regid 65534 --clear-groups env -u XDG_RUNTIME_DIR HOME=/mnt/home";
    s.sh(Path::new("/"), &format!("{user} SHEEN_LAB_DIR={MODELS} sheen lab {line}"))
}

#[track_caller]
fn parsed(ran: Ran) -> Value {
    serde_json::from_str(&ran.ok()).expect("JSON")
}

#[track_caller]
fn json(s: &Sandbox, line: &str) -> Value {
    parsed(lab(s, &format!("{line} --format json")))
}

fn text<'a>(found: &'a Value, key: &str) -> &'a str {
    found[key].as_str().unwrap_or_default()
}

/// Changes all stored models: only objects limit writes.
fn only_objects_limit_writes() {
    for entry in fs::read_dir(MODELS).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let mut model: Value = serde_json::from_slice(&fs::read(&path).expect("readable")).expect("JSON");
        let costs = model["write"].as_object_mut().expect("costs");
        costs.iter_mut().for_each(|(name, cost)| *cost = if name == "object_mib" { 1.0 } else { 1e-9 }.into());
        fs::write(path, model.to_string()).expect("writable");
    }
}

const JOB: &str = "advise -w -N 2 -t 64k -b 64k -s 64";

#[test]
fn advice_for_a_pool_has_layouts_and_rates_of_its_osts() {
    with_model("advise-pools", |s| {
        only_objects_limit_writes();
        s.sh(Path::new(MNT), "mkdir pooled plain; lfs setstripe -c 1 -p p1 pooled; lfs setstripe -c 1 plain").ok();
        let of_all = lab(s, &format!("{JOB} --format json /mnt/c1/pooled"));
        assert!(of_all.err.contains("`sheen lab model --calibrate /mnt/c1/pooled --pool p1`"), "{}", of_all.err);
        let of_all = parsed(of_all);
        assert_eq!((text(&of_all, "pool"), text(&of_all, "system")), ("p1", "lustre, pool p1 (2 OSTs)"));
        assert_eq!(of_all["notes"][0], "The advice is for pool p1, which has 2 OSTs.");

        let calibrated = json(s, "model --calibrate /mnt/c1 --pool p1 --nodes 2 --size 1m -i 1");
        assert_eq!((&calibrated["model"]["key"]["pool"], &calibrated["model"]["osts"]), (&"p1".into(), &2.into()));
        let results = calibrated["Results"].as_array().expect("results");
        assert!(results.iter().all(|result| result["shape"]["osts"].as_u64() <= Some(2)), "{calibrated}");
        assert!(lab(s, "model --pool p1").ok().contains("model of lustre, pool p1 (2 OSTs) on "));
        only_objects_limit_writes();
        let own = lab(s, &format!("{JOB} --apply --format json /mnt/c1/pooled"));
        assert!(!own.err.contains("the rates are those of all OSTs"), "{}", own.err);
        let command = text(&parsed(own), "command").to_owned();
        assert!(command.starts_with("lfs setstripe -C 64 ") && command.ends_with(" -p p1 /mnt/c1/pooled"), "{command}");
        assert_eq!(s.sh(Path::new(MNT), "touch pooled/f; lfs getstripe -p pooled/f").ok().trim(), "p1");

        let asked = json(s, &format!("{JOB} --pool p1 /mnt/c1/plain"));
        assert!(text(&asked, "command").ends_with(" -p p1 /mnt/c1/plain"), "{asked}");
        let unknown = lab(s, &format!("{JOB} --pool p3 /mnt/c1/plain"));
        assert!(unknown.code == 1 && unknown.err.contains("has no pool p3"), "{unknown:?}");
    });
}

#[test]
fn ior_predicts_files_of_a_pool_by_the_model_of_its_osts() {
    with_model("ior-pools", |s| {
        let made = "mkdir pooled; lfs setstripe -c 1 -p p1 pooled
            lfs setstripe -c 1 -p p1 two.00000000; lfs setstripe -c 1 -p p2 two.00000001";
        s.sh(Path::new(MNT), made).ok();
        let ior = "ior -N 2 -w -e -t 64k -b 256k";
        assert!(lab(s, &format!("{ior} -o /mnt/c1/plain")).ok().contains("predicted write"), "the model of all OSTs");
        let in_pool = format!("{ior} -o /mnt/c1/pooled/f");
        let none = lab(s, &in_pool).ok();
        let calibrate = "run `sheen lab model --calibrate /mnt/c1/pooled --pool p1`";
        assert!(none.contains("no prediction") && none.contains(calibrate), "{none}");
        assert!(!none.contains("predicted write"), "not by the model of all OSTs: {none}");
        let none = json(s, &in_pool);
        assert!(text(&none, "no prediction").ends_with(calibrate), "{none}");
        assert_eq!(none["predictions"].as_array().map(Vec::len), Some(0), "{none}");
        let buffered = lab(s, "ior -w -t 64k -b 256k -o /mnt/c1/pooled/f").ok();
        assert!(!buffered.contains("no prediction"), "no model predicts it: {buffered}");

        lab(s, "model --calibrate /mnt/c1 --pool p1 --nodes 2 --size 1m -i 1").ok();
        let own = json(s, &in_pool);
        assert!(own["predictions"][0]["direction"] == "write" && own["no prediction"].is_null(), "{own}");
        let runs = |pool: &str| json(s, &format!("model /mnt/c1 {pool}"))["Results"].as_array().map(Vec::len);
        assert_eq!((runs("--pool p1"), runs("")), (Some(1), Some(1)), "each model has its runs");
        let two = json(s, &format!("{ior} -E -F -o /mnt/c1/two"));
        assert_eq!(text(&two, "no prediction"), "the files are in different pools");
    });
}

#[test]
fn advice_retains_mirrors_and_states_the_time_of_a_resync() {
    with_model("advise-mirrors", |s| {
        only_objects_limit_writes();
        let sh = |script: &str| s.sh(Path::new(MNT), script).ok();
        sh("mkdir twice both; lfs setstripe -N2 -c 1 twice; lfs setstripe -N -c 1 -p p1 -N -c 1 -p p2 both");
        sh("lfs mirror create -N2 -c 1 file");
        fs::write("/mnt/c1/file", noise(1, 1 << 20)).expect("written");
        for (path, verb) in [("twice", "setstripe"), ("file", "migrate")] {
            let applied = json(s, &format!("{JOB} --apply /mnt/c1/{path}"));
            let command = text(&applied, "command");
            assert!(command.starts_with(&format!("lfs {verb} -N2 -c 2 ")), "two of four OSTs: {command}");
            let note = applied["notes"][0].as_str().unwrap_or_default();
            assert!(note.starts_with("The layout has 2 mirrors, as before. ") && note.contains("a resync"), "{note}");
            let counted = json(s, &format!("{JOB} --resync /mnt/c1/{path}"));
            let seconds = |of: &Value| of["present"]["seconds"].as_f64().expect("seconds");
            let alone = json(s, &format!("{JOB} /mnt/c1/{path}"));
            assert!(alone["command"].is_null() && seconds(&counted) > seconds(&alone), "{alone} {counted}");
        }
        assert_eq!(sh("touch twice/f; lfs getstripe -N twice/f file").matches('2').count(), 2, "mirrors");
        assert!(fs::read("/mnt/c1/file").expect("readable") == noise(1, 1 << 20));
        assert!(lab(s, "advise -w -N 2 -t 64k --resync /mnt/c1").err.contains("--resync: /mnt/c1 has no mirrors"));

        let different = json(s, &format!("{JOB} /mnt/c1/both"));
        assert!(different["recommended"].is_null() && different["command"].is_null(), "{different}");
        assert!(text(&different, "reason").contains("parts in different pools"), "{different}");
        let refused = lab(s, &format!("{JOB} --apply /mnt/c1/both"));
        assert!(refused.code == 1 && refused.err.contains("has parts in different pools"), "{refused:?}");
    });
}

/// Returns the readahead windows of both mounts, in MiB.
fn windows(s: &Sandbox) -> Vec<String> {
    let windows = s.sh(Path::new("/"), "lctl get_param -n 'llite.*.max_read_ahead_per_file_mb'").ok();
    windows.lines().map(str::to_owned).collect()
}

#[test]
fn ordinary_user_runs_tools_of_the_lab_on_mounts_of_root() {
    with_model("lab-user", |s| {
        let made = "chmod 1777 /mnt/c1 /mnt/models; mkdir -m 777 /mnt/home
            install -d -o 65534 -g 65534 /mnt/c1/mine; chmod -R a+rX /mnt/models";
        s.sh(Path::new("/"), made).ok();
        let ior = "ior -N 2 --mounts /mnt/c1/,/mnt/c2/ -w -W -r -R -C -e -G 7 -t 64k -b 256k -o mine/f";
        let ior = parsed(nobody(s, &format!("{ior} --format json")));
        assert_eq!(ior["tests"][0]["errors"], 0, "{ior}");
        let few = "overstripe --stripes 1 -t 64k -b 128k -i 1 --osts 1,0";
        let ran = nobody(s, &format!("{few} --mounts {BOTH} --format json"));
        assert!(ran.err.contains("locks are not counted"), "{}", ran.err);
        assert_eq!(parsed(ran)["Results"].as_array().map(Vec::len), Some(2));
        assert_eq!(fs::read_dir("/mnt/c1/mine").expect("a directory").count(), 0, "files are left");
        assert_eq!(fs::read_dir(MNT).expect("a directory").count(), 1, "files are left");

        let near = parsed(nobody(s, &format!("advise -w -N 2 -t 1m --mounts {BOTH} --format json /mnt/c1/mine")));
        assert!(near["rpcs"]["round_trip_ms"].as_f64() > Some(0.0) && near["job"]["nodes"] == 2, "{near}");
        let far = format!("advise -r -N 2 -F -t 1m -b 1g --round-trip 20 --ost-rate 1000 --mounts {BOTH} --apply");
        let before = windows(s);
        let refused = nobody(s, &format!("{far} --format json /mnt/c1/mine"));
        assert!(refused.err.contains("the RPC parameters are not set: run `lctl set_param "), "{}", refused.err);
        let refused = parsed(refused);
        let command = text(&refused, "rpcs command");
        assert_eq!(command.matches(".max_read_ahead_per_file_mb=").count(), 2, "each mount: {command}");
        assert_eq!((before.len(), &before), (2, &windows(s)), "nothing is set");
        // The user's directory has its layout already.
        let applied = parsed(lab(s, &format!("{far} --format json /mnt/c1/mine")));
        let window = &applied["rpcs"]["recommended"]["max_read_ahead_per_file_mb"];
        assert!(window.as_u64() > Some(4) && applied["rpcs"]["gain"].as_f64() > Some(1.05), "{applied}");
        assert_eq!(windows(s), [window.to_string(), window.to_string()]);
        for (line, message) in [("/mnt/c1,/", "cannot find the mount of /"), ("/mnt/c1,/mnt/c1", "is named twice")] {
            let refused = lab(s, &format!("advise -w -N 2 -t 1m --mounts {line} /mnt/c1"));
            assert!(refused.code == 1 && refused.err.contains(message), "{line}: {refused:?}");
        }
    });
}
