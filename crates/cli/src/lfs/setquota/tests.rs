//! Tests of `lfs setquota` against the answers of a captured Lustre.

use super::{
    super::testing::{Fake, check_case, lfs},
    *,
};

/// Returns the limits of a user as `lfs quota` prints them: space, then files.
fn limits(fake: &mut Fake) -> String {
    let columns = "--bsoftlimit --bhardlimit --isoftlimit --ihardlimit";
    let (code, out, err) = lfs(fake, &format!("lfs quota -q {columns} -u 4000001000 /mnt/c1"));
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    out.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn setquota_sets_only_the_given_limits() {
    let mut fake = Fake::new("/mnt/c1");
    for (options, want) in [
        ("-b 100M -B 200M", "102400 204800 0 0"),
        ("--block-hardlimit 1G", "102400 1048576 0 0"),
        ("-i 5000 --inode-hardlimit 10k", "102400 1048576 5000 10240"),
        ("-b 2048 -B 4000000B", "2048 2000000 5000 10240"),
        ("-b 0 -B 0 -i 0 -I 0", "0 0 0 0"),
        ("-B 2049k -I 2000", "0 2049 0 2000"),
    ] {
        let (code, _, err) = lfs(&mut fake, &format!("lfs setquota -u 4000001000 {options} /mnt/c1"));
        assert_eq!((code, err.as_str()), (0, ""), "{options}");
        assert_eq!(limits(&mut fake), want, "{options}");
    }
    check_case(&mut fake, "$ lfs setquota -u 4000001000 --delete /mnt/c1\n[exit 0]\n");
    assert_eq!(limits(&mut fake), "0 0 0 0");
}

#[test]
fn setquota_warns_of_small_limits() {
    let mut fake = Fake::new("/mnt/c1");
    let more = "See 'lfs help setquota' or Lustre manual for details\n";
    let warning = |name: &str| format!("lfs setquota: warning: {name} smaller than minimum qunit size\n{more}");
    let (soft, hard) = (warning("inode softlimit '10'"), warning("inode hardlimit '1024'"));
    check_case(
        &mut fake,
        &format!("$ lfs setquota -u 4000001000 -b 10M -i 10 -I 1024 /mnt/c1\n[exit 0]\n--- stderr\n{soft}{hard}"),
    );
    let (soft, hard) = (warning("block softlimit '512'"), warning("block hardlimit '1024'"));
    check_case(&mut fake, &format!("$ lfs setquota -G -b 512 -B 1M /mnt/c1\n[exit 0]\n--- stderr\n{soft}{hard}"));
}

#[test]
fn setquota_fails_like_lustre() {
    let mut fake = Fake::new("/mnt/c1");
    let mut check = |case: &str| check_case(&mut fake, case);
    check(
        "$ lfs setquota -u nouser -b 1 /mnt/c1
[exit 1]
--- stderr
lfs setquota: invalid user id 'nouser'
setquota failed: Operation not permitted
",
    );
    check(
        "$ lfs setquota -u 4000001000 -b 20M -B 10M /mnt/c1
[exit 22]
--- stderr
lfs setquota: quotactl failed: Invalid argument
setquota failed: Invalid argument
",
    );
    check(
        "$ lfs setquota -p 7 -B 10M /tmp
[exit 19]
--- stderr
lfs setquota: '/tmp' is not on a mounted Lustre filesystem
setquota failed: No such device
",
    );
    check(
        "$ lfs setquota -u 4000001000 --pool nopool -B 10M /mnt/c1
[exit 2]
--- stderr
lfs setquota: file system 'lustre' has no pool 'nopool'
setquota failed: No such file or directory
",
    );
    check(
        "$ lfs setquota -g root -B 10M /mnt/c1
[exit 1]
--- stderr
lfs setquota: can't set quota for root usr/group/project.
setquota failed: Operation not permitted
",
    );
}

#[test]
fn setquota_sets_limits_within_a_pool() {
    let mut fake = Fake::new("/mnt/c1");
    let mut within = |options: &str| {
        let (code, _, err) = lfs(&mut fake, &format!("lfs setquota {options} /mnt/c1"));
        assert_eq!((code, err.as_str()), (0, ""), "{options}");
        let columns = "--bsoftlimit --bhardlimit";
        let cells = ["--pool p1", "--pool p2", ""].map(|pool| {
            let out = lfs(&mut fake, &format!("lfs quota -q {columns} {pool} -u 4000001000 /mnt/c1")).1;
            out.split_whitespace().collect::<Vec<_>>().join(" ")
        });
        cells.join(", ")
    };
    assert_eq!(within("-u 4000001000 --pool p1 -b 10M -B 20M"), "10240 20480, 0 0, 0 0");
    assert_eq!(within("-u 4000001000 --pool lustre.p2 -B 30M"), "10240 20480, 0 30720, 0 0");
    assert_eq!(within("-U --pool p1 -B 40M"), "10240 20480, 0 30720, 0 0");
    assert_eq!(within("-u 4000001000 --pool p1 --delete"), "0 40960, 0 30720, 0 0");
    assert_eq!(within("-t -u --pool p1 -b 1d"), "0 40960, 0 30720, 0 0");
    for (pool, want) in [("p1", "1d"), ("p2", "1w")] {
        let out = lfs(&mut fake, &format!("lfs quota -t -u --pool {pool} /mnt/c1")).1;
        assert_eq!(out, format!("Block grace time: {want}; Inode grace time: 1w\n"), "{pool}");
    }
}

#[test]
fn setquota_names_the_present_limit_that_refuses_a_change() {
    let mut fake = Fake::new("/mnt/c1");
    let mut check = |case: &str| check_case(&mut fake, case);
    check("$ lfs setquota -U -b 50M -B 100M -I 5000 /mnt/c1\n[exit 0]\n");
    check(
        "$ lfs setquota -u 4000001000 -B 10M /mnt/c1
[exit 22]
--- stderr
lfs setquota: quotactl failed: Invalid argument
lfs setquota: the hard limit of space would be below the present soft limit of 51200 KiB
setquota failed: Invalid argument
",
    );
    check(
        "$ lfs setquota -U -i 6000 /mnt/c1
[exit 22]
--- stderr
lfs setquota: quotactl failed: Invalid argument
lfs setquota: the soft limit of files would exceed the present hard limit of 5000
setquota failed: Invalid argument
",
    );
}

#[test]
fn setquota_refuses_bad_calls() {
    let mut fake = Fake::new("/mnt/c1");
    for (line, err) in [
        ("-u 4000001000 /mnt/c1", "at least one limit must be specified"),
        ("-u 4000001000 -D -B 10M /mnt/c1", "limits should not be specified when using default quota"),
        ("-U --default /mnt/c1", "can not set default quota for root user/group/project"),
        ("-B 10M /mnt/c1", "either -u or -g must be specified"),
        ("-u 5 -U -B 10M /mnt/c1", "only one of -u, -U, -g, -G, -p or -P may be specified"),
        ("-u 5 -B x /mnt/c1", "invalid limit 'x'"),
        ("-u 5 -B 10M", "filesystem not specified"),
        ("-u 5 -B 10M /mnt/c1 /mnt/c2", "unexpected argument '/mnt/c2'"),
        ("-t -b 1d /mnt/c1", "neither -u, -g nor -p specified"),
        ("-t -u /mnt/c1", "at least one grace time must be specified"),
        ("-t -u -g -b 1d /mnt/c1", "-u/g/p can't be used more than once"),
        ("-t -u -b 1y /mnt/c1", "bad block-grace: 1y"),
        ("-t -u -z", "unrecognized option '-z'"),
        ("-u 5 --pool p1 -B 10M -I 5000 /mnt/c1", "a pool has no limits of files (-i, -I)"),
        ("-t -u --pool p1 -i 1d /mnt/c1", "a pool has no limits of files (-i, -I)"),
    ] {
        let ran = lfs(&mut fake, &format!("lfs setquota {line}"));
        let err = format!("lfs setquota: {err}\nsetquota failed: Unknown error -4\n");
        assert_eq!(ran, (4, USAGE.to_owned(), err), "{line}");
    }
    assert_eq!(lfs(&mut fake, "lfs setquota -h"), (4, USAGE.to_owned(), String::new()));
}

#[test]
fn grace_times_are_seconds_or_have_units() {
    for (text, want) in [
        ("0", Some(0)),
        ("3600", Some(3600)),
        ("1w2d", Some(9 * 24 * 3600)),
        ("5s1m5s", Some(70)),
        ("notify", Some(NOTIFY_SECS)),
        ("281474976710655", None),
        ("", None),
        ("w", None),
        ("1w2", None),
        ("1y", None),
        ("-1", None),
        ("99999999999999999999w", None),
        ("1ß", None),
    ] {
        assert_eq!(duration(text), want, "{text}");
    }
}
