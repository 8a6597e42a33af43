//! Servers that are killed again and again under real programs on eight mounts. No program may see
//! an error, and all data is as the programs wrote it. The test prints the longest pause of a small
//! operation, beyond the time for which the server was down.
//!
//! `SHEEN_SOAK_CYCLES` sets the number of kills (20), `SHEEN_FSX_SEED` their times.

use std::{
    fs,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use sheen_tests::{
    Mount, can_mount,
    cluster::Cluster,
    is_root, sheen, tool,
    wait::{eventually, let_pass},
};

/// Mounts, each with one of the programs and a probe.
const MOUNTS: usize = 8;
/// Time limit for the last round of a program, after the last kill.
const ROUND_MAX: Duration = Duration::from_secs(300);

/// Programs, each with its work. They repeat it until the file `stop` exists, and end with an error
/// at the first failure. `$SHEEN`: the program. `$FSX`: fsx.
const PROGRAMS: [(&str, &str); 7] = [
    (
        "git",
        "rm -rf repo && git init -q repo && cd repo && git config user.email a@b && git config user.name a
        for i in {1..12}; do
            mkdir -p d$((i % 4)) && seq $((i * 3000)) > d$((i % 4))/f$i && git add . && git commit -qm $i
        done
        git gc -q && git fsck --strict 2>&1 && [ $(git rev-list --count HEAD) = 12 ] && cd ..",
    ),
    (
        "sqlite",
        "rm -f db* && sqlite3 db 'pragma journal_mode=delete; create table t(i integer primary key, s text)' >/dev/null
        for i in {1..15}; do
            sqlite3 db \"begin; insert into t select $i * 1000 + value, hex(randomblob(50)) from
                (with recursive c(value) as (select 1 union all select value + 1 from c where value < 200)
                 select value from c); commit\"
        done
        [ $(sqlite3 db 'select count(*) from t') = 3000 ] && [ $(sqlite3 db 'pragma integrity_check') = ok ]",
    ),
    (
        "tar",
        "rm -rf in out && mkdir in out && for i in {1..200}; do seq $i 2000 > in/$i; done
        tar cf t.tar in && tar xf t.tar -C out && diff -r in out/in && mv out/in out/moved && rm -r out/moved",
    ),
    (
        "make",
        "rm -rf src && mkdir src && cd src
        for i in {1..6}; do echo \"int f$i(int x) { return x + $i; }\" > f$i.c; done
        { for i in {1..6}; do echo \"int f$i(int);\"; done; echo 'int main() { return f1(f2(0)) != 3; }'; } > main.c
        printf 'p: $(patsubst %%.c,%%.o,$(wildcard *.c))\\n\\tgcc -o $@ $^\\n' > Makefile
        make -s -j2 && ./p && cd ..",
    ),
    (
        "fio",
        "fio --name=v --filename=fio --size=8m --bs=16k --rw=randwrite --ioengine=psync --fsync=16 \\
            --verify=crc32c --do_verify=1 --verify_fatal=1 --output=/dev/null",
    ),
    (
        "mdtest and ior",
        "rm -rf lab && mkdir lab && $SHEEN lab mdtest -n 100 -d lab/m >/dev/null &&
        $SHEEN lab ior -w -W -r -R -t 256k -b 4m -s 2 -o lab/ior >/dev/null",
    ),
    ("fsx", "\"$FSX\" -N 2000 -S $RANDOM fsx >/dev/null"),
];

/// A program that repeats its work.
struct Work {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Work {
    fn start(at: &Path, log: PathBuf, (name, work): (&'static str, &str)) -> Work {
        let out = fs::File::create(&log).expect("a log");
        let script = format!("set -e -o pipefail; while [ ! -e stop ]; do\n{work}\necho round; done");
        let mut command = Command::new("bash");
        command.args(["-c", &script]).current_dir(at).env("SHEEN", sheen()).env("HOME", at);
        command.env("FSX", tool("fsx").expect("it was looked up before"));
        command.stdin(Stdio::null()).stdout(out.try_clone().expect("a descriptor")).stderr(out);
        Work { name, child: command.spawn().expect("bash starts"), log }
    }

    /// Waits for the end of the last round. Returns the number of rounds.
    #[track_caller]
    fn end(mut self) -> usize {
        let until = Instant::now() + ROUND_MAX;
        let status = loop {
            match self.child.try_wait().expect("its child") {
                Some(status) => break status,
                None if Instant::now() > until => {
                    let _ = self.child.kill();
                    panic!("{} hangs", self.name);
                }
                None => let_pass(Duration::from_millis(50)),
            }
        };
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        assert!(status.success(), "{}: {status}\n{log}", self.name);
        log.lines().filter(|line| *line == "round").count()
    }
}

/// Repeats a small operation that needs all servers, and measures the longest one.
fn probe(dir: PathBuf, ends: Arc<AtomicBool>) -> JoinHandle<Vec<(Instant, Duration)>> {
    thread::spawn(move || {
        let mut slow = Vec::new();
        let path = dir.join("probe");
        while !ends.load(Relaxed) {
            let began = Instant::now();
            let file = fs::File::create(&path).expect("creates");
            file.write_all_at(b"probe", 0).expect("writes");
            file.sync_all().expect("syncs");
            assert_eq!(fs::read(&path).expect("reads"), b"probe");
            fs::remove_file(&path).expect("removes");
            if began.elapsed() > Duration::from_millis(100) {
                slow.push((began, began.elapsed()));
            }
            let_pass(Duration::from_millis(5));
        }
        slow
    })
}

#[test]
fn programs_on_eight_mounts_only_pause_while_servers_are_killed() {
    if !can_mount() || !is_root() || tool("fsx").is_none() {
        return println!("skipped: needs root, /dev/fuse and fsx (scripts/test.sh installs it)");
    }
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let cycles = number("SHEEN_SOAK_CYCLES").unwrap_or(20);
    let mut rng = fastrand::Rng::with_seed(number("SHEEN_FSX_SEED").unwrap_or(1));
    let mut cluster = Cluster::start();
    let mounts: Vec<Mount> = (0..MOUNTS).map(|n| cluster.mount_as(&format!("m{n}"))).collect();
    let (mut works, mut probes, ends) = (Vec::new(), Vec::new(), Arc::new(AtomicBool::new(false)));
    for (n, mount) in mounts.iter().enumerate() {
        let dir = mount.path(&format!("w{n}"));
        fs::create_dir(&dir).unwrap();
        works.push(Work::start(&dir, cluster.base.join(format!("work{n}")), PROGRAMS[n % PROGRAMS.len()]));
        probes.push(probe(dir, ends.clone()));
    }
    let mut downs: Vec<(Instant, Instant)> = Vec::new();
    let sets: [&[&str]; 6] = [&["mds"], &["oss"], &["mds", "oss"], &["mgs"], &["mds"], &["mgs", "mds", "oss"]];
    for cycle in 0..cycles {
        let killed = sets[cycle as usize % sets.len()];
        let_pass(Duration::from_millis(rng.u64(1500..4000)));
        let down = Instant::now();
        killed.iter().for_each(|kind| cluster.kill(kind));
        let_pass(Duration::from_millis(rng.u64(0..700)));
        for kind in ["mgs", "mds", "oss"] {
            if killed.contains(&kind) {
                cluster.spawn(kind);
            }
        }
        downs.push((down, Instant::now()));
        println!("{cycle}: killed {killed:?}");
        for work in &mut works {
            if let Some(status) = work.child.try_wait().unwrap() {
                panic!("{}: {status}\n{}", work.name, fs::read_to_string(&work.log).unwrap_or_default());
            }
        }
    }
    for (n, mount) in mounts.iter().enumerate() {
        fs::write(mount.path(&format!("w{n}/stop")), b"").unwrap();
    }
    let rounds: Vec<(&str, usize)> = works.into_iter().map(|work| (work.name, work.end())).collect();
    ends.store(true, Relaxed);
    let slow: Vec<_> = probes.into_iter().flat_map(|probe| probe.join().expect("no operation fails")).collect();
    let mut pauses: Vec<Duration> = Vec::new();
    for (began, took) in slow {
        let end = began + took;
        let overlap = |(down, up): &(Instant, Instant)| (*up).min(end).saturating_duration_since((*down).max(began));
        pauses.push(took.saturating_sub(downs.iter().map(overlap).sum()));
    }
    pauses.sort();
    println!("rounds: {rounds:?}");
    println!(
        "longest pauses beyond the time that servers were down: {:?}",
        pauses.iter().rev().take(10).collect::<Vec<_>>()
    );
    for mount in &mounts {
        eventually("everything is durable", || {
            let mut sync = Command::new("sync");
            sync.args(["-f", "."]).current_dir(&mount.mnt).status().expect("sync starts").success()
        });
    }
}
