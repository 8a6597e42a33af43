//! What `lfs migrate` makes of its command line.

use super::super::testing::{Fake, check_case, lfs};

fn fake() -> Fake {
    let mut fake = Fake::new("/mnt/c1");
    fake.file("mg", "[0x200000402:0x1:0x0]", None);
    fake
}

#[test]
fn files_are_migrated_as_asked() {
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
fn mistakes_are_told_as_lustre_tells_them() {
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
        ("lfs migrate --bogus mg", "lfs migrate: unrecognized option '--bogus'"),
        ("lfs migrate -d mg", "lfs migrate migrate: components are not changed by migrating"),
    ] {
        let (code, out, err) = lfs(&mut fake, line);
        assert_eq!((code, err.trim_end()), (4, what), "{line}");
        assert!(out.contains("Usage: migrate "), "{out}");
    }
    let (code, _, err) = lfs(&mut fake, "lfs migrate -m 1 mg");
    assert_eq!((code, err.as_str()), (95, "lfs migrate: moving files between MDTs: Operation not supported (95)\n"));
    assert!(fake.advised().is_empty());
}
