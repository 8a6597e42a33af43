//! `lctl llog_print` and `lctl llog_catlist`: the configuration that the MGS stores, in the form of
//! Lustre's configuration logs.
//!
//! The log `params` contains the permanent settings. They apply to all file systems of the MGS. The
//! log `FSNAME-client` contains the targets and the pools of a file system, as a mount uses them.
//! The records show the present state: Sheen stores no history.

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
        Some(fsname) => {
            let targets = mgs::values(&format!("mgs.*.targets.{fsname}"), tool).concat();
            records(fsname, &targets, &pool::pools_of(fsname, tool).into_iter().next().unwrap_or_default())
        }
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

/// Returns the records that make the targets and the pools of a file system, one per line.
/// `targets`: the MGS's parameter of that name.
fn records(fsname: &str, targets: &str, pools: &[Pool]) -> String {
    let mut events = Vec::new();
    for kind in ["lov", "lmv"] {
        events.push(format!("event: attach, device: {fsname}-cli{kind}, type: {kind}, UUID: {fsname}-cli{kind}_UUID"));
    }
    targets.lines().for_each(|line| events.extend(target_events(fsname, line).unwrap_or_default()));
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

/// Returns the events that make a target. `line`: its name, its uuid and its NIDs. `None`: it was
/// removed. Its first NID is that of the server; the others are those for a failover.
fn target_events(fsname: &str, line: &str) -> Option<Vec<String>> {
    let mut words = line.split(' ');
    let (target, nids) = (words.next()?, words.nth(1)?);
    let (_, index) = target.rsplit_once('-')?;
    let (is_mdt, digits) = (index.starts_with("MDT"), index.get("MDT".len()..)?);
    let (index, nids) =
        (u32::from_str_radix(digits, 16).ok()?, nids.split(',').filter(|nid| !["", "removed"].contains(nid)));
    let nids: Vec<&str> = nids.collect();
    let first = nids.first()?;
    let (kind, owner) = if is_mdt { ("mdc", "clilmv") } else { ("osc", "clilov") };
    let device = format!("{target}-{kind}");
    let mut events: Vec<String> = nids.iter().map(|nid| format!("event: add_uuid, nid: {nid}, node: {nid}")).collect();
    events.push(format!("event: attach, device: {device}, type: {kind}, UUID: {fsname}-{owner}_UUID"));
    events.push(format!("event: setup, device: {device}, UUID: {target}_UUID, node: {first}"));
    events.extend(nids[1..].iter().map(|nid| format!("event: add_conn, device: {device}, node: {nid}")));
    events.push(match is_mdt {
        true => format!(
            "event: add_mdc, device: {fsname}-{owner}, mdt: {target}_UUID, index: {index}, gen: 1, UUID: {device}_UUID"
        ),
        false => format!("event: add_osc, device: {fsname}-{owner}, ost: {target}_UUID, index: {index}, gen: 1"),
    });
    Some(events)
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
            format!("- {{ index: 3, event: new_pool, {} }}", of("flash")),
            format!("- {{ index: 4, event: add_pool, {}, ost: sheen-OST0000_UUID }}", of("flash")),
            format!("- {{ index: 5, event: add_pool, {}, ost: sheen-OST0002_UUID }}", of("flash")),
            format!("- {{ index: 6, event: new_pool, {} }}", of("empty")),
        ];
        let text = records("sheen", "", &pools);
        assert_eq!(text.lines().skip(2).collect::<Vec<_>>(), want);
        assert_eq!(text.lines().filter_map(index_of).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
        assert_eq!(index_of("- { event: x }"), None);
    }

    #[test]
    fn records_make_targets_in_lustre_form() {
        let targets = "a-b-MDT0000 u1 10.0.0.1@tcp\na-b-OST0001 u2 removed\na-b-OST000a u3 10.0.0.2@tcp,10.0.0.3@tcp\n";
        let want = "\
- { index: 1, event: attach, device: a-b-clilov, type: lov, UUID: a-b-clilov_UUID }
- { index: 2, event: attach, device: a-b-clilmv, type: lmv, UUID: a-b-clilmv_UUID }
- { index: 3, event: add_uuid, nid: 10.0.0.1@tcp, node: 10.0.0.1@tcp }
- { index: 4, event: attach, device: a-b-MDT0000-mdc, type: mdc, UUID: a-b-clilmv_UUID }
- { index: 5, event: setup, device: a-b-MDT0000-mdc, UUID: a-b-MDT0000_UUID, node: 10.0.0.1@tcp }
- { index: 6, event: add_mdc, device: a-b-clilmv, mdt: a-b-MDT0000_UUID, index: 0, gen: 1, UUID: a-b-MDT0000-mdc_UUID }
- { index: 7, event: add_uuid, nid: 10.0.0.2@tcp, node: 10.0.0.2@tcp }
- { index: 8, event: add_uuid, nid: 10.0.0.3@tcp, node: 10.0.0.3@tcp }
- { index: 9, event: attach, device: a-b-OST000a-osc, type: osc, UUID: a-b-clilov_UUID }
- { index: 10, event: setup, device: a-b-OST000a-osc, UUID: a-b-OST000a_UUID, node: 10.0.0.2@tcp }
- { index: 11, event: add_conn, device: a-b-OST000a-osc, node: 10.0.0.3@tcp }
- { index: 12, event: add_osc, device: a-b-clilov, ost: a-b-OST000a_UUID, index: 10, gen: 1 }
";
        assert_eq!(records("a-b", targets, &[]), want);
        for odd in ["", "a", "a-b-OST0000", "a-b-OST0000 u", "a-b-OST0000 u ", "OST 1 2", "a-é 1 2", "a-OSTx 1 2"] {
            assert_eq!(target_events("a-b", odd).unwrap_or_default(), [""; 0], "{odd}");
        }
    }
}
