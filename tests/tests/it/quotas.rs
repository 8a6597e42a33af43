//! Quotas on mounts: limits hold for users and not for root, and `lfs quota` shows the true use.

use std::{cell::RefCell, os::unix::fs::chown, path::Path, process::Command, thread};

use sheen_tests::{
    Fs, Ran, can_mount,
    cluster::Cluster,
    is_root,
    mounts::as_nobody,
    run_command, sheen,
    wait::{eventually, eventually_some},
};

const NOBODY: u32 = 65534;
/// Message of a program that has met a limit.
const EXCEEDED: &str = "Disk quota exceeded";

fn lfs(at: &Path, line: &str) -> Ran {
    let mut command = Command::new(sheen());
    command.arg("lfs").args(line.split(' ')).current_dir(at);
    run_command(command)
}

/// Runs a script in a directory as an ordinary user.
fn by_nobody(at: &Path, script: &str) -> Ran {
    run_command(as_nobody(&format!("cd '{}' && {{ {script}; }}", at.display())))
}

/// Returns the KiB and the files in use. `None`: the sums are not exact at the moment.
fn used(at: &Path, whose: &str) -> Option<(u64, u64)> {
    let ran = lfs(at, &format!("quota -q --blocks --inodes {whose} ."));
    let cells = ran.out.split_whitespace().map(|cell| cell.trim_end_matches('*').parse().ok());
    match (ran.code, &cells.collect::<Option<Vec<u64>>>()?[..]) {
        (0, [kib, files]) => Some((*kib, *files)),
        _ => None,
    }
}

/// Waits until this use is shown. OSTs learn the owners of new objects a moment after the write.
#[track_caller]
fn settles(at: &Path, whose: &str, want: (u64, u64)) {
    let last = RefCell::new(None);
    eventually(format_args!("{whose} uses {want:?}, and not {last:?}"), || {
        *last.borrow_mut() = used(at, whose);
        *last.borrow() == Some(want)
    });
}

/// Waits until this number of files is shown.
#[track_caller]
fn files_settle(at: &Path, whose: &str, want: u64) {
    eventually(format_args!("{whose} has {want} files"), || used(at, whose).is_some_and(|(_, files)| files == want));
}

/// Waits until `lfs` prints these cells. Sums can be inexact for a moment.
#[track_caller]
fn shows(at: &Path, line: &str, want: &[&str]) {
    let last = RefCell::new(String::new());
    eventually(format_args!("lfs {line} prints {want:?}, and not {last:?}"), || {
        let ran = lfs(at, line);
        let is_so = ran.code == 0 && ran.out.split_whitespace().eq(want.iter().copied());
        *last.borrow_mut() = ran.out;
        is_so
    });
}

/// Waits until an id uses its limit of space but for at most 1 MiB. Returns its KiB and files.
#[track_caller]
fn fills(at: &Path, whose: &str, limit_mib: u64) -> (u64, u64) {
    let range = (limit_mib - 1) << 10..=limit_mib << 10;
    eventually_some(format_args!("{whose} uses {range:?} KiB"), || {
        used(at, whose).filter(|(kib, _)| range.contains(kib))
    })
}

/// Makes a file of an ordinary user with an object on each OST, and waits until it is charged.
#[track_caller]
fn charged_file(fs: &Fs, name: &str, others: (u64, u64)) {
    by_nobody(&fs.mnt, &format!("dd if=/dev/zero of={name} bs=2M count=1 conv=fsync")).ok();
    settles(&fs.mnt, "-u 65534", (others.0 + 2048, others.1 + 1));
}

#[test]
fn hard_limit_of_space_holds_over_all_osts_and_mounts() {
    let Some(fs) = Fs::up_as_root_or_skip(2) else { return };
    let second = fs.second_mount();
    fs.sh("chmod 1777 .").ok();
    fs.lfs("setstripe -c 2 -S 1M .").ok();
    fs.lfs("setquota -u 65534 -B 64M .").ok();
    charged_file(&fs, "a", (0, 0));
    charged_file(&fs, "b", (2048, 1));
    // Each wants twice the limit. Both write to both OSTs.
    let fill = |at: &Path, name: &str| {
        by_nobody(at, &format!("dd if=/dev/zero of={name} bs=64K count=2048 seek=32 conv=notrunc,fsync"))
    };
    thread::scope(|scope| {
        let other = scope.spawn(|| fill(&second.mnt, "b"));
        for ran in [fill(&fs.mnt, "a"), other.join().unwrap()] {
            assert!(ran.code == 1 && ran.err.contains(EXCEEDED), "{} {}", ran.code, ran.err);
        }
    });
    // The second one of them may have been refused while the first one still had some left.
    let more = "until ! dd if=/dev/zero of=a bs=64K count=1 oflag=append conv=notrunc,fsync; do :; done";
    by_nobody(&second.mnt, more).ok();
    let (kib, files) = fills(&fs.mnt, "-u 65534", 64);
    assert_eq!(files, 2);
    settles(&second.mnt, "-u 65534", (kib, files));
    // A removal makes room, also for the other mount.
    fs.sh("rm a b").ok();
    eventually("there is room again", || by_nobody(&second.mnt, "head -c 4M /dev/zero > c && sync c").code == 0);
    settles(&fs.mnt, "-u 65534", (4096, 1));
}

#[test]
fn limits_of_groups_and_projects_hold() {
    let Some(fs) = Fs::up_as_root_or_skip(1) else { return };
    fs.sh("chmod 1777 .; mkdir -m 1777 d").ok();
    fs.lfs("project -p 7 -s d").ok();
    for (whose, dir) in [("-p 7", "d"), ("-g 65534", ".")] {
        fs.lfs(&format!("setquota {whose} -B 8M .")).ok();
        let file = format!("{dir}/f{}", dir.len());
        by_nobody(&fs.mnt, &format!("head -c 1M /dev/zero > {file}; sync {file}")).ok();
        eventually("the file is charged", || used(&fs.mnt, whose).is_some_and(|(kib, _)| kib >= 1024));
        let filled = by_nobody(&fs.mnt, &format!("dd if=/dev/zero of={file} bs=64K count=512 conv=notrunc,fsync"));
        assert!(filled.code == 1 && filled.err.contains(EXCEEDED), "{whose}: {} {}", filled.code, filled.err);
        fills(&fs.mnt, whose, 8);
        fs.lfs(&format!("setquota {whose} --delete .")).ok();
        fs.sh(&format!("rm {file}")).ok();
        settles(&fs.mnt, whose, (0, u64::from(dir == "d")));
    }
}

#[test]
fn files_of_root_are_counted_and_never_refused() {
    let Some(fs) = Fs::up_as_root_or_skip(1) else { return };
    fs.lfs("setquota -g 65534 -B 2M -I 1 .").ok();
    fs.sh("dd if=/dev/zero of=a bs=1M count=1 conv=fsync; touch b; chgrp 65534 a b").ok();
    settles(&fs.mnt, "-g 65534", (1024, 2));
    fs.sh("dd if=/dev/zero of=a bs=1M count=4 conv=notrunc,fsync").ok();
    settles(&fs.mnt, "-g 65534", (4096, 2));
    eventually("a star marks the use", || fs.lfs("quota -q -g 65534 .").out.contains(" 4096* "));
}

#[test]
fn limit_of_files_refuses_creates_until_a_removal() {
    let Some(fs) = Fs::up_as_root_or_skip(1) else { return };
    fs.sh("chmod 1777 .").ok();
    fs.lfs("setquota -u 65534 -I 4 .").ok();
    by_nobody(&fs.mnt, "touch f; mkdir d; ln -s f l; mkfifo p").ok();
    for create in ["touch g", "mkdir e", "ln -s f m", "mkfifo q", "touch d/g"] {
        let ran = by_nobody(&fs.mnt, create);
        assert!(ran.code == 1 && ran.err.contains(EXCEEDED), "{create}: {} {}", ran.code, ran.err);
    }
    // A further name is no further file.
    by_nobody(&fs.mnt, "ln f g; rm f").ok();
    files_settle(&fs.mnt, "-u 65534", 4);
    shows(&fs.mnt, "quota -q --inodes -u 65534 .", &["4*"]);
    by_nobody(&fs.mnt, "rmdir d").ok();
    eventually("there is room again", || by_nobody(&fs.mnt, "touch f").code == 0);
    assert_eq!(by_nobody(&fs.mnt, "touch more").code, 1);
    fs.sh("touch of-root; chown 65534 of-root").ok();
    // A chown is not refused.
    files_settle(&fs.mnt, "-u 65534", 5);
    fs.lfs("setquota -u 65534 --delete .").ok();
    by_nobody(&fs.mnt, "touch more").ok();
}

#[test]
fn chown_and_project_move_the_use() {
    let Some(fs) = Fs::up_as_root_or_skip(2) else { return };
    fs.lfs("setstripe -c 2 -S 1M .").ok();
    fs.sh("dd if=/dev/zero of=f bs=1M count=4 conv=fsync").ok();
    settles(&fs.mnt, "-u 65534", (0, 0));
    chown(fs.path("f"), Some(NOBODY), Some(NOBODY)).unwrap();
    fs.lfs("project -p 7 f").ok();
    for whose in ["-u 65534", "-g 65534", "-p 7"] {
        settles(&fs.mnt, whose, (4096, 1));
    }
    // Later writes by anybody are charged to the new owner.
    fs.sh("dd if=/dev/zero of=f bs=1M count=2 seek=4 conv=notrunc,fsync").ok();
    settles(&fs.mnt, "-u 65534", (6144, 1));
    eventually("each OST has half of it", || {
        let rows = fs.lfs("quota -v -q -u 65534 .").out;
        rows.lines().filter(|row| row.contains("-OST") && row.contains("    3072 ")).count() == 2
    });
    chown(fs.path("f"), Some(1), None).unwrap();
    fs.lfs("project -p 8 f").ok();
    for (whose, want) in [("-u 1", (6144, 1)), ("-p 8", (6144, 1)), ("-u 65534", (0, 0)), ("-p 7", (0, 0))] {
        settles(&fs.mnt, whose, want);
    }
    fs.sh("rm f").ok();
    for whose in ["-u 1", "-g 65534", "-p 8"] {
        settles(&fs.mnt, whose, (0, 0));
    }
}

#[test]
fn default_limits_apply_to_those_without_own_ones() {
    let Some(fs) = Fs::up_as_root_or_skip(1) else { return };
    fs.sh("chmod 1777 .").ok();
    fs.lfs("setquota -U -I 2 .").ok();
    by_nobody(&fs.mnt, "touch a b").ok();
    assert_eq!(by_nobody(&fs.mnt, "touch c").code, 1);
    fs.sh("touch r1 r2 r3").ok();
    fs.lfs("setquota -u 65534 -I 3 .").ok();
    by_nobody(&fs.mnt, "touch c").ok();
    assert_eq!(by_nobody(&fs.mnt, "touch d").code, 1);
    fs.lfs("setquota -u 65534 --default .").ok();
    for whose in ["-u 65534", "-U"] {
        shows(&fs.mnt, &format!("quota -q --iquota --ilimit {whose} ."), &["0", "2"]);
    }
    fs.lfs("setquota -U -I 0 .").ok();
    by_nobody(&fs.mnt, "touch d e").ok();
}

#[test]
fn soft_limit_of_files_is_a_hard_one_after_its_grace_time() {
    let Some(fs) = Fs::up_as_root_or_skip(1) else { return };
    fs.sh("chmod 1777 .").ok();
    fs.lfs("setquota -u 65534 -i 2 .").ok();
    by_nobody(&fs.mnt, "touch a b c").ok();
    let grace = "quota -q --igrace -u 65534 .";
    eventually("the grace time runs", || {
        let ran = fs.lfs(grace);
        let left = ran.out.trim();
        ran.code == 0 && (left == "1w" || left.starts_with("6d23h"))
    });
    // The time is over as soon as it is 0.
    fs.lfs("setquota -t -u -i 0 .").ok();
    eventually("the soft limit acts as a hard one", || {
        let ran = by_nobody(&fs.mnt, "mktemp -p .");
        ran.code == 1 && ran.err.contains(EXCEEDED)
    });
    shows(&fs.mnt, grace, &["none"]);
    by_nobody(&fs.mnt, "rm -f tmp.* b c").ok();
    eventually("there is room again", || by_nobody(&fs.mnt, "touch b").code == 0);
    shows(&fs.mnt, grace, &["-"]);
}

#[test]
fn use_is_exact_after_kill_9_of_the_oss_and_of_the_mds() {
    if !can_mount() || !is_root() {
        return println!("skipped: needs /dev/fuse, and root, who gives files to others");
    }
    let mut cluster = Cluster::start();
    let mount = cluster.mount();
    let at = mount.mnt.as_path();
    lfs(at, "setstripe -c 2 -S 1M .").ok();
    lfs(at, "setquota -u 65534 -b 1G -B 2G -i 5000 .").ok();
    let sh = |script: &str| {
        let mut command = Command::new("bash");
        command.args(["-ec", script]).current_dir(at);
        run_command(command).ok()
    };
    sh("for i in 1 2 3 4; do dd if=/dev/zero of=f$i bs=1M count=$i conv=fsync; done; chown 65534 f*; sync .");
    settles(at, "-u 65534", (10 << 10, 4));
    cluster.kill("oss");
    cluster.spawn("oss");
    settles(at, "-u 65534", (10 << 10, 4));
    // Objects that changed after the restart are not counted twice.
    sh("dd if=/dev/zero of=f1 bs=1M count=2 conv=notrunc,fsync; rm f4; sync .");
    settles(at, "-u 65534", (7 << 10, 3));
    cluster.kill("mds");
    cluster.spawn("mds");
    settles(at, "-u 65534", (7 << 10, 3));
    let cells = [".", "7168", "1048576", "2097152", "-", "3", "5000", "0", "-"];
    shows(at, "quota -q -u 65534 .", &cells);
}

#[test]
fn quota_equals_the_blocks_of_all_files() {
    let Some(fs) = Fs::up_as_root_or_skip(3) else { return };
    fs.sh("chmod 1777 .; mkdir -m 1777 plain wide dom").ok();
    fs.lfs("setstripe -c 1 plain").ok();
    fs.lfs("setstripe -c 3 -S 64K wide").ok();
    fs.lfs("setstripe -E 64K -L mdt -E -1 -c 2 -S 64K dom").ok();
    let work = "for d in plain wide dom; do
        for kib in 0 1 5 64 65 300; do head -c ${kib}K /dev/urandom > $d/$kib; done
        truncate -s 100M $d/sparse; echo end >> $d/sparse
        truncate -s 10K $d/300; fallocate -l 1M $d/reserved
        fallocate -p -o 4K -l 40K $d/64; cp $d/65 $d/copy; mv $d/copy $d/5; rm $d/1
    done; sync .";
    by_nobody(&fs.mnt, work).ok();
    fs.lfs("migrate -c 2 plain/65").ok();
    let blocks = "find plain wide dom -user nobody -printf '%b %y\\n' \
                  | awk '$2 == \"f\" { kib += $1 / 2 } { n += 1 } END { printf \"%d %d\", kib, n }'";
    let last = RefCell::new(None);
    let equals = || {
        eventually(format_args!("KiB and files, by quota and by find: {last:?}"), || {
            let counted = fs.sh(blocks).ok();
            let numbers: Vec<u64> = counted.split_whitespace().map(|word| word.parse().unwrap()).collect();
            assert!(numbers[0] > 1000 && numbers[1] == 21, "{counted}");
            let (by_quota, by_find) = (used(&fs.mnt, "-u 65534"), (numbers[0], numbers[1]));
            *last.borrow_mut() = Some((by_quota, by_find));
            by_quota == Some(by_find)
        });
    };
    equals();
    // The sums are counted anew after a crash.
    fs.kill();
    fs.start(&[]).ok();
    equals();
    fs.sh("rm -rf plain wide dom").ok();
    settles(&fs.mnt, "-u 65534", (0, 0));
}

#[test]
fn users_see_their_own_quotas_and_change_none() {
    let Some(fs) = Fs::up_as_root_or_skip(1) else { return };
    fs.lfs("setquota -u 65534 -B 10M .").ok();
    // From now on the sums are exact.
    settles(&fs.mnt, "-u 65534", (0, 0));
    let program = sheen().display().to_string();
    let as_user = |line: &str| by_nobody(&fs.mnt, &format!("{program} lfs {line}"));
    for own in ["-u 65534", "-g 65534", "-p 7", "-U", "-t -g"] {
        as_user(&format!("quota -q {own} .")).ok();
    }
    assert_eq!(as_user("quota -q --blimit -u 65534 .").ok().trim(), "10240");
    assert_eq!(as_user("quota .").ok().matches("Disk quotas for ").count(), 2);
    for foreign in ["-u 0", "-u 1", "-g 1", "-a -u"] {
        let ran = as_user(&format!("quota -q {foreign} ."));
        let why = "lfs quota: cannot get the quotas of '.': Operation not permitted\n";
        assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (1, "", why), "{foreign}");
    }
    for change in ["-u 65534 -B 20M", "-U -B 20M", "-t -u -b 1d", "-u 65534 --delete"] {
        let ran = as_user(&format!("setquota {change} ."));
        assert_eq!(ran.code, 1, "{change}: {}", ran.err);
        assert!(ran.err.contains("quotactl failed: Operation not permitted\n"), "{change}: {}", ran.err);
    }
    assert_eq!(fs.lfs("quota -q --blimit -u 65534 .").ok().trim(), "10240");
}
