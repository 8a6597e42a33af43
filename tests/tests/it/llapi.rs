//! `liblustreapi` as C programs use it: compiled against its header, linked with its shared object,
//! and run on a mount.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{ChildStdout, Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use sheen_layout::Composite;
use sheen_tests::{
    Fs, Guarded, Ran, is_root,
    posix::layout,
    run, run_command,
    sandbox::Sandbox,
    sheen,
    wait::{EVENTUALLY, eventually},
};

#[path = "../../../crates/layout/src/codec/fixtures.rs"]
#[allow(dead_code, reason = "other tests use the other layouts")]
mod captured;

/// After this time, a process that waits is still expected to wait.
const A_WHILE: Duration = Duration::from_millis(300);
/// A user id that is neither the superuser's nor that of the owner of a mount.
const NOBODY: u32 = 65534;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Returns the path of a file of the library, which lies beside the `sheen` program.
fn library(name: &str) -> PathBuf {
    let path = sheen().with_file_name(name);
    assert!(path.exists(), "{} is missing: cargo build -p sheen-llapi", path.display());
    path
}

/// The compiled program of a file of `llapi/`, in a directory of its own.
struct Program {
    dir: tempfile::TempDir,
    name: &'static str,
}

impl Program {
    /// Compiles the program as a user would, with every warning an error. Links it with the shared
    /// object, or with the archive if `whole`.
    fn compile(name: &'static str, whole: bool) -> Program {
        let dir = tempfile::tempdir().unwrap();
        let built = library(if whole { "liblustreapi.a" } else { "liblustreapi.so" });
        // As installed: the shared object by its soname, and the name that the linker looks for.
        for link in ["liblustreapi.so.1", "liblustreapi.so"] {
            std::os::unix::fs::symlink(&built, dir.path().join(link)).unwrap();
        }
        let mut gcc = Command::new("gcc");
        gcc.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-o"]).arg(dir.path().join(name));
        gcc.arg("-I").arg(root().join("crates/llapi/include"));
        gcc.arg(root().join("tests/tests/it/llapi").join(name).with_extension("c"));
        if whole {
            gcc.arg(&built).args(["-lgcc_s", "-lpthread", "-ldl", "-lm", "-lrt", "-lutil"]);
        } else {
            gcc.arg("-L").arg(dir.path()).arg("-llustreapi").arg(format!("-Wl,-rpath,{}", dir.path().display()));
        }
        run_command(gcc).ok();
        Program { dir, name }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join(self.name)
    }

    #[track_caller]
    fn run(&self, args: &[&str]) -> Ran {
        run(self.path(), args)
    }

    /// Runs the program as an unprivileged user. The library is copied first, because other users
    /// may have no access to the checkout.
    #[track_caller]
    fn run_as_nobody(&self, args: &[&str]) -> Ran {
        let object = self.dir.path().join("liblustreapi.so.1");
        fs::remove_file(&object).unwrap();
        fs::copy(library("liblustreapi.so"), &object).unwrap();
        fs::set_permissions(self.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = Command::new(self.path());
        command.args(args).uid(NOBODY).gid(NOBODY);
        run_command(command)
    }
}

#[test]
fn file_creation_calls_set_the_requested_layout() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    let program = Program::compile("ways", false);
    let out = program.run(&[fs.mnt.to_str().unwrap()]);
    let text = out.ok();
    for line in text.lines() {
        let [name, count, size, pattern, osts] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        // `lfs getstripe` of the same file.
        assert_eq!(fs.lfs(&format!("getstripe -c {name}")).ok().trim(), count, "{line}");
        assert_eq!(fs.lfs(&format!("getstripe -S {name}")).ok().trim(), size, "{line}");
        let lfs_pattern = fs.lfs(&format!("getstripe -L {name}")).ok();
        assert_eq!(lfs_pattern.trim(), if pattern == "over" { "raid0,overstriped" } else { "raid0" }, "{line}");
        let found: Vec<String> = layout(&fs.path(name)).stripes().iter().map(|s| s.ost.to_string()).collect();
        assert_eq!(found.join(","), osts, "{line}");
    }
    let says = |want: &str| assert!(text.lines().any(|line| line == want), "no line '{want}' in:\n{text}");
    says("create 2 1048576 raid0 1,2");
    says("list 3 131072 raid0 3,0,2");
    says("late 1 262144 raid0 2");
    says("layout 3 2097152 raid0 2,3,0");
    says("byfd 3 2097152 over 1,1,0");
    says("bylum 3 2097152 over 1,1,0");
    for (begins, n) in [("open 4 ", 1), ("over 6 65536 over ", 1), ("like 3 2097152 ", 1), ("dir/file 3 1048576 ", 1)] {
        assert_eq!(text.lines().filter(|line| line.starts_with(begins)).count(), n, "{begins}: {text}");
    }
    assert_eq!(fs::read(fs.path("link")).unwrap(), b"linked", "made where the link leads");
    assert_eq!(text.lines().filter(|line| line.starts_with("layout ")).count(), 2, "once made, once as it was: {text}");
}

#[test]
fn library_calls_work_for_unprivileged_users() {
    if !is_root() {
        return println!("skipped: all other tests run as an ordinary user");
    }
    let Some(fs) = Fs::up_or_skip(4) else { return };
    for dir in ["theirs", "theirs/own"] {
        fs::create_dir(fs.path(dir)).unwrap();
        std::os::unix::fs::chown(fs.path(dir), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let out = Program::compile("ways", false).run_as_nobody(&[fs.path("theirs").to_str().unwrap()]).ok();
    assert!(out.contains("\nopened 3 2097152 raid0 "), "a file is made although its mode denies its owner: {out}");
    assert_eq!(fs::metadata(fs.path("theirs/opened")).unwrap().permissions().mode() & 0o7777, 0o400);
    fs::write(fs.path("theirs/own/file"), "bytes").unwrap();
    fs::set_permissions(fs.path("theirs/own/file"), fs::Permissions::from_mode(0o644)).unwrap();
    let names = Program::compile("fids", false).run_as_nobody(&[
        fs.path("theirs/own").to_str().unwrap(),
        "sheen",
        "file",
        "file",
    ]);
    assert_eq!(names.ok(), fs.lfs("path2fid theirs/own/file").ok(), "its FID, and no path for a FID");
}

#[test]
fn program_decodes_the_lov_xattr_itself() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    fs.lfs("setstripe -o 2,0,2 -S 128K listed").ok();
    let program = Program::compile("print", false);
    let out = program.run(&[fs.path("listed").to_str().unwrap()]).ok();
    let objects: Vec<String> =
        layout(&fs.path("listed")).stripes().iter().map(|s| format!("{}={}", s.ost, s.object)).collect();
    let want = format!(
        "file pattern 0x201 size 131072 count 3: {}
plain, mirrors 1, state 0
id 0 mirror 0 flags 0 [0, EOF) pattern 4 size 131072 count 3 osts 2 0 2
components 1, the last with objects 0
",
        objects.join(" ")
    );
    assert_eq!(out, want);
}

#[test]
fn composite_layouts_of_a_real_lustre_are_decoded() {
    let program = Program::compile("print", false);
    let file = program.dir.path().join("bytes");
    let print = |hex: &str| {
        fs::write(&file, captured::bytes(hex)).unwrap();
        program.run(&["-x", file.to_str().unwrap()]).ok()
    };
    assert_eq!(
        print(captured::PFL),
        "\
entry 1 pattern 0x1 size 1048576 count 1: 0=[0x280000401:0x273:0x0]
entry 2 pattern 0x1 size 4194304 count 4: 2=[0x300000401:0x288:0x0] 3=[0x340000401:0x296:0x0] 1=[0x2c0000401:0x28a:0x0] 0=[0x280000401:0x274:0x0]
entry 3 pattern 0x1 size 4194304 count 65535:
composite, mirrors 1, state 0
id 1 mirror 0 flags 0x10 [0, 1048576) pattern 0 size 1048576 count 1 osts 0
id 2 mirror 0 flags 0x10 [1048576, 4294967296) pattern 0 size 4194304 count 4 osts 2 3 1 0
id 3 mirror 0 flags 0 [4294967296, EOF) pattern 0 size 4194304 count all osts
components 3, the last with objects 2
"
    );
    let mirrored = print(captured::MIRRORED);
    let (_, library) = mirrored.split_once("composite").unwrap();
    assert_eq!(
        library,
        ", mirrors 2, state ro
id 1 mirror 1 flags 0x16 [0, 1048576) pattern 0 size 1048576 count 1 osts 3
id 2 mirror 1 flags 0 [1048576, EOF) pattern 0 size 4194304 count 2 osts
id 3 mirror 2 flags 0x10 [0, 4194304) pattern 0 size 4194304 count 1 osts 0
id 4 mirror 2 flags 0 [4194304, EOF) pattern 0 size 4194304 count 4 osts
components 4, the last with objects 131075
"
    );
}

#[test]
fn composite_layouts_are_built() {
    let ran = Program::compile("composite", false).run(&[]);
    assert_eq!(ran.err, "a mirror must reach to the end of file\n");
    assert_eq!(ran.ok(), "");
}

/// Errors without a mount, with the archive instead of the shared object.
#[test]
fn invalid_calls_without_a_mount_return_the_right_errno() {
    let program = Program::compile("errors", true);
    let elsewhere = tempfile::tempdir().unwrap();
    let said = |ran: Ran| {
        assert_eq!(ran.err, "no room for 3: No space left on device (28)\nonly this\n");
        assert_eq!(ran.ok(), "normal text\n");
    };
    said(program.run(&[elsewhere.path().to_str().unwrap()]));
}

#[test]
fn invalid_calls_on_a_mount_return_the_right_errno() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    let program = Program::compile("errors", false);
    let elsewhere = tempfile::tempdir().unwrap();
    program.run(&[elsewhere.path().to_str().unwrap(), fs.mnt.to_str().unwrap()]).ok();
}

#[test]
fn fid_and_path_queries_are_inverse() {
    let Some(fs) = Fs::up_with_or_skip(4, &["--fsname", "fids"]) else { return };
    fs::create_dir(fs.path("d")).unwrap();
    fs.lfs("setstripe -c 3 d/file").ok();
    fs::write(fs.path("d/file"), "bytes").unwrap();
    fs::hard_link(fs.path("d/file"), fs.path("link")).unwrap();
    let out = Program::compile("fids", false).run(&[fs.mnt.to_str().unwrap(), "fids", "d/file", "link"]).ok();
    let fid = |path: &str| fs.lfs(&format!("path2fid {path}")).ok().trim().to_owned();
    let mut want = format!("{}\n", fid("d/file"));
    if is_root() {
        let (d, root) = (fid("d"), fid("."));
        want += &format!("d/file\nlink\nfile in {d}\nlink in {root}\n3 stripes\n");
    }
    assert_eq!(out, want);
}

#[test]
fn mount_target_and_pool_queries_return_their_names() {
    let Some(fs) = Fs::up_with_or_skip(4, &["--fsname", "names"]) else { return };
    let mnt = fs.mnt.to_str().unwrap();
    let lctl = format!("{} lctl", sheen().display());
    for words in ["pool_new names.bare", "pool_new names.some", "pool_add names.some OST0002 OST0000 OST0001"] {
        fs.sh(&format!("{lctl} {words} 2>&1")).ok();
    }
    let out = Program::compile("mounts", false).run(&[mnt, "names"]).ok();
    let (name, uuids) = out.split_once('\n').unwrap();
    assert_eq!(fs.lfs(&format!("getname {mnt}")).ok().trim(), name);
    let want: String = (0..4).map(|i| format!("names-OST{i:04x}_UUID\n")).collect();
    let pool = "names-OST0002_UUID\nnames-OST0000_UUID\nnames-OST0001_UUID\n";
    assert_eq!(uuids, want + "names-MDT0000_UUID\n" + pool);
}

/// Space target by target, as programs like `lfs df` request it.
#[test]
fn obd_statfs_returns_the_space_of_each_target() {
    let Some(fs) = Fs::up_with_or_skip(4, &["--fsname", "space"]) else { return };
    let mnt = fs.mnt.to_str().unwrap();
    fs.sh(&format!("{} lctl set_param osc.*OST0002*.active=0", sheen().display())).ok();
    let out = Program::compile("space", false).run(&[mnt]).ok();
    let df = fs.lfs(&format!("df -v {mnt}")).ok();
    let said = |name: &str| df.lines().find(|line| line.starts_with(name)).unwrap().split_whitespace().nth(1).unwrap();
    let mut lines = out.lines();
    for target in ["space-MDT0000_UUID", "space-OST0000_UUID", "space-OST0001_UUID", "space-OST0003_UUID"] {
        let want = format!("{target} {}", said(target));
        assert!(lines.any(|line| line == want), "no line '{want}' in:\n{out}");
    }
    assert!(out.contains("\nspace-OST0002_UUID inactive\n"), "{out}");
    let instance = fs.lfs(&format!("getname -i {mnt}")).ok();
    let instance = instance.split_whitespace().next().unwrap().to_owned();
    assert!(out.ends_with(&format!("space-clilov-{instance}\nspace-clilmv-{instance}\n")), "{out}");
}

/// A tool that walks a tree requests attributes and layout of each name at once.
#[test]
fn get_lum_calls_return_attributes_and_layout_together() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    fs.lfs("setstripe -c 3 -S 128K f").ok();
    fs::write(fs.path("f"), vec![1; 70_000]).unwrap();
    fs::create_dir(fs.path("d")).unwrap();
    fs.lfs("setstripe -c 2 d").ok();
    fs.lfs("setstripe -E 1M -c 1 -E -1 -c 4 d/composite").ok();
    std::os::unix::fs::symlink("nowhere", fs.path("link")).unwrap();
    Program::compile("lum", false).run(&[fs.mnt.to_str().unwrap()]).ok();
}

#[test]
fn handle_made_of_a_fid_opens_the_file() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    fs::create_dir(fs.path("d")).unwrap();
    fs::write(fs.path("d/file"), "bytes").unwrap();
    // The kernel of this mount has nothing of the file cached.
    let second = fs.second_mount();
    let fid = fs.lfs("path2fid d/file").ok();
    let program = Program::compile("handle", false);
    program.run(&[fs.mnt.to_str().unwrap(), fid.trim(), "d/file"]).ok();
    program.run(&[second.mnt.to_str().unwrap(), fid.trim()]).ok();
}

#[test]
fn ladvise_calls_are_accepted() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    fs.lfs("setstripe -c 1 f").ok();
    Program::compile("advise", false).run(&[fs.path("f").to_str().unwrap()]).ok();
}

#[test]
fn data_version_call_returns_a_new_version_after_each_change() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    fs.lfs("setstripe -c 2 f").ok();
    fs::write(fs.path("f"), [0; 5000]).unwrap();
    Program::compile("version", false).run(&[fs.path("f").to_str().unwrap()]).ok();
}

#[test]
fn swap_layouts_call_exchanges_the_data_of_two_files() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    fs.lfs("setstripe -c 2 f").ok();
    fs::write(fs.path("f"), "one").unwrap();
    fs::write(fs.path("g"), "other").unwrap();
    let paths = [fs.path("f"), fs.path("g")];
    Program::compile("swap", false).run(&paths.each_ref().map(|path| path.to_str().unwrap())).ok();
}

#[test]
fn changelog_calls_return_records_until_they_are_cleared() {
    if !is_root() {
        return println!("skipped: only the superuser reads changelogs");
    }
    let Some(fs) = Fs::up_with_or_skip(4, &["--fsname", "changes"]) else { return };
    fs.sh(&format!("{} lctl --device changes-MDT0000 changelog_register", sheen().display())).ok();
    Program::compile("changelog", false).run(&[fs.mnt.to_str().unwrap(), "changes-MDT0000", "cl1"]).ok();
}

/// In a sandbox, because the calls query all processes of the host.
#[test]
fn param_calls_return_names_and_values() {
    Sandbox::enter("llapi_params", |s| {
        s.up("sheen", "/mnt/here");
        let program = Program::compile("params", false);
        let out = s.sh(Path::new("/"), &format!("{} sheen", program.path().display())).ok();
        let rpcs = "lctl get_param -n 'osc.sheen-OST0001-osc-[!M]*.max_rpcs_in_flight'";
        assert_eq!(out, format!("sheen\n{}", s.sh(Path::new("/"), rpcs).ok()));
    });
}

/// Migration tools other than `lfs migrate` use these calls.
#[test]
fn quotactl_call_sets_and_returns_limits_and_use() {
    if !is_root() {
        return println!("skipped: only the superuser sets quotas");
    }
    let Some(fs) = Fs::up_with_or_skip(4, &["--fsname", "quotactl", "--default-layout", "plain"]) else { return };
    fs.lfs("setstripe -i 2 .").ok();
    fs.sh("dd if=/dev/zero of=f bs=1M count=3 conv=fsync; chown 65534:65534 f").ok();
    let used = || fs.lfs("quota -q --blocks -u 65534 .").out.trim().to_owned();
    eventually("the file is charged", || used() == "3072");
    let program = Program::compile("quota", false);
    program.run(&[fs.mnt.to_str().unwrap(), "set"]).ok();
    let cells = fs.lfs("quota -q --bquota --blimit --iquota --ilimit -u 65534 .").ok();
    assert_eq!(cells.split_whitespace().collect::<Vec<_>>(), ["1024", "1048576", "0", "500"]);
    program.run_as_nobody(&[fs.mnt.to_str().unwrap(), "get"]).ok();
}

#[test]
fn program_restripes_a_file_with_a_volatile_file() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    fs.lfs("setstripe -c 1 -i 0 f").ok();
    let bytes = sheen_tests::noise(1, 300_000);
    fs::write(fs.path("f"), &bytes).unwrap();
    Program::compile("restripe", false).run(&[fs.mnt.to_str().unwrap(), "f"]).ok();
    assert!(fs::read(fs.path("f")).unwrap() == bytes);
    let layout = layout(&fs.path("f"));
    assert_eq!(layout.stripe_size(), 131_072);
    assert_eq!(layout.stripes().iter().map(|s| s.ost).collect::<Vec<_>>(), [3, 1]);
    assert_eq!(fs.sh("ls -A").ok(), "f\n", "nothing is left behind");
}

/// IOR and MPI libraries use these ioctls, without the library.
#[test]
fn setstripe_ioctl_sets_the_layout() {
    let Some(fs) = Fs::up_with_or_skip(4, &["--fsname", "ioctl"]) else { return };
    let lctl = format!("{} lctl", sheen().display());
    fs.sh(&format!("{lctl} pool_new ioctl.some 2>&1 && {lctl} pool_add ioctl.some OST0001 OST0003 2>&1")).ok();
    let second = fs.second_mount();
    let program = Program::compile("ioctl", false);
    program.run(&[fs.mnt.to_str().unwrap(), second.mnt.to_str().unwrap()]).ok();
    let found = |name: &str| layout(&fs.path(name));
    assert_eq!((found("striped").stripe_count(), found("striped").stripe_size()), (3, 131_072));
    assert_eq!(found("striped").stripes()[0].ost, 2);
    assert_eq!(fs::read(fs.path("striped")).unwrap(), vec![3; 500_000]);
    assert_eq!(fs::read(second.path("striped")).unwrap(), vec![3; 500_000]);
    assert_eq!(fs.lfs("getstripe -p pooled").ok().trim(), "some");
    // No layout was chosen for these files: they get the default.
    fs::write(fs.path("usual"), "x").unwrap();
    for name in ["written", "appended", "cut", "mapped", "reserved"] {
        assert_eq!(found(name).stripes().len(), found("usual").stripes().len(), "{name}");
        assert_eq!(found(name).components().len(), found("usual").components().len(), "{name}");
    }
    assert_eq!(fs::read(second.path("written")).unwrap(), b"written");
    assert_eq!(fs::read(second.path("appended")).unwrap(), b"appended");
    assert_eq!(fs::read(second.path("cut")).unwrap(), vec![0; 1000]);
    assert_eq!(fs::read(second.path("mapped")).unwrap()[..6], *b"mapped");
    let untouched = fs.lfs("getstripe -c untouched");
    assert_eq!(untouched.ok(), "untouched has no stripe info\n");
}

/// Other programs that know Lustre's ioctls: group locks, flags, identity, advice, directories.
#[test]
fn ioctls_of_files_and_directories_answer_as_lustres() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    Program::compile("queries", false).run(&[fs.mnt.to_str().unwrap()]).ok();
}

#[test]
fn headers_have_lustres_numbers_and_missing_features_return_eopnotsupp() {
    Program::compile("headers", false).run(&[]).ok();
}

/// ROMIO's driver for Lustre uses these calls. It does not know composite layouts.
#[test]
fn romio_sets_hinted_stripes_and_reads_those_of_composite_layouts() {
    let Some(fs) = Fs::up_with_or_skip(4, &["--default-layout", "progressive"]) else { return };
    let second = fs.second_mount();
    let program = Program::compile("romio", false);
    program.run(&[fs.mnt.to_str().unwrap(), second.mnt.to_str().unwrap()]).ok();
    let found = |name: &str| layout(&fs.path(name));
    assert_eq!((found("hinted").stripe_count(), found("hinted").stripe_size()), (3, 131_072));
    assert_eq!((found("size").stripe_count(), found("count").stripe_count()), (4, 2));
    assert_eq!(fs::read(second.path("hinted")).unwrap(), vec![5; 400_000]);
    assert_eq!(found("usual").components().len(), 4);
}

#[test]
fn dir_create_calls_set_the_directory_striping() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    Program::compile("directories", false).run(&[fs.mnt.to_str().unwrap()]).ok();
    let mode = |name: &str| fs::metadata(fs.path(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("made"), mode("closed"), mode("numbers")), (0o750, 0o500, 0o755));
    let said = |what: &str| fs.lfs(&format!("getdirstripe {what}")).ok();
    assert_eq!(said("-c made").trim(), "0");
    assert_eq!(said("-H spread").trim(), "crush,overstriped");
    assert_eq!(said("-c spread").trim(), "2");
    assert_eq!(said("-D -c made").trim(), "1");
    assert_eq!(said("-D --max-inherit made").trim(), "3");
    assert_eq!(said("-D -i made").trim(), "0");
    assert_eq!(said("-D -c numbers"), said("-D -c closed"), "deleted");
    assert!(!fs.path("refused").exists() && !fs.path("elsewhere").exists());
}

/// Tools that resync mirrors use these calls. They take a lease for that, and release it.
#[test]
fn program_resyncs_mirrors_under_a_lease() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    let program = Program::compile("mirrors", false);
    let begin = || {
        let bytes = sheen_tests::noise(7, 5_000_000);
        fs.lfs("mirror create -N -c 2 -S 64K -N -E 1M -c 1 -E -1 -c 2 -N -c 1 f").ok();
        fs::write(fs.path("f"), &bytes).unwrap();
        bytes
    };
    let states = || {
        let layout = layout(&fs.path("f"));
        (layout.fresh_mirrors().iter().map(|m| m.mirror_id()).collect::<Vec<_>>(), layout.mirror_state())
    };
    let file = fs.path("f");
    let file = file.to_str().unwrap();
    let bytes = begin();
    assert_eq!(states(), (vec![1], Composite::WRITE_PENDING));
    program.run(&[file, "resync"]).ok();
    assert_eq!(states(), (vec![1, 2, 3], Composite::READ_ONLY));
    fs.lfs("mirror verify -v f").ok();
    assert!(fs::read(file).unwrap() == bytes);

    // A write during the copy: no data is lost, and mirrors that missed the write stay stale.
    fs::remove_file(file).unwrap();
    begin();
    program.run(&[file, "lost"]).ok();
    assert_eq!(states(), (vec![1], Composite::WRITE_PENDING));
    assert_eq!(fs::read(file).unwrap()[..7], *b"another");
    fs.lfs("mirror resync f").ok();
    fs.lfs("mirror verify -v f").ok();

    // A file with holes, copied to one mirror and to another piece by piece.
    fs::remove_file(file).unwrap();
    begin();
    fs.sh("truncate -s 0 f; truncate -s 3000000 f; printf data | dd of=f bs=1 seek=2000000 conv=notrunc status=none")
        .ok();
    let holes = fs::read(file).unwrap();
    program.run(&[file, "copy"]).ok();
    assert_eq!(states(), (vec![1, 2, 3], Composite::READ_ONLY));
    fs.lfs("mirror verify -v f").ok();
    assert!(fs::read(file).unwrap() == holes);
}

/// A process that holds a group lock, or waits for it. It is killed when dropped.
struct Member {
    child: Guarded,
    said: mpsc::Receiver<String>,
}

impl Member {
    fn start(program: &Program, file: &Path, group: u32, offset: i64) -> Member {
        let mut command = Command::new(program.path());
        command.arg(file).args([group.to_string(), offset.to_string()]);
        let mut child = Guarded(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
        let (tell, said) = mpsc::channel();
        let out: ChildStdout = child.0.stdout.take().unwrap();
        thread::spawn(move || BufReader::new(out).lines().map_while(Result::ok).try_for_each(|line| tell.send(line)));
        Member { child, said }
    }

    #[track_caller]
    fn says(&self, want: &str) {
        assert_eq!(self.said.recv_timeout(EVENTUALLY).as_deref(), Ok(want));
    }

    #[track_caller]
    fn waits(&self) {
        assert!(self.said.recv_timeout(A_WHILE).is_err(), "it does not wait");
    }

    /// Makes the process write a line, release the lock, and exit. Asserts that it succeeds.
    #[track_caller]
    fn finish(mut self, line: &str) {
        self.child.0.stdin.take().unwrap().write_all(format!("{line}\n").as_bytes()).unwrap();
        self.says("unlocked");
        assert!(self.child.0.wait().unwrap().success());
    }
}

#[test]
fn group_lock_members_share_a_file_and_others_wait() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    let program = Program::compile("group", false);
    fs.lfs("setstripe -c 1 f").ok();
    let second = fs.second_mount();
    let (here, there) = (fs.path("f"), second.path("f"));
    let a = Member::start(&program, &here, 5, 0);
    a.says("locked");
    let b = Member::start(&program, &there, 5, 100);
    b.says("locked");
    let other = Member::start(&program, &there, 6, 200);
    other.waits();
    let impatient = Member::start(&program, &there, 6, -1);
    impatient.says("Resource temporarily unavailable");
    drop(impatient);
    a.finish("of the first");
    other.waits();
    b.finish("of the second");
    other.says("locked");
    other.finish("of another group");
    let mut want = vec![0; 217];
    for (at, line) in [(0, "of the first\n"), (100, "of the second\n"), (200, "of another group\n")] {
        want[at..at + line.len()].copy_from_slice(line.as_bytes());
    }
    assert_eq!(fs::read(here).unwrap(), want);
    assert_eq!(fs::read(there).unwrap(), want);
}

/// Compiles a C source with the header, every warning an error. Returns the directory that holds
/// `program`.
#[track_caller]
fn compile(compiler: &str, source: &str, options: &[&str]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("source.c");
    fs::write(&path, source).unwrap();
    std::os::unix::fs::symlink(library("liblustreapi.so"), dir.path().join("liblustreapi.so.1")).unwrap();
    let mut command = Command::new(compiler);
    command.args(["-Wall", "-Wextra", "-Werror", "-o"]).arg(dir.path().join("program")).args(options);
    command.arg("-I").arg(root().join("crates/llapi/include")).arg(&path).arg(dir.path().join("liblustreapi.so.1"));
    command.arg(format!("-Wl,-rpath,{}", dir.path().display()));
    run_command(command).ok();
    dir
}

#[test]
fn header_compiles_in_other_c_dialects() {
    let source = "#include <lustre/lustreapi.h>\nint main(void) { return sizeof(struct lov_user_md_v3) != 48; }\n";
    compile("gcc", source, &["-std=gnu99"]);
    compile("gcc", source, &["-std=gnu17"]);
    // As an installed header, in strict dialects as well.
    let include = root().join("crates/llapi/include");
    let installed = |dialect| ["-pedantic", dialect, "-isystem", include.to_str().unwrap()];
    for dialect in ["-std=c99", "-std=c11", "-std=c17"] {
        compile("gcc", source, &installed(dialect));
    }
    if Command::new("g++").arg("--version").output().is_ok() {
        compile("g++", source, &["-std=gnu++17"]);
        compile("g++", source, &installed("-std=c++17"));
    }
}

/// The structs of the header have the sizes of Lustre's formats.
#[test]
fn header_structs_have_lustres_sizes() {
    let source = "
#include <stddef.h>
#include <lustre/lustreapi.h>
#define IS(what, bytes) _Static_assert((what) == (bytes), #what)
IS(sizeof(struct lu_fid), 16);
IS(sizeof(struct ost_id), 16);
IS(sizeof(struct obd_uuid), 40);
IS(sizeof(struct lov_user_ost_data_v1), 24);
IS(sizeof(struct lov_user_md_v1), 32);
IS(sizeof(struct lov_user_md_v3), 48);
IS(sizeof(struct lov_comp_md_v1), 32);
IS(sizeof(struct lov_comp_md_entry_v1), 48);
IS(sizeof(struct llapi_lu_ladvise), 32);
IS(sizeof(struct obd_statfs), 144);
IS(sizeof(struct llapi_resync_comp), 32);
IS(sizeof(struct ll_ioc_lease), 12);
IS(sizeof(struct if_quotactl), 176);
IS(offsetof(struct if_quotactl, qc_dqblk), 48);
IS(offsetof(struct if_quotactl, qc_poolname), 176);
IS(offsetof(struct llapi_resync_comp, lrc_synced), 24);
IS(offsetof(struct obd_statfs, os_bsize), 88);
IS(offsetof(struct obd_statfs, os_state), 104);
IS(offsetof(struct lov_user_md_v1, lmm_stripe_offset), 30);
IS(offsetof(struct lov_comp_md_entry_v1, lcme_timestamp), 36);
IS(offsetof(struct lov_comp_md_v1, lcm_mirror_count), 16);
IS(offsetof(struct llapi_stripe_param, lsp_osts), 32);
int main(void) { return 0; }
";
    compile("gcc", source, &[]);
}

#[test]
fn the_header_declares_what_the_library_exports() {
    let declared = regex::Regex::new(r"(?m)^[a-z_].*?\b((?:sheen_)?llapi_[a-z0-9_]+)\(").unwrap();
    let text = fs::read_to_string(root().join("crates/llapi/include/lustre/lustreapi.h")).unwrap();
    let names: BTreeSet<&str> = declared
        .captures_iter(&text)
        .filter(|found| !found[0].starts_with("static inline") && !found[0].starts_with("typedef"))
        .map(|found| found.get(1).unwrap().as_str())
        .collect();
    // Every declared function can be linked.
    let uses: String = names.iter().map(|name| format!("\t(void *){name},\n")).collect();
    let source = format!(
        "#include <lustre/lustreapi.h>\nvoid *const all[] = {{\n{uses}}};\nint main(void) {{ return all[0] == NULL; }}\n"
    );
    compile("gcc", &source, &[]);
    // Every exported function is declared.
    let exported =
        regex::Regex::new(r#"no_mangle\)\]\n(?:#\[.*\n)*pub (?:unsafe )?extern "C" fn ([a-z0-9_]+)"#).unwrap();
    let mut found = BTreeSet::new();
    let mut sources = String::new();
    for entry in fs::read_dir(root().join("crates/llapi/src/capi")).unwrap().flatten() {
        sources += &fs::read_to_string(entry.path()).unwrap();
    }
    found.extend(exported.captures_iter(&sources).map(|name| name.get(1).unwrap().as_str()));
    // A macro defines those that return EOPNOTSUPP.
    let unsupported = regex::Regex::new(r"(?m)^    fn (llapi_[a-z0-9_]+)\(").unwrap();
    found.extend(unsupported.captures_iter(&sources).map(|name| name.get(1).unwrap().as_str()));
    assert_eq!(found, names);
    assert!(names.len() > 90, "found too few: {names:?}");
}

#[test]
fn api_example_compiles_and_runs() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    let text = fs::read_to_string(root().join("docs/api.md")).unwrap();
    let (_, example) = text.split_once("```c\n").unwrap();
    let (example, _) = example.split_once("```").unwrap();
    let dir = compile("gcc", example, &[]);
    let file = fs.path("file");
    let ran = run(dir.path().join("program"), [&file]);
    assert_eq!(ran.ok(), "4 stripes of 4194304 bytes\n");
    assert_eq!(layout(&file).stripe_count(), 4);
    let again = run(dir.path().join("program"), [&file]);
    assert_eq!((again.code, again.err), (1, format!("{}: File exists\n", file.display())));
}
