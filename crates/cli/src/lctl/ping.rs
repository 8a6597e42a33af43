//! `lctl ping`: whether a server answers. It connects to the service that all servers have for
//! tests of the network.

use std::{io, slice, time::Duration};

use sheen_lnet::NidName;
use sheen_rpc::SelftestConnection;
use sheen_wire::Errno;

use super::{options, tool::Tool, usage};
use crate::{lfs::getopt::Spec, trust};

const PING: Spec = Spec { short: "", long: &[] };
/// Time limit unless the user sets one, in seconds.
const TIMEOUT: u64 = 5;
/// Lustre prints the id of the kernel's process before the NID.
const KERNEL_PID: u32 = 12345;

/// Pings a server.
///
/// # Errors
/// The output cannot be written.
pub fn run(args: &[String], tool: &mut Tool<'_>) -> io::Result<i32> {
    let Some(given) = options::parse("ping", &PING, args, tool)? else { return Ok(usage::EXIT) };
    let (nid, seconds) = match given.rest.as_slice() {
        [nid] => (nid, Some(TIMEOUT)),
        [nid, seconds] => (nid, seconds.parse().ok().filter(|seconds| (1..=3600).contains(seconds))),
        _ => return usage(tool, "ping: expected a NID, and a time limit in seconds from 1 to 3600"),
    };
    let Some(seconds) = seconds else { return usage(tool, "ping: the time limit is 1 to 3600 seconds") };
    let name: NidName = match nid.parse() {
        Ok(name) => name,
        Err(e) => return usage(tool, &format!("ping: {nid}: {e}")),
    };
    match answers(&name, seconds) {
        Ok(nid) => {
            writeln!(tool.out, "{KERNEL_PID}-{nid}")?;
            Ok(0)
        }
        Err(e) => {
            writeln!(tool.err, "failed to ping {nid}: {e}")?;
            Ok(Errno::EIO.0)
        }
    }
}

fn usage(tool: &mut Tool<'_>, message: &str) -> io::Result<i32> {
    writeln!(tool.err, "lctl: {message}")?;
    tool.out.write_all(usage::of("ping").unwrap_or_default().as_bytes())?;
    Ok(usage::EXIT)
}

/// Returns the NID at which the server answers.
fn answers(name: &NidName, seconds: u64) -> io::Result<String> {
    if *name == NidName::Lo {
        return Ok("0@lo".into());
    }
    let connection =
        SelftestConnection::open(trust::of_tools(), slice::from_ref(name), 1, Duration::from_secs(seconds))?;
    let nid = connection.import().current_nid();
    nid.map(|nid| nid.to_string()).ok_or_else(|| io::Error::other("the connection was lost"))
}
