//! `lfs df`: space and inodes of each target and of the file system.

mod numbers;
mod output;

use std::{
    ffi::{OsStr, OsString},
    path::Path,
};

use sheen_wire::{Errno, Result, STATE_DEGRADED, StatFs, control, control::TargetInfo, mgs::TargetKind};

use super::{
    getopt::{self, Item, Value},
    numbers::parse_unsigned,
    pool_list::pools_of,
    tool::{Tool, keep_first, text},
    usage,
};
use numbers::{TargetUsage, with_unit};
use output::{Field, Row};

const OPTIONS: getopt::Spec = getopt::Spec {
    short: "hHilm::Nso::p:u:v",
    long: &[
        ("human-readable", Value::No, "h"),
        ("si", Value::No, "H"),
        ("inodes", Value::No, "i"),
        ("lazy", Value::No, "l"),
        ("mdt", Value::Optional, "m"),
        ("no-header", Value::No, "N"),
        ("only-summary", Value::No, "s"),
        ("ost", Value::Optional, "o"),
        ("output", Value::Required, "u"),
        ("pool", Value::Required, "p"),
        ("verbose", Value::No, "v"),
    ],
};

/// The options of a call.
#[derive(Default)]
struct DfOptions {
    /// Base of the unit suffixes, 1024 or 1000. `None`: KiB and inodes, without suffixes.
    base: Option<u64>,
    inodes: bool,
    verbose: bool,
    no_header: bool,
    only_summary: bool,
    /// Only these columns.
    output: Option<Vec<Field>>,
    /// Only MDTs: the one of this index, or all.
    mdt: Option<Option<u64>>,
    /// Only OSTs: the one of this index, or all.
    ost: Option<Option<u64>>,
    /// Of the OSTs, only those of this pool: the file system's name, if given, and the pool's name.
    pool: Option<(Option<String>, String)>,
}

impl DfOptions {
    /// Whether the output is numbers for a program: no header line and no summary.
    fn is_bare(&self) -> bool {
        let one = |wanted: &Option<Option<u64>>| wanted.is_some_and(|index| index.is_some());
        self.output.is_some() && (self.no_header || one(&self.mdt) || one(&self.ost))
    }

    /// Whether a target is shown. `pool`: the OSTs of the requested pool.
    fn shows(&self, target: &TargetInfo, pool: Option<&[u32]>) -> bool {
        let fits = |wanted: &Option<u64>| wanted.is_none_or(|index| index == u64::from(target.index));
        match (target.kind, &self.mdt, &self.ost) {
            (TargetKind::Mdt, Some(wanted), _) => fits(wanted),
            (TargetKind::Mdt, None, only_osts) => only_osts.is_none(),
            (TargetKind::Ost, ..) if pool.is_some_and(|osts| !osts.contains(&target.index)) => false,
            (TargetKind::Ost, _, Some(wanted)) => fits(wanted),
            (TargetKind::Ost, only_mdts, None) => only_mdts.is_none(),
        }
    }
}

/// Runs the command.
pub fn run(tool: &mut Tool, args: &[OsString]) -> i32 {
    let mut asked = DfOptions::default();
    let mut path = None;
    for item in OPTIONS.parse(args) {
        match item {
            Item::Option { id, value, .. } => match id {
                "h" => asked.base = Some(1024),
                "H" => asked.base = Some(1000),
                "i" => asked.inodes = true,
                "m" | "o" => match (index_of(value.as_deref()), id) {
                    (Ok(index), "m") => asked.mdt = Some(index),
                    (Ok(index), _) => asked.ost = Some(index),
                    (Err(wrong), _) => {
                        let kind = if id == "m" { "MDT" } else { "OST" };
                        return tool.usage(usage::DF, format_args!("lfs: invalid {kind} index '{wrong}'"));
                    }
                },
                "N" => asked.no_header = true,
                "s" => asked.only_summary = true,
                "p" => asked.pool = value.as_deref().map(|v| pool_name(text(v))),
                "u" => match output::parse(value.as_deref().map_or("", text)) {
                    Ok(fields) => asked.output = Some(fields),
                    Err(wrong) => return tool.usage(usage::DF, format_args!("lfs df: {wrong}")),
                },
                "v" => asked.verbose = true,
                _ => {}
            },
            Item::Operand(operand) => path = Some(operand),
            Item::Unrecognized(arg) => {
                return tool.usage(usage::DF, format_args!("lfs: unrecognized option '{}'", arg.display()));
            }
        }
    }
    let mut code = 0;
    let mounts = match tool.mounts("df", path.as_deref(), &mut code) {
        Ok(mounts) => mounts,
        Err(Errno::ENOTTY) => {
            let path = path.unwrap_or_default();
            tool.print(format_args!("df:{} Not a Lustre filesystem\n", path.display()));
            return Errno::EOPNOTSUPP.0;
        }
        Err(e) => {
            let path = path.unwrap_or_default();
            tool.complain(format_args!("error: invalid path '{}': {e}", path.display()));
            return e.0;
        }
    };
    for mount in mounts {
        if let Err(e) = df(tool, &mount, &asked) {
            tool.complain(format_args!("lfs df: cannot read '{}': {e} ({})", mount.display(), e.0));
            keep_first(&mut code, e);
        }
    }
    code
}

/// Parses the value of `-m` and `-o`; `None`: all targets. The error is a value that is no index.
fn index_of(value: Option<&OsStr>) -> Result<Option<u64>, &str> {
    value.map(text).map(|value| parse_unsigned(value).ok_or(value)).transpose()
}

/// Splits `[FSNAME.]POOL`.
fn pool_name(text: &str) -> (Option<String>, String) {
    match text.split_once('.') {
        Some((fsname, pool)) => (Some(fsname.to_owned()), pool.to_owned()),
        None => (None, text.to_owned()),
    }
}

/// Prints the table of one mount.
fn df(tool: &mut Tool, mount: &Path, asked: &DfOptions) -> Result<()> {
    let mut pool = None;
    if let Some((fsname, name)) = &asked.pool {
        let info = tool.mount_of(mount)?;
        if fsname.as_ref().is_some_and(|wanted| *wanted != info.fsname) {
            return Ok(());
        }
        // As in Lustre: a pool that does not exist has no OSTs.
        let found = pools_of(tool, &info)?.into_iter().find(|p| p.name == *name);
        pool = Some(found.map(|p| p.osts).unwrap_or_default());
    }
    let targets: Vec<TargetInfo> = tool.ask(mount, control::DF)?;
    let place = mount.display().to_string();
    if !asked.no_header && !asked.only_summary && !asked.is_bare() {
        tool.print(format_args!("{}", header(asked)));
    }
    let mut sums = Sums::default();
    for target in targets.iter().filter(|t| asked.shows(t, pool.as_deref())) {
        let (kind, name) = match target.kind {
            TargetKind::Mdt => ("MDT", format!("MDT{:04x}", target.index)),
            TargetKind::Ost => ("OST", format!("OST{:04x}", target.index)),
        };
        let line = match &target.statfs {
            _ if !target.active && asked.verbose => format!("{name:<20}: inactive device\n"),
            _ if !target.active => continue,
            Err(e) => format!("{:<20}: {e}\n", target.uuid),
            Ok(statfs) => {
                sums.add(target.kind, statfs);
                let place = format!("{place}[{kind}:{}]", target.index);
                row(&target.uuid, &place, state(statfs), |inodes| TargetUsage::of(statfs, inodes), asked)
            }
        };
        if !asked.only_summary {
            tool.print(format_args!("{line}"));
        }
    }
    let summary = row("filesystem_summary:", &place, "", |inodes| sums.total(asked, inodes), asked);
    match asked.only_summary {
        true => tool.print(format_args!("{summary}")),
        false if asked.is_bare() => {}
        false => tool.print(format_args!("\n{summary}\n")),
    }
    Ok(())
}

fn header(asked: &DfOptions) -> String {
    if let Some(fields) = &asked.output {
        return output::header(fields, asked.base);
    }
    let names = match (asked.inodes, asked.base) {
        (true, _) => ["Inodes", "IUsed", "IFree", "IUse%"],
        (false, None) => ["1K-blocks", "Used", "Available", "Use%"],
        (false, Some(_)) => ["bytes", "Used", "Available", "Use%"],
    };
    let [total, used, free, percent] = names;
    format!("{:<20} {total:>11} {used:>11} {free:>11} {percent:>4}  Mounted on\n", "UUID")
}

/// State of a target in Lustre's letters. `D`: degraded.
fn state(statfs: &StatFs) -> &'static str {
    if statfs.state & STATE_DEGRADED != 0 { "D" } else { "" }
}

/// Formats a line of the table with space or inodes. The target's state follows a space, which is
/// printed even if the state is empty.
fn row(name: &str, place: &str, state: &str, numbers: impl Fn(bool) -> TargetUsage, asked: &DfOptions) -> String {
    if let Some(fields) = &asked.output {
        let row = Row { source: name, space: numbers(false), inodes: numbers(true), target: place };
        return output::row(fields, &row, asked.base);
    }
    let n = numbers(asked.inodes);
    let cell = |value: u64| match (asked.base, asked.inodes) {
        (None, true) => format!("{value:>11}"),
        (None, false) => format!("{:>11}", value >> 10),
        (Some(base), _) => with_unit(value, base),
    };
    let (total, used, free) = (cell(n.total), cell(n.used), cell(n.free));
    format!("{name:<20} {total} {used} {free} {:>3}%  {place} {state}\n", n.percent())
}

/// Sums over the targets that are shown.
#[derive(Default)]
struct Sums {
    mdt_space: TargetUsage,
    mdt_inodes: TargetUsage,
    ost_space: TargetUsage,
    ost_inodes: TargetUsage,
}

impl Sums {
    fn add(&mut self, kind: TargetKind, s: &StatFs) {
        let (space, inodes) = match kind {
            TargetKind::Mdt => (&mut self.mdt_space, &mut self.mdt_inodes),
            TargetKind::Ost => (&mut self.ost_space, &mut self.ost_inodes),
        };
        *space = space.plus(TargetUsage::of(s, false));
        *inodes = inodes.plus(TargetUsage::of(s, true));
    }

    /// Returns the totals of the file system. A new file takes an inode on an MDT and at least one
    /// object on an OST. The free inodes are therefore the minimum of both.
    fn total(&self, asked: &DfOptions, inodes: bool) -> TargetUsage {
        let only_mdts = asked.mdt.is_some() && asked.ost.is_none();
        let only_osts = asked.ost.is_some() && asked.mdt.is_none();
        match (inodes, only_mdts, only_osts) {
            (false, true, _) => self.mdt_space,
            (false, false, _) => self.ost_space,
            (true, true, _) => self.mdt_inodes,
            (true, _, true) => self.ost_inodes,
            (true, ..) => {
                let free = match self.ost_inodes.total {
                    0 => self.mdt_inodes.free,
                    _ => self.mdt_inodes.free.min(self.ost_inodes.free),
                };
                TargetUsage { total: self.mdt_inodes.used + free, used: self.mdt_inodes.used, free }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Fake, check_case};
    use super::*;

    /// A file system with the targets of the captured tables.
    fn lustre() -> Fake {
        let kib = |total: u64, used: u64, free: u64, files, ffree| StatFs {
            bsize: 4096,
            blocks: total / 4,
            bfree: (total - used) / 4,
            bavail: free / 4,
            files,
            ffree,
            state: 0,
        };
        let mut fake = Fake::new("/mnt/c1");
        fake.set_targets(&[
            (TargetKind::Mdt, kib(274560, 2256, 238736, 199976, 199558)),
            (TargetKind::Mdt, kib(274560, 1832, 239160, 199976, 199689)),
            (TargetKind::Ost, kib(733980, 6648, 671332, 50008, 48976)),
            (TargetKind::Ost, kib(733980, 7672, 670308, 50008, 48972)),
            (TargetKind::Ost, kib(733980, 10936, 667044, 50008, 48975)),
            (TargetKind::Ost, kib(733980, 4600, 673380, 50008, 48943)),
        ]);
        fake
    }

    #[test]
    fn df_prints_tables_like_lustre() {
        let mut fake = lustre();
        for case in [
            "$ lfs df /mnt/c1\n[exit 0]\n--- stdout
UUID                   1K-blocks        Used   Available Use%  Mounted on
lustre-MDT0000_UUID       274560        2256      238736   1%  /mnt/c1[MDT:0] 
lustre-MDT0001_UUID       274560        1832      239160   1%  /mnt/c1[MDT:1] 
lustre-OST0000_UUID       733980        6648      671332   1%  /mnt/c1[OST:0] 
lustre-OST0001_UUID       733980        7672      670308   2%  /mnt/c1[OST:1] 
lustre-OST0002_UUID       733980       10936      667044   2%  /mnt/c1[OST:2] 
lustre-OST0003_UUID       733980        4600      673380   1%  /mnt/c1[OST:3] 

filesystem_summary:      2935920       29856     2682064   2%  /mnt/c1 

",
            "$ lfs df -h /mnt/c1/t\n[exit 0]\n--- stdout
UUID                       bytes        Used   Available Use%  Mounted on
lustre-MDT0000_UUID     268.1M      2.2M    233.1M   1%  /mnt/c1[MDT:0] 
lustre-MDT0001_UUID     268.1M      1.8M    233.6M   1%  /mnt/c1[MDT:1] 
lustre-OST0000_UUID     716.8M      6.5M    655.6M   1%  /mnt/c1[OST:0] 
lustre-OST0001_UUID     716.8M      7.5M    654.6M   2%  /mnt/c1[OST:1] 
lustre-OST0002_UUID     716.8M     10.7M    651.4M   2%  /mnt/c1[OST:2] 
lustre-OST0003_UUID     716.8M      4.5M    657.6M   1%  /mnt/c1[OST:3] 

filesystem_summary:       2.8G     29.2M      2.6G   2%  /mnt/c1 

",
            "$ lfs df -H -o /mnt/c1\n[exit 0]\n--- stdout
UUID                       bytes        Used   Available Use%  Mounted on
lustre-OST0000_UUID     751.6M      6.8M    687.4M   1%  /mnt/c1[OST:0] 
lustre-OST0001_UUID     751.6M      7.9M    686.4M   2%  /mnt/c1[OST:1] 
lustre-OST0002_UUID     751.6M     11.2M    683.1M   2%  /mnt/c1[OST:2] 
lustre-OST0003_UUID     751.6M      4.7M    689.5M   1%  /mnt/c1[OST:3] 

filesystem_summary:       3.0G     30.6M      2.7G   2%  /mnt/c1 

",
            "$ lfs df -i\n[exit 0]\n--- stdout
UUID                      Inodes       IUsed       IFree IUse%  Mounted on
lustre-MDT0000_UUID       199976         418      199558   1%  /mnt/c1[MDT:0] 
lustre-MDT0001_UUID       199976         287      199689   1%  /mnt/c1[MDT:1] 
lustre-OST0000_UUID        50008        1032       48976   3%  /mnt/c1[OST:0] 
lustre-OST0001_UUID        50008        1036       48972   3%  /mnt/c1[OST:1] 
lustre-OST0002_UUID        50008        1033       48975   3%  /mnt/c1[OST:2] 
lustre-OST0003_UUID        50008        1065       48943   3%  /mnt/c1[OST:3] 

filesystem_summary:       196571         705      195866   1%  /mnt/c1 

",
            "$ lfs df -ih /mnt/c1\n[exit 0]\n--- stdout
UUID                      Inodes       IUsed       IFree IUse%  Mounted on
lustre-MDT0000_UUID     195.3K         418    194.9K   1%  /mnt/c1[MDT:0] 
lustre-MDT0001_UUID     195.3K         287    195.0K   1%  /mnt/c1[MDT:1] 
lustre-OST0000_UUID      48.8K      1.0K     47.8K   3%  /mnt/c1[OST:0] 
lustre-OST0001_UUID      48.8K      1.0K     47.8K   3%  /mnt/c1[OST:1] 
lustre-OST0002_UUID      48.8K      1.0K     47.8K   3%  /mnt/c1[OST:2] 
lustre-OST0003_UUID      48.8K      1.0K     47.8K   3%  /mnt/c1[OST:3] 

filesystem_summary:     192.0K         705    191.3K   1%  /mnt/c1 

",
            "$ lfs df --mdt /mnt/c1\n[exit 0]\n--- stdout
UUID                   1K-blocks        Used   Available Use%  Mounted on
lustre-MDT0000_UUID       274560        2256      238736   1%  /mnt/c1[MDT:0] 
lustre-MDT0001_UUID       274560        1832      239160   1%  /mnt/c1[MDT:1] 

filesystem_summary:       549120        4088      477896   1%  /mnt/c1 

",
            "$ lfs df -p nopool /mnt/c1\n[exit 0]\n--- stdout
UUID                   1K-blocks        Used   Available Use%  Mounted on
lustre-MDT0000_UUID       274560        2256      238736   1%  /mnt/c1[MDT:0] 
lustre-MDT0001_UUID       274560        1832      239160   1%  /mnt/c1[MDT:1] 

filesystem_summary:            0           0           0   0%  /mnt/c1 

",
            "$ lfs df -y /mnt/c1\n[exit 4]\n--- stdout
report filesystem disk space usage or inodes usage of each MDS and all OSDs or a batch belonging to a specific pool.
Usage: df [--inodes|-i] [--human-readable|-h] [--lazy|-l]
[--mdt|-m[INDEX]] [--ost|-o[INDEX]] [--output|-u FIELD_LIST] [--no-header|-N]
[--only-summary|-s] [--pool|-p FSNAME[.POOL]] [PATH]
--- stderr
lfs: unrecognized option '-y'
",
            "$ lfs df /tmp\n[exit 95]\n--- stdout\ndf:/tmp Not a Lustre filesystem\n",
            "$ lfs df /nosuch\n[exit 2]\n--- stderr\nerror: invalid path '/nosuch': No such file or directory\n",
        ] {
            check_case(&mut fake, case);
        }
    }

    #[test]
    fn df_output_prints_the_requested_columns() {
        let mut fake = lustre();
        for case in [
            "$ lfs df --output=source,size,used,itotal,iused -h -o1 -m1 /mnt/c1\n[exit 0]\n--- stdout
lustre-MDT0001_UUID       268.1M        1.8M      195.3K         287
lustre-OST0001_UUID       716.8M        7.5M       48.8K        1.0K
",
            "$ lfs df -u source,avail,pcent,iavail,ipcent /mnt/c1\n[exit 0]\n--- stdout
UUID                   Available Use%       IFree IUse%
lustre-MDT0000_UUID       238736   1%      199558   1%
lustre-MDT0001_UUID       239160   1%      199689   1%
lustre-OST0000_UUID       671332   1%       48976   3%
lustre-OST0001_UUID       670308   2%       48972   3%
lustre-OST0002_UUID       667044   2%       48975   3%
lustre-OST0003_UUID       673380   1%       48943   3%

filesystem_summary:      2682064   2%      195866   1%

",
            "$ lfs df --output=pct,bavail,bfree,device,target,state,domain -m /mnt/c1\n[exit 0]\n--- stdout
Use%   Available        Free UUID                 Mounted on State Domain
  1%      238736      272304 lustre-MDT0000_UUID  /mnt/c1[MDT:0] - -
  1%      239160      272728 lustre-MDT0001_UUID  /mnt/c1[MDT:1] - -

  1%      477896      545032 filesystem_summary:  /mnt/c1 - -

",
            "$ lfs df -N -o --output avail /mnt/c1\n[exit 0]\n--- stdout
     671332
     670308
     667044
     673380
",
            "$ lfs df --output=total --ost=1 /mnt/c1\n[exit 0]\n--- stdout\n     733980\n",
            "$ lfs df -s --output=size /mnt/c1\n[exit 0]\n--- stdout\n    2935920\n",
            "$ lfs df -s /mnt/c1\n[exit 0]\n--- stdout
filesystem_summary:      2935920       29856     2682064   2%  /mnt/c1 
",
        ] {
            check_case(&mut fake, case);
        }
        for (list, field) in [("avail,free_space", "free_space"), ("avail,", ""), ("", "")] {
            let (code, out, err) = super::super::testing::lfs(&mut fake, &format!("lfs df --output={list} /mnt/c1"));
            assert!(code == 4 && out.starts_with("report filesystem"), "{list}: {code} {out}");
            let known = "source,size,used,free,avail,pcent,itotal,iused,iavail,ipcent,domain,target,state";
            assert_eq!(err, format!("lfs df: unknown output field '{field}', the fields are: {known}\n"));
        }
    }

    #[test]
    fn df_refuses_values_that_are_no_index() {
        let mut fake = lustre();
        for (option, kind, value) in
            [("-ox", "OST", "x"), ("-m1x", "MDT", "1x"), ("--ost=-1", "OST", "-1"), ("--mdt=all", "MDT", "all")]
        {
            let (code, out, err) = super::super::testing::lfs(&mut fake, &format!("lfs df {option} /mnt/c1"));
            assert!(code == 4 && out.starts_with("report filesystem"), "{option}: {code} {out}");
            assert_eq!(err, format!("lfs: invalid {kind} index '{value}'\n"));
        }
    }

    #[test]
    fn df_pool_shows_only_osts_of_the_pool() {
        let mut fake = lustre();
        let p1 = "UUID                   1K-blocks        Used   Available Use%  Mounted on
lustre-MDT0000_UUID       274560        2256      238736   1%  /mnt/c1[MDT:0] 
lustre-MDT0001_UUID       274560        1832      239160   1%  /mnt/c1[MDT:1] 
lustre-OST0000_UUID       733980        6648      671332   1%  /mnt/c1[OST:0] 
lustre-OST0001_UUID       733980        7672      670308   2%  /mnt/c1[OST:1] 

filesystem_summary:      1467960       14320     1341640   2%  /mnt/c1 

";
        for line in ["-p lustre.p1", "--pool=p1 /mnt/c1"] {
            check_case(&mut fake, &format!("$ lfs df {line}\n[exit 0]\n--- stdout\n{p1}"));
        }
        check_case(&mut fake, "$ lfs df -p other.p1\n[exit 0]\n");
    }

    #[test]
    fn df_reports_silent_mount_and_shows_the_others() {
        let mut fake = lustre();
        fake.stop_mount("/mnt/stopped", "other");
        let summary = "filesystem_summary:      2935920       29856     2682064   2%  /mnt/c1 \n";
        let named = "lfs df: '/mnt/stopped' does not answer within 2 s and is left out: \
                     its process may be stopped, hang or wait for a server\n";
        check_case(&mut fake, &format!("$ lfs df -s\n[exit 110]\n--- stdout\n{summary}--- stderr\n{named}"));
        check_case(&mut fake, &format!("$ lfs df -s /mnt/c1\n[exit 0]\n--- stdout\n{summary}"));
    }

    #[test]
    fn df_hides_inactive_ost_unless_verbose() {
        let mut fake = lustre();
        fake.deactivate_ost(3);
        check_case(
            &mut fake,
            "$ lfs df -o /mnt/c1\n[exit 0]\n--- stdout
UUID                   1K-blocks        Used   Available Use%  Mounted on
lustre-OST0000_UUID       733980        6648      671332   1%  /mnt/c1[OST:0] 
lustre-OST0001_UUID       733980        7672      670308   2%  /mnt/c1[OST:1] 
lustre-OST0002_UUID       733980       10936      667044   2%  /mnt/c1[OST:2] 

filesystem_summary:      2201940       25256     2008684   2%  /mnt/c1 

",
        );
        check_case(
            &mut fake,
            "$ lfs df -v -o3 /mnt/c1\n[exit 0]\n--- stdout
UUID                   1K-blocks        Used   Available Use%  Mounted on
OST0003             : inactive device

filesystem_summary:            0           0           0   0%  /mnt/c1 

",
        );
    }
}
