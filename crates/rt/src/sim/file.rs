//! A file on a simulated disk: its present content, its durable content, and the operations in
//! between.
//!
//! A crash decides for each unsynced operation whether it survives, is lost, or (for a write)
//! is torn: only some of its sectors survive. Surviving operations are applied in their order.

use std::{
    collections::VecDeque,
    io::{self, IoSliceMut},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use fastrand::Rng;
use parking_lot::Mutex;
use sheen_wire::{
    Errno, FileKind, Time,
    ost::{Allocate, Seek},
};

use super::{
    host::Host,
    sparse::{PAGE, Sparse},
    trace::Note,
};
use crate::disk::Metadata;

/// Unit that a disk writes atomically, in bytes.
const SECTOR: u64 = 512;
/// Maximum unsynced bytes of a file. Beyond it, the oldest become durable without a sync,
/// as with the kernel's write-back.
const UNSYNCED_BYTES_MAX: usize = 64 << 20;
/// Maximum unsynced operations of a file, with the same effect.
const UNSYNCED_OPS_MAX: usize = 1 << 16;
/// Largest offset, as on Linux.
const OFFSET_MAX: u64 = i64::MAX as u64;

/// State shared by all files of a disk.
pub(crate) struct Medium {
    pages_used: AtomicU64,
    pub(crate) pages_max: u64,
    /// Number of the next operation. Operations are numbered in the order in which they were done.
    ops_done: AtomicU64,
}

impl Medium {
    pub(crate) fn new(bytes: u64) -> Medium {
        let pages_max = bytes / PAGE as u64;
        Medium { pages_used: AtomicU64::new(0), pages_max, ops_done: AtomicU64::new(0) }
    }

    pub(crate) fn next_op(&self) -> u64 {
        self.ops_done.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns a bound: all operations done so far have smaller numbers.
    pub(crate) fn ops_done(&self) -> u64 {
        self.ops_done.load(Ordering::Relaxed)
    }

    pub(crate) fn pages_free(&self) -> u64 {
        self.pages_max.saturating_sub(self.pages_used.load(Ordering::Relaxed))
    }
}

pub(crate) struct Inode {
    pub(crate) id: u64,
    medium: Arc<Medium>,
    content: Mutex<Content>,
}

#[derive(Default)]
struct Content {
    now: Sparse,
    durable: Sparse,
    unsynced: VecDeque<(u64, Op)>,
    unsynced_bytes: usize,
    mtime: Time,
}

#[derive(Clone)]
enum Op {
    Write(u64, Bytes),
    SetLen(u64),
    Allocate(Allocate, u64, u64),
}

impl Op {
    fn bytes(&self) -> usize {
        if let Op::Write(_, data) = self { data.len() } else { 0 }
    }

    fn apply(&self, to: &mut Sparse) {
        let extend = |to: &mut Sparse, end: u64, keep_size: bool| {
            if !keep_size && end > to.len() {
                to.set_len(end);
            }
        };
        match *self {
            Op::Write(offset, ref data) => to.write(offset, data),
            Op::SetLen(len) => to.set_len(len),
            Op::Allocate(Allocate::Reserve { keep_size }, offset, len) => extend(to, offset + len, keep_size),
            Op::Allocate(Allocate::PunchHole, offset, len) => to.punch(offset, len),
            Op::Allocate(Allocate::ZeroRange { keep_size }, offset, len) => {
                to.punch(offset, len);
                extend(to, offset + len, keep_size);
            }
        }
    }

    /// Applies a random part of a write's sectors.
    fn tear(&self, to: &mut Sparse, rng: &mut Rng) {
        let Op::Write(offset, data) = self else { return };
        let (mut at, mut rest) = (*offset, &data[..]);
        while !rest.is_empty() {
            let (sector, after) = rest.split_at(rest.len().min((SECTOR - at % SECTOR) as usize));
            if rng.bool() {
                to.write(at, sector);
            }
            at += sector.len() as u64;
            rest = after;
        }
    }
}

impl Content {
    fn commit_before(&mut self, op_end: u64) -> usize {
        let mut ops = 0;
        while let Some((_, op)) = self.unsynced.pop_front_if(|(number, _)| *number < op_end) {
            self.unsynced_bytes -= op.bytes();
            op.apply(&mut self.durable);
            ops += 1;
        }
        ops
    }
}

impl Inode {
    pub(crate) fn new(id: u64, medium: Arc<Medium>, now: Time) -> Inode {
        let content = Content { mtime: now, ..Content::default() };
        Inode { id, medium, content: Mutex::new(content) }
    }

    fn act(&self, op: Op, now: Time) {
        let mut content = self.content.lock();
        let before = content.now.pages();
        op.apply(&mut content.now);
        let after = content.now.pages();
        // The difference wraps if pages were freed. The sum is correct all the same.
        self.medium.pages_used.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
        content.mtime = now;
        content.unsynced_bytes += op.bytes();
        content.unsynced.push_back((self.medium.next_op(), op));
        while content.unsynced_bytes > UNSYNCED_BYTES_MAX || content.unsynced.len() > UNSYNCED_OPS_MAX {
            let oldest = content.unsynced.front().map_or(0, |(number, _)| *number);
            content.commit_before(oldest + 1);
        }
    }

    /// Makes the operations before operation `op_end` durable. Returns their number.
    pub(crate) fn commit_before(&self, op_end: u64) -> usize {
        self.content.lock().commit_before(op_end)
    }

    /// Replaces the content and makes it durable.
    pub(crate) fn fill(&self, data: &[u8], now: Time) {
        self.act(Op::SetLen(0), now);
        self.act(Op::Write(0, Bytes::copy_from_slice(data)), now);
        self.commit_before(u64::MAX);
    }

    pub(crate) fn set_len(&self, len: u64, now: Time) {
        self.act(Op::SetLen(len), now);
    }

    pub(crate) fn read_all(&self) -> Vec<u8> {
        let content = self.content.lock();
        let mut out = vec![0; content.now.len() as usize];
        content.now.read(0, &mut out);
        out
    }

    pub(crate) fn metadata(&self) -> Metadata {
        let content = self.content.lock();
        Metadata {
            len: content.now.len(),
            blocks512: content.now.pages() * (PAGE as u64 / SECTOR),
            mtime: content.mtime,
            kind: FileKind::Regular,
        }
    }

    /// Simulates a power failure. Returns how many operations survived, were lost and were torn.
    pub(crate) fn crash(&self, rng: &mut Rng) -> (usize, usize, usize) {
        let content = &mut *self.content.lock();
        let (mut kept, mut lost, mut torn) = (0, 0, 0);
        for (_, op) in std::mem::take(&mut content.unsynced) {
            match (rng.u8(0..3), &op) {
                (0, _) => {
                    op.apply(&mut content.durable);
                    kept += 1;
                }
                (1, Op::Write(..)) => {
                    op.tear(&mut content.durable, rng);
                    torn += 1;
                }
                _ => lost += 1,
            }
        }
        content.unsynced_bytes = 0;
        let before = content.now.pages();
        content.now = content.durable.clone();
        self.medium.pages_used.fetch_add(content.now.pages().wrapping_sub(before), Ordering::Relaxed);
        (kept, lost, torn)
    }
}

impl Drop for Inode {
    fn drop(&mut self) {
        let pages = self.content.get_mut().now.pages();
        self.medium.pages_used.fetch_sub(pages, Ordering::Relaxed);
    }
}

/// A file opened by one life of its host.
#[derive(Clone)]
pub(crate) struct File {
    pub(crate) host: Host,
    pub(crate) inode: Arc<Inode>,
    pub(crate) read: bool,
    pub(crate) write: bool,
}

impl File {
    fn check(&self, may: bool) -> io::Result<Time> {
        let now = self.host.with(|s| Ok(s.wall()))?;
        if may { Ok(now) } else { Err(Errno::EBADF.into()) }
    }

    fn act(&self, op: Op) -> io::Result<()> {
        let now = self.check(self.write)?;
        self.inode.act(op, now);
        Ok(())
    }

    pub(crate) fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.check(self.read)?;
        let content = self.inode.content.lock();
        let mut done = 0;
        for buf in bufs {
            let n = content.now.read(offset.saturating_add(done as u64), buf);
            done += n;
            if n < buf.len() {
                break;
            }
        }
        Ok(done)
    }

    pub(crate) fn write_all_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.write(offset, Bytes::copy_from_slice(buf))
    }

    pub(crate) fn write_all_vectored_at(&self, mut offset: u64, bufs: &[Bytes]) -> io::Result<()> {
        for buf in bufs {
            self.write(offset, buf.clone())?;
            offset += buf.len() as u64;
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: Bytes) -> io::Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        let len = data.len() as u64;
        within(offset, len)?;
        let missing = self.inode.content.lock().now.pages_missing(offset, len);
        if missing > self.inode.medium.pages_free() {
            return Err(Errno::ENOSPC.into());
        }
        self.act(Op::Write(offset, data))
    }

    pub(crate) fn set_len(&self, len: u64) -> io::Result<()> {
        within(len, 0)?;
        self.act(Op::SetLen(len))
    }

    /// Changes the allocation of a range. Reserving takes no space here: a later write may still
    /// return ENOSPC.
    pub(crate) fn allocate(&self, mode: Allocate, offset: u64, len: u64) -> io::Result<()> {
        within(offset, len)?;
        if len == 0 {
            return Err(Errno::EINVAL.into());
        }
        self.act(Op::Allocate(mode, offset, len))
    }

    pub(crate) fn seek(&self, what: Seek, offset: u64) -> io::Result<Option<u64>> {
        self.check(true)?;
        Ok(self.inode.content.lock().now.seek(what, offset))
    }

    pub(crate) fn metadata(&self) -> io::Result<Metadata> {
        self.check(true)?;
        Ok(self.inode.metadata())
    }

    pub(crate) fn set_mtime(&self, mtime: Time) -> io::Result<()> {
        self.check(true)?;
        self.inode.content.lock().mtime = mtime;
        Ok(())
    }

    pub(crate) async fn sync_data(&self) -> io::Result<()> {
        // Writes issued during the sync are not part of it.
        let end = self.inode.medium.ops_done();
        self.host.disk_works().await?;
        self.commit(end)
    }

    pub(crate) fn sync_data_blocking(&self) -> io::Result<()> {
        self.commit(self.inode.medium.ops_done())
    }

    fn commit(&self, end: u64) -> io::Result<()> {
        self.host.with(|s| {
            let ops = self.inode.commit_before(end);
            s.note(Note::Sync { host: self.host.id, file: self.inode.id, ops });
            Ok(())
        })
    }
}

fn within(offset: u64, len: u64) -> io::Result<()> {
    if offset.checked_add(len).is_some_and(|end| end <= OFFSET_MAX) { Ok(()) } else { Err(Errno::EFBIG.into()) }
}
