//! Resync of mirrors: `lfs mirror copy`, and the copying of `resync` and `extend`.
//!
//! 1. The MDT issues a ticket, which is the layout's generation. From then on every writer must ask
//!    the MDT first, and the mirrors to be copied to are stale.
//! 2. One mirror that is up to date is copied to them and made durable. No program reads the copies
//!    meanwhile.
//! 3. If the generation is still the same, no program has written, and the copies become up to
//!    date. Otherwise all steps are repeated, a few times.
//!
//! Of several tools, the one that begins last has the ticket. The writes of the others are refused
//! (EBUSY), and they begin again.

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

/// Bytes copied at a time: as many as one request carries.
const CHUNK_BYTES: usize = 4 << 20;
/// Most attempts at a copy, if programs write to the file meanwhile.
const ROUNDS_MAX: u32 = 5;
/// Pause before another attempt, in which writers may finish.
const PAUSE: Duration = Duration::from_millis(300);
/// A copy that ends sooner shows no progress.
const QUIET: Duration = Duration::from_secs(2);
/// Interval at which progress is shown after that.
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
    // `-o -1`: all other mirrors.
    let to = if to.is_empty() { layout.mirror_ids().into_iter().filter(|id| *id != from).collect() } else { to };
    let known = |id: &u16| layout.mirror_ids().contains(id);
    if to.contains(&from) || !known(&from) || !to.iter().all(known) {
        tool.complain(format_args!("lfs mirror copy: invalid or duplicate mirror IDs for '{}'", path.display()));
        return Errno::EINVAL.0;
    }
    // A stale source is made valid only once. If a program's write makes it stale again, that write
    // must not be lost.
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

/// Copies an up-to-date mirror to others, which are up to date afterwards. `from`: the source;
/// `None`: any mirror that is up to date.
///
/// EBUSY: programs wrote to the file during every attempt, or another tool is resyncing it.
/// EUCLEAN: no other mirror is up to date.
pub fn bring_up(tool: &mut Tool, path: &Path, from: Option<u16>, to: &[u16], manner: Manner) -> Result<()> {
    let mut stats = manner.stats.map(|every| Stats::new(path, every));
    for round in 0..ROUNDS_MAX {
        if round > 0 {
            // The pause depends on the process, so that two tools do not stay in step.
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

/// Declares mirrors up to date that are known to hold the same data.
pub fn declare(tool: &Tool, path: &Path, mirrors: &[u16]) -> Result<()> {
    let end = tool.fs.size(path)?;
    Ticket::take(tool, path, mirrors, end)?.end(tool, path, mirrors)
}

/// The right to write some mirrors, valid as long as no program writes to the file.
pub struct Ticket {
    before: Layout,
    begun: Layout,
}

impl Ticket {
    /// Makes the mirrors stale and gives them objects up to the offset `end`.
    ///
    /// EBUSY: the layout was changed at the same moment. EUCLEAN: no other mirror is up to date.
    pub fn take(tool: &Tool, path: &Path, mirrors: &[u16], end: u64) -> Result<Ticket> {
        let before = layout_of(tool, path)?;
        change(tool, path, &Change::Resync { mirrors: mirrors.to_vec(), end })?;
        let begun = layout_of(tool, path)?;
        let is_own = begun.follows(&before) && begun.mirror_state() == Composite::SYNC_PENDING;
        if is_own { Ok(Ticket { before, begun }) } else { Err(Errno::EBUSY) }
    }

    /// Whether a mirror was up to date before.
    pub fn was_fresh(&self, mirror: u16) -> bool {
        self.before.fresh_mirrors().iter().any(|m| m.mirror_id() == mirror)
    }

    /// Opens mirrors for writing. Writes after the ticket has become void are refused (EBUSY).
    pub fn open(&self, tool: &Tool, path: &Path, mirrors: &[u16]) -> Result<Vec<File>> {
        let files = mirrors.iter().map(|id| tool.fs.mirror(path, *id, true)).collect::<Result<Vec<_>>>()?;
        // The files may be written as long as the layout is the same as when they were opened.
        if layout_of(tool, path)?.generation() == self.begun.generation() { Ok(files) } else { Err(Errno::EBUSY) }
    }

    /// Declares the mirrors up to date.
    ///
    /// EBUSY: the ticket is void.
    pub fn end(&self, tool: &Tool, path: &Path, mirrors: &[u16]) -> Result<()> {
        let generation = self.begun.generation();
        // The time comes from mirrors that were not copied to, because stale mirrors do not count.
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
    // The requested source may be stale by now.
    let source = *fresh.iter().find(is_source).ok_or(Errno::EBUSY)?;
    let size = tool.fs.size(path)?;
    let source = tool.fs.mirror(path, source, false)?;
    let targets = ticket.open(tool, path, to)?;
    let progress = Progress::new(path, size, stats);
    copy(tool, &source, &targets, Pace::new(bandwidth), progress)?;
    ticket.end(tool, path, to)
}

/// Makes a stale mirror the valid one. All other mirrors become stale.
fn choose(tool: &Tool, path: &Path, layout: &Layout, mirror: u16) -> Result<()> {
    let mark = |c: &Component| Mark { id: c.id, flags: flags::STALE, negative: c.mirror_id() == mirror };
    let marks: Vec<Mark> = layout.components().iter().map(mark).collect();
    tool.fs.set(&tool.fs.resolve(path)?, "lustre.lov.set.flags", &Mark::encode(&marks), false)
}

/// Makes the targets equal to the source, holes included.
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
    // The source's data may not be durable yet, and must not be less durable than its copies.
    source.sync_all().map_err(Errno::from)?;
    for target in targets {
        target.set_len(size).map_err(Errno::from)?;
        target.sync_all().map_err(Errno::from)?;
    }
    Ok(())
}

/// Returns the next range of data at or after offset `at`.
fn data(file: &File, at: u64, size: u64) -> Result<Option<(u64, u64)>> {
    if at >= size {
        return Ok(None);
    }
    let found = seek(file, SeekFrom::Data(at)).and_then(|start| Ok((start, seek(file, SeekFrom::Hole(start))?)));
    match found {
        Ok((start, end)) => Ok((start < size).then_some((start, end.min(size)))),
        // This also happens if a program truncates the file between the calls. The copy does not
        // count then.
        Err(IoErrno::NXIO) => Ok(None),
        Err(e) => Err(Errno(e.raw_os_error())),
    }
}

/// Progress of a copy: on a terminal, or as reports.
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
