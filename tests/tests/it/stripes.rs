//! Stripes, as users of Lustre set and see them: `lfs` on a mount.

use std::{
    fs::{self, File, OpenOptions},
    os::unix::fs::{FileExt, MetadataExt},
};

use sheen_layout::Layout;
use sheen_tests::{Fs, Guarded, mounts::LIMIT, noise, run, sheen, two_mounts, wait::eventually};

fn osts(fs: &Fs, file: &str) -> Vec<u32> {
    layout(fs, file).stripes().iter().map(|s| s.ost).collect()
}

fn layout(fs: &Fs, file: &str) -> Layout {
    let mut value = vec![0; 65536];
    let n = rustix::fs::getxattr(fs.path(file), "lustre.lov", &mut value).unwrap();
    Layout::decode(&value[..n]).unwrap()
}

#[test]
fn getstripe_prints_what_lustre_prints() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    fs.lfs("setstripe -c 3 -S 1M -i 1 f3").ok();
    let text = fs.lfs("getstripe f3").ok();
    let mut lines = text.lines();
    for want in [
        "f3",
        "lmm_stripe_count:  3",
        "lmm_stripe_size:   1048576",
        "lmm_pattern:       raid0",
        "lmm_layout_gen:    0",
        "lmm_stripe_offset: 1",
        "\tobdidx\t\t objid\t\t objid\t\t group",
    ] {
        assert_eq!(lines.next(), Some(want));
    }
    assert!(lines.next().is_some_and(|l| l.starts_with("\t     1\t") && l.ends_with("0x2c0000401")), "{text}");
    assert_eq!(fs.lfs("getstripe -c f3").ok(), "3\n\n");
    assert_eq!(fs.lfs("getstripe -S f3").ok(), "1048576\n\n");
    assert_eq!(fs.lfs("getstripe -i f3").ok(), "1\n\n");
    let missing = fs.lfs("getstripe nosuch");
    assert_eq!(
        (missing.code, missing.err.as_str()),
        (2, "lfs: getstripe for 'nosuch' failed: No such file or directory\n")
    );
    let elsewhere = run(sheen(), ["lfs", "getstripe", "/proc"]);
    assert_eq!(elsewhere.code, 25, "{}", elsewhere.err);
}

#[test]
fn setstripe_options_give_the_requested_counts_and_osts() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    let cases = [
        ("-c 1", 1, false),
        ("-c 2", 2, false),
        ("-c 4 -S 4M", 4, false),
        ("-c -1", 4, false),
        ("-c 0", 1, false),
        ("-c 10", 4, false),
        ("-c 2000", 4, false),
        ("-C 8", 8, true),
        ("-C 2", 2, false),
        ("-C -1", 4, false),
        ("-C -2", 8, true),
        ("-C -32", 128, true),
        ("-C 100", 100, true),
        ("-C 8 -c 4", 4, false),
        ("-c 4 -C 8", 8, true),
        ("--stripe-count=3 --stripe-size=2M --stripe-index=1", 3, false),
        ("--size 2M --count 2", 2, false),
    ];
    for (i, (options, count, over)) in cases.into_iter().enumerate() {
        fs.lfs(&format!("setstripe {options} f{i}")).ok();
        assert_eq!(fs.lfs(&format!("getstripe -c f{i}")).ok(), format!("{count}\n\n"), "{options}");
        let pattern = if over { "raid0,overstriped\n\n" } else { "raid0\n\n" };
        assert_eq!(fs.lfs(&format!("getstripe -L f{i}")).ok(), pattern, "{options}");
        let mut per_ost = [0; 4];
        osts(&fs, &format!("f{i}")).iter().for_each(|o| per_ost[*o as usize] += 1);
        let (least, most) = (per_ost.iter().min().unwrap(), per_ost.iter().max().unwrap());
        assert!(most - least <= 1, "{options}: spread {per_ost:?}");
    }
    fs.lfs("setstripe -o 0,1,0,2,1,2,3,3 placed").ok();
    assert_eq!(osts(&fs, "placed"), [0, 1, 0, 2, 1, 2, 3, 3]);
    fs.lfs("setstripe -o 3,1,0 o310").ok();
    assert_eq!(osts(&fs, "o310"), [3, 1, 0]);
    fs.lfs("setstripe -o 0-3 range").ok();
    assert_eq!(osts(&fs, "range"), [0, 1, 2, 3]);
}

#[test]
fn data_written_in_any_order_is_read_back_on_every_layout() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    let data = noise(7, (9 << 20) + 4321);
    for (i, options) in ["-c 1", "-c 4 -S 64K", "-C 8 -S 1M", "-o 0,1,0,2,1,2,3,3 -S 256K"].iter().enumerate() {
        let name = format!("f{i}");
        fs.lfs(&format!("setstripe {options} {name}")).ok();
        let file = OpenOptions::new().write(true).open(fs.path(&name)).unwrap();
        // Unaligned pieces in a scattered order.
        let pieces: Vec<usize> = (0..data.len()).step_by(47_008).collect();
        for k in 0..pieces.len() {
            let at = pieces[(k * 7919) % pieces.len()];
            let end = data.len().min(at + 47_008);
            file.write_all_at(&data[at..end], at as u64).unwrap();
        }
        for at in pieces {
            let end = data.len().min(at + 47_008);
            file.write_all_at(&data[at..end], at as u64).unwrap();
        }
        assert!(fs::read(fs.path(&name)).unwrap() == data, "{options}");
    }
    let second = fs.second_mount();
    for i in 0..4 {
        assert!(fs::read(second.path(&format!("f{i}"))).unwrap() == data, "over tcp, f{i}");
    }
}

#[test]
fn objects_are_created_by_their_first_write_and_destroyed_with_the_file() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    let objects = || -> usize {
        let find = sheen_tests::run("find", [fs.dir().to_string_lossy().as_ref(), "-path", "*/ost*/O/*", "-type", "f"]);
        find.ok().lines().count()
    };
    fs.lfs("setstripe -C 8 -S 64K f").ok();
    assert_eq!(objects(), 0, "a layout alone creates no objects");
    assert_eq!(fs::read(fs.path("f")).unwrap(), b"");
    let file = OpenOptions::new().write(true).open(fs.path("f")).unwrap();
    file.write_all_at(b"x", 5 * 65536).unwrap();
    assert_eq!(objects(), 1, "the sixth stripe alone was written");
    assert_eq!(file.metadata().unwrap().len(), 5 * 65536 + 1);
    file.set_len(10 << 20).unwrap();
    assert!(file.metadata().unwrap().blocks() * 512 < 1 << 20, "the objects are sparse like the file");
    drop(file);
    fs::remove_file(fs.path("f")).unwrap();
    eventually("no objects are left behind", || objects() == 0);
}

#[test]
fn file_of_2000_stripes_is_written_and_2001_stripes_are_refused() {
    let Some(fs) = Fs::up_or_skip(1) else { return };
    fs.lfs("setstripe -C 2000 -S 64K wide").ok();
    assert_eq!(fs.lfs("getstripe -c wide").ok(), "2000\n\n");
    let file = OpenOptions::new().read(true).write(true).open(fs.path("wide")).unwrap();
    for stripe in 0..2000u64 {
        file.write_all_at(format!("stripe {stripe}").as_bytes(), stripe * 65536).unwrap();
    }
    assert_eq!(file.metadata().unwrap().len(), 1999 * 65536 + 11);
    for stripe in 0..2000u64 {
        let want = format!("stripe {stripe}");
        let mut got = vec![0; want.len()];
        file.read_exact_at(&mut got, stripe * 65536).unwrap();
        assert_eq!(got, want.as_bytes());
    }
    let whole = fs::read(fs.path("wide")).unwrap();
    assert!(whole[11..65536].iter().all(|b| *b == 0));
    let refused = fs.lfs("setstripe -C 2001 toowide");
    assert_eq!(refused.code, 4);
    assert_eq!(refused.err, "lfs setstripe setstripe: invalid stripe count '2001'\n");
    assert!(!fs.path("toowide").exists());
}

#[test]
fn setstripe_refuses_what_lustre_refuses() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    let cases = [
        ("-S 100k e", 4, "lfs setstripe setstripe: invalid stripe size '100k'\n"),
        ("-S 65537 e", 4, "lfs setstripe setstripe: invalid stripe size '65537'\n"),
        ("-c -2 e", 4, "lfs setstripe setstripe: invalid stripe count '-2'\n"),
        ("-C -33 e", 4, "lfs setstripe setstripe: invalid stripe count '-33'\n"),
        ("-c 2 -o 0,1,2 e", 4, "stripe_count(2) != nr_tgts(3)\n"),
        ("-S 4G e", 22, "lfs setstripe: error: stripe size '4294967296' over 4GB limit: Invalid argument (22)\n"),
        ("-o 9 late", 22, "lfs setstripe: setstripe error for 'late': Invalid argument\n"),
    ];
    for (options, code, err) in cases {
        let ran = fs.lfs(&format!("setstripe {options}"));
        assert_eq!((ran.code, ran.err.as_str()), (code, err), "{options}");
    }
    assert!(!fs.path("e").exists(), "a refused option leaves nothing");
    assert!(fs.lfs("getstripe late").ok().contains("has no stripe info"));
    fs::write(fs.path("late"), "x").unwrap();
    assert_eq!(fs.lfs("getstripe -c late").ok(), "1\n\n", "the first write gives the default");
    fs::write(fs.path("data"), "x").unwrap();
    let again = fs.lfs("setstripe -c 2 data");
    assert_eq!(
        (again.code, again.err.as_str()),
        (17, "lfs setstripe: setstripe error for 'data': stripe already set\n")
    );
}

#[test]
fn new_files_inherit_their_directorys_layout() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    fs::create_dir(fs.path("d")).unwrap();
    assert_eq!(
        fs.lfs("getstripe -d d").ok(),
        "stripe_count:  1 stripe_size:   4194304 pattern:        stripe_offset: -1\n\n"
    );
    fs.lfs("setstripe -c 3 -S 2M -i 1 d").ok();
    assert_eq!(
        fs.lfs("getstripe -d d").ok(),
        "stripe_count:  3 stripe_size:   2097152 pattern:       raid0 stripe_offset: 1\n\n"
    );
    File::create(fs.path("d/f")).unwrap();
    assert_eq!(osts(&fs, "d/f"), [1, 2, 3]);
    assert_eq!(layout(&fs, "d/f").stripe_size(), 2 << 20);
    fs::create_dir(fs.path("d/sub")).unwrap();
    File::create(fs.path("d/sub/g")).unwrap();
    assert_eq!(osts(&fs, "d/sub/g"), [1, 2, 3]);
    fs.lfs("setstripe -d d").ok();
    File::create(fs.path("d/h")).unwrap();
    assert_eq!(osts(&fs, "d/h").len(), 1);
    fs.lfs("setstripe -C 8 d").ok();
    File::create(fs.path("d/i")).unwrap();
    assert_eq!(osts(&fs, "d/i").len(), 8);
}

#[test]
fn parameters_that_a_user_leaves_open_do_not_come_from_the_roots_default() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    let shape = |file: &str| (layout(&fs, file).stripe_count(), layout(&fs, file).stripe_size());
    fs.lfs("setstripe -c 3 -S 1M .").ok();
    fs::create_dir(fs.path("d")).unwrap();
    for (options, want) in [("-c 2", (2, 4 << 20)), ("-S 64K", (1, 65536)), ("-i 1", (1, 4 << 20))] {
        fs.lfs(&format!("setstripe {options} d/f")).ok();
        assert_eq!(shape("d/f"), want, "{options}");
        fs::remove_file(fs.path("d/f")).unwrap();
    }
    // A directory shows the default that is in force in it.
    let shown = "stripe_count:  3 stripe_size:   1048576 pattern:       raid0 stripe_offset: -1\n\n";
    for raw in ["", " --raw"] {
        assert_eq!(fs.lfs(&format!("getstripe -d{raw} d")).ok(), shown);
    }
    File::create(fs.path("d/f")).unwrap();
    assert_eq!(shape("d/f"), (3, 1 << 20));
    fs.lfs("setstripe -c 2 d").ok();
    let shown = "stripe_count:  2 stripe_size:   1048576 pattern:       raid0 stripe_offset: -1\n\n";
    assert_eq!(fs.lfs("getstripe -d d").ok(), shown);
}

#[test]
fn getstripe_of_a_directory_shows_the_file_systems_defaults() {
    let two = two_mounts!(LIMIT);
    let at = two.dir("d");
    two.fs.lfs("setstripe -d .").ok();
    for value in ["stripecount=2", "stripesize=2M"] {
        run(sheen(), ["lctl", "set_param", "-n", &format!("lod.{}-MDT0000-mdtlov.{value}", two.fsname)]).ok();
    }
    let shown = "stripe_count:  2 stripe_size:   2097152 pattern:        stripe_offset: -1\n\n";
    assert_eq!(two.fs.lfs("getstripe -d d").ok(), shown);
    File::create(at.b("new")).unwrap();
    assert_eq!(two.fs.lfs("getstripe -c d/new").ok(), "2\n\n");
    assert_eq!(two.fs.lfs("getstripe -S d/new").ok(), "2097152\n\n");
}

#[test]
fn lfs_queries_return_fids_paths_targets_and_space() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    fs::create_dir(fs.path("d")).unwrap();
    fs::write(fs.path("d/f"), "x").unwrap();
    let fid = fs.lfs("path2fid d/f").ok();
    let mnt = fs.mnt.display().to_string();
    assert_eq!(fs.lfs(&format!("fid2path {mnt} {}", fid.trim())).ok(), format!("{mnt}/d/f\n"));
    fs::hard_link(fs.path("d/f"), fs.path("g")).unwrap();
    assert_eq!(fs.lfs(&format!("fid2path {mnt} {}", fid.trim())).ok(), format!("{mnt}/d/f\n{mnt}/g\n"));
    assert_eq!(
        fs.lfs(&format!("osts {mnt}")).ok(),
        "OBDS:\n0: sheen-OST0000_UUID ACTIVE\n1: sheen-OST0001_UUID ACTIVE\n2: sheen-OST0002_UUID ACTIVE\n3: sheen-OST0003_UUID ACTIVE\n"
    );
    assert_eq!(fs.lfs(&format!("mdts {mnt}")).ok(), "MDTS:\n0: sheen-MDT0000_UUID ACTIVE\n");
    let check = fs.lfs("check all .").ok();
    assert_eq!(check.lines().filter(|l| l.ends_with(" active.")).count(), 6, "{check}");
    let df = fs.lfs(&format!("df {mnt}")).ok();
    assert!(df.starts_with("UUID                   1K-blocks        Used   Available Use%  Mounted on\n"), "{df}");
    assert_eq!(df.lines().filter(|l| l.starts_with("sheen-OST")).count(), 4);
    assert!(df.lines().filter(|l| l.starts_with("sheen-")).all(|l| l.ends_with("] ")), "rows end with a space");
    let sum = |label: &str| -> u64 {
        df.lines()
            .filter(|l| l.starts_with(label))
            .filter_map(|l| l.split_whitespace().nth(1)?.parse::<u64>().ok())
            .sum()
    };
    assert_eq!(sum("sheen-OST"), sum("filesystem_summary"));
}

#[test]
fn an_oss_joins_a_running_file_system() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    let mgs = fs.status()["mgs"].as_str().unwrap().to_owned();
    let dir = fs.dir().parent().unwrap().join("more");
    let oss = std::process::Command::new(sheen())
        .args(["oss", "--mgs", &mgs, "--osts", "2", "--listen", "127.0.0.1:0@tcp", "--dir"])
        .arg(&dir)
        .spawn()
        .unwrap();
    let mut oss = Guarded(oss);
    eventually("the new OSTs are used", || {
        let ran = fs.lfs(&format!("osts {}", fs.mnt.display()));
        if !ran.out.contains("5: sheen-OST0005_UUID ACTIVE") {
            return false;
        }
        fs.lfs("setstripe -c -1 wide").ok();
        let is_wide = osts(&fs, "wide").len() == 6;
        if !is_wide {
            fs::remove_file(fs.path("wide")).unwrap();
        }
        is_wide
    });
    let data = noise(8, 20 << 20);
    fs::write(fs.path("wide"), &data).unwrap();
    assert!(fs::read(fs.path("wide")).unwrap() == data, "the new OSTs store data");
    fs.stop().ok();
    rustix::process::kill_process(rustix::process::Pid::from_child(&oss.0), rustix::process::Signal::TERM).unwrap();
    oss.0.wait().unwrap();
}

#[test]
fn bash_completes_commands_options_and_parameters() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    let bin = tempfile::tempdir().unwrap();
    for tool in ["lfs", "lctl"] {
        std::os::unix::fs::symlink(sheen(), bin.path().join(tool)).unwrap();
    }
    let script = format!(
        "PATH={}:$PATH; source <({} completions bash)
        offers() {{ COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _sheen_tool \"$1\" \"${{!#}}\" \"\"; echo \"${{COMPREPLY[*]}}\"; }}
        offers lfs migr; offers lfs getstripe --dr; offers lfs setstripe --stripe-; offers lctl pool_d
        offers lctl set_param osp.sheen-OST0001; offers lfs getstripe fi; complete -p lfs
        COMP_WORDS=(sheen lab ior --sta); COMP_CWORD=3; _sheen sheen --sta ior; echo \"${{COMPREPLY[*]}}\"",
        bin.path().display(),
        sheen().display()
    );
    let said = fs.sh(&script).ok();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[..4], ["migrate", "--draw", "--stripe-count --stripe-index --stripe-size", "pool_destroy"]);
    assert!(lines[4].split(' ').any(|name| name == "osp.sheen-OST0001-osc-MDT0000"), "{}", lines[4]);
    assert!(lines[5].is_empty() && lines[6].contains("-o default"), "bash itself completes file names: {said}");
    assert_eq!(lines[7], "--status-file", "an option of the lab");
}
