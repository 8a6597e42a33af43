//! Real programs on a mount.

use std::{fs, process::Command};

use sheen_tests::{Fs, Ran, can_mount, relayout::COMMAND_MAX, run_within, sh, sheen};

/// Runs a shell script in the root of the mount. It may take minutes: it unpacks source trees.
#[track_caller]
fn in_root(fs: &Fs, script: &str) -> Ran {
    let mut command = Command::new("bash");
    command.args(["-c", script]).current_dir(&fs.mnt);
    run_within(command, COMMAND_MAX)
}

#[test]
fn git_clone_and_cargo_build_succeed() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    let script = "
set -e
export HOME=$PWD GIT_CONFIG_GLOBAL=/dev/null
git init -q -b main origin && cd origin
git config user.email t@example.org && git config user.name t
mkdir src && echo 'fn main() { println!(\"built on Sheen\"); }' > src/main.rs
printf '[package]\\nname = \"small\"\\nversion = \"0.1.0\"\\nedition = \"2021\"\\n' > Cargo.toml
for i in $(seq 300); do echo \"file $i\" > data$i; done
git add -A && git commit -qm one && cd ..
git clone -q origin copy && cd copy && git fsck --full 2>&1 | grep -v -i dangling || true
git log --oneline | wc -l
git status --short | wc -l
git gc -q && git fsck --full
cd .. && diff -r --exclude=.git origin copy && rm -rf origin";
    assert_eq!(in_root(&fs, script).ok(), "1\n0\n");
    let mut build = Command::new("bash");
    build
        .args(["-c", "cd copy && cargo build --offline -q && ./target/debug/small"])
        .current_dir(&fs.mnt)
        .env_remove("CARGO_TARGET_DIR");
    assert_eq!(run_within(build, COMMAND_MAX).ok(), "built on Sheen\n");
}

#[test]
fn sqlite_database_under_load_keeps_all_rows() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    let script = "
set -e
sqlite3 db 'PRAGMA journal_mode=WAL; CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT);' >/dev/null
writer() { for i in $(seq 60); do echo \"INSERT INTO t(v) VALUES(hex(randomblob(500)));\"; done | sqlite3 -cmd '.timeout 240000' db; }
for w in 1 2 3; do writer & done; wait
sqlite3 db 'SELECT count(*) FROM t; PRAGMA integrity_check; PRAGMA wal_checkpoint(TRUNCATE);'
sqlite3 db 'PRAGMA journal_mode=DELETE;' >/dev/null
sqlite3 db 'BEGIN; DELETE FROM t WHERE id % 2; COMMIT; VACUUM; SELECT count(*) FROM t; PRAGMA integrity_check;'";
    assert_eq!(in_root(&fs, script).ok(), "180\nok\n0|0|0\n90\nok\n");
}

#[test]
fn fio_verifies_what_it_wrote() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    fs.lfs("setstripe -C 8 -S 64K .").ok();
    for options in [
        "--rw=randwrite --bs=4k --size=16m --direct=1 --ioengine=psync",
        "--rw=randwrite --bs=47008 --size=16m --ioengine=psync",
        "--rw=write --bs=1m --size=64m --direct=1 --ioengine=libaio --iodepth=8",
        "--rw=randwrite --bs=8k --size=8m --ioengine=mmap",
    ] {
        let line = format!(
            "fio --name=v --filename=f --verify=crc32c --do_verify=1 --verify_fatal=1 --randseed=1 {options} > fio.log 2>&1 || {{ cat fio.log; exit 1; }}; rm f"
        );
        let ran = in_root(&fs, &line);
        assert_eq!(ran.code, 0, "{options}\n{}{}", ran.out, ran.err);
    }
}

#[test]
fn unpacked_source_tree_equals_the_original() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    let from = ["/usr/include", "/usr/share/doc", "/etc"].into_iter().find(|p| fs::read_dir(p).is_ok()).unwrap();
    let script = format!(
        "tar cf - -C {from} . 2>/dev/null | tar xf - && diff -r --no-dereference {from} . > diff.log; grep -v '^Only in .*: diff.log' diff.log | grep -v 'is a \\(socket\\|fifo\\)' | wc -l"
    );
    assert_eq!(in_root(&fs, &script).ok(), "0\n");
    assert!(in_root(&fs, "find . | wc -l").ok().trim().parse::<u32>().unwrap() > 100);
}

#[test]
fn two_mounts_see_each_others_completed_operations() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    let second = fs.second_mount();
    let (a, b) = (fs.mnt.display(), second.mnt.display());
    let script = format!(
        "
set -e
for i in $(seq 50); do
  echo $i > {a}/f; [ \"$(cat {b}/f)\" = $i ]
  echo more >> {b}/f; [ \"$(wc -l < {a}/f)\" = 2 ]
  mkdir {b}/d$i; [ -d {a}/d$i ]; mv {a}/d$i {a}/e$i; [ ! -e {b}/d$i ]; rmdir {b}/e$i
  chmod 600 {a}/f; [ \"$(stat -c %a {b}/f)\" = 600 ]; rm {b}/f; [ ! -e {a}/f ]
  truncate -s $((i * 1000)) {a}/t; [ \"$(stat -c %s {b}/t)\" = $((i * 1000)) ]
done
echo coherent"
    );
    assert_eq!(in_root(&fs, &script).ok(), "coherent\n");
}

#[test]
fn unprivileged_user_starts_uses_and_stops_a_file_system() {
    if !sheen_tests::is_root() {
        return println!("covered: the whole suite runs as an ordinary user");
    }
    if !can_mount() || sheen_tests::run("which", ["fusermount3"]).code != 0 {
        return println!("skipped: needs /dev/fuse and fusermount3");
    }
    // Distributions let all users open /dev/fuse; a bare container may not.
    sh("chmod 666 /dev/fuse").ok();
    let dir = sheen_tests::new_dir(&std::env::temp_dir()).display().to_string();
    let program = sheen();
    let copy = format!("{dir}/sheen");
    sheen_tests::copy_program(&program, copy.as_ref());
    let script = format!(
        "
set -e
mkdir -m 700 {dir}/run; chown -R nobody {dir}; chmod 755 {dir}
user() {{ setpriv --reuid nobody --regid nogroup --clear-groups env -u SHEEN_KEY_DIR -u XDG_CONFIG_HOME HOME={dir} XDG_RUNTIME_DIR={dir}/run bash -ec \"$1\"; }}
user '{copy} up --dir {dir}/fs --mount {dir}/mnt --osts 2 --listen 127.0.0.1:0 > {dir}/up.log'
user 'echo mine > {dir}/mnt/f; cat {dir}/mnt/f; cd {dir}/mnt; {copy} lfs getstripe --component-count f; {copy} lfs osts {dir}/mnt | wc -l'
user '{copy} down --dir {dir}/fs > /dev/null'
! grep -q {dir}/mnt /proc/mounts"
    );
    let mut command = Command::new("bash");
    command.args(["-c", &script]);
    let ran = run_within(command, COMMAND_MAX);
    let log = fs::read_to_string(format!("{dir}/fs/sheen.log")).unwrap_or_default();
    let mnt = std::path::PathBuf::from(format!("{dir}/mnt"));
    if sheen_tests::is_mounted(&mnt) {
        let _ = Command::new("setpriv")
            .args(["--reuid", "nobody", "--regid", "nogroup", "--clear-groups", &copy, "down", "--force", "--dir"])
            .arg(format!("{dir}/fs"))
            .status();
        sheen_tests::detach(&mnt);
    }
    let _ = fs::remove_dir_all(&dir);
    assert_eq!((ran.code, ran.out.as_str()), (0, "mine\n4\n\n3\n"), "{}\n{log}", ran.err);
}
