//! `lctl dl` and `lctl list_nids`.

use std::io;

use sheen_control::{Reply, Request};

use super::options::{self, FSNAME};
use super::{tool::Tool, usage};
use crate::lfs::getopt::{Spec, Value};

const DL: Spec = Spec { short: "t", long: &[("target", Value::No, "t"), FSNAME] };
const LIST_NIDS: Spec = Spec { short: "", long: &[FSNAME] };

/// Prints the devices of all processes, numbered consecutively.
///
/// # Errors
/// The output cannot be written.
pub fn dl(args: &[String], tool: &mut Tool<'_>) -> io::Result<i32> {
    let Some(given) = options::parse("dl", &DL, args, tool)? else { return Ok(usage::EXIT) };
    let replies = tool.ask(Request::Devices);
    let devices = replies.into_iter().flat_map(|reply| if let Reply::Devices(d) = reply { d } else { Vec::new() });
    for (index, d) in devices.enumerate() {
        write!(tool.out, "{index:3} {} {} {} {} {}", d.status, d.kind, d.name, d.uuid, d.refcount)?;
        match d.peer.filter(|_| given.has("t")) {
            Some(peer) => writeln!(tool.out, " {peer}")?,
            None => writeln!(tool.out)?,
        }
    }
    Ok(0)
}

/// Prints the NIDs of all processes.
///
/// # Errors
/// The output cannot be written.
pub fn list_nids(args: &[String], tool: &mut Tool<'_>) -> io::Result<i32> {
    if options::parse("list_nids", &LIST_NIDS, args, tool)?.is_none() {
        return Ok(usage::EXIT);
    }
    let replies = tool.ask(Request::Nids);
    let mut nids: Vec<String> =
        replies.into_iter().flat_map(|reply| if let Reply::Nids(n) = reply { n } else { Vec::new() }).collect();
    nids.sort();
    nids.dedup();
    for nid in nids {
        writeln!(tool.out, "{nid}")?;
    }
    Ok(0)
}
