//! `lfs mirror read` and `lfs mirror write`: read and write the data of one mirror, stale or not.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use sheen_admin::mirror::{MirroredFile, NamedFile, Ticket};
use sheen_wire::{Errno, Result};

use super::{
    super::{
        getopt::{self, Item, Value},
        tool::Tool,
    },
    errors::{why, wrong},
    ids::id,
    usage::USAGE,
};

/// Bytes read or written at a time.
const CHUNK_BYTES: usize = 4 << 20;

const OPTIONS: getopt::Spec = getopt::Spec {
    short: "N:o:i:h",
    long: &[
        ("mirror-id", Value::Required, "N"),
        ("outfile", Value::Required, "o"),
        ("inputfile", Value::Required, "i"),
        ("help", Value::No, "h"),
    ],
};

/// The parsed command line.
struct Call {
    mirror: u16,
    /// The file to write to or to read from; `None`: stdout or stdin.
    other: Option<PathBuf>,
    path: PathBuf,
}

/// Runs `lfs mirror read`.
pub fn read(tool: &mut Tool, args: &[OsString]) -> i32 {
    run(tool, args, "read", |tool, call| {
        let file = tool.fs.mirror(&call.path, call.mirror, false)?;
        let to_file = call.other.as_ref().map(File::create).transpose().map_err(Errno::from)?;
        let mut buffer = vec![0; CHUNK_BYTES];
        let mut at = 0;
        loop {
            let n = file.read_at(&mut buffer, at).map_err(Errno::from)?;
            match (n, &to_file) {
                (0, _) => return Ok(()),
                (n, Some(out)) => Write::write_all(&mut &*out, &buffer[..n]).map_err(Errno::from)?,
                (n, None) => tool.print_bytes(&buffer[..n]),
            }
            at += n as u64;
        }
    })
}

/// Runs `lfs mirror write`. The mirror is stale during the write. Afterwards it is stale only if it
/// was before.
pub fn write(tool: &mut Tool, args: &[OsString]) -> i32 {
    run(tool, args, "write", |tool, call| {
        let (mut from, end): (Box<dyn Read>, u64) = match &call.other {
            Some(path) => {
                let file = File::open(path).map_err(Errno::from)?;
                let metadata = file.metadata().map_err(Errno::from)?;
                let end = if metadata.is_file() { metadata.len() } else { u64::MAX };
                (Box::new(file), end)
            }
            None => (Box::new(io::stdin()), u64::MAX),
        };
        let named = NamedFile { fs: tool.fs, path: &call.path };
        let ticket = Ticket::take(&named, named.layout()?, &[call.mirror], end)?;
        let files = ticket.open(&named, &[call.mirror])?;
        let file = files.first().ok_or(Errno::EIO)?;
        let mut buffer = vec![0; CHUNK_BYTES];
        let mut at = 0;
        loop {
            let n = fill(&mut *from, &mut buffer)?;
            if n == 0 {
                break;
            }
            file.write_all_at(&buffer[..n], at).map_err(Errno::from)?;
            at += n as u64;
        }
        file.sync_all().map_err(Errno::from)?;
        let fresh = if ticket.was_fresh(call.mirror) { vec![call.mirror] } else { Vec::new() };
        ticket.end(&named, &fresh)
    })
}

fn fill(from: &mut dyn Read, buffer: &mut [u8]) -> Result<usize> {
    let mut have = 0;
    while have < buffer.len() {
        match from.read(&mut buffer[have..]) {
            Ok(0) => break,
            Ok(n) => have += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(have)
}

fn run(tool: &mut Tool, args: &[OsString], command: &str, work: impl FnOnce(&mut Tool, &Call) -> Result<()>) -> i32 {
    let other = if command == "read" { "o" } else { "i" };
    let (mut mirror, mut file, mut paths) = (None, None, Vec::new());
    for item in OPTIONS.parse(args) {
        match item {
            Item::Option { id: "N", value, .. } => match id(value.as_deref()) {
                Some(id) => mirror = Some(id),
                None => return wrong(tool, command, "invalid mirror ID"),
            },
            Item::Option { id, value, .. } if id == other => file = value.map(PathBuf::from),
            Item::Option { .. } => return tool.help(USAGE),
            Item::Operand(path) => paths.push(PathBuf::from(path)),
            Item::Unrecognized(arg) => {
                return wrong(tool, command, &format!("unrecognized option '{}'", arg.display()));
            }
        }
    }
    let (Some(mirror), 1) = (mirror, paths.len()) else {
        return wrong(tool, command, "a file and a mirror's ID must be given");
    };
    let call = Call { mirror, other: file, path: paths.swap_remove(0) };
    let done = check(tool, &call, command).and_then(|()| {
        work(tool, &call).inspect_err(|e| {
            let path = call.path.display();
            tool.complain(format_args!("lfs {command}: cannot {command} '{path}': {e}{}", why(*e)));
        })
    });
    done.map_or_else(|e| e.0, |()| 0)
}

/// Checks that the file has the mirror. Reports failures.
fn check(tool: &mut Tool, call: &Call, command: &str) -> Result<()> {
    let path: &Path = &call.path;
    let layout = tool.fs.layout(path).inspect_err(|e| {
        tool.complain(format_args!("lfs {command}: cannot open '{}': {e}", path.display()));
    })?;
    if layout.mirror_ids().contains(&call.mirror) {
        return Ok(());
    }
    let (id, path) = (call.mirror, path.display());
    tool.complain(format_args!("does not find mirror with ID {id}"));
    tool.complain(format_args!("lfs {command}: cannot find mirror with ID {id} in '{path}'"));
    Err(Errno::EINVAL)
}
