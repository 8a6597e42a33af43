//! The content of a file on a simulated disk: present, durable, and the operations in between.
//!
//! A crash decides for each unsynced operation whether it survives, is lost, or (for a write)
//! is torn: only some of its sectors survive. Surviving operations are applied in their order.

use std::{
    collections::{BTreeMap, VecDeque},
    io::IoSliceMut,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use fastrand::Rng;
use parking_lot::Mutex;
use sheen_wire::{
    FileKind, Time,
    ost::{Allocate, Seek},
};

use super::sparse::{PAGE, Sparse};
use crate::metadata::Metadata;

/// Unit that a disk writes atomically, in bytes.
const SECTOR: u64 = 512;
/// Maximum unsynced bytes of a file. Beyond it, the oldest become durable without a sync,
/// as with the kernel's write-back.
const UNSYNCED_BYTES_MAX: usize = 64 << 20;
/// Maximum unsynced operations of a file, with the same effect.
const UNSYNCED_OPS_MAX: usize = 1 << 16;

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
    /// Extended attributes. A sync of the file makes them durable; a crash preserves either the
    /// present or the durable ones.
    attrs: BTreeMap<String, Vec<u8>>,
    attrs_durable: BTreeMap<String, Vec<u8>>,
}

/// A change of a file's content.
#[derive(Clone)]
pub(crate) enum Op {
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
            Op::Allocate(Allocate::Reserve { keep_size }, offset, len) => {
                to.reserve(offset, len);
                extend(to, offset + len, keep_size);
            }
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
        if self.unsynced.is_empty() {
            self.attrs_durable.clone_from(&self.attrs);
        }
        ops
    }
}

impl Inode {
    pub(crate) fn new(id: u64, medium: Arc<Medium>, now: Time) -> Inode {
        let content = Content { mtime: now, ..Content::default() };
        Inode { id, medium, content: Mutex::new(content) }
    }

    /// Changes the content.
    pub(crate) fn act(&self, op: Op, now: Time) {
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

    pub(crate) fn set_mtime(&self, mtime: Time) {
        self.content.lock().mtime = mtime;
    }

    pub(crate) fn attr(&self, name: &str) -> Option<Vec<u8>> {
        self.content.lock().attrs.get(name).cloned()
    }

    pub(crate) fn set_attr(&self, name: &str, value: Option<&[u8]>) {
        let attrs = &mut self.content.lock().attrs;
        match value {
            Some(value) => drop(attrs.insert(name.to_owned(), value.to_vec())),
            None => drop(attrs.remove(name)),
        }
    }

    /// Reads into the buffers in their order. Returns the number of bytes read.
    pub(crate) fn read(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> usize {
        let content = self.content.lock();
        let mut done = 0;
        for buf in bufs {
            let n = content.now.read(offset.saturating_add(done as u64), buf);
            done += n;
            if n < buf.len() {
                break;
            }
        }
        done
    }

    pub(crate) fn seek(&self, what: Seek, offset: u64) -> Option<u64> {
        self.content.lock().now.seek(what, offset)
    }

    /// Returns whether the disk has room for a write.
    pub(crate) fn has_room(&self, offset: u64, len: u64) -> bool {
        let missing = self.content.lock().now.pages_missing(offset, len);
        missing <= self.medium.pages_free()
    }

    /// Returns a bound: all operations done so far on the disk have smaller numbers.
    pub(crate) fn ops_done(&self) -> u64 {
        self.medium.ops_done()
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
        let (mut survived, mut lost, mut torn) = (0, 0, 0);
        for (_, op) in std::mem::take(&mut content.unsynced) {
            match (rng.u8(0..3), &op) {
                (0, _) => {
                    op.apply(&mut content.durable);
                    survived += 1;
                }
                (1, Op::Write(..)) => {
                    op.tear(&mut content.durable, rng);
                    torn += 1;
                }
                _ => lost += 1,
            }
        }
        if content.attrs != content.attrs_durable && rng.bool() {
            content.attrs.clone_from(&content.attrs_durable);
        }
        content.attrs_durable.clone_from(&content.attrs);
        content.unsynced_bytes = 0;
        let before = content.now.pages();
        content.now = content.durable.clone();
        self.medium.pages_used.fetch_add(content.now.pages().wrapping_sub(before), Ordering::Relaxed);
        (survived, lost, torn)
    }
}

impl Drop for Inode {
    fn drop(&mut self) {
        let pages = self.content.get_mut().now.pages();
        self.medium.pages_used.fetch_sub(pages, Ordering::Relaxed);
    }
}
