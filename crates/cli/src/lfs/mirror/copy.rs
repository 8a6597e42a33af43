//! Bringing mirrors up to date: `lfs mirror copy`, and what `resync` and `extend` do.
//!
//! The MDT gives a ticket: the layout's generation, under which every writer has to ask it first,
//! and the mirrors that are copied to are stale. Then one fresh mirror is copied to them, which
//! nobody reads meanwhile, and made durable. If the generation is still the same, nobody has
//! written, and the copies are fresh; else all is done again, a few times.
//!
//! Of several tools the last that begins has the ticket, and what the others write is refused
//! (EBUSY): they begin again.

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
use sheen_layout::{Component, Composite, Layout, Mark, flags};
use sheen_wire::{Errno, Result, mirror::Change};

use super::{
    super::{
        Tool,
        getopt::{self, Item, Value},
        pace::{Manner, Pace, Stats},
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
    // Once: if it becomes stale again, by what somebody writes meanwhile, that is not to be lost.
    let stale = !layout.fresh_mirrors().iter().any(|m| m.mirror_id() == from);
    let chosen = if stale { choose(tool, path, &layout, from) } else { Ok(()) };
    match chosen.and_then(|()| bring_up(tool, path, Some(from), &to, Manner::default())) {
        Ok(()) => {
            tool.print(format_args!("mirror copied successfully: "));
            to.iter().for_each(|id| tool.print(format_args!("{id} ")));
            tool.print(format_args!("\n"));
            0
        }
        Err(e) => {
            tool.complain(format_args!("lfs mirror copy: cannot copy '{}': {e}{}", path.display(), super::why(e)));
            e.0
        }
    }
}

/// Copies mirror `from`, which is fresh (`None`: one that is), to others, which are fresh
/// afterwards.
///
/// EBUSY: the file was written all the time, or another tool is at it. EUCLEAN: none of the others
/// is fresh.
pub fn bring_up(tool: &mut Tool, path: &Path, from: Option<u16>, to: &[u16], manner: Manner) -> Result<()> {
    let mut stats = manner.stats.map(|every| Stats::new(path, every));
    for round in 0..ROUNDS_MAX {
        if round > 0 {
            // Not in step with another tool.
            thread::sleep(PAUSE + PAUSE * (std::process::id() % 8) / 4);
        }
        match once(tool, path, (from, to), manner.bandwidth, &mut stats) {
            Err(Errno::EBUSY) => {}
            Ok(()) => {
                if let Some(stats) = &mut stats {
                    tool.print_now(&stats.line());
                }
                return Ok(());
            }
            done => return done,
        }
    }
    Err(Errno::EBUSY)
}

/// Declares mirrors fresh that are known to hold the same bytes.
pub fn declare(tool: &Tool, path: &Path, mirrors: &[u16]) -> Result<()> {
    let end = tool.fs.size(path)?;
    Ticket::take(tool, path, mirrors, end)?.end(tool, path, mirrors)
}

/// Mirrors that this tool alone writes, while nobody writes the file.
pub struct Ticket {
    before: Layout,
    begun: Layout,
}

impl Ticket {
    /// They are stale from now on, with objects up to `end`.
    ///
    /// EBUSY: somebody else changed the layout at the same moment. EUCLEAN: no other one is fresh.
    pub fn take(tool: &Tool, path: &Path, mirrors: &[u16], end: u64) -> Result<Ticket> {
        let before = layout_of(tool, path)?;
        change(tool, path, &Change::Resync { mirrors: mirrors.to_vec(), end })?;
        let begun = layout_of(tool, path)?;
        let is_own = begun.follows(&before) && begun.mirror_state() == Composite::SYNC_PENDING;
        if is_own { Ok(Ticket { before, begun }) } else { Err(Errno::EBUSY) }
    }

    /// Whether a mirror was fresh before.
    pub fn was_fresh(&self, mirror: u16) -> bool {
        self.before.fresh_mirrors().iter().any(|m| m.mirror_id() == mirror)
    }

    /// Opens mirrors for writing: what is written after the ticket is void is refused (EBUSY).
    pub fn open(&self, tool: &Tool, path: &Path, mirrors: &[u16]) -> Result<Vec<File>> {
        let files = mirrors.iter().map(|id| tool.fs.mirror(path, *id, true)).collect::<Result<Vec<_>>>()?;
        // They may be written as long as the layout is what it was then.
        if layout_of(tool, path)?.generation() == self.begun.generation() { Ok(files) } else { Err(Errno::EBUSY) }
    }

    /// They are up to date.
    ///
    /// EBUSY: the ticket is void.
    pub fn end(&self, tool: &Tool, path: &Path, mirrors: &[u16]) -> Result<()> {
        let generation = self.begun.generation();
        // Of those that were not copied to: the others are not looked at yet.
        let mtime = tool.fs.mtime(path)?;
        change(tool, path, &Change::Resynced { generation, mirrors: mirrors.to_vec(), mtime })
    }
}

fn once(
    tool: &mut Tool,
    path: &Path,
    (from, to): (Option<u16>, &[u16]),
    bandwidth: Option<u64>,
    stats: &mut Option<Stats>,
) -> Result<()> {
    let end = tool.fs.size(path)?;
    let ticket = Ticket::take(tool, path, to, end)?;
    let fresh: Vec<u16> = ticket.begun.fresh_mirrors().iter().map(|m| m.mirror_id()).collect();
    let is_source = |id: &&u16| from.is_none_or(|from| from == **id);
    // That which was named may be stale by now.
    let source = *fresh.iter().find(is_source).ok_or(Errno::EBUSY)?;
    let size = tool.fs.size(path)?;
    let source = tool.fs.mirror(path, source, false)?;
    let targets = ticket.open(tool, path, to)?;
    let progress = Progress::new(path, size, stats);
    copy(tool, &source, &targets, Pace::new(bandwidth), progress)?;
    ticket.end(tool, path, to)
}

/// Of a mirror that is stale makes the one that counts: all others are stale then.
fn choose(tool: &Tool, path: &Path, layout: &Layout, mirror: u16) -> Result<()> {
    let mark = |c: &Component| Mark { id: c.id, flags: flags::STALE, negative: c.mirror_id() == mirror };
    let marks: Vec<Mark> = layout.components().iter().map(mark).collect();
    tool.fs.set(&tool.fs.resolve(path)?, "lustre.lov.set.flags", &Mark::encode(&marks), false)
}

/// Makes the targets hold what the source does, holes included.
fn copy(tool: &mut Tool, source: &File, targets: &[File], mut pace: Pace, mut progress: Progress) -> Result<()> {
    let size = progress.size;
    for target in targets {
        target.set_len(0).map_err(Errno::from)?;
    }
    let mut buffer = vec![0; CHUNK_BYTES];
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
            progress.at(tool, at);
            pace.moved(n as u64, || progress.at(tool, at));
        }
        if at < end {
            break;
        }
    }
    progress.at(tool, size);
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
    let found = seek(file, SeekFrom::Data(at)).and_then(|start| Ok((start, seek(file, SeekFrom::Hole(start))?)));
    match found {
        Ok((start, end)) => Ok((start < size).then_some((start, end.min(size)))),
        // Also where somebody cuts the file between the two: then the copy does not count.
        Err(IoErrno::NXIO) => Ok(None),
        Err(e) => Err(Errno(e.raw_os_error())),
    }
}

/// How far a copy is: on a terminal, or for who wants it said.
struct Progress<'a> {
    path: &'a Path,
    size: u64,
    began: Instant,
    said: Option<Instant>,
    shown: bool,
    stats: &'a mut Option<Stats>,
}

impl<'a> Progress<'a> {
    fn new(path: &'a Path, size: u64, stats: &'a mut Option<Stats>) -> Progress<'a> {
        let shown = stats.is_none() && std::io::IsTerminal::is_terminal(&std::io::stderr());
        Progress { path, size, began: Instant::now(), said: None, shown, stats }
    }

    fn at(&mut self, tool: &mut Tool, at: u64) {
        if let Some(line) = self.stats.as_mut().and_then(|stats| stats.note(at, self.size)) {
            tool.print_now(&line);
        }
        let now = Instant::now();
        let due = self.said.is_none_or(|said| now - said >= SAY_EVERY);
        if !self.shown || now - self.began < QUIET || !due {
            return;
        }
        self.said = Some(now);
        let percent = at * 100 / self.size.max(1);
        let _ = write!(tool.err, "\r{}: {percent:3}% of {} MiB", self.path.display(), self.size >> 20);
    }

    fn end(&self, tool: &mut Tool) {
        if self.said.is_some() {
            let _ = writeln!(tool.err);
        }
    }
}
