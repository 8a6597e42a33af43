//! `lctl llog_print` and `lctl llog_catlist`: the configuration that the MGS stores, in the form of
//! Lustre's configuration logs.
//!
//! The log `params` contains the permanent settings. They apply to all file systems of the MGS. The
//! log `FSNAME-client` contains the pools of a file system. The records show the present state:
//! Sheen stores no history.

use std::io;

use sheen_wire::Errno;
use sheen_wire::mgs::{Pool, TargetKind, target_name};

use super::{mgs, options, permanent, pool, tool::Tool, usage};
use crate::lfs::getopt::{Spec, Value};

const PRINT: Spec = Spec { short: "s:e:", long: &[("start", Value::Required, "s"), ("end", Value::Required, "e")] };
/// The log of permanent settings.
const PARAMS: &str = "params";
/// The end of the name of a file system's log.
const CLIENT: &str = "-client";

/// `llog_print [--start INDEX] [--end INDEX] LOG`
///
/// # Errors
/// The output cannot be written.
pub fn print(args: &[String], tool: &mut Tool<'_>) -> io::Result<i32> {
    let Some(given) = options::parse("llog_print", &PRINT, args, tool)? else { return Ok(usage::EXIT) };
    let index = |letter: &str, default: u64| given.value(letter).map_or(Some(default), |text| text.parse().ok());
    let ([log], Some(start), Some(end)) = (&given.rest[..], index("s", 0), index("e", u64::MAX)) else {
        return options::wrong("llog_print", tool);
    };
    let is_params = log == PARAMS;
    let mgs = match mgs::find("llog_print", Some(log.as_str()).filter(|_| !is_params), tool)? {
        Ok(mgs) => mgs,
        Err(errno) => return Ok(errno.0),
    };
    let fsname = log.strip_suffix(CLIENT).filter(|fsname| mgs.fsnames.iter().any(|known| known == fsname));
    let text = match fsname {
        _ if is_params => mgs::values(&permanent::param(&mgs), tool).concat(),
        Some(fsname) => records(fsname, &pool::pools_of(fsname, tool).into_iter().next().unwrap_or_default()),
        None => {
            writeln!(tool.err, "llog_print: no log '{log}': 'lctl llog_catlist' lists the logs")?;
            return Ok(Errno::ENOENT.0);
        }
    };
    for line in text.lines().filter(|line| index_of(line).is_none_or(|index| (start..=end).contains(&index))) {
        writeln!(tool.out, "{line}")?;
    }
    Ok(0)
}

/// `llog_catlist`
///
/// # Errors
/// The output cannot be written.
pub fn catlist(args: &[String], tool: &mut Tool<'_>) -> io::Result<i32> {
    if !args.is_empty() {
        return options::wrong("llog_catlist", tool);
    }
    let mgs = match mgs::find("llog_catlist", None, tool)? {
        Ok(mgs) => mgs,
        Err(errno) => return Ok(errno.0),
    };
    writeln!(tool.out, "config_log: {PARAMS}")?;
    for fsname in &mgs.fsnames {
        writeln!(tool.out, "config_log: {fsname}{CLIENT}")?;
    }
    Ok(0)
}

/// Returns the records that make the pools of a file system, one per line.
fn records(fsname: &str, pools: &[Pool]) -> String {
    let mut events = Vec::new();
    for pool in pools {
        let of = format!("device: {fsname}-clilov, fsname: {fsname}, pool: {}", pool.name);
        events.push(format!("event: new_pool, {of}"));
        for ost in &pool.osts {
            let ost = target_name(fsname, TargetKind::Ost, *ost);
            events.push(format!("event: add_pool, {of}, ost: {ost}_UUID"));
        }
    }
    (1..).zip(events).map(|(index, event)| format!("- {{ index: {index}, {event} }}\n")).collect()
}

/// Returns the index of a record.
fn index_of(line: &str) -> Option<u64> {
    line.strip_prefix("- { index: ")?.split(',').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_make_pools_in_lustre_form() {
        let pools = [("flash", vec![0, 2]), ("empty", vec![])];
        let pools = pools.map(|(name, osts)| Pool { name: name.into(), osts });
        let of = |pool: &str| format!("device: sheen-clilov, fsname: sheen, pool: {pool}");
        let want = [
            format!("- {{ index: 1, event: new_pool, {} }}", of("flash")),
            format!("- {{ index: 2, event: add_pool, {}, ost: sheen-OST0000_UUID }}", of("flash")),
            format!("- {{ index: 3, event: add_pool, {}, ost: sheen-OST0002_UUID }}", of("flash")),
            format!("- {{ index: 4, event: new_pool, {} }}", of("empty")),
        ];
        let text = records("sheen", &pools);
        assert_eq!(text.lines().collect::<Vec<_>>(), want);
        assert_eq!(text.lines().filter_map(index_of).collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert_eq!(index_of("- { event: x }"), None);
    }
}
