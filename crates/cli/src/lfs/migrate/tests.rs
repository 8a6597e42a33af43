//! Tests of the command line of `lfs migrate`.

use super::super::testing::{Fake, check_case, lfs};

fn fake() -> Fake {
    let mut fake = Fake::new("/mnt/c1");
    fake.file("mg", "[0x200000402:0x1:0x0]", None);
    fake
}

#[test]
fn migrate_passes_its_options_to_the_copy() {
    let mut fake = fake();
    check_case(&mut fake, "$ lfs migrate -c 4 mg\n[exit 0]\n");
    check_case(&mut fake, "$ lfs migrate -v -c 2 mg\n[exit 0]\n--- stdout\nmg\n");
    check_case(&mut fake, "$ lfs migrate -b -c 1 mg\n[exit 0]\n");
    check_case(&mut fake, "$ lfs migrate mg\n[exit 0]\n");
    let did = fake.advised();
    assert_eq!(did.len(), 4, "{did:?}");
    assert!(did[0].starts_with("mg migrate ") && !did[0].contains("block"), "{did:?}");
    assert!(did[2].ends_with(" block"), "{did:?}");
}

#[test]
fn migrate_refuses_bad_calls_like_lustre() {
    let mut fake = fake();
    check_case(
        &mut fake,
        "$ lfs migrate nosuch\n[exit 2]\n--- stderr
lfs migrate: can't create composite layout from file nosuch: No such file or directory
",
    );
    check_case(
        &mut fake,
        "$ lfs migrate -c 1 .\n[exit 21]\n--- stderr
error: lfs migrate: .: cannot open source file: Is a directory
",
    );
    for (line, what) in [
        ("lfs migrate -S 100 mg", "lfs migrate migrate: invalid stripe size '100'"),
        ("lfs migrate -c 4", "lfs migrate migrate: FILE must be specified"),
        ("lfs migrate -W 0 mg", "lfs migrate migrate: invalid bandwidth '0'"),
        ("lfs migrate --stats-interval 0 mg", "lfs migrate migrate: invalid stats interval '0'"),
        ("lfs migrate -m x mg", "lfs migrate: invalid MDT target(s) 'x'"),
        ("lfs migrate --bogus mg", "lfs migrate: unrecognized option '--bogus'"),
        ("lfs migrate -d mg", "lfs migrate migrate: cannot add, delete or change components"),
    ] {
        let (code, out, err) = lfs(&mut fake, line);
        assert_eq!((code, err.trim_end()), (4, what), "{line}");
        assert!(out.contains("Usage: migrate "), "{out}");
    }
    assert!(fake.advised().is_empty());
}

#[test]
fn migrate_to_mdt_accepts_present_mdt_and_refuses_others() {
    let mut fake = fake();
    fake.dir("mgd");
    fake.attribute("mgd", "sheen.mdt", b"0");
    for (line, code, said) in [
        ("-m 9 mgd", 19, "lfs migrate: mgd migrate failed: No such device (19)\n"),
        ("-m 0,9 mgd", 19, "lfs migrate: mgd migrate failed: No such device (19)\n"),
        ("-m 0 nosuch", 2, "lfs migrate: nosuch migrate failed: No such file or directory (2)\n"),
        ("-m 0 /tmp", 25, "lfs migrate: /tmp migrate failed: Inappropriate ioctl for device (25)\n"),
        // The directories are on this MDT already, and not striped.
        ("-m 0 mgd", 0, ""),
        ("-m -1 mgd", 0, ""),
        ("-m 0 -c 1 mgd", 0, ""),
    ] {
        let (exit, _, err) = lfs(&mut fake, &format!("lfs migrate {line}"));
        assert_eq!((exit, err.as_str()), (code, said), "{line}");
    }
    let (code, out, err) = lfs(&mut fake, "lfs migrate -v -m 1 mgd");
    assert_eq!((code, out.as_str()), (95, ""), "{err}");
    assert!(err.contains("directories cannot be moved or restriped yet"), "{err}");
    assert_eq!(lfs(&mut fake, "lfs migrate -m 0 -c 2 mgd").0, 95);
    assert_eq!(lfs(&mut fake, "lfs migrate -v -m 0 mgd").1, "mgd\n");
    assert!(fake.advised().is_empty());
}
