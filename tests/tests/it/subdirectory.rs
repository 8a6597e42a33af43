//! Mounts of a directory of the file system, `HOST@tcp:/FSNAME/DIRECTORY`.

use sheen_tests::{Fs, Mount, Ran, can_mount, run, sh, sheen};

/// Starts a file system with a directory `a/b`, and mounts that.
fn with_subdirectory() -> Option<(Fs, Sub, String)> {
    if !can_mount() {
        println!("skipped: /dev/fuse cannot be opened here");
        return None;
    }
    let fs = Fs::up(2);
    fs.sh("mkdir -p a/b/c; echo x > a/b/f; ln a/b/f outside; ln -s f a/b/link; echo top > top").ok();
    let source = fs.source();
    let sub = Sub(Mount::new(&format!("{source}/a/b/"), fs.base.join("sub")));
    Some((fs, sub, source))
}

/// The mount of `a/b`.
struct Sub(Mount);

impl Sub {
    /// Runs a script in its root, with `lfs`.
    fn sh(&self, script: &str) -> Ran {
        let (program, at) = (sheen().display().to_string(), self.0.mnt.display());
        sh(&format!("lfs() {{ {program} lfs \"$@\"; }}; cd {at} && {script}"))
    }
}

#[test]
fn subdirectory_is_the_root_of_its_mount() {
    let Some((fs, sub, source)) = with_subdirectory() else { return };
    assert_eq!(sub.sh("ls -A; cat f link").ok(), "c\nf\nlink\nx\nx\n");
    assert_eq!(sub.sh("stat -c %i . c/..").ok(), fs.sh("stat -c %i a/b a/b").ok());
    assert_eq!(sub.sh("cd c/../..; pwd -P").ok().trim(), fs.base.to_string_lossy());
    assert_eq!(sub.sh("ls .lustre 2>&1 | grep -c 'No such file'").ok(), "1\n");
    assert!(sub.sh("cat /proc/mounts").ok().contains(&format!("{source}/a/b/ ")));
    sub.sh("lfs setstripe -c 2 c && cp f c/copy && mkdir -p d/e && mv c/copy d/e && rmdir c").ok();
    assert_eq!(fs.sh("cat a/b/d/e/copy").ok(), "x\n");
    assert_eq!(sub.sh("lfs getstripe -c d/e/copy").ok(), "2\n\n");
}

#[test]
fn subdirectory_mount_sees_the_changes_of_other_mounts() {
    let Some((fs, sub, _)) = with_subdirectory() else { return };
    assert_eq!(sub.sh("stat -c %a .; cat f; ls").ok(), "755\nx\nc\nf\nlink\n");
    fs.sh("chmod 711 a/b; echo longer > a/b/f; touch a/b/new; mv a/b/c a").ok();
    assert_eq!(sub.sh("stat -c %a .; cat f; ls").ok(), "711\nlonger\nf\nlink\nnew\n");
    sub.sh("chmod 700 .; rm new").ok();
    assert_eq!(fs.sh("stat -c %a a/b; ls a/b").ok(), "700\nf\nlink\n");
    fs.sh("mv a/b moved; echo again > moved/f").ok();
    assert_eq!(sub.sh("cat f").ok(), "again\n");
    fs.sh("rm -r moved").ok();
    assert_ne!(sub.sh("ls f").code, 0);
    assert_ne!(sub.sh("touch g").code, 0);
}

#[test]
fn paths_on_a_subdirectory_mount_begin_there() {
    let Some((fs, sub, _)) = with_subdirectory() else { return };
    let fid = |name: &str| fs.lfs(&format!("path2fid {name}")).ok().trim().to_owned();
    let (f, top, root) = (fid("a/b/f"), fid("top"), fid("a/b"));
    assert_eq!(sub.sh("lfs path2fid f").ok().trim(), f);
    let at = sub.0.mnt.display();
    assert_eq!(sub.sh(&format!("lfs fid2path {at} {f}")).ok(), format!("{at}/f\n"));
    assert_eq!(sub.sh(&format!("lfs fid2path {at} {root}")).ok(), format!("{at}//\n"));
    let ran = sub.sh(&format!("lfs fid2path {at} {top}"));
    assert!(ran.code != 0 && ran.err.contains("No such file"), "{}", ran.err);
}

#[test]
fn mount_of_something_else_than_a_directory_fails() {
    let Some((fs, _sub, source)) = with_subdirectory() else { return };
    let at = fs.base.join("none").display().to_string();
    for (path, expected) in [
        ("none", "cannot find the directory /none in file system 'sheen'"),
        ("a/none/b", "cannot find the directory /a/none/b"),
        ("top", "Not a directory"),
        ("a/b/link", "Not a directory"),
        ("a/../top", "does not name a file system"),
    ] {
        let ran = run(sheen(), ["mount", &format!("{source}/{path}"), &at]);
        assert!(ran.code != 0 && ran.err.contains(expected), "{path}: {}", ran.err);
    }
}
