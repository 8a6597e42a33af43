//! Tests of `lfs project` against the answers of a captured Lustre.

use sheen_wire::{FileKind, Project, project};

use super::super::testing::{Fake, UNREADABLE, check_case, lfs};

fn fake() -> Fake {
    let mut fake = Fake::new("/mnt/c1");
    fake.dir("pj");
    fake.node("pj/f", FileKind::Regular, "");
    fake
}

fn of(fake: &Fake, path: &str) -> (u32, bool) {
    let value = fake.stored(path, project::XATTR);
    let project = value.map_or(Project::default(), |value| Project::decode(&value).unwrap());
    (project.id, project.inherits)
}

/// The captured case, except that names are sorted.
#[test]
fn project_lists_sets_checks_and_clears_like_lustre() {
    let mut fake = fake();
    let mut check = |case: &str| check_case(&mut fake, case);
    check("$ lfs project pj\n[exit 0]\n--- stdout\n    0 - pj/f\n");
    check("$ lfs project -d pj\n[exit 0]\n--- stdout\n    0 - pj\n");
    check("$ lfs project -p 1000 -s pj\n[exit 0]\n");
    check("$ lfs project -d pj\n[exit 0]\n--- stdout\n 1000 P pj\n");
    check("$ lfs project pj\n[exit 0]\n--- stdout\n 1000 P pj/f\n");
    check("$ lfs project -c -p 1000 pj\n[exit 0]\n");
    check("$ lfs project -r -s -p 1000 pj\n[exit 0]\n");
    fake.node("pj/g", FileKind::Regular, "");
    fake.attribute("pj/g", project::XATTR, &Project { id: 1000, inherits: false }.encode());
    let mut check = |case: &str| check_case(&mut fake, case);
    check("$ lfs project pj\n[exit 0]\n--- stdout\n 1000 P pj/f\n 1000 - pj/g\n");
    check("$ lfs project -c -r pj\n[exit 0]\n");
    check(
        "$ lfs project -c -r -p 1001 pj
[exit 0]
--- stdout
pj - project identifier is not set (inode=1000, tree=1001)
pj/f - project identifier is not set (inode=1000, tree=1001)
pj/g - project identifier is not set (inode=1000, tree=1001)
",
    );
    check("$ lfs project -c -r -0 -p 1001 pj\n[exit 0]\n--- stdout\npj\0pj/f\0pj/g\0");
    check("$ lfs project -C -r pj\n[exit 0]\n");
    check("$ lfs project pj\n[exit 0]\n--- stdout\n    0 - pj/f\n    0 - pj/g\n");
    check("$ lfs project -C -k -r pj\n[exit 0]\n");
    check("$ lfs project nosuch\n[exit 1]\n--- stderr\nlfs: failed to lstat 'nosuch': No such file or directory\n");
    check("$ lfs project pj/f\n[exit 0]\n--- stdout\n    0 - pj/f\n");
    check("$ lfs project -k pj/f\n[exit 0]\n--- stdout\n    0 - pj/f\n");
    check("$ lfs project /tmp\n[exit 0]\n");
}

#[test]
fn project_of_a_tree_reaches_everything_below() {
    let mut fake = fake();
    fake.dir("pj/a");
    fake.node("pj/a/x", FileKind::Regular, "");
    fake.node("pj/a/link", FileKind::Symlink, "x");
    assert_eq!(lfs(&mut fake, "lfs project --proj-inherit 7 pj").0, 0);
    assert_eq!(["pj", "pj/f", "pj/a", "pj/a/x"].map(|path| of(&fake, path).0), [7, 7, 7, 0]);
    check_case(
        &mut fake,
        "$ lfs project -c -r pj
[exit 0]
--- stdout
pj - project inheritance flag is not set
pj/a - project inheritance flag is not set
pj/a/link - project identifier is not set (inode=0, tree=7)
pj/a/x - project identifier is not set (inode=0, tree=7)
",
    );
    assert_eq!(lfs(&mut fake, "lfs project -rsp 016 pj").0, 0);
    assert_eq!(["pj", "pj/a", "pj/a/x"].map(|path| of(&fake, path)), [(16, true); 3]);
    assert_eq!(lfs(&mut fake, "lfs project -C -k -d pj").0, 0);
    assert_eq!((of(&fake, "pj"), of(&fake, "pj/a")), ((16, false), (16, true)));
    assert_eq!(lfs(&mut fake, "lfs project -s -d pj").0, 0);
    assert_eq!(of(&fake, "pj"), (16, true), "-s leaves the id");
    check_case(
        &mut fake,
        "$ lfs project -r pj
[exit 0]
--- stdout
   16 P pj/a
   16 P pj/f
   16 P pj/a/link
   16 P pj/a/x
",
    );
}

#[test]
fn project_continues_after_a_failure() {
    let mut fake = fake();
    fake.dir("pj/a");
    fake.attribute("pj/a", UNREADABLE, b"");
    check_case(
        &mut fake,
        "$ lfs project -p 3 pj nosuch
[exit 1]
--- stderr
lfs: failed to set xattr for 'pj/a': Permission denied
lfs: failed to lstat 'nosuch': No such file or directory
",
    );
    assert_eq!((of(&fake, "pj/a").0, of(&fake, "pj/f").0), (0, 3));
}

#[test]
fn project_leaves_entries_of_a_directory_that_failed() {
    let mut fake = fake();
    fake.attribute("pj", UNREADABLE, b"");
    check_case(
        &mut fake,
        "$ lfs project -r -p 3 pj
[exit 1]
--- stderr
lfs: failed to set xattr for 'pj': Permission denied
",
    );
    assert_eq!(of(&fake, "pj/f").0, 0);
}

#[test]
fn project_refuses_bad_calls() {
    let mut fake = fake();
    for (line, err) in [
        ("-p 99999999999 pj", "invalid project id '99999999999'"),
        ("-p 4294967295 pj", "invalid project id '4294967295'"),
        ("-p -1 pj", "invalid project id '-1'"),
        ("-p x pj", "invalid project id 'x'"),
        ("-p 0x10 pj", "invalid project id '0x10'"),
        ("-c -C pj", "lfs: cannot specify '-c' '-C' '-s' together"),
        ("-c -k pj", "lfs: '-k' is useless together with '-c'"),
        ("-C -p 1 pj", "lfs: '-p' is useless together with '-C'"),
        ("-C -0 pj", "lfs: '-0' is useless together with '-C'"),
        ("-0 pj", "lfs: '-0' is useless for list operations"),
        ("-k -p 1 pj", "lfs: '-k' is useless together with '-s'"),
        ("-0 -s pj", "lfs: '-0' is useless together with '-s'"),
        ("-x pj", "lfs: unrecognized option '-x'"),
        ("", "lfs: missing file or directory target(s)"),
    ] {
        let ran = lfs(&mut fake, &format!("lfs project {line}"));
        assert_eq!(ran, (4, super::USAGE.to_owned(), format!("{err}\n")), "{line}");
    }
    assert_eq!((of(&fake, "pj"), of(&fake, "pj/f")), ((0, false), (0, false)));
}
