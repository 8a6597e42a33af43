//! Resync of mirrors.
//!
//! 1. The MDT issues a ticket, which is the layout's generation. It marks the target mirrors stale,
//!    so no program reads them. From now on each writer must ask the MDT first.
//! 2. The tool copies an up-to-date mirror to the targets, and makes the copies durable.
//! 3. If the generation is still the same, no program has written, and the copies become up to
//!    date. Otherwise all steps are repeated, a few times.
//!
//! If several tools resync one file, only the ticket of the last one is valid. The servers refuse
//! the writes of the others (EBUSY), which then begin again.

use std::{fs::File, os::unix::fs::FileExt, path::Path, thread, time::Duration};

use sheen_layout::{Component, Layout, Mark, flags};
use sheen_wire::{Errno, Result};

use super::{
    mirrored_file::{MirroredFile, NamedFile},
    single::next_data,
    ticket::Ticket,
};
use crate::{
    copy::{Transfer, copy_data},
    file_system::FileSystem,
    os_errno,
    progress::Progress,
};

/// Most attempts at a copy, if programs write to the file meanwhile.
const ROUNDS_MAX: u32 = 5;
/// Pause before another attempt, in which writers may finish.
const PAUSE: Duration = Duration::from_millis(300);

/// A request to bring mirrors up to date.
#[derive(Clone, Copy, Debug)]
pub struct Resync<'a> {
    /// The mirror to copy from; `None`: any mirror that is up to date.
    pub source: Option<u16>,
    /// The mirrors to copy to.
    pub mirrors: &'a [u16],
    /// Bandwidth limit in bytes per second.
    pub bandwidth: Option<u64>,
}

/// Copies an up-to-date mirror to others, which are up to date afterwards.
///
/// # Errors
/// EBUSY: programs wrote to the file during every attempt, or another tool is resyncing it.
/// EUCLEAN: no other mirror is up to date. Otherwise the errno of a failed system call.
pub fn resync(
    fs: &dyn FileSystem,
    path: &Path,
    request: &Resync<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<()> {
    for round in 0..ROUNDS_MAX {
        if round > 0 {
            // The pause depends on the process, so that two tools do not stay in step.
            thread::sleep(PAUSE + PAUSE * (std::process::id() % 8) / 4);
        }
        match once(fs, path, request, progress) {
            Err(Errno::EBUSY) => {}
            done => return done,
        }
    }
    Err(Errno::EBUSY)
}

/// Copies the mirror `from` to others, which are up to date afterwards. A stale source is made
/// valid first, and all other mirrors stale. `layout`: the present layout of the file.
///
/// # Errors
/// As [`resync`].
pub fn copy(
    fs: &dyn FileSystem,
    path: &Path,
    layout: &Layout,
    from: u16,
    to: &[u16],
    progress: &mut dyn FnMut(Progress),
) -> Result<()> {
    // A stale source is made valid only once. If a program's write makes it stale again, that write
    // must not be lost.
    if !layout.fresh_mirrors().iter().any(|m| m.mirror_id() == from) {
        choose(fs, path, layout, from)?;
    }
    resync(fs, path, &Resync { source: Some(from), mirrors: to, bandwidth: None }, progress)
}

/// Declares mirrors up to date that are known to hold the same data.
///
/// # Errors
/// As [`Ticket::take`] and [`Ticket::end`].
pub fn declare(fs: &dyn FileSystem, path: &Path, mirrors: &[u16]) -> Result<()> {
    let file = NamedFile { fs, path };
    let end = file.size()?;
    Ticket::take(&file, file.layout()?, mirrors, end)?.end(&file, mirrors)
}

/// Makes one attempt.
fn once(fs: &dyn FileSystem, path: &Path, request: &Resync<'_>, progress: &mut dyn FnMut(Progress)) -> Result<()> {
    let (file, mirrors) = (NamedFile { fs, path }, request.mirrors);
    let end = file.size()?;
    let ticket = Ticket::take(&file, file.layout()?, mirrors, end)?;
    let is_source = |id: &u16| request.source.is_none_or(|source| source == *id);
    // The requested source may be stale by now.
    let source = ticket.fresh_mirrors().into_iter().find(is_source).ok_or(Errno::EBUSY)?;
    let size = file.size()?;
    let source = file.mirror(source, false)?;
    let targets = ticket.open(&file, mirrors)?;
    MirrorFiles { source, targets }.copy(size, request.bandwidth, progress)?;
    ticket.end(&file, mirrors)
}

/// Makes a stale mirror the valid one. All other mirrors become stale.
fn choose(fs: &dyn FileSystem, path: &Path, layout: &Layout, mirror: u16) -> Result<()> {
    let mark = |c: &Component| Mark { id: c.id, flags: flags::STALE, negative: c.mirror_id() == mirror };
    let marks: Vec<Mark> = layout.components().iter().map(mark).collect();
    fs.set(&fs.resolve(path)?, "lustre.lov.set.flags", &Mark::encode(&marks), false)
}

/// One open file for each mirror.
struct MirrorFiles {
    source: File,
    targets: Vec<File>,
}

impl MirrorFiles {
    /// Makes the targets equal to the source, holes included.
    fn copy(mut self, size: u64, bandwidth: Option<u64>, progress: &mut dyn FnMut(Progress)) -> Result<()> {
        progress(Progress::Begin { total: size });
        for target in &self.targets {
            target.set_len(0).map_err(os_errno)?;
        }
        copy_data(&mut self, size, bandwidth, progress)?;
        progress(Progress::End { total: size });
        // The source's data may not be durable yet, and must not be less durable than its copies.
        self.source.sync_all().map_err(os_errno)?;
        for target in &self.targets {
            target.set_len(size).map_err(os_errno)?;
            target.sync_all().map_err(os_errno)?;
        }
        Ok(())
    }
}

impl Transfer for MirrorFiles {
    type Error = Errno;

    fn data(&mut self, at: u64) -> Result<Option<(u64, u64)>> {
        next_data(&self.source, at)
    }

    fn read(&mut self, buffer: &mut [u8], at: u64) -> Result<usize> {
        self.source.read_at(buffer, at).map_err(os_errno)
    }

    fn write(&mut self, bytes: &[u8], at: u64) -> Result<()> {
        self.targets.iter().try_for_each(|target| target.write_all_at(bytes, at).map_err(os_errno))
    }
}
