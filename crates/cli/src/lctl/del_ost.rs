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
    let text = match &mgs::values(&param, tool)[..] {
        [text] => text.clone(),
        [] => {
            let text = "no MGS on this machine knows this file system; run this command where the MGS runs";
            writeln!(tool.err, "error: del_ost: '{fsname}': {text}")?;
            return Ok(Errno::ENODEV.0);
        }
        _ => {
            let text = "several MGSs on this machine know it; use SHEEN_RUNTIME_DIR to select one";
            writeln!(tool.err, "error: del_ost: '{fsname}': {text}")?;
            return Ok(Errno::EINVAL.0);
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
