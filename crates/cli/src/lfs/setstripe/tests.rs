//! What setstripe asks for and refuses, against the captures of Lustre's.

use super::super::testing::{Fake, check_case, lfs};
use super::*;

fn fine(fake: &mut Fake, line: &str) {
    assert_eq!(lfs(fake, line), (0, String::new(), String::new()), "{line}");
}

/// Sets, then shows a single field.
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
fn counts() {
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
fn stripe_sizes() {
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
fn places() {
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
fn several_files() {
    let fake = &mut Fake::new("/mnt/c1");
    fine(fake, "lfs setstripe -c 2 m1 m2 m3");
    assert_eq!(lfs(fake, "lfs getstripe -c m1 m2 m3").1, "2\n\n2\n\n2\n\n");
    let (code, _, err) = lfs(fake, "lfs setstripe -c 2 m4 m1 nodir/f m5");
    assert_eq!(code, 17, "the first failure decides");
    assert_eq!(err.lines().count(), 2);
    assert!(fake.exists("m4") && fake.exists("m5"));
}

#[test]
fn wrong_calls_print_the_usage() {
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
fn failures() {
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
fn defaults_of_directories() {
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
    // A default that names an OST that there is not is refused.
    let (code, _, err) = lfs(fake, "lfs setstripe -i 99 d1");
    assert_eq!((code, err.as_str()), (22, "lfs setstripe: setstripe error for 'd1': Invalid argument\n"));
    fine(fake, "lfs setstripe -d nosuchdir");
    assert!(!fake.exists("nosuchdir"));
}

#[test]
fn links() {
    let fake = &mut Fake::new("/mnt/c1");
    fake.node("dangling", FileKind::Symlink, "nowhere");
    fine(fake, "lfs setstripe -c 2 dangling");
    assert_eq!(lfs(fake, "lfs getstripe -c nowhere").1, "2\n\n");
    fake.node("out", FileKind::Symlink, "/tmp/x");
    assert_eq!(lfs(fake, "lfs setstripe -c 2 out").0, 25);
    assert!(!fake.exists("/tmp/x"), "nothing is made outside of Sheen");
}
