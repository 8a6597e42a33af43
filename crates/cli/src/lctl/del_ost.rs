//! `lctl del_ost`: removes an OST from a file system for good.
//!
//! The MGS refuses to remove an OST that is in use: a permanent setting must have deactivated it
//! before. The process that serves the MGS has a parameter `mgs.MGS.targets.FSNAME`, which shows
//! the targets; writing to it removes an OST. A user who can reach the control socket of that
//! process can therefore remove OSTs. MDTs and mounts learn of it from the MGS a moment later.

use std::io;

use sheen_wire::{
    Errno,
    mgs::{TargetKind, parse_ost, target_name},
};

use super::{mgs, tool::Tool, usage};

/// `del_ost [--dryrun|-n] --target|-t FSNAME-OSTxxxx`
///
/// # Errors
/// The output cannot be written.
pub fn run(args: &[String], tool: &mut Tool<'_>) -> io::Result<i32> {
    let Some((target, dry)) = options(args) else {
        tool.out.write_all(usage::of("del_ost").unwrap_or_default().as_bytes())?;
        return Ok(usage::EXIT);
    };
    let named = target.rsplit_once("-OST").map(|(fsname, _)| fsname);
    let Some((fsname, ost)) = named.and_then(|fsname| Some((fsname, parse_ost(fsname, target)?))) else {
        writeln!(tool.err, "error: del_ost: invalid target '{target}': expected FSNAME-OST0000")?;
        return Ok(Errno::EINVAL.0);
    };
    let (param, name) = (format!("mgs.*.targets.{fsname}"), target_name(fsname, TargetKind::Ost, ost));
    let text = match mgs::value_of(&param, fsname, tool) {
        Ok(text) => text,
        Err((errno, why)) => {
            writeln!(tool.err, "error: del_ost: {why}")?;
            return Ok(errno.0);
        }
    };
    if dry {
        let line = text.lines().find(|line| line.split(' ').next() == Some(name.as_str()));
        return match line {
            Some(line) if !line.ends_with(" removed") => writeln!(tool.out, "[DRY RUN] {line}").map(|()| 0),
            _ => refuse(&name, fsname, Errno::ENODEV, tool),
        };
    }
    match mgs::order(&param, format!("del_ost {ost}"), tool) {
        Errno(0) => {
            writeln!(tool.out, "{name} is removed from '{fsname}'; its index will not be used again")?;
            Ok(0)
        }
        errno => refuse(&name, fsname, errno, tool),
    }
}

/// Returns the target, and whether nothing is to be changed. `None`: a wrong call.
fn options(args: &[String]) -> Option<(&str, bool)> {
    let (mut target, mut dry) = (None, false);
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        match arg.as_str() {
            "-n" | "--dryrun" => dry = true,
            "-t" | "--target" => target = Some(rest.next()?.as_str()),
            long if long.starts_with("--target=") => target = long.strip_prefix("--target="),
            _ => return None,
        }
    }
    target.map(|target| (target, dry))
}

fn refuse(name: &str, fsname: &str, errno: Errno, tool: &mut Tool<'_>) -> io::Result<i32> {
    let why = match errno {
        Errno::ENODEV => format!("it is not part of '{fsname}'"),
        Errno::EBUSY => format!(
            "it is in use: move its data to other OSTs (lfs find --ost, lfs migrate), then deactivate it:\n  \
             lctl set_param -P osc.{name}-osc-*.active=0"
        ),
        errno => errno.to_string(),
    };
    writeln!(tool.err, "error: del_ost: {name}: {why}")?;
    Ok(errno.0)
}

#[cfg(test)]
mod tests {
    use sheen_params::{Param, Params};

    use super::super::tests::{Fakes, run_with};

    /// A process with an MGS that knows the file system `lustre`.
    fn mgs() -> Params {
        let params = Params::new();
        params.register("mgs.MGS.filesystems", Param::text(|| "lustre\n".into()));
        params.register("mgs.MGS.targets.lustre", Param::text(|| "lustre-OST0000 tcp\n".into()));
        params
    }

    #[test]
    fn del_ost_reports_a_missing_or_ambiguous_mgs() {
        let lctl = |processes: &[Params], ost: &str| {
            run_with(&Fakes(processes), &["del_ost", "--dryrun", "-t", ost].map(str::to_owned))
        };
        assert_eq!(lctl(&[mgs()], "lustre-OST0000").0, 0);
        let (code, _, err) = lctl(&[mgs()], "nofs-OST0000");
        assert_eq!((code, &err[..]), (22, "error: del_ost: the MGS knows no file system 'nofs'\n"));
        let (code, _, err) = lctl(&[Params::new()], "lustre-OST0000");
        assert!(code == 19 && err.contains("no MGS that you can reach"), "{err}");
        let (code, _, err) = lctl(&[mgs(), mgs()], "lustre-OST0000");
        assert!(code == 22 && err.contains("several MGSs"), "{err}");
    }
}
