//! Test suites of other projects, run on the mount: pjdfstest and fsx. `scripts/test.sh` installs
//! them.

use std::{process::Command, time::Duration};

use sheen_tests::{Fs, can_mount, is_root, run_within, tool};

/// Cases of pjdfstest that fail, each with its reason in docs/semantics.md. The number may only go
/// down.
const PJDFSTEST_FAILING: &[&str] = &[];

#[test]
fn pjdfstest_passes() {
    let (true, true, Some(program)) = (can_mount(), is_root(), tool("pjdfstest")) else {
        return println!("skipped: needs root, /dev/fuse and pjdfstest (scripts/test.sh installs it)");
    };
    let fs = Fs::up(2);
    fs.sh("chmod 777 .").ok();
    let config = fs.dir().join("pjdfstest.toml");
    let text = "
[features]
posix_fallocate = {}
rename_ctime = {}
utimensat = {}
utime_now = {}
[settings]
naptime = 0.05
allow_remount = false
[dummy_auth]
entries = [[\"nobody\", \"nogroup\"], [\"daemon\", \"daemon\"], [\"bin\", \"bin\"]]
";
    std::fs::write(&config, text).unwrap();
    let mut command = Command::new(program);
    command.arg("-c").arg(&config).arg("-p").arg(&fs.mnt).arg("-s").arg(fs.dir()).current_dir(&fs.mnt);
    let ran = run_within(command, Duration::from_secs(600));
    let failed: Vec<&str> = ran
        .out
        .lines()
        .filter(|l| l.contains("::") && !l.ends_with(" ok") && !l.contains("skipped"))
        .filter(|l| !PJDFSTEST_FAILING.iter().any(|known| l.contains(known)))
        .collect();
    println!("{}", ran.out.lines().rev().take(3).collect::<Vec<_>>().join("\n"));
    assert!(ran.out.lines().count() > 100, "pjdfstest ran: {}\n{}", ran.out, ran.err);
    assert!(failed.is_empty(), "{} fail:\n{}\n{}", failed.len(), failed.join("\n"), ran.err);
}

#[test]
fn fsx_is_clean_on_every_layout() {
    let (true, Some(program)) = (can_mount(), tool("fsx")) else {
        return println!("skipped: needs /dev/fuse and fsx (scripts/test.sh installs it)");
    };
    let is_soak = std::env::var_os("SHEEN_SOAK").is_some();
    let ops = if is_soak { "50000" } else { "5000" };
    let seed = std::env::var("SHEEN_FSX_SEED").unwrap_or_else(|_| "1".into());
    let fs = Fs::up(4);
    for (i, layout) in ["-c 1", "-c 4 -S 64K", "-C 8 -S 64K"].into_iter().enumerate() {
        let dir = format!("d{i}");
        std::fs::create_dir(fs.path(&dir)).unwrap();
        fs.lfs(&format!("setstripe {layout} {dir}")).ok();
        let mut command = Command::new(&program);
        command.args(["-N", ops, "-S", &seed]).arg(fs.path(&dir).join("f"));
        let ran = run_within(command, Duration::from_secs(300));
        assert_eq!(ran.code, 0, "{layout}, seed {seed}: {}\n{}", ran.out, ran.err);
    }
}
