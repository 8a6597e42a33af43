//! Tests of the commands' messages without a mount.

use super::super::testing::{Fake, check_case, lfs};

#[test]
fn mirror_lists_commands_and_refuses_unknown_ones() {
    let mut fake = Fake::new("/mnt/c1");
    check_case(&mut fake, "$ lfs mirror\n[exit 0]\n");
    check_case(
        &mut fake,
        "$ lfs mirror bogus\n[exit 1]\n--- stderr
lfs mirror: 'bogus' is not a valid command. See 'lfs mirror --list-commands'.
",
    );
    let (code, out, _) = lfs(&mut fake, "lfs mirror --list-commands");
    assert_eq!((code, out.lines().count()), (0, 9), "{out}");
}

#[test]
fn mirror_commands_refuse_unmirrored_files() {
    let mut fake = Fake::new("/mnt/c1");
    fake.file("plain", "[0x200000402:0x1:0x0]", None);
    check_case(&mut fake, "$ lfs mirror resync plain\n[exit 22]\n--- stderr\nlfs: 'plain' is not a FLR file.\n");
    check_case(
        &mut fake,
        "$ lfs mirror resync nosuch\n[exit 2]\n--- stderr\nlfs: cannot stat file 'nosuch': No such file or directory.\n",
    );
    check_case(
        &mut fake,
        "$ lfs mirror resync -f plain\n[exit 22]\n--- stderr
lfs: --force-resync requires --only option to specify target mirrors.
",
    );
    check_case(&mut fake, "$ lfs mirror verify plain\n[exit 0]\n");
    check_case(
        &mut fake,
        "$ lfs mirror delete --mirror-id 1 plain\n[exit 22]\n--- stderr
lfs delete: 'plain' is not a FLR file.
Cannot resync file
",
    );
    check_case(
        &mut fake,
        "$ lfs mirror extend -N -c 1 nosuch\n[exit 2]\n--- stderr
error: lfs extend: nosuch: cannot open source file: No such file or directory
",
    );
}

#[test]
fn mirror_create_and_extend_refuse_invalid_layouts_before_changes() {
    let mut fake = Fake::new("/mnt/c1");
    for (options, what) in [
        ("-N17", "A file has at most 16 mirrors; ask for fewer with -N"),
        ("-N -N16 -c 2", "A file has at most 16 mirrors; ask for fewer with -N"),
        ("-N -E 1M -N", "Incomplete mirror - must go to EOF"),
        ("-N2 -E 64K -L mdt -E -1", "Only one mirror of a file can begin on the MDT"),
    ] {
        check_case(
            &mut fake,
            &format!(
                "$ lfs mirror create {options} m\n[exit 1]\n--- stderr\nlfs mirror mirror: Invalid layout: {what}
lfs mirror mirror: lfs create: cannot create composite file 'm': Invalid argument (22)\n"
            ),
        );
        assert!(!fake.exists("m"), "{options}");
    }
    fake.file("f", "[0x200000402:0x1:0x0]", None);
    let too_many = "A file has at most 16 mirrors, and this one has 1; ask for fewer with -N, or remove some with 'lfs mirror delete'";
    for (options, what) in [
        ("-N16", too_many),
        ("-N17 -c 1", too_many),
        ("-N=17 -c 1", too_many),
        ("--mirror-count==65535", too_many),
        ("-N -E 1M", "Incomplete mirror - must go to EOF"),
    ] {
        check_case(
            &mut fake,
            &format!(
                "$ lfs mirror extend {options} f\n[exit 22]\n--- stderr\nlfs mirror mirror: Invalid layout: {what}
error: lfs extend: cannot extend 'f': Invalid argument\n"
            ),
        );
    }
}

#[test]
fn mirror_extend_to_a_total_that_is_reached_adds_nothing() {
    let mut fake = Fake::new("/mnt/c1");
    fake.file("f", "[0x200000402:0x1:0x0]", None);
    check_case(
        &mut fake,
        "$ lfs mirror extend -N=1 f\n[exit 0]\n--- stderr
warning: 'f' already has 1 mirrors, no new mirrors will be created
",
    );
}

#[test]
fn mirror_bad_calls_print_usage() {
    let mut fake = Fake::new("/mnt/c1");
    fake.file("f", "[0x200000402:0x1:0x0]", None);
    for (line, what) in [
        ("lfs mirror split f", "split: a file and one of --mirror-id, --component-id and --pool must be given"),
        ("lfs mirror split --mirror-id 0 f", "split: invalid mirror ID"),
        ("lfs mirror split --mirror-id 1 -d -f g f", "split: -d and -f are mutually exclusive"),
        ("lfs mirror read f", "read: a file and a mirror's ID must be given"),
        ("lfs mirror copy -i 1 f", "copy: a file, -i and -o must be given"),
        ("lfs mirror verify --only 1 f", "verify: at least two mirror IDs must be given with --only"),
        ("lfs mirror resync", "resync: no file name given"),
        ("lfs mirror resync --stats-interval=x f", "resync: invalid stats interval 'x'"),
        ("lfs mirror resync -W 0 f", "resync: invalid bandwidth '0'"),
        ("lfs mirror extend -N --stats-interval 0 f", "extend: invalid stats interval '0'"),
        ("lfs mirror extend -N --bandwidth=x f", "extend: invalid bandwidth 'x'"),
        ("lfs mirror extend -N=0 f", "extend: bad mirror count: 0"),
        ("lfs mirror extend --mirror-count==two f", "extend: bad mirror count: two"),
        ("lfs mirror extend -N=2 -N=3 f", "extend: -N=TOTAL can be given once"),
        ("lfs mirror extend -N=3 -N f", "extend: -N=TOTAL excludes a further -N, and -f"),
        ("lfs mirror extend -N=3 -f g f", "extend: -N=TOTAL excludes a further -N, and -f"),
    ] {
        let (code, out, err) = lfs(&mut fake, line);
        assert_eq!((code, err), (4, format!("lfs mirror {what}\n")), "{line}");
        assert!(out.contains("lfs mirror create"), "{out}");
    }
}
