//! Tests of command lines against the answers of a real Lustre.

use std::cell::RefCell;

use super::{
    super::testing::{Fake, check_case},
    *,
};

/// Records the operations on directories instead of executing them.
struct RecordedDirectories {
    answer: Result<()>,
    done: RefCell<Vec<String>>,
}

impl Directories for RecordedDirectories {
    fn make(&self, path: &Path, mode: u32) -> Result<()> {
        self.done.borrow_mut().push(format!("make {} {mode:o}", path.display()));
        self.answer
    }

    fn set_mode(&self, path: &Path, mode: u32) -> Result<()> {
        self.done.borrow_mut().push(format!("chmod {} {mode:o}", path.display()));
        Ok(())
    }

    fn remove(&self, path: &Path) {
        self.done.borrow_mut().push(format!("remove {}", path.display()));
    }
}

/// Runs a command on such directories. Returns the exit code, stderr and the recorded operations.
fn noted(line: &str, answer: Result<()>) -> (i32, String, Vec<String>) {
    let directories = RecordedDirectories { answer, done: RefCell::default() };
    let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let fake = Fake::new("/mnt/c1");
    let mut tool = Tool { fs: &fake, out: &mut out, err: &mut err };
    let code = run_as(&mut tool, &args, "mkdir", &directories);
    (code, String::from_utf8(err).unwrap(), directories.done.into_inner())
}

/// Returns the layout request of a command line.
fn asks(line: &str) -> LmvUser {
    let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
    let mut asked = SetdirstripeOptions::default();
    for item in OPTIONS.parse(&args) {
        let Item::Option { id, value, .. } = item else { panic!("{line}: {item:?}") };
        option(&mut asked, "mkdir", id, value.as_deref().map_or("", text)).unwrap();
    }
    check(&asked, "mkdir", false).unwrap();
    wanted(&asked)
}

#[test]
fn setdirstripe_options_request_same_layouts_as_lustre() {
    let over = |hash: u32| HashType(hash | HashType::OVERSTRIPED);
    let (plain, striped) = (LmvUser::new(1), LmvUser { max_inherit: INHERIT_STRIPED, ..LmvUser::new(2) });
    let (one, all) = (Some(1), LmvUser { max_inherit: INHERIT_STRIPED, ..LmvUser::new(-1) });
    let overstriped = |count| LmvUser { hash: over(0), max_inherit: INHERIT_OVERSTRIPED, ..LmvUser::new(count) };
    for (line, want) in [
        ("", plain.clone()),
        ("-D", plain.clone()),
        ("-D -i -1", plain.clone()),
        ("-i 1", LmvUser { mdt: one, ..LmvUser::new(0) }),
        ("-m 1", LmvUser { mdt: one, ..LmvUser::new(0) }),
        ("-i -1", LmvUser::new(0)),
        ("-c 2", striped.clone()),
        ("-T 2", striped.clone()),
        ("--mdt-count=2 -H crush", LmvUser { hash: HashType(3), ..striped.clone() }),
        ("-c -1", all),
        ("-C 4", overstriped(4)),
        ("--mdt-overcount=-5", overstriped(-5)),
        ("-C 4 -c 2 -t fnv_1a_64 -X 7", LmvUser { hash: over(2), ..overstriped(2) }),
        ("-D -c 2", striped.clone()),
        ("-D -i 1 -c 1 -X 3", LmvUser { mdt: one, max_inherit: 3, ..plain.clone() }),
        ("-d", LmvUser::new(0)),
        ("-D -d", LmvUser::new(0)),
        (
            "-D -c 2 -i -1 --max-inherit 5 --max-inherit-rr 2",
            LmvUser { max_inherit: 5, max_inherit_rr: 2, ..striped.clone() },
        ),
        (
            "-D -c 2 -X 0 --max-inherit-rr -1",
            LmvUser { max_inherit: INHERIT_NONE, max_inherit_rr: INHERIT_RR_UNLIMITED, ..striped.clone() },
        ),
        ("-D -c 2 -X -1", LmvUser { max_inherit: INHERIT_UNLIMITED, ..striped.clone() }),
        ("-D -c 2 -X -2", striped),
        ("-i 1,0", LmvUser::new(0).with_mdts(&[1, 0])),
        ("-i 0-2 -c 3", LmvUser { max_inherit: INHERIT_STRIPED, ..LmvUser::new(0) }.with_mdts(&[0, 1, 2])),
        ("-i 0,0", overstriped(0).with_mdts(&[0, 0])),
    ] {
        assert_eq!(asks(line), want, "{line}");
    }
    assert!(asks("-D -d").deletes_default());
}

#[test]
fn setdirstripe_refuses_bad_calls_like_lustre() {
    let mut fake = Fake::new("/mnt/c1");
    for (line, err) in [
        ("mkdir -c 2 -H bogus mdbg", "lfs mkdir: bad directory hash type 'bogus'"),
        ("mkdir -C -6 mdCm6", "lfs: invalid stripe count '-6'"),
        ("mkdir -c -2 m", "lfs: invalid stripe count '-2'"),
        ("mkdir -p mdp/a/b", "lfs: unrecognized option '-p'"),
        ("mkdir -c 2001 mdbig", "lfs: invalid stripe count '2001'"),
        ("mkdir -c x m", "lfs: invalid stripe count 'x'"),
        ("mkdir -i x m", "lfs mkdir: invalid MDT target(s) 'x'"),
        ("mkdir -i 0-4000 m", "lfs mkdir: invalid MDT target(s) '0-4000'"),
        ("mkdir -i 0,-1 m", "lfs mkdir: invalid MDT target(s) '0,-1'"),
        ("mkdir -o 9 m", "lfs mkdir: bad MODE '9'"),
        ("mkdir", "lfs mkdir: DIR must be specified"),
        ("setdirstripe -D -X 251 m", "lfs setdirstripe: max-inherit 251 exceeds maximum 250"),
        ("setdirstripe -D -X -3 m", "lfs setdirstripe: invalid max-inherit '-3'"),
        ("setdirstripe -D --max-inherit-rr x m", "lfs setdirstripe: invalid max-inherit-rr 'x'"),
        ("mkdir --max-inherit-rr 3 m", "lfs mkdir: '--max-inherit-rr' must be specified with '-D'"),
        ("setdirstripe -D -i 1 --max-inherit-rr 3 m", "lfs setdirstripe: max-inherit-rr needs mdt-index=-1, not 1"),
        ("setdirstripe -d -c 2 m", "lfs setdirstripe: cannot specify -d with -c or -i options"),
        ("mkdir -i 0,1 -c 3 m", "error: mkdir: stripe count 3 doesn't match the number of MDTs: 2"),
        ("mkdir --foreign m", "lfs mkdir: xattr must be provided in foreign mode"),
        ("mkdir --flags 1 m", "lfs mkdir: hex flags must be specified with --foreign option"),
        (
            "setdirstripe -D -i 0,1 m",
            "lfs setdirstripe: trying to create unrecommended default striped directory layout,
\t'-D -i x,y,z' will stripe every new directory across all MDTs,
\tadd -c with the number of MDTs to do this anyway",
        ),
    ] {
        let usage = if line.starts_with("mkdir") { MKDIR_USAGE } else { USAGE };
        check_case(&mut fake, &format!("$ lfs {line}\n[exit 4]\n--- stdout\n{usage}--- stderr\n{err}\n"));
    }
    // The usage text itself, as captured.
    check_case(
        &mut fake,
        "$ lfs mkdir -p mdp/a/b
[exit 4]
--- stdout
Create striped directory on specified MDT, same as setdirstripe.
usage: mkdir [OPTION] <directory>
\t\t[--mdt-count|-c stripe_count>
\t\t[--help|-h] [--mdt-hash|-H mdt_hash]
\t\t[--mdt-index|-i mdt_index[,mdt_index,...]
\t\t[--mdt-overcount|-C stripe_count>
\t\t[--default|-D] [--mode|-o mode]
\t\t[--max-inherit|-X max_inherit]
\t\t[--max-inherit-rr max_inherit_rr] <dir>
To create dir with a foreign (free format) layout :
setdirstripe|mkdir --foreign[=FOREIGN_TYPE] -x|-xattr STRING \t\t[--mode|-o MODE] [--flags HEX] DIRECTORY

--- stderr
lfs: unrecognized option '-p'
",
    );
}

#[test]
fn setdirstripe_refuses_impossible_requests_before_changes() {
    let mut fake = Fake::new("/mnt/c1");
    fake.dir("md1");
    fake.file("file", "[0x200000402:0x1b9:0x0]", None);
    for case in [
        "$ lfs mkdir nosuch/x\n[exit 2]\n--- stderr
lfs mkdir: cannot resolve path 'nosuch/x': No such file or directory (2)
lfs mkdir: 'nosuch/x' is not on a Lustre filesystem: No such file or directory (2)
lfs setdirstripe: cannot create dir 'nosuch/x': No such file or directory
",
        "$ lfs mkdir /tmp/zzz\n[exit 19]\n--- stderr
lfs mkdir: '/tmp/zzz' is not on a Lustre filesystem: No such device (19)
lfs setdirstripe: cannot create dir '/tmp/zzz': No such device
",
        "$ lfs mkdir -i 9 mdi9\n[exit 19]\n--- stderr
lfs mkdir: cannot find MDT lustre-MDT0009_UUID in system: No such device (19)
lfs setdirstripe: cannot create dir 'mdi9': No such device
",
        "$ lfs mkdir -i 1,2 m\n[exit 19]\n--- stderr
lfs mkdir: cannot find MDT lustre-MDT0002_UUID in system: No such device (19)
lfs setdirstripe: cannot create dir 'm': No such device
",
        "$ lfs setdirstripe -D -i 2 md1\n[exit 19]\n--- stderr
lfs setdirstripe: cannot find MDT lustre-MDT0002_UUID in system: No such device (19)
lfs setdirstripe: cannot set default stripe on dir 'md1': No such device
",
        "$ lfs setdirstripe -D -i 0,1 -c 2 md1\n[exit 22]\n--- stderr
lfs setdirstripe: cannot set default stripe on dir 'md1': Invalid argument
",
        "$ lfs setdirstripe -D -c 1 file\n[exit 20]\n--- stderr
lfs setdirstripe: unable to open 'file': Not a directory (20)
lfs setdirstripe: cannot set default stripe on dir 'file': Not a directory
",
        "$ lfs mkdir --foreign -x here m\n[exit 95]\n--- stderr
lfs mkdir: foreign directories are not supported: Operation not supported (95)
",
    ] {
        check_case(&mut fake, case);
    }
}

#[test]
fn lfs_mkdir_removes_directory_if_its_layout_is_refused() {
    let (code, err, done) = noted("md1", Err(Errno::EEXIST));
    assert_eq!(done, ["make md1 777"]);
    assert_eq!(
        (code, err.as_str()),
        (
            17,
            "lfs mkdir: dirstripe error on 'md1': stripe already set
lfs setdirstripe: cannot create dir 'md1': File exists
"
        )
    );
    // The fake file system does not have the new directory, so setting its layout fails.
    let (code, err, done) = noted("-o 555 -c 1 new", Ok(()));
    assert_eq!(done, ["make new 700", "remove new"]);
    assert_eq!(code, 2, "{err}");
    assert!(err.starts_with("lfs mkdir: dirstripe error on 'new': No such file or directory\n"), "{err}");
    // The first failure decides the exit code. The other operands are tried as well.
    let (code, _, done) = noted("/tmp/a b nosuch/c", Err(Errno::EACCES));
    assert_eq!((code, done), (19, vec!["make b 777".to_owned()]));
}

#[test]
fn setdirstripe_warns_of_unrecommended_options() {
    let (_, err, _) = noted("-D -c 4 -X -1 nosuch", Ok(()));
    assert!(err.starts_with("lfs mkdir: unrecommended max-inherit=-1 when default stripe-count=4\n"), "{err}");
    let (_, err, _) = noted("-D -c -1 -X 6 nosuch", Ok(()));
    assert!(err.starts_with("lfs mkdir: unrecommended max-inherit=6 when default stripe-count=-1\n"), "{err}");
    let (_, err, _) = noted("-D -c 4 -X 5 nosuch", Ok(()));
    assert!(!err.contains("unrecommended"), "{err}");
    let (_, err, _) = noted("-t crush -x foo -c 2 nosuch/x", Ok(()));
    assert!(
        err.starts_with(
            "warning: '--hash-type' and '-t' deprecated, use '--mdt-hash' or '-H' instead
lfs mkdir: xattr has been specified for non-foreign layout\n"
        ),
        "{err}"
    );
}
