//! Bringing mirrors up to date: `lfs mirror copy`, and what `resync` and `extend` do.
//!
//! The MDT gives a ticket: the layout's generation, under which every writer has to ask it first. Then one fresh mirror is copied to
//! the others, which nobody reads meanwhile, and made durable. If the generation is still the same, nobody has written, and the
//! copies are fresh; else all is done again, a few times.

use std::{
    ffi::OsString,
    fs::File,
    os::unix::fs::FileExt,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use rustix::{
    fs::{SeekFrom, seek},
    io::Errno as IoErrno,
};
use sheen_layout::{Composite, Layout};
use sheen_wire::{Errno, Result, mirror::Change};

use super::{
    super::{
        Tool,
        getopt::{self, Item, Value},
    },
    change, id, ids, layout_of, mirrored, wrong,
};

/// Bytes that are copied at a time: as many as travel in one request.
const CHUNK_BYTES: usize = 4 << 20;
/// Times that a copy is made of a file that is being written meanwhile.
const ROUNDS_MAX: u32 = 5;
/// Pause before another one, in which writers may come to an end.
const PAUSE: Duration = Duration::from_millis(300);
/// A copy that takes less says nothing of how far it is.
const QUIET: Duration = Duration::from_secs(2);
/// How often it says it after that.
const SAY_EVERY: Duration = Duration::from_millis(200);

const OPTIONS: getopt::Spec = getopt::Spec {
    short: "i:o:h",
    long: &[("read-mirror", Value::Required, "i"), ("write-mirror", Value::Required, "o"), ("help", Value::No, "h")],
};

/// Runs `lfs mirror copy`.
pub fn run(tool: &mut Tool, args: &[OsString]) -> i32 {
    let (mut from, mut to, mut paths) = (None, None, Vec::new());
    for item in OPTIONS.parse(args) {
        match item {
            Item::Option { id: "i", value, .. } => match id(value.as_deref()) {
                Some(id) => from = Some(id),
                None => return wrong(tool, "copy", "invalid source mirror ID"),
            },
            Item::Option { id: "o", value, .. } if value.as_ref().is_some_and(|v| v == "-1") => to = Some(Vec::new()),
            Item::Option { id: "o", value, .. } => match ids(value.as_deref()) {
                Some(ids) => to = Some(ids),
                None => return wrong(tool, "copy", "invalid destination mirror ID"),
            },
            Item::Option { .. } => return tool.help(super::USAGE),
            Item::Operand(path) => paths.push(path),
            Item::Unrecognized(arg) => {
                return wrong(tool, "copy", &format!("unrecognized option '{}'", arg.display()));
            }
        }
    }
    let ([path], Some(from), Some(to)) = (&paths[..], from, to) else {
        return wrong(tool, "copy", "a file, -i and -o must be given");
    };
    let path = Path::new(path);
    let layout = match mirrored(tool, path, " mirror copy") {
        Ok(layout) => layout,
        Err(e) => return e.0,
    };
    // All others.
    let to = if to.is_empty() { layout.mirror_ids().into_iter().filter(|id| *id != from).collect() } else { to };
    let known = |id: &u16| layout.mirror_ids().contains(id);
    if to.contains(&from) || !known(&from) || !to.iter().all(known) {
        tool.complain(format_args!("lfs mirror copy: '{}' has no such mirrors", path.display()));
        return Errno::EINVAL.0;
    }
    match bring_up(tool, path, Some(from), &to) {
        Ok(()) => {
            tool.print(format_args!("mirror copied successfully: "));
            to.iter().for_each(|id| tool.print(format_args!("{id} ")));
            tool.print(format_args!("\n"));
            0
        }
        Err(e) => {
            tool.complain(format_args!("lfs mirror copy: cannot copy '{}': {e}", path.display()));
            e.0
        }
    }
}

/// Copies mirror `from` (`None`: one that is fresh) to others, which are fresh afterwards.
///
/// EBUSY: the file was written all the time.
pub fn bring_up(tool: &mut Tool, path: &Path, from: Option<u16>, to: &[u16]) -> Result<()> {
    for round in 0..ROUNDS_MAX {
        if round > 0 {
            thread::sleep(PAUSE);
        }
        match once(tool, path, from, to) {
            Err(Errno::EBUSY) => {}
            done => return done,
        }
    }
    Err(Errno::EBUSY)
}

/// Declares mirrors fresh that are known to hold the same bytes.
pub fn declare(tool: &Tool, path: &Path, mirrors: &[u16]) -> Result<()> {
    let generation = begin(tool, path, mirrors)?.generation();
    change(tool, path, &Change::Resynced { generation, mirrors: mirrors.to_vec() })
}

/// The layout as it is from now on, while nobody writes.
fn begin(tool: &Tool, path: &Path, mirrors: &[u16]) -> Result<Layout> {
    let end = tool.fs.size(path)?;
    change(tool, path, &Change::Resync { mirrors: mirrors.to_vec(), end })?;
    layout_of(tool, path)
}

fn once(tool: &mut Tool, path: &Path, from: Option<u16>, to: &[u16]) -> Result<()> {
    let layout = begin(tool, path, to)?;
    if layout.mirror_state() != Composite::SYNC_PENDING {
        return Err(Errno::EBUSY);
    }
    let fresh = |id: &u16| !to.contains(id);
    let from =
        from.or_else(|| layout.fresh_mirrors().iter().map(|m| m.mirror_id()).find(fresh)).ok_or(Errno::EINVAL)?;
    let size = tool.fs.size(path)?;
    let source = tool.fs.mirror(path, from, false)?;
    let targets = to.iter().map(|id| tool.fs.mirror(path, *id, true)).collect::<Result<Vec<_>>>()?;
    copy(tool, path, &source, &targets, size)?;
    change(tool, path, &Change::Resynced { generation: layout.generation(), mirrors: to.to_vec() })
}

/// Makes the targets hold what the source does, holes included.
fn copy(tool: &mut Tool, path: &Path, source: &File, targets: &[File], size: u64) -> Result<()> {
    for target in targets {
        target.set_len(0).map_err(Errno::from)?;
    }
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut progress = Progress::new(size);
    let mut at = 0;
    while let Some((start, end)) = data(source, at, size)? {
        at = start;
        while at < end {
            let len = usize::try_from(end - at).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
            let n = source.read_at(&mut buffer[..len], at).map_err(Errno::from)?;
            if n == 0 {
                break;
            }
            for target in targets {
                target.write_all_at(&buffer[..n], at).map_err(Errno::from)?;
            }
            at += n as u64;
            progress.at(tool, path, at);
        }
        if at < end {
            break;
        }
    }
    progress.end(tool);
    // What was read may not be durable yet, and must not be less so than its copies.
    source.sync_all().map_err(Errno::from)?;
    for target in targets {
        target.set_len(size).map_err(Errno::from)?;
        target.sync_all().map_err(Errno::from)?;
    }
    Ok(())
}

/// The next range of data from `at` on.
fn data(file: &File, at: u64, size: u64) -> Result<Option<(u64, u64)>> {
    if at >= size {
        return Ok(None);
    }
    let start = match seek(file, SeekFrom::Data(at)) {
        Ok(start) => start,
        Err(IoErrno::NXIO) => return Ok(None),
        Err(e) => return Err(Errno(e.raw_os_error())),
    };
    let end = seek(file, SeekFrom::Hole(start)).map_err(|e| Errno(e.raw_os_error()))?;
    Ok((start < size).then_some((start, end.min(size))))
}

/// How far a copy is, on a terminal.
struct Progress {
    size: u64,
    began: Instant,
    said: Option<Instant>,
    shown: bool,
}

impl Progress {
    fn new(size: u64) -> Progress {
        let shown = std::io::IsTerminal::is_terminal(&std::io::stderr());
        Progress { size, began: Instant::now(), said: None, shown }
    }

    fn at(&mut self, tool: &mut Tool, path: &Path, at: u64) {
        let now = Instant::now();
        let due = self.said.is_none_or(|said| now - said >= SAY_EVERY);
        if !self.shown || now - self.began < QUIET || !due {
            return;
        }
        self.said = Some(now);
        let percent = at * 100 / self.size.max(1);
        let _ = write!(tool.err, "\r{}: {percent:3}% of {} MiB", path.display(), self.size >> 20);
    }

    fn end(&self, tool: &mut Tool) {
        if self.said.is_some() {
            let _ = writeln!(tool.err);
        }
    }
}
