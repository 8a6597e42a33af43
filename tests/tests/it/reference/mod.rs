//! Comparison with a real Lustre: Sheen gets the commands of recorded sessions. Exit code, output
//! and messages must be the same.
//!
//! `tests/reference/*.txt` are the records. `tests/reference/differences.txt` lists every answer
//! that differs on purpose, with the reason and Sheen's answer. A difference that is not listed
//! fails, and so does a listed one that no longer exists. `SHEEN_REFERENCE_PRINT=1` prints the
//! differences in the form of that list. Lines that one side never prints are listed here once,
//! with the reason.

mod masks;
mod placement;

use std::{collections::BTreeMap, fs, path::Path, sync::LazyLock};

use placement::Placement;
use regex::Regex;
use sheen_tests::{
    Ran,
    sandbox::Sandbox,
    transcript::{self, Case, Step},
};

/// The order of the cases: later ones use the files of earlier ones, and 060 shows what 061 has
/// set.
const ORDER: [&str; 30] = [
    "001-version",
    "010-setstripe-basic",
    "011-ostlist",
    "012-overstripe",
    "013-getstripe-flags",
    "014-dir-default",
    "020-pfl",
    "022-dom",
    "023-sel",
    "024-flr",
    "026-flr-fresh",
    "029-inactive",
    "030-migrate",
    "031-errors",
    "034-blksize-size",
    "035-two-clients",
    "040-df",
    "041-osts-mdts-check",
    "042b-fid2path",
    "052-project",
    "061-set_param",
    "060-params",
    "043-find",
    "044-dirstripe",
    "045-pools",
    "070-xattr",
    "071-posix",
    "050-quota",
    "051-quota-enforce",
    "063-statahead",
];

/// The case that fills an OST. It has a file system of its own, whose OSTs are small.
const FULL_OST: &str = "032-enospc";

/// Scripts that make what a case needs and no record made.
const SETUP: &[(&str, &str)] = &[
    (
        "043-find",
        "set -e; mkdir -p /mnt/c1/t/F; cd /mnt/c1/t/F
    lctl pool_new lustre.findp; lctl pool_add lustre.findp OST0000 OST0001
    lfs setstripe -E 1M -c 1 -i 3 -E -1 -c 2 comp; lfs setstripe -C 8 -i 0 over; lfs setstripe -c 2 -i 1 two
    lfs setstripe -c 1 -i 0 one; lfs setstripe -p findp -c 2 -i 0 pooled
    mkdir -p m1dir a/b a/dd; lfs setstripe -c 1 -i 3 m1dir/x; lfs setstripe -c 4 -i 0 a/four
    lfs setstripe -c 1 -i 1 a/big; truncate -s 5M a/big; dd if=/dev/zero of=a/big bs=1M count=5 conv=notrunc
    ln -s four a/sl; mknod a/nod p; lfs setstripe -c 1 -i 2 a/b/empty
    touch -d '3 days ago' one; chown 1000:1000 two; chmod 4755 two",
    ),
    // The recorded host had no user and group 1000; this one may. The case 043 has made their file.
    (
        "050-quota",
        "set -e; for f in passwd group; do
      grep -v '^[^:]*:[^:]*:1000:' /etc/$f > /tmp/$f; mount --bind /tmp/$f /etc/$f
    done",
    ),
    // Files that other captures of the recorded system made.
    ("052-project", "ln c2 d1/c2link"),
    ("071-posix", "dd if=/dev/zero of=io bs=1M count=8"),
];

/// Scripts that run before a command of a case. They wait until the MDT knows that an OST is full.
/// An idle one learns it with the next file. They also wait until it knows the space of a user.
const BEFORE: &[(&str, &str, &str)] = &[
    (
        FULL_OST,
        "lfs setstripe -c 1 -i 3 full2; ",
        "available() { lctl get_param -n osp.lustre-OST0003-osc-MDT0000.kbytesavail; }
    export -f available
    timeout 50 bash -c 'until [ $(available) -lt 10240 ]; do lfs setstripe -c 1 -i 0 wait; rm wait; done' ||
      { echo \"$(available) KiB are available, more than 10240\" >&2; exit 1; }",
    ),
    (
        "051-quota-enforce",
        "lfs quota -u 65534 ",
        "used() { lfs quota -q --blocks -u 65534 /mnt/c1 | tr -d ' *'; }
    export -f used; export kib=$(($(stat -c %b q/f) / 2))
    timeout 50 bash -c 'until [ \"$(used)\" = $kib ]; do :; done' ||
      { echo \"the user has $(used) KiB, the file $kib KiB\" >&2; exit 1; }",
    ),
];

/// Lines that Lustre prints and Sheen never does, and why. They are removed from the record before
/// it is compared.
const LINES_LEFT_OUT: &[(&str, &str)] = &[
    (r"\./(?:domx|mir)\b", "files with data on the MDT, and mirrors: not made here"),
    (" UP (?:osd-ldiskfs|mdd|qmt|lwp) ", "devices of the servers' kernel, which Sheen does not have"),
    (
        r"MDT0001-mdtlov\.pools\.\w+=(?:\nlustre-OST\d{4}_UUID)*|MDT0001|MDT:1",
        "the recorded file system has a second MDT",
    ),
    ("cannot get UNLOCK lease", "the tool releases a lease that it no longer has"),
    (r"^trusted\.dataver=", "the version of data on the MDT is no attribute"),
    (
        r"(?:^|osc[./]|'|namespaces\.)lustre-OST\d{4}-osc-MDT0000(?:[^.]|\.[^a])",
        "Sheen's MDT asks no OST to create objects: its connections to them have no RPCs to tune, and `lfs check` is about the mounts'",
    ),
];

/// Lines that Sheen prints and Lustre never does, and why. They are removed from the answer before
/// it is compared.
const LINES_ADDED: &[(&str, &str)] = &[
    (r"^[\w.*-]+ accepts ", "`lctl set_param` says which values a parameter accepts"),
    (r"^ +\[--json\] \[--fsname NAME\]$", "options of Sheen's own"),
    ("^error: bad layout ", "`lfs find` says what is wrong"),
];

static LEFT_OUT: LazyLock<Vec<Regex>> = LazyLock::new(|| lines(LINES_LEFT_OUT));
static ADDED: LazyLock<Vec<Regex>> = LazyLock::new(|| lines(LINES_ADDED));

fn lines(patterns: &[(&str, &str)]) -> Vec<Regex> {
    patterns.iter().map(|(r, _)| Regex::new(&format!("(?m)^.*(?:{r}).*\n")).expect("a pattern")).collect()
}

#[test]
fn commands_answer_like_the_recorded_lustre() {
    // The commands write to /tmp, so the sandbox has its own. The checkout may lie there.
    let (records, differences) = (Vec::from(ORDER.map(with_record)), differences(|case| case != FULL_OST));
    Sandbox::enter("reference", move |sandbox| {
        sandbox.sh(Path::new("/"), "mount -t tmpfs -o mode=1777 none /tmp").ok();
        up(sandbox);
        sandbox.mount_again("/mnt/c2");
        let used = replay(sandbox, records, differences);
        for (used, (line, _)) in used.iter().zip(LINES_LEFT_OUT.iter().chain(LINES_ADDED)) {
            assert!(used, "no answer has a line {line}");
        }
    });
}

#[test]
fn commands_on_a_full_ost_answer_like_the_recorded_lustre() {
    let (records, differences) = (vec![with_record(FULL_OST)], differences(|case| case == FULL_OST));
    Sandbox::enter("reference_full", move |sandbox| {
        let dir = sandbox.dir();
        let script = "for i in 0 1 2 3; do mkdir -p ost$i; mount -t tmpfs -o size=128m none ost$i || exit 1; done";
        sandbox.sh(Path::new("/"), &format!("mkdir -p {0} && cd {0} && {script}", dir.display())).ok();
        up(sandbox);
        replay(sandbox, records, differences);
        let down = format!("sheen umount /mnt/c1 && sheen down --dir {0} && umount {0}/ost?", dir.display());
        sandbox.sh(Path::new("/"), &down).ok();
    });
}

/// Starts the file system, with the directories of the cases.
fn up(sandbox: &Sandbox) {
    sandbox.up("lustre", "/mnt/c1");
    sandbox.sh(Path::new("/mnt/c1"), "mkdir -p t u/nr").ok();
}

fn with_record(name: &str) -> (&str, Vec<Case>) {
    (name, record(&format!("{name}.txt")))
}

/// Gives the commands of the records, and compares. Returns which of [`LINES_LEFT_OUT`] and
/// [`LINES_ADDED`] occurred.
fn replay(sandbox: &Sandbox, records: Vec<(&str, Vec<Case>)>, mut differences: BTreeMap<Key, Step>) -> Vec<bool> {
    let (mut failures, mut compared, mut listed) = (Vec::new(), 0, 0);
    let mut placement = Placement::default();
    let (mut left_out, mut added) = (vec![false; LEFT_OUT.len()], vec![false; ADDED.len()]);
    for (name, cases) in records {
        for (_, script) in SETUP.iter().filter(|(of, _)| *of == name) {
            let made = sandbox.sh(Path::new("/mnt/c1/t"), script);
            assert_eq!(made.code, 0, "{name}: {}", made.err);
        }
        for case in cases {
            for step in &case.steps {
                for (_, _, script) in BEFORE.iter().filter(|(of, c, _)| *of == name && step.command.starts_with(*c)) {
                    sandbox.sh(&case.cwd, script).ok();
                }
                let mut expected = without(&step.ran, &LEFT_OUT, &mut left_out);
                // Lustre's parameters are files in /sys. Sheen's are in its processes and have
                // names alone.
                expected.err = expected.err.replace("/sys/fs/lustre/", "");
                let got = without(&sandbox.sh(&case.cwd, &step.command), &ADDED, &mut added);
                placement.follow(&step.command);
                compared += 1;
                let masked = |ran: &Ran| masked(ran, &step.command, &placement);
                let difference = differences.remove(&key(&case, step));
                listed += usize::from(difference.is_some());
                let verdict = match &difference {
                    None if masked(&got) == masked(&expected) => continue,
                    None => "differs from Lustre",
                    Some(d) if masked(&got) == masked(&d.ran) && masked(&got) != masked(&expected) => continue,
                    Some(_) if masked(&got) == masked(&expected) => "is listed as a difference, but answers as Lustre",
                    Some(_) => "is listed as a difference, but answers something else than is listed",
                };
                let reason = difference.map_or("REASON".to_owned(), |d| d.reason);
                let got = Step { reason, ran: got, ..step.clone() };
                let expected = difference_of(&masked(&expected), &masked(&got.ran));
                failures.push((case.clone(), got, format!("{verdict}\n{expected}")));
            }
        }
    }
    println!("{compared} commands compared: {} as Lustre, {listed} listed as different", compared - listed);
    if std::env::var_os("SHEEN_REFERENCE_PRINT").is_some() {
        failures.iter().for_each(|(case, step, _)| print!("# case {}\n{step}", case.name));
    }
    let text: String =
        failures.iter().map(|(case, step, why)| format!("{}: $ {}\n{why}\n", case.name, step.command)).collect();
    assert!(failures.is_empty(), "{} answers:\n{text}", failures.len());
    assert!(differences.is_empty(), "listed differences of commands that were not given: {:?}", differences.keys());
    left_out.append(&mut added);
    left_out
}

/// Returns the lines that only one of the two answers has.
fn difference_of(expected: &Ran, got: &Ran) -> String {
    let mut text = String::new();
    if expected.code != got.code {
        text += &format!("    exit {} instead of {}\n", got.code, expected.code);
    }
    for (expected, got) in [(&expected.out, &got.out), (&expected.err, &got.err)] {
        if expected == got {
            continue;
        }
        let (e, g): (Vec<_>, Vec<_>) = (expected.split('\n').collect(), got.split('\n').collect());
        e.iter().filter(|l| !g.contains(l)).for_each(|l| text += &format!("    - {l:?}\n"));
        g.iter().filter(|l| !e.contains(l)).for_each(|l| text += &format!("    + {l:?}\n"));
        if e.iter().all(|l| g.contains(l)) && g.iter().all(|l| e.contains(l)) {
            text += &format!("    order or number of lines: {expected:?}\n    instead of {got:?}\n");
        }
    }
    text
}

fn masked(ran: &Ran, command: &str, placement: &Placement) -> Ran {
    let mask = |text: &str| masks::mask(&text.replace('\0', &masks::NUL.to_string()), command, placement);
    Ran { code: ran.code, out: mask(&ran.out), err: mask(&ran.err) }
}

/// Returns the answer without the lines of these patterns, and notes which patterns occurred.
fn without(ran: &Ran, lines: &[Regex], used: &mut [bool]) -> Ran {
    let mut ran = ran.clone();
    for (pattern, used) in lines.iter().zip(used) {
        *used |= pattern.is_match(&ran.out) || pattern.is_match(&ran.err);
        ran.out = pattern.replace_all(&ran.out, "").into_owned();
        ran.err = pattern.replace_all(&ran.err, "").into_owned();
    }
    ran
}

type Key = (String, String, usize);

fn key(case: &Case, step: &Step) -> Key {
    (case.name.clone(), step.command.clone(), step.time)
}

/// Returns the listed differences of the cases that `is_of` selects by name.
fn differences(is_of: fn(&str) -> bool) -> BTreeMap<Key, Step> {
    let mut all = BTreeMap::new();
    for case in record("differences.txt").into_iter().filter(|case| is_of(&case.name)) {
        for step in &case.steps {
            assert!(
                !step.reason.is_empty() && step.reason != "REASON",
                "{}: {} has no reason",
                case.name,
                step.command
            );
            assert!(all.insert(key(&case, step), step.clone()).is_none(), "{} is listed twice", step.command);
        }
    }
    all
}

fn record(name: &str) -> Vec<Case> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("reference").join(name);
    transcript::parse(&fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())))
}
