//! Output and exit codes of `set_param -P`, with an MGS, a server and a mount as processes of one
//! machine.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;
use sheen_mgs::{Registry, settings};
use sheen_params::{Param, Params};

use super::super::tests::{Fakes, run_with};

/// An MGS that knows a file system. `followers` receive its settings before it answers.
fn mgs(fsname: &'static str, followers: Vec<Params>) -> Params {
    let registry = Arc::new(Mutex::new((Registry::default(), 0)));
    let params = Params::new();
    params.register("mgs.MGS.filesystems", Param::text(move || format!("{fsname}\n")));
    for name in ["params", fsname] {
        let (shown, registry, followers) = (registry.clone(), registry.clone(), followers.clone());
        let show = move || shown.lock().0.settings().iter().map(|s| format!("{s}\n")).collect();
        let change = move |text: &str| {
            let (registry, version) = &mut *registry.lock();
            registry.change_setting(settings::read(text)?)?;
            *version += 1;
            followers.iter().for_each(|params| params.keep(fsname, *version, registry.settings()));
            Ok(())
        };
        params.register(&format!("mgs.MGS.live.{name}"), Param::order(show, change));
    }
    params
}

fn mount(fsname: &str) -> Params {
    let params = Params::new();
    for ost in 0..2 {
        let name = |field| format!("osc.{fsname}-OST000{ost}-osc-ff00.{field}");
        params.register(&name("max_rpcs_in_flight"), Param::atomic(1..=256, Arc::new(AtomicU64::new(8))));
        params.register(&name("state"), Param::text(|| "FULL".into()));
    }
    params
}

fn lctl(processes: &[Params], line: &str) -> (i32, String, String) {
    let args: Vec<String> = line.split(' ').map(str::to_string).collect();
    run_with(&Fakes(processes), &args)
}

fn one() -> [Params; 2] {
    let mount = mount("sheen");
    [mgs("sheen", vec![mount.clone()]), mount]
}

#[test]
fn set_param_p_stores_prints_and_deletes_settings() {
    let p = one();
    let both = "osc.sheen-OST0000-osc-ff00.max_rpcs_in_flight=16\nosc.sheen-OST0001-osc-ff00.max_rpcs_in_flight=16\n";
    assert_eq!(lctl(&p, "set_param -P osc.*.max_rpcs_in_flight=16"), (0, both.into(), String::new()));
    assert_eq!(lctl(&p, "set_param -n -P osc.*OST0001*.max_rpcs_in_flight=32"), (0, String::new(), String::new()));
    let first = "- { index: 1, event: set_param, device: general, parameter: osc.*.max_rpcs_in_flight, value: 16 }\n";
    let second = first.replace("1,", "2,").replace("osc.*.", "osc.*OST0001*.").replace("16", "32");
    for print in ["llog_print params", "--device MGS llog_print params"] {
        assert_eq!(lctl(&p, print), (0, format!("{first}{second}"), String::new()));
    }
    assert_eq!(lctl(&p, "get_param -n osc.*.max_rpcs_in_flight").1, "16\n32\n");
    // -d alone means -P -d. A value after the name is ignored. Parameters retain the value.
    let warned = "warning: setting '-P' option with '-d'\n";
    assert_eq!(lctl(&p, "set_param -d osc.*.max_rpcs_in_flight=16"), (0, String::new(), warned.into()));
    assert_eq!(lctl(&p, "set_param -P osc.*OST0001*.max_rpcs_in_flight="), (0, String::new(), String::new()));
    assert_eq!(lctl(&p, "llog_print params"), (0, String::new(), String::new()));
    assert_eq!(lctl(&p, "get_param -n osc.*.max_rpcs_in_flight").1, "16\n32\n");
    let (code, _, err) = lctl(&p, "set_param -P -d osc.*.max_rpcs_in_flight");
    assert!(code == 2 && err.contains("deleting 'osc/*/max_rpcs_in_flight': it has no permanent setting"), "{err}");
}

#[test]
fn set_param_f_restores_the_printed_settings() {
    let p = one();
    for value in ["16", "32"] {
        assert_eq!(lctl(&p, &format!("set_param -n -P osc.*{value}.max_rpcs_in_flight={value}")).0, 0);
    }
    let printed = lctl(&p, "llog_print params").1;
    assert_eq!(printed.lines().count(), 2, "{printed}");
    let dir = tempfile::tempdir().unwrap();
    let (file, other) = (dir.path().join("params"), dir.path().join("other"));
    std::fs::write(&file, format!("{printed}- {{ index: 9, event: new_pool, fsname: sheen, pool: p }}\n")).unwrap();
    std::fs::write(&other, "").unwrap();
    let p = one();
    assert_eq!(lctl(&p, &format!("set_param -n -F {}", file.display())).0, 0);
    assert_eq!(lctl(&p, "llog_print params").1, printed);
    let (code, _, err) =
        lctl(&p, &format!("set_param --file {} {}", dir.path().join("nosuch").display(), other.display()));
    assert!(code == 2 && err.contains("nosuch': No such file or directory"), "{err}");
    assert!(err.contains("warning: set_param: ") && err.contains("has no line with 'event: set_param'"), "{err}");
}

#[test]
fn llog_print_limits_its_records_and_catlist_names_the_logs() {
    let p = one();
    for value in 1..=3 {
        assert_eq!(lctl(&p, &format!("set_param -n -P osc.*.a{value}={value}")).0, 0);
    }
    let printed = |options: &str| lctl(&p, &format!("llog_print {options} params")).1.lines().count();
    assert_eq!((printed("--start 2"), printed("--end 1"), printed("--start 2 --end=2")), (2, 1, 1));
    assert_eq!(lctl(&p, "llog_print --start x params").0, 4);
    assert_eq!(lctl(&p, "llog_catlist"), (0, "config_log: params\nconfig_log: sheen-client\n".into(), String::new()));
    assert_eq!(lctl(&p, "llog_catlist x").0, 4);
    p[0].register("mgs.MGS.pools.sheen", Param::text(|| "flash: sheen-OST0001\n".into()));
    p[0].register("mgs.MGS.targets.sheen", Param::text(|| "sheen-OST0000 uuid 10.0.0.1@tcp\n".into()));
    let log = lctl(&p, "--device MGS llog_print sheen-client").1;
    assert!(log.starts_with("- { index: 1, event: attach, device: sheen-clilov, type: lov,"), "{log}");
    assert!(log.contains(", event: add_osc, device: sheen-clilov, ost: sheen-OST0000_UUID, index: 0,"), "{log}");
    assert!(log.contains(", event: new_pool, device: sheen-clilov,"), "{log}");
    assert!(log.ends_with("pool: flash, ost: sheen-OST0001_UUID }\n"), "{log}");
}

#[test]
fn set_param_p_stores_unmatched_but_not_refused_values() {
    let p = one();
    let (code, out, err) = lctl(&p, "set_param -P osc.*.max_rpcs_in_flight=0");
    assert_eq!((code, out.as_str()), (34, ""));
    assert!(err.contains("Numerical result out of range") && err.contains("accepts 1 to 256"), "{err}");
    assert_eq!(lctl(&p, "set_param -P osc.*.state=x").0, 13);
    for (line, code) in [("mgs.MGS.live.params=x", 22), ("a\tb=1", 22), ("a", 22), ("=1", 22)] {
        assert_eq!(lctl(&p, &format!("set_param -P {line}")).0, code, "{line}");
    }
    assert_eq!(lctl(&p, &format!("set_param -P {}=1", "x".repeat(300))).0, 36);
    assert_eq!(lctl(&p, "llog_print params").1, "");
    let (code, out, err) = lctl(&p, "set_param -P obdfilter.*.nosuch=1");
    assert!((code, out.as_str()) == (0, "") && err.starts_with("warning: set_param: no parameter"), "{err}");
    // Some parameters accept the value and one does not: it is stored, and the error is printed.
    let (code, out, err) = lctl(&p, "set_param -P osc.*OST0000*.*=9");
    assert!(code == 13 && out.ends_with("max_rpcs_in_flight=9\n") && err.contains("Permission denied"), "{err}");
    assert_eq!(lctl(&p, "llog_print params").1.lines().count(), 2);
    assert_eq!(lctl(&p, "llog_print nosuch-client").0, 2);
    assert_eq!(lctl(&p, "llog_print").0, 4);
}

#[test]
fn conf_param_stores_the_same_settings_as_set_param_p() {
    let p = one();
    assert_eq!(lctl(&p, "conf_param sheen.osc.max_rpcs_in_flight=16"), (0, String::new(), String::new()));
    assert_eq!(lctl(&p, "conf_param sheen-OST0001.osc.max_rpcs_in_flight=32").0, 0);
    assert_eq!(lctl(&p, "get_param -n osc.*.max_rpcs_in_flight").1, "16\n32\n");
    assert!(
        lctl(&p, "llog_print params").1.contains("parameter: osc.sheen-OST0001-osc-*.max_rpcs_in_flight, value: 32")
    );
    assert_eq!(lctl(&p, "conf_param -d sheen-OST0001.osc.max_rpcs_in_flight"), (0, String::new(), String::new()));
    assert_eq!(lctl(&p, "llog_print params").1.lines().count(), 1);
    let (code, _, err) = lctl(&p, "conf_param sheen.sys.timeout=40");
    assert!(code == 22 && err.contains("invalid keyword 'sheen.sys.timeout'"), "{err}");
    // Quotas always apply.
    assert_eq!(lctl(&p, "conf_param sheen.quota.ost=ug"), (0, String::new(), String::new()));
    let (code, _, err) = lctl(&p, "conf_param sheen.quota.mdt=none");
    assert!(code == 95 && err.contains("'none' does not switch quotas off"), "{err}");
    assert_eq!(lctl(&p, "conf_param").0, 4);
    assert_eq!(lctl(&p, "conf_param sheen.osc.max_rpcs_in_flight").0, 22);
}

#[test]
fn set_param_p_without_an_mgs_fails_and_with_several_needs_a_file_system() {
    let (code, out, err) = lctl(&[mount("sheen")], "set_param -P osc.*.max_rpcs_in_flight=16");
    assert_eq!((code, out.as_str()), (19, ""));
    assert!(err.starts_with("This command must be run on the MGS.\nerror: set_param: No such device\n"), "{err}");
    let (a, b) = (mount("a"), mount("b"));
    let p = [mgs("a", vec![a.clone()]), mgs("b", vec![b.clone()]), a, b];
    let (code, _, err) = lctl(&p, "set_param -P osc.*.max_rpcs_in_flight=16");
    assert!(code == 22 && err.contains("name the file system in the pattern"), "{err}");
    assert_eq!(lctl(&p, "set_param -P osc.b-*.max_rpcs_in_flight=16").0, 0);
    assert_eq!(lctl(&p, "get_param -n osc.*.max_rpcs_in_flight").1, "8\n8\n16\n16\n");
    let shown = lctl(&p, "get_param mgs.MGS.live.[ab]").1;
    assert!(shown.starts_with("mgs.MGS.live.a=\nmgs.MGS.live.b=\n- {"), "{shown}");
}

#[test]
fn fsname_option_selects_the_mgs_and_requires_a_pattern_of_its_file_system() {
    let (a, b) = (mount("a"), mount("b"));
    let p = [mgs("a", vec![a.clone()]), mgs("b", vec![b.clone()]), a, b];
    assert_eq!(lctl(&p, "--fsname b set_param -n -P osc.*.max_rpcs_in_flight=16"), (0, String::new(), String::new()));
    assert_eq!(lctl(&p, "get_param -n osc.*.max_rpcs_in_flight").1, "8\n8\n16\n16\n");
    assert_eq!(lctl(&p, "--fsname b llog_print params").1.lines().count(), 1);
    assert_eq!(lctl(&p, "--fsname a llog_print params").1, "");
    let (code, _, err) = lctl(&p, "--fsname c llog_print params");
    assert!(code == 19 && err.contains("no MGS of the file system 'c'"), "{err}");

    // An MGS with several file systems applies a pattern to all of them.
    let shared = mgs("a", vec![]);
    shared.register("mgs.MGS.filesystems", Param::text(|| "a\nb\n".into()));
    let p = [shared, mount("a"), mount("b")];
    let (code, _, err) = lctl(&p, "--fsname a set_param -P osc.*.max_rpcs_in_flight=16");
    assert!(code == 22 && err.contains("include 'a' in the pattern"), "{err}");
    assert_eq!(lctl(&p, "llog_print params").1, "");
    for pattern in ["osc.a-*.max_rpcs_in_flight", "ldlm.namespaces.filter-a-OST*.nosuch"] {
        assert_eq!(lctl(&p, &format!("--fsname a set_param -P {pattern}=16")).0, 0, "{pattern}");
    }
}
