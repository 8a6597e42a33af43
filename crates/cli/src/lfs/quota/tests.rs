//! Tests of `lfs quota` and `lfs setquota` against the answers of a captured Lustre. The id 1000 of
//! the capture, which may have a name on this host, is 4000001000 here.

use sheen_wire::quota::{Id, Kind, Usage};

use super::{
    super::testing::{Fake, check_case, lfs},
    USAGE,
};

const MIB: u64 = 1 << 20;
const UID: u32 = 4_000_001_000;

fn used(used: u64) -> Usage {
    Usage { used, ..Usage::default() }
}

/// The file system of the capture.
fn fake() -> Fake {
    let mut fake = Fake::new("/mnt/c1");
    let id = |kind, id| Id { kind, id };
    for kind in [Kind::User, Kind::Group] {
        fake.uses(id(kind, 0), used(39_556 << 10), used(848));
        fake.uses(id(kind, UID), used(0), used(1));
    }
    fake
}

#[test]
fn quota_prints_use_and_limits_like_lustre() {
    let mut fake = fake();
    let mut check = |case: &str| check_case(&mut fake, case);
    check(
        "$ lfs quota -u root /mnt/c1
[exit 0]
--- stdout
Disk quotas for usr root (uid 0):
     Filesystem  kbytes  bquota  blimit  bgrace   files  iquota  ilimit  igrace 
        /mnt/c1   39556       0       0       -     848       0       0       - 
",
    );
    check(
        "$ lfs setquota -u 4000001000 -b 100M -B 200M -i 1000 -I 2000 /mnt/c1
[exit 0]
--- stderr
lfs setquota: warning: inode softlimit '1000' smaller than minimum qunit size
See 'lfs help setquota' or Lustre manual for details
",
    );
    check(
        "$ lfs quota -u 4000001000 /mnt/c1
[exit 0]
--- stdout
Disk quotas for usr <unknown> (uid 4000001000):
     Filesystem  kbytes  bquota  blimit  bgrace   files  iquota  ilimit  igrace 
        /mnt/c1       0  102400  204800       -       1    1000    2000       - 
",
    );
    check(
        "$ lfs quota -h -u 4000001000 /mnt/c1
[exit 0]
--- stdout
Disk quotas for usr <unknown> (uid 4000001000):
     Filesystem    used  bquota  blimit  bgrace   files  iquota  ilimit  igrace 
        /mnt/c1      0k    100M    200M       -       1    1000    2000       - 
",
    );
    check(
        "$ lfs quota -q -u 4000001000
[exit 0]
--- stdout
        /mnt/c1       0  102400  204800       -       1    1000    2000       - 
",
    );
    check(
        "$ lfs quota -g 4000001000 /mnt/c1/t
[exit 0]
--- stdout
Disk quotas for grp <unknown> (gid 4000001000):
     Filesystem  kbytes  bquota  blimit  bgrace   files  iquota  ilimit  igrace 
      /mnt/c1/t       0       0       0       -       1       0       0       - 
",
    );
    check(
        "$ lfs quota -p 5 /mnt/c1
[exit 0]
--- stdout
Disk quotas for prj <unknown> (pid 5):
     Filesystem  kbytes  bquota  blimit  bgrace   files  iquota  ilimit  igrace 
        /mnt/c1       0       0       0       -       0       0       0       - 
",
    );
    check(
        "$ lfs quota -u 4000001000 --pool p2 /mnt/c1
[exit 0]
--- stdout
Disk quotas for usr <unknown> (uid 4000001000):
     Filesystem  kbytes  bquota  blimit  bgrace   files  iquota  ilimit  igrace 
        /mnt/c1       0       0       0       -       1       0       0       - 
",
    );
}

#[test]
fn quota_marks_exceeded_limits_and_shows_the_time_that_is_left() {
    let mut fake = fake();
    let id = Id { kind: Kind::User, id: UID };
    let grace = |used, secs| Usage { used, grace: Some(secs), ..Usage::default() };
    lfs(&mut fake, "lfs setquota -u 4000001000 -b 10M -B 20M -i 2000 -I 3000 /mnt/c1");
    fake.uses(id, grace(16 * MIB, 604_740), grace(2500, -3));
    check_case(
        &mut fake,
        "$ lfs quota -q -u 4000001000 /mnt/c1
[exit 0]
--- stdout
        /mnt/c1  16384*   10240   20480 6d23h59m   2500*    2000    3000    none 
",
    );
    fake.uses(id, grace(20 * MIB, 60), used(3000));
    check_case(
        &mut fake,
        "$ lfs quota -q -u 4000001000 /mnt/c1
[exit 0]
--- stdout
        /mnt/c1  20480*   10240   20480       -   3000*    2000    3000       - 
",
    );
}

#[test]
fn quota_shows_the_part_of_each_target() {
    let mut fake = fake();
    let id = Id { kind: Kind::User, id: UID };
    lfs(&mut fake, "lfs setquota -u 4000001000 -B 20M -I 2000 /mnt/c1");
    fake.uses(id, used(4 * MIB), used(7));
    check_case(
        &mut fake,
        "$ lfs quota -v -q -u 4000001000 /mnt/c1
[exit 0]
--- stdout
        /mnt/c1    4096       0   20480       -       7       0    2000       - 
 lustre-MDT0000       0       -       0       -       7       -    2000       - 
 lustre-OST0000       0       -       0       -       0       -       0       - 
 lustre-OST0001    4096       -    5120       -       1       -       0       - 
Total allocated inode limit: 2000, total allocated block limit: 5120
",
    );
    for (option, row) in [
        ("-o 1", " lustre-OST0001    4096       -    5120       -       1       -       0       - \n"),
        (
            "-o lustre-OST0001_UUID",
            " lustre-OST0001    4096       -    5120       -       1       -       0       - \n",
        ),
        ("--mdt 0", " lustre-MDT0000       0       -       0       -       7       -    2000       - \n"),
        ("-o 1 --pool p2", " lustre-OST0001    4096       -       0       -       1       -       0       - \n"),
        ("-m 0 --pool p2", " lustre-MDT0000       0       -       0       -       7       -       0       - \n"),
    ] {
        check_case(&mut fake, &format!("$ lfs quota -q {option} -u 4000001000 /mnt/c1\n[exit 0]\n--- stdout\n{row}"));
    }
    fake.lose_sums();
    check_case(
        &mut fake,
        "$ lfs quota -v -q -u 4000001000 /mnt/c1
[exit 5]
--- stdout
        /mnt/c1  [4096]       0   20480       -       7       0    2000       - 
 lustre-MDT0000       0       -       0       -       7       -    2000       - 
 lustre-OST0000     [0]       -       0       -       0       -       0       - 
 lustre-OST0001    4096       -    5120       -       1       -       0       - 
Total allocated inode limit: 2000, total allocated block limit: 5120
Some errors happened when getting quota info. Some devices may be not working or deactivated. \
The data in \"[]\" is inaccurate.
",
    );
}

#[test]
fn quota_prints_defaults_and_grace_times_like_lustre() {
    let mut fake = fake();
    let mut check = |case: &str| check_case(&mut fake, case);
    check("$ lfs quota -t -u /mnt/c1\n[exit 0]\n--- stdout\nBlock grace time: 1w; Inode grace time: 1w\n");
    check("$ lfs setquota -t -u -b 1w -i 2d /mnt/c1\n[exit 0]\n");
    check("$ lfs quota -t -u /mnt/c1\n[exit 0]\n--- stdout\nBlock grace time: 1w; Inode grace time: 2d\n");
    check("$ lfs quota -t -g /mnt/c1\n[exit 0]\n--- stdout\nBlock grace time: 1w; Inode grace time: 1w\n");
    check("$ lfs setquota -U -b 50M -B 100M /mnt/c1\n[exit 0]\n");
    check(
        "$ lfs quota -U /mnt/c1
[exit 0]
--- stdout
Disk default usr quota:
     Filesystem  bquota  blimit  bgrace  iquota  ilimit  igrace 
        /mnt/c1   51200  102400  604800       0       0       - 
",
    );
    check(
        "$ lfs quota -qhU /mnt/c1\n[exit 0]\n--- stdout\n        /mnt/c1     50M    100M      1w       0       0       - \n",
    );
    check("$ lfs setquota -u 4000001000 -B 1G /mnt/c1\n[exit 0]\n");
    check("$ lfs setquota -u 4000001000 -D /mnt/c1\n[exit 0]\n");
    check(
        "$ lfs quota -q -u 4000001000 /mnt/c1
[exit 0]
--- stdout
        /mnt/c1       0   51200  102400       -       1       0       0       - 
",
    );
    check("$ lfs setquota -t -p --block-grace notify --inode-grace 1h30m /mnt/c1\n[exit 0]\n");
    check("$ lfs quota -t -p\n[exit 0]\n--- stdout\nBlock grace time: notify; Inode grace time: 1h30m\n");
}

#[test]
fn quota_lists_all_ids_of_a_kind() {
    let mut fake = fake();
    for id in [4_000_000_001, 4_000_000_002] {
        fake.uses(Id { kind: Kind::User, id }, used(0), used(u64::from(id % 10)));
    }
    let head = "     Filesystem  quota_id  kbytes  bquota  blimit  bgrace   files  iquota  ilimit  igrace \n";
    let row = |id: &str, kib: u64, files: u64| {
        format!("        /mnt/c1 {id:>9} {kib:>7}       0       0       - {files:>7}       0       0       - \n")
    };
    let (one, two, last) = (row("4000000001", 0, 1), row("4000000002", 0, 2), row("4000001000", 0, 1));
    let root = row("root", 39556, 848);
    let mut check = |options: &str, rows: &[&str]| {
        let rows = rows.concat();
        let case = format!("$ lfs quota -a {options} /mnt/c1\n[exit 0]\n--- stdout\nDisk usr quotas\n{head}{rows}");
        check_case(&mut fake, &case);
    };
    check("-u", &[&one, &two, &last]);
    check("--show-root -u", &[&root, &one, &two, &last]);
    check("-n -u --show-root", &[&row("0", 39556, 848), &one, &two, &last]);
    check("-u -s 4000000002", &[&two, &last]);
    check("-u -e 4000000002", &[&one, &two]);
    check("-u -s 5 -e 6", &[]);
}

#[test]
fn quota_prints_only_selected_columns() {
    let mut fake = fake();
    check_case(
        &mut fake,
        "$ lfs quota --filesystem --inodes --busage -g root /mnt/c1
[exit 0]
--- stdout
Disk quotas for grp root (gid 0):
     Filesystem  kbytes   files 
        /mnt/c1   39556     848 
",
    );
    check_case(&mut fake, "$ lfs quota -q --blocks -u root /mnt/c1\n[exit 0]\n--- stdout\n  39556 \n");
    check_case(
        &mut fake,
        "$ lfs quota -q --delimiter=, --mount-point --blimit -bB --bgrace --igrace --user=root /mnt/c1
[exit 0]
--- stdout
        /mnt/c1,      0,      0,      -,      -
",
    );
}

#[test]
fn quota_refuses_bad_calls() {
    let mut fake = fake();
    for (line, err) in [
        ("-u nouser /mnt/c1", "invalid id 'nouser'"),
        ("-u", "missing user, group or project"),
        ("-u 0 -g 0", "only one of -u, -g, -p, -U, -G and -P may be specified"),
        ("-a /mnt/c1", "one of -u, -g and -p must be specified"),
        ("-x", "unrecognized option '-x'"),
        ("-o x -u 0", "invalid OST index 'x'"),
        ("-a -u -s -1", "invalid id '-1'"),
    ] {
        let ran = lfs(&mut fake, &format!("lfs quota {line}"));
        assert_eq!(ran, (4, USAGE.to_owned(), format!("lfs quota: {err}\n")), "{line}");
    }
    check_case(
        &mut fake,
        "$ lfs quota -u 4000001000 /tmp /mnt/c1
[exit 19]
--- stdout
Disk quotas for usr <unknown> (uid 4000001000):
     Filesystem  kbytes  bquota  blimit  bgrace   files  iquota  ilimit  igrace 
        /mnt/c1       0       0       0       -       1       0       0       - 
--- stderr
lfs quota: '/tmp' is not on a mounted Lustre filesystem
",
    );
    for (line, code, err) in [
        ("--pool nopool -u 0 /mnt/c1", 2, "cannot get the quotas of '/mnt/c1': No such file or directory"),
        ("-o 9 -u 0 /mnt/c1", 6, "cannot get the quotas of '/mnt/c1': No such device or address"),
        ("--lqa x -u 0", 95, "there are no quotas of ranges of ids (--lqa)"),
    ] {
        let ran = lfs(&mut fake, &format!("lfs quota -q {line}"));
        assert_eq!(ran, (code, String::new(), format!("lfs quota: {err}\n")), "{line}");
    }
}
