//! `lfs migrate -m` and `lfs mv`: move directories to other MDTs.
//!
//! Sheen has one MDT as yet. A request is either fulfilled already or refused, for an MDT that does
//! not exist like in Lustre.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};

use sheen_wire::{Errno, Result, control, control::TargetInfo, mgs::TargetKind};

use super::{
    super::tool::{Tool, keep_first, text},
    job::Job,
    names::{Names, report_unread_names},
};

/// Runs a command for each directory. `spread`: the options ask for striping over MDTs, which is
/// not supported.
pub fn run(tool: &mut Tool, command: &str, names: Names, job: &Job, spread: bool) -> i32 {
    let mut code = 0;
    let failed = names.each(|path| {
        let done = to_mdts(tool, path, &job.mdts, spread);
        match done {
            Ok(()) if job.verbose => {
                tool.print_bytes(path.as_os_str().as_encoded_bytes());
                tool.print(format_args!("\n"));
            }
            Ok(()) => {}
            Err(e) => {
                let why = if e == Errno::EOPNOTSUPP { ": directories cannot be moved or restriped yet" } else { "" };
                tool.complain(format_args!("lfs {command}: {} migrate failed: {e} ({}){why}", path.display(), e.0));
                keep_first(&mut code, e);
            }
        }
    });
    report_unread_names(tool, failed, code)
}

/// Succeeds if the directory is on these MDTs. ENODEV: a named MDT does not exist. EOPNOTSUPP: the
/// directory is on another MDT, or `spread`.
fn to_mdts(tool: &Tool, path: &Path, mdts: &[i64], spread: bool) -> Result<()> {
    tool.mount_of(path)?;
    let path = tool.fs.resolve(path)?;
    let targets: Vec<TargetInfo> = tool.ask(&path, control::DF)?;
    let is_there = |mdt: i64| targets.iter().any(|t| t.kind == TargetKind::Mdt && i64::from(t.index) == mdt);
    // -1 is any MDT.
    let mut named = mdts.iter().copied().filter(|mdt| *mdt >= 0);
    if !named.clone().all(is_there) {
        return Err(Errno::ENODEV);
    }
    let own = tool.fs.get(&path, control::MDT)?;
    let own = text(OsStr::from_bytes(&own)).trim_end().parse::<i64>().map_err(|_| Errno::EPROTO)?;
    if spread || named.any(|mdt| mdt != own) { Err(Errno::EOPNOTSUPP) } else { Ok(()) }
}
