//! `lfs changelog` and `lfs changelog_clear`: the records of an MDT's changelog.
//!
//! A mount of the file system on this host passes on the requests to the MDT. Without `--follow`
//! the command ends after the last durable record. With it, the mount waits for a further one
//! ([`control::CHANGELOG_WAIT_PREFIX`]).

use std::{
    ffi::{OsStr, OsString},
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use sheen_wire::{
    Errno, Fid, Result, Time, Utc,
    changelog::{self, Record},
    control,
};

use super::{
    getopt::{self, Item, Value},
    numbers::parse_unsigned,
    tool::{Tool, text},
};

/// `changelog`
pub const USAGE: &str = "\
show the metadata changes on an MDT\n\
usage: changelog [--follow|-f] MDTNAME [START [END]]\n\
";
/// `changelog_clear`
pub const CLEAR_USAGE: &str = "\
indicate that old changelog records up to END are no longer\n\
of interest to consumer ID, allowing the system to free up space.\n\
An END of 0 means all records.\n\
usage: changelog_clear MDTNAME ID END\n\
";

const OPTIONS: getopt::Spec =
    getopt::Spec { short: "fh", long: &[("follow", Value::No, "f"), ("help", Value::No, "h")] };
/// Shortest time between two requests of `--follow` that find no records. The mount usually waits
/// longer, unless many readers wait.
const PAUSE: Duration = Duration::from_secs(1);

/// Lustre's extra flags: a record may have a user, a NID, an open mode, and the name of an extended
/// attribute.
const EXTRA_FLAGS: u32 = 0xf;

/// An MDT, and a mount of its file system.
struct Mdt {
    mount: PathBuf,
    index: u32,
}

/// Runs `changelog`.
pub fn run(tool: &mut Tool, args: &[OsString]) -> i32 {
    let (mut follow, mut operands) = (false, Vec::new());
    for item in OPTIONS.parse(args) {
        match item {
            Item::Option { id: "f", .. } => follow = true,
            Item::Option { .. } => return tool.help(USAGE),
            Item::Operand(operand) => operands.push(operand),
            Item::Unrecognized(arg) => {
                return tool.usage(USAGE, format_args!("lfs changelog: unrecognized option '{}'", arg.display()));
            }
        }
    }
    let (Some(name), true) = (operands.first(), operands.len() <= 3) else {
        return tool.usage(USAGE, format_args!("lfs changelog: name the MDT, such as lustre-MDT0000"));
    };
    let number = |at: usize, default| operands.get(at).map_or(Some(default), |arg| parse_unsigned(text(arg)));
    let (Some(start), Some(end)) = (number(1, 0), number(2, u64::MAX)) else {
        return tool.usage(USAGE, format_args!("lfs changelog: invalid record number"));
    };
    let shown = find(tool, "changelog", name).and_then(|mdt| show(tool, &mdt, start, end, follow));
    report(tool, "changelog", name, shown)
}

/// Runs `changelog_clear`.
pub fn clear(tool: &mut Tool, args: &[OsString]) -> i32 {
    let [name, user, end] = args else {
        return tool.usage(CLEAR_USAGE, format_args!("lfs changelog_clear: name the MDT, the user and a record"));
    };
    let (Some(user), Some(end)) = (changelog::user_number(text(user)), parse_unsigned(text(end))) else {
        return tool.usage(CLEAR_USAGE, format_args!("lfs changelog_clear: invalid user or record number"));
    };
    let cleared = find(tool, "changelog_clear", name).and_then(|mdt| {
        let value = format!("{} {user} {end}", mdt.index);
        tool.fs.set(&mdt.mount, control::CHANGELOG_CLEAR, value.as_bytes(), false)
    });
    report(tool, "changelog_clear", name, cleared)
}

/// Returns the exit code of a command, and reports its failure.
fn report(tool: &mut Tool, command: &str, name: &OsStr, result: Result<()>) -> i32 {
    match result {
        Ok(()) => 0,
        Err(e) => {
            tool.complain(format_args!("lfs {command}: cannot access the changelog of '{}': {e}", name.display()));
            e.0
        }
    }
}

/// Finds an MDT such as `lustre-MDT0000`, and a mount of its file system. EINVAL: it is not the
/// name of an MDT. ENODEV: its file system is not mounted on this host.
fn find(tool: &mut Tool, command: &str, name: &OsStr) -> Result<Mdt> {
    let (fsname, index) = changelog::mdt_of(text(name)).ok_or(Errno::EINVAL)?;
    let mount = tool.mount_named(command, OsStr::new(fsname)).ok_or(Errno::ENODEV)?;
    Ok(Mdt { mount, index })
}

/// Prints the records from `start` to `end`.
fn show(tool: &mut Tool, mdt: &Mdt, start: u64, end: u64, follow: bool) -> Result<()> {
    let mut next = start;
    let prefix = if follow { control::CHANGELOG_WAIT_PREFIX } else { control::CHANGELOG_PREFIX };
    loop {
        let began = Instant::now();
        let records = match read(tool, mdt, prefix, next) {
            // A signal that does not end the process, such as SIGCONT, has ended the wait.
            Err(Errno::EINTR) if follow => Vec::new(),
            records => records?,
        };
        for record in records.iter().take_while(|record| record.index <= end) {
            tool.print_bytes(&line(record));
        }
        if tool.out.flush().is_err() {
            return Ok(()); // the reader has ended
        }
        next = records.last().map_or(next, |last| last.index.saturating_add(1));
        if next > end {
            return Ok(());
        }
        if records.is_empty() {
            if !follow {
                return Ok(());
            }
            thread::sleep(PAUSE.saturating_sub(began.elapsed()));
        }
    }
}

fn read(tool: &Tool, mdt: &Mdt, prefix: &str, start: u64) -> Result<Vec<Record>> {
    let value = tool.fs.get(&mdt.mount, &format!("{prefix}{}.{start}", mdt.index))?;
    changelog::decode(&value).map_err(|_| Errno::EPROTO)
}

/// Returns a record in Lustre's form.
fn line(record: &Record) -> Vec<u8> {
    let (kind, name, target) = (record.kind as u8, record.kind.name(), record.target);
    let when = date(record.time);
    let mut line = format!("{} {kind:02}{name:<5} {when} {:#x} t={target}", record.index, record.flags);
    if !record.job.is_empty() {
        line.push_str(&format!(" j={}", String::from_utf8_lossy(&record.job)));
    }
    line.push_str(&format!(" ef={EXTRA_FLAGS:#x} u={}:{}", record.uid, record.gid));
    if !record.nid.is_empty() {
        line.push_str(&format!(" nid={}", String::from_utf8_lossy(&record.nid)));
    }
    if let Some(mode) = record.mode() {
        line.push_str(&format!(" m={mode}"));
    }
    let mut line = line.into_bytes();
    let mut add = |text: String, name: &[u8]| {
        line.extend_from_slice(text.as_bytes());
        line.extend_from_slice(name);
    };
    if !record.xattr.is_empty() {
        add(" x=".into(), &record.xattr);
    }
    if record.parent != Fid::ZERO {
        add(format!(" p={} ", record.parent), &record.name);
    }
    if let Some(source) = &record.source {
        add(format!(" s={} sp={} ", source.fid, source.parent), &source.name);
    }
    line.push(b'\n');
    line
}

/// Returns a time as `15:13:28.337394784 2026.11.30`, in UTC.
fn date(time: Time) -> String {
    let Utc { year, month, day, hour, minute, second, .. } = Utc::at(time.sec);
    format!("{hour:02}:{minute:02}:{second:02}.{:09} {year:04}.{month:02}.{day:02}", time.nsec)
}

#[cfg(test)]
mod tests {
    use sheen_wire::changelog::{Kind, LAST, Source};

    use super::super::testing::{Fake, check_case, lfs};
    use super::*;

    fn record(index: u64, kind: Kind, name: &'static str) -> Record {
        Record {
            index,
            kind,
            flags: 0,
            time: Time { sec: 1_796_051_608, nsec: 337_394_784 },
            target: Fid::new(0x2_0000_0401, 1),
            parent: Fid::new(0x2_0000_0007, 1),
            name: name.into(),
            uid: 0,
            gid: 0,
            nid: "10.0.0.1@tcp".into(),
            job: "touch.0".into(),
            xattr: Default::default(),
            source: None,
        }
    }

    #[test]
    fn changelog_prints_records_like_lustre() {
        let source = Source { fid: Fid::new(0x2_0000_0401, 2), parent: Fid::new(0x2_0000_0007, 1), name: "old".into() };
        let close = Record {
            parent: Fid::ZERO,
            name: Default::default(),
            job: Default::default(),
            ..record(2, Kind::Close, "")
        };
        let rename = Record { source: Some(Box::new(source)), flags: LAST, ..record(3, Kind::Renme, "new") };
        let open = Record { flags: 0x242, kind: Kind::Open, index: 4, uid: 500, gid: 100, ..close.clone() };
        let getxattr = Record { kind: Kind::Gxatr, index: 5, xattr: "user.x".into(), ..close.clone() };
        let records = [record(1, Kind::Creat, "name"), close, rename, open, getxattr];
        let mut fake = Fake::new("/mnt/c1");
        fake.attribute("/mnt/c1", "sheen.changelog.0.0", &changelog::encode(&records).unwrap());
        fake.attribute("/mnt/c1", "sheen.changelog.0.2", &changelog::encode(&records[1..]).unwrap());
        fake.attribute("/mnt/c1", "sheen.changelog.0.6", &changelog::encode(&[]).unwrap());
        let lines = [
            "1 01CREAT 15:13:28.337394784 2026.11.30 0x0 t=[0x200000401:0x1:0x0] j=touch.0 ef=0xf u=0:0 \
             nid=10.0.0.1@tcp p=[0x200000007:0x1:0x0] name\n",
            "2 11CLOSE 15:13:28.337394784 2026.11.30 0x0 t=[0x200000401:0x1:0x0] ef=0xf u=0:0 nid=10.0.0.1@tcp\n",
            "3 08RENME 15:13:28.337394784 2026.11.30 0x1 t=[0x200000401:0x1:0x0] j=touch.0 ef=0xf u=0:0 \
             nid=10.0.0.1@tcp p=[0x200000007:0x1:0x0] new s=[0x200000401:0x2:0x0] sp=[0x200000007:0x1:0x0] old\n",
            "4 10OPEN  15:13:28.337394784 2026.11.30 0x242 t=[0x200000401:0x1:0x0] ef=0xf u=500:100 \
             nid=10.0.0.1@tcp m=-w-\n",
            "5 23GXATR 15:13:28.337394784 2026.11.30 0x0 t=[0x200000401:0x1:0x0] ef=0xf u=0:0 nid=10.0.0.1@tcp \
             x=user.x\n",
        ];
        let shown = |command: &str, lines: &[&str]| {
            let stdout = if lines.is_empty() { String::new() } else { format!("--- stdout\n{}", lines.concat()) };
            format!("$ lfs changelog {command}\n[exit 0]\n{stdout}")
        };
        check_case(&mut fake, &shown("lustre-MDT0000", &lines));
        check_case(&mut fake, &shown("lustre-MDT0000 2 2", &lines[1..2]));
        check_case(&mut fake, &shown("lustre-MDT0000 6", &[]));
    }

    #[test]
    fn follower_waits_for_records_until_the_last_one_that_it_wants() {
        let records = [record(1, Kind::Creat, "a"), record(2, Kind::Mkdir, "b")];
        let mut fake = Fake::new("/mnt/c1");
        fake.attribute("/mnt/c1", "sheen.changelog_wait.0.1", &changelog::encode(&records[..1]).unwrap());
        fake.attribute("/mnt/c1", "sheen.changelog_wait.0.2", &changelog::encode(&records[1..]).unwrap());
        let (code, out, _) = lfs(&mut fake, "lfs changelog --follow lustre-MDT0000 1 2");
        let kinds: Vec<_> = out.lines().filter_map(|line| line.split(' ').nth(1)).collect();
        assert_eq!((code, &kinds[..]), (0, &["01CREAT", "02MKDIR"][..]));
    }

    #[test]
    fn changelog_refuses_unknown_mdts_and_users() {
        let mut fake = Fake::new("/mnt/c1");
        for (command, code, text) in [
            ("changelog nosuch-MDT0000", 19, "No such device"),
            ("changelog lustre", 22, "Invalid argument"),
            ("changelog_clear nosuch-MDT0000 cl1 0", 19, "No such device"),
        ] {
            let words: Vec<&str> = command.split(' ').collect();
            let (verb, mdt) = (words[0], words[1]);
            check_case(
                &mut fake,
                &format!(
                    "$ lfs {command}\n[exit {code}]\n--- stderr
lfs {verb}: cannot access the changelog of '{mdt}': {text}
"
                ),
            );
        }
    }

    #[test]
    fn date_is_utc() {
        for (sec, text) in [(0, "00:00:00.000000000 1970.01.01"), (951_782_399, "23:59:59.000000000 2000.02.28")] {
            assert_eq!(date(Time { sec, nsec: 0 }), text);
        }
        assert_eq!(date(Time { sec: 951_782_400, nsec: 1 }), "00:00:00.000000001 2000.02.29");
    }
}
