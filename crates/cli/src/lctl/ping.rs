//! `lctl ping`: whether a server answers. It connects to the service that all servers have for
//! tests of the network.

use std::{io, time::Duration};

use sheen_lnet::{Net, NidName};
use sheen_rpc::{Import, ImportConfig, ImportParams};
use sheen_rt::{RealOptions, Rt};
use sheen_wire::{Errno, Selftest, selftest::TARGET};

use super::{options, tool::Tool, usage};
use crate::lfs::getopt::Spec;

const PING: Spec = Spec { short: "", long: &[] };
/// Time limit unless the user sets one, in seconds.
const TIMEOUT: u64 = 5;
/// Time limit for the end of all tasks.
const END_WAIT: Duration = Duration::from_millis(500);
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
    let (runtime, rt) = Rt::real(RealOptions::default())?;
    let milliseconds = seconds * 1000;
    let params = ImportParams {
        hard: false,
        connect_timeout_ms: milliseconds,
        recovery_timeout_ms: milliseconds,
        ..ImportParams::default()
    };
    let answered = runtime.block_on(async {
        let nids = name.resolve(&rt).await?;
        let uuid = format!("ping-{:016x}", rt.random_u64());
        let config = ImportConfig { params, ..ImportConfig::new(&uuid, TARGET, nids) };
        let import = Import::<Selftest>::new(Net::new(rt.clone()), config);
        let connected = import.connect().await.map_err(io::Error::other);
        let nid = import.current_nid();
        import.close().await;
        connected.map(|()| nid)
    });
    runtime.shutdown(END_WAIT);
    answered?.map(|nid| nid.to_string()).ok_or_else(|| io::Error::other("the connection was lost"))
}
