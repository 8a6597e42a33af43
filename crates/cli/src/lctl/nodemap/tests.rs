//! Output and exit codes of the commands for nodemaps.

use std::sync::Arc;

use parking_lot::Mutex;
use sheen_mgs::nodemaps::{apply, show, text};
use sheen_params::{Param, Params};
use sheen_wire::nodemap::Nodemaps;

use super::super::tests::{Fakes, run_with};
use super::super::usage;
use super::COMMANDS;

/// A process with an MGS that knows a file system.
fn mgs(fsname: &'static str) -> Params {
    let all = Arc::new(Mutex::new(Nodemaps::default()));
    let params = Params::new();
    params.register("mgs.MGS.filesystems", Param::text(move || format!("{fsname}\n")));
    for name in ["mgs.MGS.nodemaps".to_owned(), format!("mgs.MGS.nodemaps.{fsname}")] {
        let (shown, all) = (all.clone(), all.clone());
        let change = move |order: &str| apply(&mut all.lock(), &text::read(order)?);
        params.register(&name, Param::order(move || show::render(&shown.lock()), change));
    }
    params
}

/// Runs a command line. A quoted word is one argument.
fn lctl(processes: &[Params], line: &str) -> (i32, String, String) {
    let parts = line.split('\'').enumerate();
    let args = parts.flat_map(|(i, part)| match i % 2 {
        0 => part.split_whitespace().map(str::to_owned).collect::<Vec<_>>(),
        _ => vec![part.to_owned()],
    });
    run_with(&Fakes(processes), &args.collect::<Vec<_>>())
}

/// Runs command lines that must succeed without output.
fn silent(processes: &[Params], lines: &[&str]) {
    for line in lines {
        assert_eq!(lctl(processes, line), (0, String::new(), String::new()), "{line}");
    }
}

#[test]
fn nodemap_commands_change_nodemaps_silently() {
    let p = [mgs("sheen")];
    silent(
        &p,
        &[
            "nodemap_add site",
            "nodemap_add --name other",
            "nodemap_modify --name site --property admin --value 1",
            "nodemap_modify -n site -p squash_uid -v 99",
            "nodemap_modify --name=default --property=readonly_mount --value=1",
            "nodemap_add_range --name site --range 10.0.[1-4].*@tcp",
            "nodemap_add_range --name site --range 10.1.0.0/24@tcp",
            "nodemap_del_range --name site --range 10.1.0.*@tcp",
            "nodemap_add_idmap --name site --idtype uid --idmap 500:60000",
            "nodemap_add_idmap -n site -i gid -m 500:60000",
            "nodemap_add_idmap --name site --idtype gid --idmap 501:60001",
            "nodemap_del_idmap --name site --idtype gid --idmap 501:60001",
            "nodemap_set_fileset --name site --fileset '/site/a b'",
            "nodemap_set_fileset --name other --fileset /other",
            "nodemap_set_fileset --name other --fileset clear",
            "nodemap_set_fileset --name other --fileset ''",
            "nodemap_activate 1",
        ],
    );
    let list = "nodemap.default\nnodemap.other\nnodemap.site\n";
    for line in ["nodemap_info", "nodemap_info list", "--device MGS nodemap_info"] {
        assert_eq!(lctl(&p, line), (0, list.to_owned(), String::new()), "{line}");
    }
    let site = "\
nodemap.site.admin_nodemap=1
nodemap.site.audit_mode=1
nodemap.site.deny_unknown=0
nodemap.site.fileset=/site/a b
nodemap.site.idmap=
[
 { idtype: uid, client_id: 500, fs_id: 60000 },
 { idtype: gid, client_id: 500, fs_id: 60000 }
]
nodemap.site.ranges=
[
 { start_nid: 10.0.1.0@tcp, end_nid: 10.0.4.255@tcp }
]
nodemap.site.readonly_mount=0
nodemap.site.squash_gid=65534
nodemap.site.squash_uid=99
nodemap.site.trusted_nodemap=0
";
    assert_eq!(lctl(&p, "nodemap_info site"), (0, site.to_owned(), String::new()));
    let (code, all, err) = lctl(&p, "nodemap_info all");
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(all.starts_with("nodemap.active=1\nnodemap.default.admin_nodemap=0\n"), "{all}");
    assert!(all.contains("nodemap.default.readonly_mount=1\n") && all.contains("nodemap.other.fileset=\n"), "{all}");
    assert!(all.ends_with(site), "{all}");
    silent(&p, &["nodemap_del other", "nodemap_del -n site", "nodemap_activate 0"]);
    assert_eq!(lctl(&p, "nodemap_info").1, "nodemap.default\n");
    assert!(lctl(&p, "nodemap_info all").1.starts_with("nodemap.active=0\n"));
}

#[test]
fn nodemap_test_commands_print_the_nodemap_and_the_id() {
    let p = [mgs("sheen")];
    silent(
        &p,
        &[
            "nodemap_add site",
            "nodemap_add_range --name site --range 10.0.0.*@tcp",
            "nodemap_add_idmap --name site --idtype uid --idmap 500:60000",
            "nodemap_modify --name site --property squash_gid --value 98",
            "nodemap_modify --name default --property trusted --value 1",
        ],
    );
    for (line, want) in [
        ("nodemap_test_nid 10.0.0.7@tcp", "site\n"),
        ("nodemap_test_nid --nid 10.0.0.7:1021@tcp", "site\n"),
        ("nodemap_test_nid 10.0.1.7@tcp", "default\n"),
        ("nodemap_test_id --nid 10.0.0.7@tcp --idtype uid --id 500", "60000\n"),
        ("nodemap_test_id --nid 10.0.0.7@tcp --idtype uid --id 501", "65534\n"),
        ("nodemap_test_id -n 10.0.0.7@tcp -t gid -i 500", "98\n"),
        ("nodemap_test_id --nid 10.0.1.7@tcp --idtype uid --id 500", "500\n"),
        ("nodemap_test_id --nid 10.0.1.7@tcp --idtype uid --id 0", "65534\n"),
    ] {
        assert_eq!(lctl(&p, line), (0, want.to_owned(), String::new()), "{line}");
    }
    for line in ["nodemap_test_nid 0@lo", "nodemap_test_nid host@tcp", "nodemap_test_nid x"] {
        let (code, out, err) = lctl(&p, line);
        assert!((code, out.as_str()) == (22, "") && err.contains("expected an address such as"), "{line}: {err}");
    }
    let (code, _, err) = lctl(&p, "nodemap_test_id --nid 10.0.0.7@tcp --idtype projid --id 5");
    assert_eq!(
        (code, err.as_str()),
        (22, "error: nodemap_test_id: invalid projid 5: expected uid or gid, and a number\n")
    );
}

#[test]
fn nodemap_commands_explain_refusals_and_exit_with_the_errno() {
    let p = [mgs("sheen")];
    silent(
        &p,
        &[
            "nodemap_add site",
            "nodemap_add other",
            "nodemap_add_range --name site --range 10.0.0.*@tcp",
            "nodemap_add_idmap --name site --idtype uid --idmap 500:60000",
        ],
    );
    let before = lctl(&p, "nodemap_info all");
    for (line, code, why) in [
        ("nodemap_add site", 17, "nodemap 'site' exists already"),
        ("nodemap_add default", 17, "nodemap 'default' exists already"),
        ("nodemap_add all", 22, "the name 'all' is reserved"),
        ("nodemap_add a-b", 22, "invalid name 'a-b': expected 1 to 16 letters, digits and '_'"),
        ("nodemap_add ''", 22, "invalid name ''"),
        ("nodemap_del 'site '", 22, "invalid name 'site '"),
        ("nodemap_add seventeen_letters", 36, "invalid name 'seventeen_letters'"),
        ("nodemap_del none", 2, "no nodemap 'none': 'lctl nodemap_info' lists all"),
        ("nodemap_del default", 1, "nodemap 'default' cannot be deleted"),
        ("nodemap_modify --name none --property admin --value 1", 2, "no nodemap 'none'"),
        ("nodemap_modify --name site --property admin --value 2", 22, "invalid value '2' of admin: expected 0 to 1"),
        ("nodemap_modify --name site --property squash_uid --value -1", 22, "expected 0 to 4294967294"),
        ("nodemap_modify --name site --property map_mode --value both", 22, "expected one of admin, trusted, deny_unk"),
        ("nodemap_add_range --name site --range 10.0.0.1", 22, "invalid range '10.0.0.1': expected one range"),
        (
            "nodemap_add_range --name other --range 10.0.0.0/8@tcp",
            17,
            "nodemap 'site' has addresses of 10.0.0.0@tcp:10.255.255.255@tcp already: 10.0.0.0@tcp:10.0.0.255@tcp",
        ),
        ("nodemap_add_range --name default --range 10.1.0.1@tcp", 1, "nodemap 'default' has no ranges"),
        (
            "nodemap_del_range --name site --range 10.0.0.1@tcp",
            2,
            "nodemap 'site' has no range 10.0.0.1@tcp:10.0.0.1@tcp",
        ),
        ("nodemap_add_idmap --name site --idtype uid --idmap 501:60000", 17, "maps uid 501, or to uid 60000, already"),
        ("nodemap_add_idmap --name site --idtype projid --idmap 1:2", 22, "invalid type of ids 'projid'"),
        ("nodemap_add_idmap --name site --idtype gid --idmap 1-9:2", 22, "invalid mapping '1-9:2'"),
        ("nodemap_del_idmap --name site --idtype gid --idmap 500:60000", 2, "does not map gid 500 to 60000"),
        ("nodemap_set_fileset --name site --fileset site", 22, "invalid fileset 'site': expected an absolute path"),
        ("nodemap_info none", 2, "cannot find nodemap none"),
    ] {
        let command = line.split(' ').next().unwrap();
        let (exit, out, err) = lctl(&p, line);
        assert_eq!((exit, out.as_str()), (code, ""), "{line}: {err}");
        assert!(err.starts_with(&format!("error: {command}: ")) && err.contains(why), "{line}: {err}");
        assert_eq!(lctl(&p, "nodemap_info all"), before, "{line}");
    }
    let long = format!("nodemap_set_fileset --name site --fileset /{}", "x".repeat(2000));
    assert_eq!(lctl(&p, &long).0, 36);
}

#[test]
fn nodemap_commands_print_the_usage_after_an_invalid_call() {
    let p = [mgs("sheen")];
    for line in [
        "nodemap_activate",
        "nodemap_activate 2",
        "nodemap_activate 1 1",
        "nodemap_add",
        "nodemap_add a b",
        "nodemap_add --name a b",
        "nodemap_del",
        "nodemap_modify --name a --property admin",
        "nodemap_modify a admin 1",
        "nodemap_add_range --name a",
        "nodemap_del_range --range 10.0.0.1@tcp",
        "nodemap_add_idmap --name a --idmap 1:2",
        "nodemap_del_idmap --name a --idtype uid",
        "nodemap_set_fileset --name a",
        "nodemap_info a b",
        "nodemap_test_nid",
        "nodemap_test_id --nid 10.0.0.1@tcp --id 5",
        "nodemap_add --nosuch",
    ] {
        let (code, out, _) = lctl(&p, line);
        let command = line.split(' ').next().unwrap();
        assert!(code == 4 && out.contains(&format!("usage: {command}")), "{line}: {out}");
    }
    for command in COMMANDS {
        assert!(usage::of(command).is_some_and(|text| text.contains(&format!("usage: {command}"))), "{command}");
    }
}

#[test]
fn nodemap_commands_report_a_missing_or_ambiguous_mgs() {
    for line in ["nodemap_add a", "nodemap_info", "nodemap_test_nid 10.0.0.1@tcp"] {
        let (code, out, err) = lctl(&[Params::new()], line);
        assert_eq!((code, out.as_str()), (19, ""), "{line}");
        assert!(err.starts_with("This command must be run on the MGS.\nerror: nodemap_"), "{line}: {err}");
    }
    let p = [mgs("home"), mgs("scratch")];
    let (code, _, err) = lctl(&p, "nodemap_add a");
    assert!(code == 22 && err.contains("several MGSs") && err.contains("use --fsname"), "{err}");
    silent(&p, &["--fsname scratch nodemap_add a"]);
    assert_eq!(lctl(&p, "--fsname scratch nodemap_info").1, "nodemap.a\nnodemap.default\n");
    assert_eq!(lctl(&p, "--fsname home nodemap_info").1, "nodemap.default\n");
    let old = Params::new();
    old.register("mgs.MGS.filesystems", Param::text(String::new));
    let old = [old];
    let (code, _, err) = lctl(&old, "nodemap_add a");
    assert!(code == 19 && err.contains("of a release without nodemaps"), "{err}");
    assert_eq!(lctl(&old, "nodemap_info").0, 95);
}
