//! Tests of what setstripe requests and refuses, against the captures of Lustre.

mod captures;

use super::super::testing::{Fake, check_case, lfs};
use super::*;

fn fine(fake: &mut Fake, line: &str) {
    assert_eq!(lfs(fake, line), (0, String::new(), String::new()), "{line}");
}

/// Creates a file with these options, then checks a single field of its layout.
fn sets(fake: &mut Fake, options: &str, show: &str, want: &str) {
    let name = format!("f{}", options.replace([' ', '-', ','], "_"));
    fine(fake, &format!("lfs setstripe {options} {name}"));
    assert_eq!(lfs(fake, &format!("lfs getstripe {show} {name}")).1.trim_end(), want, "{options}");
}

fn osts(fake: &mut Fake, options: &str, want: &str) {
    let name = format!("o{}", options.replace([' ', '-', ','], "_"));
    fine(fake, &format!("lfs setstripe {options} {name}"));
    let (_, table, _) = lfs(fake, &format!("lfs getstripe -q {name}"));
    let rows = table.lines().filter_map(|l| l.strip_prefix("\t ")?.split_whitespace().next());
    assert_eq!(rows.collect::<Vec<_>>().join(","), want, "{options}");
}

#[test]
fn setstripe_sets_stripe_counts() {
    let fake = &mut Fake::new("/mnt/c1");
    for (options, want) in [
        ("", "1"),
        ("-c 2", "2"),
        ("-c -1", "4"),
        ("-c 0", "1"),
        ("-c 10", "4"),
        ("-c 2000", "4"),
        ("-C -1", "4"),
        ("-C -2", "8"),
        ("-C -32", "128"),
        ("-C 0", "1"),
        ("-C 2000", "2000"),
        ("--overstripe-count=6", "6"),
        ("-C 8 -c 4", "4"),
        ("-c 4 -C 8", "8"),
        ("--count 3", "3"),
        ("--stripe_count 3", "3"),
    ] {
        sets(fake, options, "-c", want);
    }
    for (options, want) in [("-C 4", "raid0"), ("-C 5", "raid0,overstriped"), ("-o 0,0,1", "raid0,overstriped")] {
        sets(fake, options, "-L", want);
    }
}

#[test]
fn setstripe_sets_stripe_sizes() {
    let fake = &mut Fake::new("/mnt/c1");
    for (options, want) in [
        ("-S 64k", "65536"),
        ("-S 0", "4194304"),
        ("-S 1G", "1073741824"),
        ("-S 0x100000", "1048576"),
        ("-S 1m", "1048576"),
        ("--stripe-size=2M", "2097152"),
        ("--size 8M", "8388608"),
        ("-s 8M", "8388608"),
    ] {
        sets(fake, options, "-S", want);
    }
}

#[test]
fn setstripe_places_stripes_on_requested_osts() {
    let fake = &mut Fake::new("/mnt/c1");
    for (options, want) in [
        ("-i 2", "2"),
        ("-c 2 -i 3", "3,0"),
        ("-o 0,2", "0,2"),
        ("-o 3,1,0", "3,1,0"),
        ("-o 0-3", "0,1,2,3"),
        ("-o 0x1,2", "1,2"),
        ("-C 3 -o 0,0,1", "0,0,1"),
        ("-o 1,1,1,1 -S 1M", "1,1,1,1"),
        ("-o 0,1,0,2,1,2,3,3", "0,1,0,2,1,2,3,3"),
        ("--ost-list 0 --ost-list 1", "0,1"),
        ("-i 1 -o 0,1", "1,0"),
        ("--stripe-count=3 --stripe-size=2M --stripe-index=1", "1,2,3"),
        ("--overstripe-count=6 -S 2M -i 1", "1,2,3,0,1,2"),
    ] {
        osts(fake, options, want);
    }
    fake.deactivate_ost(3);
    osts(fake, "-i 3 -c 1", "0");
    check_case(
        fake,
        "$ lfs setstripe -o 2,3 ono3\n[exit 121]\n--- stderr
lfs setstripe: setstripe error for 'ono3': inactive OST among your specified 2 OST(s)
",
    );
}

#[test]
fn setstripe_continues_after_a_file_fails() {
    let fake = &mut Fake::new("/mnt/c1");
    fine(fake, "lfs setstripe -c 2 m1 m2 m3");
    assert_eq!(lfs(fake, "lfs getstripe -c m1 m2 m3").1, "2\n\n2\n\n2\n\n");
    let (code, _, err) = lfs(fake, "lfs setstripe -c 2 m4 m1 nodir/f m5");
    assert_eq!(code, 17, "the first failure decides");
    assert_eq!(err.lines().count(), 2);
    assert!(fake.exists("m4") && fake.exists("m5"));
}

#[test]
fn setstripe_bad_calls_print_usage() {
    let fake = &mut Fake::new("/mnt/c1");
    for (options, want) in [
        ("-c 2 -o 0,1,2 f", "stripe_count(2) != nr_tgts(3)"),
        ("-c 3 -o 0,1 f", "stripe_count(3) != nr_tgts(2)"),
        ("-o abc f", "lfs setstripe setstripe: invalid OST target(s) 'abc'"),
        ("-c -2 f", "lfs setstripe setstripe: invalid stripe count '-2'"),
        ("-C -33 f", "lfs setstripe setstripe: invalid stripe count '-33'"),
        ("-C 2001 f", "lfs setstripe setstripe: invalid stripe count '2001'"),
        ("-c 2001 f", "lfs setstripe setstripe: invalid stripe count '2001'"),
        ("-c abc f", "lfs setstripe setstripe: invalid stripe count 'abc'"),
        ("-c 99999999999 f", "lfs setstripe setstripe: invalid stripe count '99999999999'"),
        ("-S 1000 f", "lfs setstripe setstripe: invalid stripe size '1000'"),
        ("-S 65537 f", "lfs setstripe setstripe: invalid stripe size '65537'"),
        ("-S 100k f", "lfs setstripe setstripe: invalid stripe size '100k'"),
        ("-S -1 f", "lfs setstripe setstripe: invalid stripe size '-1'"),
        ("-S abc f", "lfs setstripe setstripe: invalid stripe size 'abc'"),
        ("-i 65535 f", "lfs setstripe setstripe: invalid stripe offset '65535'"),
        ("-i -2 f", "lfs setstripe setstripe: invalid stripe offset '-2'"),
        ("-i abc f", "lfs setstripe setstripe: invalid stripe offset 'abc'"),
        ("--bogus f", "lfs setstripe: unrecognized option '--bogus'"),
        ("-c", "lfs setstripe: unrecognized option '-c'"),
        ("-c 1", "lfs setstripe setstripe: FILE must be specified"),
        (
            "-d -c 1 d1",
            "lfs setstripe setstripe: option -d is mutually exclusive with -s, -c, -o, -p, -I, -F and -E options",
        ),
    ] {
        let usage = usage::SETSTRIPE;
        check_case(fake, &format!("$ lfs setstripe {options}\n[exit 4]\n--- stdout\n{usage}--- stderr\n{want}\n"));
    }
    assert!(!fake.exists("f"), "a wrong call leaves nothing");
}

#[test]
fn setstripe_failures_exit_with_errno_and_leave_nothing() {
    let fake = &mut Fake::new("/mnt/c1");
    fake.file("ee", "[0x200000402:0x90:0x0]", None);
    fine(fake, "lfs setstripe -c 1 ee");
    let long = "y".repeat(300);
    for (line, exit, want) in [
        ("-S 4G e", 22, "lfs setstripe: error: stripe size '4294967296' over 4GB limit: Invalid argument (22)"),
        ("-i 4 e4", 22, "lfs setstripe: setstripe error for 'e4': Invalid argument"),
        ("-o 9 o9", 22, "lfs setstripe: setstripe error for 'o9': Invalid argument"),
        ("-o -1 om1", 22, "lfs setstripe: setstripe error for 'om1': Invalid argument"),
        ("-p nopool e", 22, "lfs setstripe: pool 'nopool fsname lustre' does not exist: No such file or directory (2)"),
        (
            "-p other.pool e",
            22,
            "lfs setstripe: pool 'pool fsname lustre' does not exist: No such file or directory (2)",
        ),
        (
            "-p averyveryverylongpoolname e",
            22,
            "lfs setstripe: Invalid Poolname 'averyveryverylongpoolname': Invalid argument (22)",
        ),
        ("-c 2 ee", 17, "lfs setstripe: setstripe error for 'ee': stripe already set"),
        ("-d ee", 17, "lfs setstripe: setstripe error for 'ee': stripe already set"),
        ("-c 1 nodir/f", 2, "lfs setstripe: unable to open 'nodir/f': No such file or directory (2)"),
        (
            "-c 1 /tmp/notlustre",
            25,
            "lfs setstripe: setstripe error for '/tmp/notlustre': Inappropriate ioctl for device",
        ),
        ("-c 4 ee/x", 20, "lfs setstripe: unable to open 'ee/x': Not a directory (20)"),
        (&format!("-c 1 {long}"), 36, &format!("lfs setstripe: unable to open '{long}': File name too long (36)")),
        (
            "-L mdt nod",
            22,
            "lfs setstripe: Invalid pattern: '-L mdt', must be specified with -E: Invalid argument (22)",
        ),
        ("-L overstriping -c 8 ovL", 22, "error: layout '-c' is unknown, supported layouts are: 'mdt', 'raid0'"),
    ] {
        check_case(fake, &format!("$ lfs setstripe {line}\n[exit {exit}]\n--- stderr\n{want}\n"));
    }
    let (code, _, err) = lfs(fake, "lfs setstripe -c 1 ''");
    assert_eq!((code, err.as_str()), (2, "lfs setstripe: unable to open '': No such file or directory (2)\n"));
    assert!(
        fake.exists("o9") && fake.stored("o9", "lustre.lov").is_none(),
        "a refused placing leaves a file without layout"
    );
    assert!(!fake.exists("e") && !fake.exists("/tmp/notlustre"));
    assert_eq!(lfs(fake, "lfs getstripe -c ee").1, "1\n\n");
}

#[test]
fn setstripe_sets_and_deletes_directory_defaults() {
    let fake = &mut Fake::new("/mnt/c1");
    fake.dir("d1");
    let default = |fake: &mut Fake| lfs(fake, "lfs getstripe -d d1").1.trim_end().to_owned();
    let unset = "stripe_count:  1 stripe_size:   4194304 pattern:        stripe_offset: -1";
    fine(fake, "lfs setstripe -c 3 -S 2M -i 1 d1");
    assert_eq!(default(fake), "stripe_count:  3 stripe_size:   2097152 pattern:       raid0 stripe_offset: 1");
    fine(fake, "lfs setstripe -d d1");
    assert_eq!(default(fake), unset);
    fine(fake, "lfs setstripe -d d1");
    fine(fake, "lfs setstripe -C -1 d1");
    assert_eq!(
        default(fake),
        "stripe_count:  -1 stripe_size:   4194304 pattern:       raid0,overstriped stripe_offset: -1"
    );
    // A default that names an OST that does not exist is refused.
    let (code, _, err) = lfs(fake, "lfs setstripe -i 99 d1");
    assert_eq!((code, err.as_str()), (22, "lfs setstripe: setstripe error for 'd1': Invalid argument\n"));
    fine(fake, "lfs setstripe -d nosuchdir");
    assert!(!fake.exists("nosuchdir"));
}

#[test]
fn setstripe_follows_links_within_the_mount_only() {
    let fake = &mut Fake::new("/mnt/c1");
    fake.node("dangling", FileKind::Symlink, "nowhere");
    fine(fake, "lfs setstripe -c 2 dangling");
    assert_eq!(lfs(fake, "lfs getstripe -c nowhere").1, "2\n\n");
    fake.node("out", FileKind::Symlink, "/tmp/x");
    assert_eq!(lfs(fake, "lfs setstripe -c 2 out").0, 25);
    assert!(!fake.exists("/tmp/x"), "nothing is made outside of Sheen");
}

#[test]
fn setstripe_looks_for_pools_in_the_file_system_of_an_existing_path_only() {
    let fake = &mut Fake::new("/mnt/c1");
    fake.node("/tmp/other", FileKind::Regular, "");
    fake.node("outside", FileKind::Symlink, "/tmp/other");
    let (code, _, err) = lfs(fake, "lfs setstripe -p nopool outside");
    assert_eq!(code, 25, "{err}");
    assert!(!err.contains("nopool"), "{err}");
    assert_eq!(lfs(fake, "lfs setstripe -p nopool new").0, 22);
}

/// Returns the listed components as `id start end count`.
fn components(fake: &mut Fake, file: &str) -> Vec<String> {
    let (code, text, err) = lfs(fake, &format!("lfs getstripe {file}"));
    assert_eq!((code, err.as_str()), (0, ""));
    let parts = text.split("    lcme_id:").skip(1);
    let field = |part: &str, name: &str| {
        let line = part.lines().find_map(|l| l.trim_start().strip_prefix(name));
        line.map_or(String::new(), |l| l.trim().to_owned())
    };
    let line = |part: &str| {
        let id = part.lines().next().unwrap_or_default().trim().to_owned();
        let names = ["lcme_extent.e_start:", "lcme_extent.e_end:", "lmm_stripe_count:"];
        let rest: Vec<String> = names.iter().map(|name| field(part, name)).collect();
        format!("{id} {}", rest.join(" "))
    };
    parts.map(line).collect()
}

#[test]
fn setstripe_components_inherit_unset_options() {
    let fake = &mut Fake::new("/mnt/c1");
    fine(fake, "lfs setstripe -E 2M -S 1M -C 6 -E 8M -E -1 -c 2 in");
    let (_, sizes, _) = lfs(fake, "lfs getstripe in");
    assert_eq!(sizes.matches("lmm_stripe_size:   1048576").count(), 3, "{sizes}");
    assert_eq!(components(fake, "in"), ["1 0 2097152 2", "2 2097152 8388608 6", "3 8388608 EOF 2"]);
    // Nothing is inherited from a component on the MDT. A list of OSTs has its own count.
    fine(fake, "lfs setstripe -E 64K -L mdt -E 1G -c 2 -E -1 -o 3,1,0 in2");
    assert_eq!(components(fake, "in2"), ["1 0 65536 0", "2 65536 1073741824 2", "3 1073741824 EOF 3"]);
}

#[test]
fn setstripe_creates_self_extending_components() {
    let fake = &mut Fake::new("/mnt/c1");
    fine(fake, "lfs setstripe -E 1G -z 64M -E -1 -z 256M s");
    assert_eq!(
        components(fake, "s"),
        ["1 0 67108864 1", "2 67108864 1073741824 0", "3 1073741824 1073741824 1", "4 1073741824 EOF 0"]
    );
    for (options, want) in [
        ("-E 64M -S 64M -E -1 -z 100M", "The extension size must be aligned by the stripe size"),
        ("-E 64K -L mdt -z 64M -E -1", "DoM components cannot be followed by extension space"),
    ] {
        let (code, _, err) = lfs(fake, &format!("lfs setstripe {options} bad"));
        assert!(code != 0 && err.contains(want), "{options}: {err}");
        assert!(!fake.exists("bad"));
    }
}

#[test]
fn setstripe_edits_components_of_existing_files() {
    let fake = &mut Fake::new("/mnt/c1");
    fine(fake, "lfs setstripe -E 1M -c 1 -E 64M -c 2 f");
    fine(fake, "lfs setstripe --component-add -E 1G -c 4 -E -1 -c -1 f");
    let all = ["1 0 1048576 1", "2 1048576 67108864 2", "3 67108864 1073741824 4", "4 1073741824 EOF -1"];
    assert_eq!(components(fake, "f"), all);
    fine(fake, "lfs setstripe --component-del -I 4 f");
    assert_eq!(components(fake, "f"), all[..3]);
    fine(fake, "lfs setstripe --comp-add -E -1 -c 1 -z 64M f");
    let ranges: Vec<String> =
        components(fake, "f").iter().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect();
    assert_eq!(ranges[3..], ["1073741824 1073741824 1", "1073741824 EOF 0"]);
    for (line, exit, want) in [
        (
            "--component-add -E 1G -c 1 f2",
            22,
            "lfs setstripe setstripe: first extent [0, 1073741824) not adjacent with extent end 4294967296\n\
             error: lfs setstripe: invalid layout",
        ),
        (
            "--component-del -I 1 f",
            1,
            "lfs setstripe setstripe: cannot delete component 0x1 from 'f': Invalid argument",
        ),
        ("--component-del f", 22, "lfs setstripe: neither flags nor component ID is specified"),
        (
            "--component-add -E -1 plain",
            22,
            "lfs setstripe setstripe: 'plain' not a composite file\nerror: lfs setstripe: invalid layout",
        ),
        (
            "--component-add -E -1 nosuch",
            22,
            "lfs setstripe setstripe: cannot read layout from 'nosuch': No such file or directory\n\
             error: lfs setstripe: invalid layout",
        ),
        (
            "--component-set -I 9 --comp-flags=prefer f",
            1,
            "lfs setstripe: cannot change the flags of component '0x9' of file 'f': 6 / ^(0)",
        ),
        (
            "--component-set -I 1 --comp-flags=^stale f",
            22,
            "lfs setstripe: cannot clear 'stale' flags from component. Please use lfs-mirror-resync(1) instead",
        ),
    ] {
        fine(fake, "lfs setstripe -E 4G f2");
        lfs(fake, "lfs setstripe -c 1 plain");
        check_case(fake, &format!("$ lfs setstripe {line}\n[exit {exit}]\n--- stderr\n{want}\n"));
    }
    fine(fake, "lfs setstripe --component-set -I 2 --comp-flags=prefer f");
    assert_eq!(lfs(fake, "lfs getstripe -I2 --component-flags f").1, "prefer\n\n");
    fine(fake, "lfs setstripe --component-set -I 2 --comp-flags=^prefer f");
    assert_eq!(lfs(fake, "lfs getstripe -I2 --component-flags f").1, "0\n\n");
    // Components can be selected by flags that they do not have.
    fine(fake, "lfs setstripe --component-del --comp-flags=^init f");
    assert_eq!(components(fake, "f"), all[..1]);
    // A file without a layout gets its first components.
    fake.file("new", "[0x200000402:0x91:0x0]", None);
    fine(fake, "lfs setstripe --component-add -E 1M -E -1 new");
    assert_eq!(components(fake, "new"), ["1 0 1048576 1", "2 1048576 EOF 1"]);
}

#[test]
fn setstripe_conflicting_options_print_usage() {
    let fake = &mut Fake::new("/mnt/c1");
    fake.dir("d");
    for (options, want) in [
        ("--component-add f", "lfs setstripe setstripe: option -E must be specified with --component-add"),
        ("--comp-set --comp-flags=stale f", "lfs setstripe setstripe: --component-set doesn't have component-id set"),
        (
            "--comp-set -I 1 --comp-del f",
            "lfs setstripe setstripe: options --component-set, --component-del, --component-add and -d are mutually exclusive",
        ),
        (
            "--comp-del -I 1 -c 2 f",
            "lfs setstripe setstripe: options --component-del and --component-set are mutually exclusive when used with -c, -E, -o, -p, or -s",
        ),
        ("--comp-del -I 1 d", "lfs setstripe setstripe: cannot use --component-add or --component-del for directory"),
        (
            "-I 1 -c 2 f",
            "lfs setstripe: option -I can only be used with --component-del or --component-set or lfs mirror split",
        ),
        ("-I 0 f", "lfs setstripe setstripe: invalid component ID '0'"),
        ("--comp-del --comp-flags=bogus f", "lfs setstripe: component flag 'bogus' not supported"),
        ("-y a --copy=b f", "lfs setstripe: can't specify --yaml and --copy together"),
        ("-E 1M -L mdt -C 2 f", "lfs setstripe setstripe: -C|--overstripe-count incompatible with DoM layout"),
        ("-N --flags=stale,^init f", "lfs setstripe: inverted flags are not supported"),
    ] {
        let usage = usage::SETSTRIPE;
        check_case(fake, &format!("$ lfs setstripe {options}\n[exit 4]\n--- stdout\n{usage}--- stderr\n{want}\n"));
    }
    assert!(!fake.exists("f"));
}

#[test]
fn setstripe_refuses_too_many_or_incomplete_mirrors() {
    let fake = &mut Fake::new("/mnt/c1");
    for (options, want) in [
        ("-N17", "A file has at most 16 mirrors; ask for fewer with -N"),
        ("-N4000000000", "A file has at most 16 mirrors; ask for fewer with -N"),
        ("-N -E 1M -N -E -1", "Incomplete mirror - must go to EOF"),
        ("-N2 -E 1M -L mdt -E 64M -L raid0", "Incomplete mirror - must go to EOF"),
        ("-N2 -E 1M -L mdt -E -1 -L raid0", "Only one mirror of a file can begin on the MDT"),
    ] {
        check_case(
            fake,
            &format!(
                "$ lfs setstripe {options} m\n[exit 1]\n--- stderr\nlfs setstripe: Invalid layout: {want}
lfs setstripe: lfs setstripe: cannot create composite file 'm': Invalid argument (22)\n"
            ),
        );
    }
    assert!(!fake.exists("m"));
    let (code, _, err) = lfs(fake, "lfs setstripe -N0 m");
    assert_eq!((code, err.as_str()), (22, "error: lfs setstripe: bad mirror count: 0\n"));
    fine(fake, "lfs setstripe -N -E 1M -c 1 -E -1 -c 2 -N2 -c 4 m");
    assert_eq!(components(fake, "m").len(), 4);
    assert_eq!(lfs(fake, "lfs getstripe -N m").1, "3\n\n");
}

#[test]
fn setstripe_refuses_oversized_layouts_and_unknown_osts() {
    let fake = &mut Fake::new("/mnt/c1");
    let ends = |n: usize, options: &str| (1..=n).map(|i| format!("-E {i}M {options} ")).collect::<String>();
    fine(fake, &format!("lfs setstripe {} large", ends(60, "-C 100")));
    assert_eq!(lfs(fake, "lfs getstripe --component-count large").1, "60\n\n");
    let (code, _, err) = lfs(fake, &format!("lfs setstripe {} larger", ends(900, "-C 10")));
    let want =
        "lfs setstripe: lfs setstripe: cannot create composite file 'larger': Numerical result out of range (34)\n";
    assert_eq!((code, err.as_str()), (1, want));
    for (options, want) in [
        ("-E 1M -o 9 -E -1", "Invalid layout: An unknown OST idx is specified"),
        ("-E 1M -i 4 -E -1", "Invalid layout: An unknown OST idx is specified"),
        ("-E 1M -c 1 -E -1 -p nopool", "pool 'nopool fsname lustre' does not exist: No such file or directory (2)"),
        ("-E -1 -p empty", "pool 'empty fsname lustre' has no OSTs: Invalid argument (22)"),
        ("-E 2G -L mdt", "error: 'mdt' layout size is too big"),
    ] {
        let (code, _, err) = lfs(fake, &format!("lfs setstripe {options} x"));
        assert!(code != 0 && err.contains(want), "{options}: {code} {err}");
    }
    assert!(!fake.exists("x"), "what is refused beforehand leaves nothing");
    let (code, _, err) = lfs(fake, "lfs setstripe -E 1M -E -1 nodir/f");
    let want = "lfs setstripe: lfs setstripe: cannot create composite file 'nodir/f': No such file or directory (2)\n";
    assert_eq!((code, err.as_str()), (1, want));
}

#[test]
fn setstripe_sets_and_copies_pools_of_components() {
    let fake = &mut Fake::new("/mnt/c1");
    fine(fake, "lfs setstripe -E 1M -p p1 -c 1 -E -1 -p lustre.p2 -c 2 pf");
    let (_, text, _) = lfs(fake, "lfs getstripe pf");
    assert!(
        text.contains("      lmm_pool:          p1\n") && text.ends_with("      lmm_pool:          p2\n\n"),
        "{text}"
    );
    fine(fake, "lfs setstripe --copy=pf pf2");
    assert_eq!(lfs(fake, "lfs getstripe pf2").1.matches("lmm_pool").count(), 2);
}

#[test]
fn setstripe_yaml_reproduces_layout_from_getstripe() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("layout.yaml");
    let fake = &mut Fake::new("/mnt/c1");
    fake.dir("d");
    for (name, options) in [
        ("plain", "-C 6 -S 1M"),
        ("pfl", "-E 1M -c 1 -E 4G -c 4 -E -1 -c -1"),
        ("over", "-E 1M -S 256K -c 1 -E 16M -S 1M -C 6 -E -1 -o 3,1,1"),
        ("dom", "-E 64K -L mdt -E -1 -c 2 -i 1"),
        ("sel", "-E 128M -c 1 -z 64M -E -1 -c 4 -z 128M"),
        ("mirrored", "-N -E 1M -c 1 -E -1 -c 2 -N -E 4M -c 1 -E -1 -c 4"),
        ("d", "-E 1M -c 2 -E -1 -p p1"),
    ] {
        fine(fake, &format!("lfs setstripe {options} {name}"));
        let shown = |fake: &mut Fake, name: &str| lfs(fake, &format!("lfs getstripe -d -y -R {name}")).1;
        let yaml = shown(fake, name);
        std::fs::write(&file, &yaml).unwrap();
        let copy = if name == "d" { "d2".to_owned() } else { format!("{name}2") };
        if name == "d" {
            fake.dir("d2");
        }
        fine(fake, &format!("lfs setstripe --yaml {} {copy}", file.display()));
        let bare = |text: &str| text.lines().filter(|l| !l.contains("l_fid")).collect::<Vec<_>>().join("\n");
        assert_eq!(bare(&shown(fake, &copy)), bare(&yaml), "{name}: the same layout on the same OSTs");
    }
}

#[test]
fn setstripe_with_the_options_of_the_default_layout_sets_it() {
    let fake = &mut Fake::new("/mnt/c1");
    fake.dir("d");
    fine(fake, &format!("lfs setstripe {} d", sheen_layout::PROGRESSIVE_OPTIONS));
    let stored = fake.stored("d", "lustre.lov").expect("a default layout");
    assert_eq!(Asked::decode(&stored), Ok(Asked::Composite(Template::progressive())));
}

#[test]
fn setstripe_refuses_missing_yaml_file() {
    let fake = &mut Fake::new("/mnt/c1");
    check_case(
        fake,
        "$ lfs setstripe -y nosuch.yaml ff1\n[exit 22]\n--- stderr
lfs setstripe: cannot parse YAML file nosuch.yaml
yaml:
    - builder:
          errno: -1
          descr: cannot open 'nosuch.yaml': No such file or directory
    - from comp yaml:
          errno: -22
          descr: can't parse
error: setstripe: can't create composite layout from template file nosuch.yaml
",
    );
    assert!(!fake.exists("ff1"));
}
