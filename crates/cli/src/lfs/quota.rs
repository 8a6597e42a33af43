//! `lfs quota`: use and limits of users, groups and projects.
//!
//! The options become an [`options::Asked`]. Tables are those of Lustre 2.17: each cell is followed
//! by a space, also the last one of a line.

pub mod ids;
pub mod options;
pub mod table;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use sheen_wire::{
    Errno, PoolName, Result,
    control::{self, MountInfo},
    mgs::target_name,
    quota::{Answer, Id, Kind, Limits, Query, Report, TargetReport, Usage},
};

use self::{
    options::{Asked, IdRange, Selected, View, Wrong},
    table::{Cells, Row},
};
use super::tool::{Tool, keep_first};

/// Lustre's usage of `quota`.
macro_rules! quota_usage {
    () => {
        "\
Display disk usage and limits.
usage: quota [-q] [-v] [-h] [-o OBD_UUID|-o OST_IDX|-m MDT_IDX]
             [{-u|-g|-p} UNAME|UID|GNAME|GID|PROJID]
             [--blocks|--busage|--space]
             [--block-softlimit|--bsoftlimit]
             [--block-hardlimit|--bhardlimit]
             [--block-grace|--bgrace|--btime]
             [--delimiter DELIMITER]
             [--filesystem|--mount-point]
             [--inodes|--iusage]
             [--inode-softlimit|--isoftlimit]
             [--inode-hardlimit|--ihardlimit]
             [--inode-grace|--igrace|--itime]
             [--lqa LQA_NAME]
             [--pool OST_POOL_NAME]
             [MOUNT_POINT ...]
       quota -t {-u|-g|-p} [--pool OST_POOL_NAME] [MOUNT_POINT ...]
       quota [-hqv] {-U|-G|-P} [--pool OST_POOL_NAME] [MOUNT_POINT ...]
       quota -a {-u|-g|-p} [-n] [-s START_QID] [-e END_QID]
             [--show-root] [MOUNT_POINT ...]

"
    };
}

/// `quota`: for usage errors.
const USAGE: &str = quota_usage!();

/// `lfs help quota`: also explains the options.
pub const HELP: &str = concat!(
    quota_usage!(),
    "\
  -u|--user  a user: use and limits
  -g|--group  a group
  -p|--projid  a project
  -U|--default-usr  default limits of users
  -G|--default-grp  default limits of groups
  -P|--default-prj  default limits of projects
  -t|--times  grace times
  -a|--all  all users, groups or projects that have files or limits
  -s|--start-qid  with -a: the first id
  -e|--end-qid  with -a: the last id
  -n|--num  with -a: ids in place of names
  --show-root  with -a: also the id 0
  -v|--verbose  also the part of each target
  -o|--ost  only the part of this OST
  -m|--mdt|--mdt-index  only the part of this MDT
  -h|--human-readable  sizes with units
  -q|--quiet  no titles
  --delimiter  text between columns
  --blocks|--busage|--space|--kbytes  only these columns: space in use
  --block-softlimit|--bsoftlimit|--bquota  soft limit of space
  --block-hardlimit|--bhardlimit|--blimit  hard limit of space
  --block-grace|--bgrace|--btime  time left until the soft limit of space acts as a hard one
  --inodes|--iusage|--files  files in use
  --inode-softlimit|--isoftlimit|--iquota  soft limit of files
  --inode-hardlimit|--ihardlimit|--ilimit  hard limit of files
  --inode-grace|--igrace|--itime  time left until the soft limit of files acts as a hard one
  --filesystem|--mount-point  the mount point
  --pool  use and limits of space within the OSTs of this pool
"
);

/// Lustre's last line if a target is missing in the sums.
const INEXACT: &str = "Some errors happened when getting quota info. Some devices may be not working or deactivated. \
                       The data in \"[]\" is inaccurate.\n";

/// Runs `lfs quota`.
pub fn run(tool: &mut Tool, args: &[OsString]) -> i32 {
    let asked = match options::parse(args) {
        Ok(asked) => asked,
        Err(Wrong::Usage(wrong)) => return tool.usage(USAGE, format_args!("lfs quota: {wrong}")),
        Err(Wrong::Unsupported(wrong)) => {
            tool.complain(format_args!("lfs quota: {wrong}"));
            return Errno::EOPNOTSUPP.0;
        }
    };
    let mut code = 0;
    let paths: Vec<PathBuf> = match asked.mounts.is_empty() {
        // The FID of the root needs no server. Requests to servers have timeouts of their own.
        true => tool.responding_mounts("quota", control::FID, None, &mut code),
        false => asked.mounts.iter().map(PathBuf::from).collect(),
    };
    match &asked.view {
        View::Ids(ids) => {
            for id in ids {
                title(tool, &asked, &id_title(*id));
                each(tool, &paths, &mut code, |tool, path| show_id(tool, &asked, *id, path));
            }
        }
        View::All(kind, range) => {
            title(tool, &asked, &format!("Disk {} quotas\n", ids::short(*kind)));
            each(tool, &paths, &mut code, |tool, path| show_all(tool, &asked, *kind, range, path));
        }
        View::Default(kind) => {
            title(tool, &asked, &format!("Disk default {} quota:\n", ids::short(*kind)));
            each(tool, &paths, &mut code, |tool, path| show_default(tool, &asked, *kind, path));
        }
        View::Grace(kind) => each(tool, &paths, &mut code, |tool, path| show_grace(tool, &asked, *kind, path)),
    }
    code
}

fn id_title(id: Id) -> String {
    let short = ids::short(id.kind);
    let letter = &short[..1];
    format!(
        "Disk quotas for {short} {} ({letter}id {}):\n",
        ids::name(id).unwrap_or_else(|| "<unknown>".to_owned()),
        id.id
    )
}

/// Prints a title and the names of the columns, unless they are not wanted.
fn title(tool: &mut Tool, asked: &Asked, title: &str) {
    if !asked.quiet {
        tool.print(format_args!("{title}{}", asked.table.header()));
    }
}

/// Shows a part for each mount. Failures are reported and do not stop the others. `show` returns
/// whether the numbers are exact.
fn each(tool: &mut Tool, paths: &[PathBuf], code: &mut i32, mut show: impl FnMut(&mut Tool, &Path) -> Result<bool>) {
    for path in paths {
        let e = match show(tool, path) {
            Ok(true) => continue,
            Ok(false) => {
                tool.print(format_args!("{INEXACT}"));
                Errno::EIO
            }
            Err(e) => {
                report(tool, path, e);
                e
            }
        };
        keep_first(code, e);
    }
}

fn report(tool: &mut Tool, path: &Path, e: Errno) {
    let path = path.display();
    match e {
        Errno::ENODEV => tool.complain(format_args!("lfs quota: '{path}' is not on a mounted Lustre filesystem")),
        e => tool.complain(format_args!("lfs quota: cannot get the quotas of '{path}': {e}")),
    }
}

/// Returns the mount that a path lies on, and the pool that the call names. ENODEV: the path is not
/// on a mount. ENOENT: there is no such path, or no pool can have this name.
fn mounted(tool: &Tool, asked: &Asked, path: &Path) -> Result<(MountInfo, Option<PoolName>)> {
    let mount = mount_of(tool, path)?;
    let pool = asked.pool.as_deref().map(|name| pool_of(name, &mount)).transpose()?;
    Ok((mount, pool))
}

/// Returns the pool of a mount's file system that is named as `POOL` or `FSNAME.POOL`. ENOENT: no
/// pool can have this name.
pub fn pool_of(name: &str, mount: &MountInfo) -> Result<PoolName> {
    let short = name.strip_prefix(&mount.fsname).and_then(|rest| rest.strip_prefix('.')).unwrap_or(name);
    PoolName::new(short).map_err(|_| Errno::ENOENT)
}

/// Returns the mount that a path lies on. ENODEV: it lies on none.
pub fn mount_of(tool: &Tool, path: &Path) -> Result<MountInfo> {
    tool.mount_of(path).map_err(|e| if e == Errno::ENOTTY { Errno::ENODEV } else { e })
}

/// Shows use and limits of an id.
fn show_id(tool: &mut Tool, asked: &Asked, id: Id, path: &Path) -> Result<bool> {
    let (mount, pool) = mounted(tool, asked, path)?;
    let targets = asked.verbose || asked.target.is_some();
    let answer = tool.fs.quota(Path::new(&mount.mountpoint), &Query::Of { id, pool, targets })?;
    let Answer::Of { report, mut targets, inexact } = answer else { return Err(Errno::EPROTO) };
    let report = shown(id.id, report);
    if id.id == 0 {
        targets.iter_mut().for_each(|target| target.space_allowed = None);
    }
    if let Some(Selected { kind, index }) = asked.target {
        let name = target_name(&mount.fsname, kind, index);
        let target = targets.iter().find(|target| target.target == name).ok_or(Errno::ENXIO)?;
        tool.print(format_args!("{}", target_row(asked, target, report.files.limits)));
        return Ok(target.space.is_some());
    }
    let row = report_row(asked, &path.display().to_string(), "", &report, inexact);
    tool.print(format_args!("{row}"));
    if asked.verbose {
        show_targets(tool, asked, &targets, report.files.limits);
    }
    Ok(!inexact)
}

/// Returns a report as it is shown: as in Lustre, the id 0 is shown without limits.
fn shown(id: u32, mut report: Report) -> Report {
    if id == 0 {
        let without = |usage: Usage| Usage { used: usage.used, ..Usage::default() };
        (report.space, report.files) = (without(report.space), without(report.files));
    }
    report
}

fn report_row(asked: &Asked, place: &str, id: &str, report: &Report, inexact: bool) -> String {
    let (table, space, files) = (&asked.table, &report.space, &report.files);
    let in_kib = |bytes: u64| table.size(bytes);
    let used = if inexact { format!("[{}]", in_kib(space.used)) } else { in_kib(space.used) };
    table.row(&Row { place, id, space: Cells::of(space, used, in_kib), files: files_cells(files) })
}

fn files_cells(files: &Usage) -> Cells {
    Cells::of(files, files.used.to_string(), |number| number.to_string())
}

/// Shows the part of each target, and the sums of what they may use.
fn show_targets(tool: &mut Tool, asked: &Asked, targets: &[TargetReport], files: Limits) {
    let (mut inodes, mut bytes) = (0u64, 0u64);
    for target in targets {
        tool.print(format_args!("{}", target_row(asked, target, files)));
        inodes = inodes.saturating_add(inode_limit(target, files));
        bytes = bytes.saturating_add(target.space_allowed.unwrap_or(0));
    }
    let bytes = asked.table.size(bytes);
    tool.print(format_args!("Total allocated inode limit: {inodes}, total allocated block limit: {bytes}\n"));
}

/// Returns the limit of files that a target enforces. Only MDTs do.
fn inode_limit(target: &TargetReport, files: Limits) -> u64 {
    if target.target.contains("-MDT") { files.hard } else { 0 }
}

fn target_row(asked: &Asked, target: &TargetReport, files: Limits) -> String {
    let table = &asked.table;
    let part = |used: u64, hard: u64| Usage { used, limits: Limits { soft: 0, hard }, grace: None };
    let space = part(target.space.unwrap_or(0), target.space_allowed.unwrap_or(0));
    let used = table.size(space.used);
    let used = if target.space.is_some() { used } else { format!("[{used}]") };
    let space = Cells::of(&space, used, |bytes| table.size(bytes)).without_soft_limit();
    let files = files_cells(&part(target.files, inode_limit(target, files))).without_soft_limit();
    table.row(&Row { place: &target.target, id: "", space, files })
}

/// Shows all ids of a kind that have files or limits.
fn show_all(tool: &mut Tool, asked: &Asked, kind: Kind, range: &IdRange, path: &Path) -> Result<bool> {
    let (mount, pool) = mounted(tool, asked, path)?;
    let (place, mut first, mut exact) = (path.display().to_string(), range.first, true);
    loop {
        let answer = tool.fs.quota(Path::new(&mount.mountpoint), &Query::All { kind, pool, first })?;
        let Answer::All { ids, more, inexact } = answer else { return Err(Errno::EPROTO) };
        exact &= !inexact;
        for (id, report) in ids.iter().take_while(|(id, _)| *id <= range.last) {
            if *id == 0 && !range.show_root {
                continue;
            }
            let name = if range.numeric { None } else { ids::name(Id { kind, id: *id }) };
            let name = name.unwrap_or_else(|| id.to_string());
            let row = report_row(asked, &place, &name, &shown(*id, *report), inexact);
            tool.print(format_args!("{row}"));
        }
        let next = ids.last().and_then(|(last, _)| last.checked_add(1)).filter(|next| *next <= range.last);
        match next.filter(|_| more) {
            Some(next) => first = next,
            None => return Ok(exact),
        }
    }
}

/// Shows default limits and grace times.
fn show_default(tool: &mut Tool, asked: &Asked, kind: Kind, path: &Path) -> Result<bool> {
    let (mount, pool) = mounted(tool, asked, path)?;
    let answer = tool.fs.quota(Path::new(&mount.mountpoint), &Query::Default { kind, pool })?;
    let Answer::Default { setting, grace } = answer else { return Err(Errno::EPROTO) };
    let table = &asked.table;
    let cells = |limits: Limits, secs: u64, text: &dyn Fn(u64) -> String| Cells {
        used: String::new(),
        soft: text(limits.soft),
        hard: text(limits.hard),
        grace: if limits.is_none() { "-".to_owned() } else { table.seconds(secs) },
    };
    let space = cells(setting.space, grace.space, &|bytes: u64| table.size(bytes));
    let files = cells(setting.files, grace.files, &|number: u64| number.to_string());
    let row = table.row(&Row { place: &path.display().to_string(), id: "", space, files });
    tool.print(format_args!("{row}"));
    Ok(true)
}

fn show_grace(tool: &mut Tool, asked: &Asked, kind: Kind, path: &Path) -> Result<bool> {
    let (mount, pool) = mounted(tool, asked, path)?;
    let answer = tool.fs.quota(Path::new(&mount.mountpoint), &Query::Default { kind, pool })?;
    let Answer::Default { grace, .. } = answer else { return Err(Errno::EPROTO) };
    let (space, files) = (table::duration(grace.space), table::duration(grace.files));
    tool.print(format_args!("Block grace time: {space}; Inode grace time: {files}\n"));
    Ok(true)
}

#[cfg(test)]
mod tests;
