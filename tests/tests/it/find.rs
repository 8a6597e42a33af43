//! `lfs find` on a mount: tests of attributes as in find(1), tests of layouts as in Lustre's
//! `lfs find`.

use std::{
    fs::{self, File, OpenOptions},
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    process::Command,
    thread,
};

use sheen_tests::{
    Fs, Ran, is_root,
    mounts::{as_nobody, get_param},
    progress::{Race, at_least},
    run_command, sheen,
    wait::eventually,
};

/// Runs a shell script in a directory. In it, `lfs` is Sheen's.
fn sh(at: &Path, script: &str) -> Ran {
    let mut command = Command::new("bash");
    command.args(["-c", &format!("lfs() {{ {} lfs \"$@\"; }}; {script}", sheen().display())]).current_dir(at);
    run_command(command)
}

/// Runs a script and returns the lines of its output, sorted.
#[track_caller]
fn sorted(at: &Path, script: &str) -> Vec<String> {
    let mut lines: Vec<String> = sh(at, script).ok().lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// Runs `lfs find` and returns the paths that it finds, without `./`.
#[track_caller]
fn found(fs: &Fs, words: &str) -> String {
    let lines = sorted(&fs.mnt, &format!("lfs find . {words}"));
    lines.iter().map(|line| line.strip_prefix("./").unwrap_or(line)).collect::<Vec<_>>().join(" ")
}

/// Creates 60 files of many sizes, modes, times and owners in three levels of directories, and
/// inodes of other kinds.
fn fill(root: &Path) {
    for i in 0..60u32 {
        let dir = root.join(format!("d{}/e{}", i % 3, i % 5));
        fs::create_dir_all(&dir).unwrap();
        let name = dir.join(format!("f{i}"));
        File::create(&name).unwrap().set_len(u64::from(i) * 100_000).unwrap();
        let hours = std::time::Duration::from_secs(u64::from(i) * 3600 * 7 + 1800);
        let at = std::time::SystemTime::now() - hours;
        OpenOptions::new().write(true).open(&name).unwrap().set_modified(at).unwrap();
        if is_root() {
            std::os::unix::fs::chown(&name, Some(1000 + i % 3), Some(2000 + i % 2)).unwrap();
        }
        // After the change of owner, which clears the set-user-id bit.
        fs::set_permissions(&name, fs::Permissions::from_mode([0o644, 0o600, 0o4755, 0o640][i as usize % 4])).unwrap();
    }
    fs::hard_link(root.join("d0/e0/f0"), root.join("d1/again")).unwrap();
    symlink("f0", root.join("d0/e0/link")).unwrap();
    symlink("nowhere", root.join("lost")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        root.join("d2/pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
}

#[test]
fn lfs_find_agrees_with_find_on_shared_tests() {
    if !is_root() {
        return println!("skipped: needs root to change owners");
    }
    let Some(fs) = Fs::up_or_skip(4) else { return };
    fill(&fs.mnt);
    for (lfs, find) in [
        ("", ""),
        ("-type f", "-type f"),
        ("! -type d", "! -type d"),
        ("-type l", "-type l"),
        ("-type p", "-type p"),
        ("-name 'f1*'", "-name 'f1*'"),
        ("-name '[!f]*' ! -type d", "-name '[!f]*' ! -type d"),
        ("-type f -size +2000000c", "-type f -size +2000000c"),
        ("-type f -size -2M", "-type f -size -2M"),
        ("-type f -size 3M", "-type f -size 3M"),
        ("-mtime +2 -type f", "-mtime +2 -type f"),
        ("-mtime 3", "-mtime 3"),
        ("-mtime -1", "-mtime -1"),
        ("-M -90m", "-mmin -90"),
        ("-perm 4755", "-perm 4755"),
        ("-perm /4000", "-perm /4000"),
        ("-perm /4020", "-perm /4020"),
        ("-perm -640 -type f", "-perm -640 -type f"),
        ("-links +1", "-links +1"),
        ("-links 2 -type f", "-links 2 -type f"),
        ("-uid 1001", "-uid 1001"),
        ("! -user root", "! -user root"),
        ("-group 2001 -size +1M", "-group 2001 -size +1M"),
        ("-newer d0/e0/f30 -type f", "-newer d0/e0/f30 -type f"),
        ("-newermt '2025-01-01'", "-newermt '2025-01-01'"),
        ("-maxdepth 1", "-maxdepth 1"),
        ("-mindepth 2 -maxdepth 2", "-mindepth 2 -maxdepth 2"),
        ("-printf '%p %s %m %M %U %G %n %y %i %T@\\n' -type f", "-type f -printf '%p %s %m %M %U %G %n %y %i %Ts\\n'"),
        ("-printf '%p %t\\n' -name f7", "-name f7 -printf '%p %Ta %Tb %Td %TH:%TM:%.2TS %TY\\n'"),
    ] {
        let theirs = match lfs.contains("%t") {
            // The format of ctime(3). find(1) prints it with fractions of seconds.
            true => sorted(&fs.mnt, "date -r d1/e2/f7 +'./d1/e2/f7 %a %b %e %H:%M:%S %Y'"),
            false => sorted(&fs.mnt, &format!("find . {find}")),
        };
        assert_eq!(sorted(&fs.mnt, &format!("lfs find . {lfs}")), theirs, "lfs find . {lfs}");
        assert!(!theirs.is_empty(), "{find} finds something");
    }
    let zero = sh(&fs.mnt, "lfs find . -type f -print0 | xargs -0 stat -c %n | sort").ok();
    assert_eq!(zero, sh(&fs.mnt, "find . -type f | sort").ok());
}

#[test]
fn lfs_find_selects_files_by_layout() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    fs.lfs("setstripe -c 2 -i 1 -S 1M two").ok();
    fs.lfs("setstripe -C 8 over").ok();
    fs.lfs("setstripe -c 4 -S 4M four").ok();
    fs.lfs("setstripe -c 1 -i 0 -S 4M one").ok();
    fs.lfs("setstripe -o 3 three").ok();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        fs.path("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    fs::create_dir(fs.path("plain")).unwrap();
    fs::create_dir(fs.path("dir")).unwrap();
    fs.lfs("setstripe -c 3 -S 2M dir").ok();
    for (words, want) in [
        ("-c 2", "two"),
        ("-c +2", "dir four over"),
        ("-c +2 -type f", "four over"),
        ("-c -2", ". one pipe plain three"),
        ("! -c 2 -type f", "four one over three"),
        ("--stripe-count 3", "dir"),
        ("-S 1M", "two"),
        ("-S +2M -c 1", "one three"),
        ("-i 0", "four one over"),
        ("--stripe-index 1,3", "four over three two"),
        ("-O 3", "four over three"),
        ("--ost sheen-OST0003_UUID", "four over three"),
        ("--obd OST0003 ! -c +1", "three"),
        ("-O 9", ""),
        ("-L raid0", "four one over three two"),
        ("-L overstriping", "over"),
        ("-L mdt", ""),
        ("--pool ''", ". dir four one over pipe plain three two"),
        ("--pool fast", ""),
        ("--comp-count +0", ""),
        ("-N +0", ""),
        ("-m 0 -type d", ". dir plain"),
        ("--mdt sheen-MDT0000 -name 'o*'", "one over"),
        ("-m 1", ""),
        ("--xattr lustre.lov -type f", "four one over three two"),
        ("-projid 0 -name 't*'", "three two"),
        ("--foreign", ""),
    ] {
        assert_eq!(found(&fs, words), want, "lfs find . {words}");
    }
    let fid = fs.lfs("path2fid two").ok();
    let line = sh(&fs.mnt, "lfs find two -printf '%p %Lc %LS %Li %Lo %LF %y\\n'").ok();
    assert_eq!(line, format!("two 2 1048576 1 [1,2] {} f\n", fid.trim().trim_matches(['[', ']'])));
    let refused = fs.lfs("find . -O sheen-OST0077");
    assert_eq!((refused.code, refused.err.as_str()), (22, "error: find: unknown obduuid: 'sheen-OST0077'\n"));
}

#[test]
fn lfs_find_sees_changes_of_the_other_mount() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    let second = fs.second_mount();
    fs::create_dir(fs.path("d")).unwrap();
    for i in 0..200 {
        fs::write(fs.path(&format!("d/f{i}")), "x").unwrap();
    }
    let large = |at: &Path| sorted(at, "lfs find d -type f -size +1K");
    assert!(large(&second.mnt).is_empty() && large(&fs.mnt).is_empty());
    for round in 0..5 {
        let (one, other) = (format!("d/f{}", round * 2), format!("d/f{}", round * 2 + 1));
        fs::write(fs.path(&one), vec![0; 5000]).unwrap();
        fs::write(second.path(&other), vec![0; 5000]).unwrap();
        let both = [one, other];
        for at in [&fs.mnt, &second.mnt] {
            let found = large(at);
            assert!(both.iter().all(|f| found.contains(f)), "{both:?} in {found:?}");
            assert_eq!(found.len(), (round + 1) * 2);
        }
    }
    fs::remove_file(second.path("d/f0")).unwrap();
    assert_eq!(large(&fs.mnt).len(), 9);
}

#[test]
fn lfs_find_threads_find_the_same_files_and_one_thread_keeps_the_order() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    fs::create_dir(fs.path("wide")).unwrap();
    for i in 0..2500 {
        File::create(fs.path(&format!("wide/{i:04}"))).unwrap();
    }
    for i in 0..40 {
        let dir = fs.path(&format!("deep/{}/{}/{i}", i % 2, i % 4));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("leaf"), vec![b'x'; i]).unwrap();
    }
    let theirs = sorted(&fs.mnt, "find . -size -20c");
    for threads in [1, 2, 16] {
        assert_eq!(sorted(&fs.mnt, &format!("lfs find . -size -20c --threads {threads}")), theirs, "{threads} threads");
    }
    assert_eq!(sorted(&fs.mnt, "lfs find . -size -20c").len(), theirs.len());
    let ordered = sh(&fs.mnt, "lfs find wide deep -type f --threads 1").ok();
    let lines: Vec<&str> = ordered.lines().collect();
    assert_eq!(lines.len(), 2540);
    assert!(lines[..2500].is_sorted() && lines[0] == "wide/0000" && lines[2500] == "deep/0/0/0/leaf");
}

#[test]
fn lfs_find_reports_failures_and_finds_the_rest() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    fill(&fs.mnt);
    let missing = sh(&fs.mnt, "lfs find nosuch d0 -name f0");
    assert_eq!((missing.code, missing.out.as_str()), (2, "d0/e0/f0\n"));
    assert_eq!(missing.err, "lfs: failed for 'nosuch': No such file or directory\n");
    // On other file systems no file is striped. All other tests work there.
    let elsewhere =
        sh(Path::new("/"), "lfs find /proc/self -maxdepth 1 -name status; lfs find /proc/self -maxdepth 1 -c +0");
    assert_eq!((elsewhere.code, elsewhere.out.as_str()), (0, "/proc/self/status\n"), "{}", elsewhere.err);
    // `lfs find` ends when its reader closes the pipe.
    assert_eq!(sh(&fs.mnt, "set -o pipefail; lfs find . . . . . . . . | head -n 1 | wc -l").ok(), "1\n");
    if is_root() {
        fs::set_permissions(&fs.mnt, fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(fs.path("d1"), fs::Permissions::from_mode(0o700)).unwrap();
        let script = format!("cd {} && {} lfs find . -name 'f*' -size +0", fs.mnt.display(), sheen().display());
        let ran = run_command(as_nobody(&script));
        assert_eq!(ran.err, "lfs find: cannot access './d1': Permission denied (13)\n");
        assert_eq!(ran.code, 13);
        assert_eq!(ran.out.lines().count(), 39, "those of d0 and d2 but the empty one: {}", ran.out);
    }
}

#[test]
fn lfs_find_ignores_files_deleted_meanwhile() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    fill(&fs.mnt);
    let race = Race::new([at_least(1)]);
    thread::scope(|scope| {
        let finding = race.party(0);
        scope.spawn(|| {
            while race.goes_on() {
                for i in 0..20 {
                    let dir = fs.path(&format!("d0/short{i}"));
                    fs::create_dir_all(dir.join("below")).unwrap();
                    fs::write(dir.join("below/f"), "x").unwrap();
                }
                for i in 0..20 {
                    fs::remove_dir_all(fs.path(&format!("d0/short{i}"))).unwrap();
                }
            }
        });
        let all: Vec<Ran> = (0..20).map(|_| fs.lfs("find . -c -2 -size -10G -type f -name f*")).collect();
        finding.did_one();
        for ran in all {
            assert!(ran.code == 0 && ran.err.is_empty(), "{} {}", ran.code, ran.err);
            assert!(ran.out.lines().filter(|line| !line.contains("short")).count() == 60, "{}", ran.out);
        }
    });
}

/// Returns the number of requests to the MDT for single files, and of all requests.
fn asked(fsname: &str) -> (u64, u64) {
    let text = get_param(&format!("mdt.{fsname}-MDT0000.md_stats"));
    let counts: Vec<(&str, u64)> = text
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let (name, count) = (words.next()?, words.next()?.parse().ok()?);
            (words.next() == Some("samples")).then_some((name, count))
        })
        .collect();
    let lookups = counts.iter().filter(|(name, _)| *name == "lookup" || *name == "getattr").map(|(_, n)| n).sum();
    (lookups, counts.iter().map(|(_, n)| n).sum())
}

#[test]
fn lfs_find_requests_many_files_at_once() {
    // A process outside this test may serve a file system of the usual name.
    let fsname = format!("f{:x}", std::process::id());
    let Some(fs) = Fs::up_with_or_skip(4, &["--fsname", &fsname]) else { return };
    for dir in ["one", "two"] {
        fs::create_dir(fs.path(dir)).unwrap();
        fs.lfs(&format!("setstripe -c {} {dir}", if dir == "one" { 1 } else { 2 })).ok();
        for i in 0..400 {
            fs::write(fs.path(&format!("{dir}/file{i}")), vec![b'x'; i % 4 * 1000]).unwrap();
        }
    }
    for (words, want) in
        [("-type f -size +1500c --stripe-count 2", 200), ("-type f --stripe-count 1", 400), ("-type f -mtime -1", 800)]
    {
        // Each pass uses a new mount, which has nothing cached. The first mount may send closes
        // meanwhile.
        eventually(format!("'{words}' requests many files at once"), || {
            let mount = fs.second_mount();
            let before = asked(&fsname);
            assert_eq!(sorted(&mount.mnt, &format!("lfs find . {words}")).len(), want, "{words}");
            let after = asked(&fsname);
            println!("{words}: from {before:?} to {after:?}");
            after.0 - before.0 < 20 && after.1 - before.1 < 60
        });
    }
}

#[test]
fn lfs_find_counts_dirty_data_in_sizes() {
    use std::io::Write;
    let Some(fs) = Fs::up_or_skip(4) else { return };
    let second = fs.second_mount();
    let mut open = File::create(fs.path("growing")).unwrap();
    for at in [&fs.mnt, &second.mnt] {
        assert!(sorted(at, "lfs find . -type f -size +0").is_empty());
    }
    for round in 1..5 {
        open.write_all(&[b'x'; 1000]).unwrap();
        for at in [&fs.mnt, &second.mnt] {
            let words = format!("-type f -size {}c", round * 1000);
            assert_eq!(sorted(at, &format!("lfs find . {words}")), ["./growing"], "{words} at {}", at.display());
            assert_eq!(sorted(at, &format!("lfs find . --lazy {words}")), ["./growing"], "{words} at {}", at.display());
        }
    }
}

#[test]
fn lfs_find_reads_layouts_longer_than_a_page() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    fs.lfs("setstripe -C 2000 wide").ok();
    fs.lfs("setstripe -c 1 narrow").ok();
    File::options().write(true).open(fs.path("wide")).unwrap().set_len(3 << 40).unwrap();
    for (words, want) in [("-c 2000", "wide"), ("-size +1T -c +1999", "wide"), ("-type f -c -2000", "narrow")] {
        assert_eq!(found(&fs, words), want, "{words}");
    }
}

#[test]
fn lfs_find_shows_no_files_of_unsearchable_directories() {
    if !is_root() {
        return println!("skipped: only root becomes another user");
    }
    let Some(fs) = Fs::up_or_skip(4) else { return };
    fs::set_permissions(&fs.mnt, fs::Permissions::from_mode(0o755)).unwrap();
    for (name, mode) in [("open", 0o755), ("listed", 0o744), ("searched", 0o711)] {
        fs::create_dir(fs.path(name)).unwrap();
        fs::write(fs.path(&format!("{name}/f")), vec![b'x'; 5000]).unwrap();
        fs::set_permissions(fs.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    for words in ["-type f -size +1K", "-type f -c 1", "-type f -uid 0"] {
        let script = format!("cd {} && {} lfs find . {words} --threads 1", fs.mnt.display(), sheen().display());
        let ran = run_command(as_nobody(&script));
        assert_eq!((ran.code, ran.out.as_str()), (13, "./open/f\n"), "{words}");
        let message = "lfs find: cannot access './listed/f': Permission denied (13)
lfs find: cannot access './searched': Permission denied (13)\n";
        assert_eq!(ran.err, message, "{words}");
    }
}
