//! The dirty extents of one object: data that programs wrote and that is not yet on the OST. An
//! engine without locks, clock and I/O.
//!
//! Data is copied once, into *chunks* that grow at their end. So a small sequential write costs
//! neither an allocation nor a map entry. No chunk crosses a multiple of [`CHUNK_BYTES`]. An RPC
//! sends a *run*: a few chunks that follow each other without a gap.
//!
//! Invariants:
//! - Chunks are not empty and do not overlap. A byte is dirty exactly if it lies in a chunk.
//! - Runs in flight do not overlap each other. A run is identified by its start offset. Runs may
//!   overlap dirty bytes, which are newer. These stay until the run is done, so the OST gets the
//!   bytes of each position in the order in which they were written.
//! - Grants count whole blocks of [`BLOCK_BYTES`] with any dirty byte, each block once. A run in
//!   flight has used its grant.
//! - Memory is bounded by these blocks. If there are more than [`PIECES_PER_BLOCK_MAX`] chunks per
//!   block, runs are sent before an RPC is full.
//!
//! Offsets are offsets in the object, below [`OFFSET_END`]. Ranges are inclusive, as those of
//! locks, and may reach to `u64::MAX`.

use std::{collections::BTreeMap, ops::Range};

use bytes::{Buf, Bytes, BytesMut};
use sheen_wire::{Bulk, Time};

/// Unit of the grants of an OST, in bytes.
pub const BLOCK_BYTES: u64 = 4096;
/// Exclusive bound of all offsets. Far larger than any object, and small enough that sums do not
/// overflow.
pub const OFFSET_END: u64 = 1 << 62;
/// Maximum size of a chunk, in bytes, and the alignment that chunks do not cross. It is the common
/// size of an RPC, so that a run has few pieces. Larger RPCs take several chunks.
pub const CHUNK_BYTES: u64 = 1 << 20;
/// Maximum size of a chunk that is appended to its predecessor when the two meet. Bounds the
/// copying that writes in falling order cause.
const JOIN_BYTES_MAX: usize = BLOCK_BYTES as usize;
/// Factor by which a full buffer grows. With it, a chunk that starts with one block copies about a
/// third of its final size.
const GROWTH: usize = 4;
/// Maximum number of large buffers retained for reuse, because new memory is far slower than
/// copying: those of one run of 8 MiB.
const SPARE_MAX: usize = 8;
/// Minimum size of a buffer, in bytes.
const ROOM_BYTES_MIN: usize = 64;
/// Number of chunks per dirty block, on average, above which runs of any size are sent. A chunk
/// costs some 200 bytes besides its data.
const PIECES_PER_BLOCK_MAX: u64 = 16;
/// A run that ends at an RPC boundary is sent if its size is at least an RPC divided by this (one
/// half). A smaller one is only the tip of data that crosses the boundary.
const FULL_SHARE: u64 = 2;

/// Contiguous dirty data.
struct Chunk {
    bytes: BytesMut,
    /// Time of the last write into the chunk.
    mtime: Time,
}

impl Chunk {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Stores `bytes` at `pos`, which is at most the chunk's length. The buffer grows to at most
    /// `limit`, if that suffices.
    fn put(&mut self, pos: usize, bytes: &[u8], limit: usize) {
        let over = bytes.len().min(self.bytes.len() - pos);
        let (inside, beyond) = bytes.split_at(over);
        self.bytes[pos..pos + over].copy_from_slice(inside);
        let need = self.bytes.len() + beyond.len();
        if need > self.bytes.capacity() {
            let room = (self.bytes.capacity() * GROWTH).min(limit).max(need);
            self.bytes.reserve(room - self.bytes.len());
        }
        self.bytes.extend_from_slice(beyond);
    }
}

/// Data in flight to the OST.
struct Flight {
    end: u64,
    pieces: Vec<Bytes>,
}

/// Contiguous data for one part of a write request.
#[derive(Debug)]
pub struct Run {
    /// Offset in the object; also identifies the run while it is in flight.
    pub offset: u64,
    /// The bytes.
    pub data: Bulk,
    /// Time of the last write into the run.
    pub mtime: Time,
    /// Bytes of the whole blocks that have no dirty byte any more: the grant that the run uses.
    pub covered: u64,
}

/// The part of the object that may contain full runs. The remainder was searched before, for RPCs
/// of `rpc` bytes, and contains none.
#[derive(Default)]
struct Fresh {
    rpc: u64,
    start: u64,
    end: u64,
}

impl Fresh {
    fn add(&mut self, start: u64, end: u64) {
        self.start = self.start.min(start);
        self.end = self.end.max(end);
    }
}

/// The dirty bytes of one object.
#[derive(Default)]
pub struct Extents {
    chunks: BTreeMap<u64, Chunk>,
    flights: BTreeMap<u64, Flight>,
    fresh: Fresh,
    spare: Vec<BytesMut>,
    /// End of the last run that was taken. The next write may continue it.
    ended: u64,
    /// Bytes of the whole blocks with dirty bytes.
    covered: u64,
    /// Time of the last write since the object was clean.
    mtime: Option<Time>,
}

impl Extents {
    /// Returns the bytes of the whole blocks that a write would make dirty in addition.
    pub fn cost(&self, offset: u64, len: u64) -> u64 {
        if len == 0 {
            return 0;
        }
        let blocks = blocks(offset..offset + len);
        blocks.end - blocks.start - self.covered_in(&blocks)
    }

    /// Stores dirty data, in place of older data. Returns the same as [`Self::cost`].
    pub fn write(&mut self, offset: u64, data: &Bulk, now: Time) -> u64 {
        let (len, mut at) = (data.len() as u64, offset);
        if len == 0 {
            return 0;
        }
        let cost = self.cost(offset, len);
        for segment in data.segments() {
            self.put(at, segment, now);
            at += segment.len() as u64;
        }
        self.covered += cost;
        self.mtime = self.mtime.max(Some(now));
        self.fresh.add(offset, at);
        cost
    }

    /// Takes the first dirty run in a range that overlaps nothing in flight. The run ends at the
    /// next multiple of `max_bytes` at the latest, and is in flight from now on. Unless `whole`,
    /// takes only a run that fills an RPC well: see [`Self::next_full`].
    pub fn take(&mut self, range: (u64, u64), max_bytes: u64, whole: bool) -> Option<Run> {
        let range = half_open(range)?;
        let found = if whole { self.find(range, max_bytes) } else { self.find_full(range, max_bytes) }?;
        let (offset, end) = (found.start, found.end);
        let (covered, pieces) = self.remove(found);
        let mtime = pieces.iter().map(|(_, chunk)| chunk.mtime).max()?;
        let pieces: Vec<Bytes> = pieces.into_iter().map(|(_, chunk)| chunk.bytes.freeze()).collect();
        let data = pieces.iter().cloned().collect();
        self.ended = end;
        self.flights.insert(offset, Flight { end, pieces });
        Some(Run { offset, data, mtime, covered })
    }

    /// Whether there is a run that fills an RPC well. Such a run ends at a multiple of `max_bytes`
    /// and has at least half that size. If there are too many small chunks, any run counts. Cheap
    /// enough to call after each write.
    pub fn next_full(&mut self, max_bytes: u64) -> bool {
        self.find_full(0..OFFSET_END, max_bytes).is_some()
    }

    /// Ends the flight of the run that was taken from `offset`. Buffers that have no other user are
    /// reused.
    pub fn done(&mut self, offset: u64) {
        if let Some(flight) = self.flights.remove(&offset) {
            // Newer data that overlapped the run may be sent now.
            self.fresh.add(offset, flight.end);
            for piece in flight.pieces {
                if self.spare.len() < SPARE_MAX
                    && let Ok(mut buffer) = piece.try_into_mut()
                {
                    buffer.clear();
                    self.spare.extend((buffer.capacity() as u64 >= CHUNK_BYTES).then_some(buffer));
                }
            }
        }
        self.forget();
    }

    /// Discards dirty data; runs in flight stay in flight. Returns the bytes of the whole blocks
    /// that have no dirty byte any more.
    pub fn discard(&mut self, range: (u64, u64)) -> u64 {
        let freed = half_open(range).map_or(0, |range| self.remove(range).0);
        self.forget();
        freed
    }

    /// Whether the range has dirty bytes, and whether it has bytes in flight.
    pub fn overlaps(&self, range: (u64, u64)) -> (bool, bool) {
        half_open(range).map_or((false, false), |range| (self.next(&range).is_some(), self.in_flight(&range)))
    }

    /// Whether nothing is dirty and nothing in flight.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.flights.is_empty()
    }

    /// Returns the bytes of the whole blocks with dirty bytes: the grant that they use.
    pub fn dirty_bytes(&self) -> u64 {
        self.covered
    }

    /// Returns the end of the last byte that is dirty or in flight; 0 if there is none.
    pub fn end(&self) -> u64 {
        let dirty = self.chunks.last_key_value().map_or(0, |(start, chunk)| start + chunk.len());
        let flying = self.flights.last_key_value().map_or(0, |(_, flight)| flight.end);
        dirty.max(flying)
    }

    /// Returns the time of the last write, as long as data is dirty or in flight.
    pub fn mtime(&self) -> Option<Time> {
        self.mtime
    }

    fn forget(&mut self) {
        if self.is_empty() {
            self.mtime = None;
        }
    }

    /// Returns the bytes of the blocks in a range of whole blocks that have dirty bytes.
    fn covered_in(&self, range: &Range<u64>) -> u64 {
        let (mut covered, mut upto) = (0, range.end);
        for (&start, chunk) in self.chunks.range(..range.end).rev() {
            if start + chunk.len() <= range.start {
                break;
            }
            // The chunks come in falling order, so the blocks from `upto` on have been counted.
            let chunk = blocks(start.max(range.start)..(start + chunk.len()).min(upto));
            covered += chunk.end.min(upto).saturating_sub(chunk.start);
            upto = upto.min(chunk.start);
        }
        covered
    }

    /// Returns the first dirty bytes of a range, as far as they lie in one chunk.
    fn next(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let before = self.chunks.range(..=range.start).next_back().filter(|(start, c)| *start + c.len() > range.start);
        let (&start, chunk) = before.or_else(|| self.chunks.range(range.clone()).next())?;
        Some(start.max(range.start)..(start + chunk.len()).min(range.end))
    }

    /// Whether data in a range is in flight.
    fn in_flight(&self, range: &Range<u64>) -> bool {
        self.flights.range(..range.end).next_back().is_some_and(|(_, flight)| flight.end > range.start)
    }

    /// Returns the first dirty run in a range that overlaps nothing in flight.
    fn find(&self, mut range: Range<u64>, max_bytes: u64) -> Option<Range<u64>> {
        while !range.is_empty() {
            let mut run = self.next(&range)?;
            let limit = slot(run.start, max_bytes).end.min(range.end);
            run.end = run.end.min(limit);
            while run.end < limit
                && let Some(chunk) = self.chunks.get(&run.end)
            {
                run.end = (run.end + chunk.len()).min(limit);
            }
            if !self.in_flight(&run) {
                return Some(run);
            }
            range.start = run.end;
        }
        None
    }

    /// Returns the first run in a range that fills an RPC well.
    fn find_full(&mut self, range: Range<u64>, max_bytes: u64) -> Option<Range<u64>> {
        if self.chunks.len() as u64 > self.covered / BLOCK_BYTES * PIECES_PER_BLOCK_MAX {
            return self.find(range, max_bytes);
        }
        // The results of earlier searches hold only for whole runs.
        let all = range.start == 0 && range.end >= self.end();
        if !all || self.fresh.rpc != max_bytes {
            self.fresh = Fresh { rpc: max_bytes, start: 0, end: OFFSET_END };
        }
        let mut at = slot(self.fresh.start, max_bytes).start.max(range.start);
        while at < self.fresh.end.min(range.end)
            && let Some(next) = self.next(&(at..range.end))
        {
            let slot = slot(next.start, max_bytes);
            if let Some(run) = self.full(&slot, range.start)
                && run.end <= range.end
            {
                if all {
                    self.fresh.start = slot.start;
                }
                return Some(run);
            }
            at = slot.end;
        }
        if all {
            self.fresh = Fresh { rpc: max_bytes, start: u64::MAX, end: 0 };
        }
        None
    }

    /// Returns the run that ends at the end of `slot` (an aligned range of an RPC's size), if it is
    /// large enough and overlaps nothing in flight.
    fn full(&self, slot: &Range<u64>, from: u64) -> Option<Range<u64>> {
        let from = from.max(slot.start);
        let mut run = slot.end..slot.end;
        for (&start, chunk) in self.chunks.range(..slot.end).rev() {
            if start + chunk.len() < run.start || run.start == from {
                break;
            }
            run.start = start.max(from);
        }
        let worth = (run.end - run.start) * FULL_SHARE >= slot.end - slot.start;
        (worth && !self.in_flight(&run)).then_some(run)
    }

    /// Removes dirty data. Returns the bytes of the whole blocks that have no dirty byte any more,
    /// and the removed chunks in order.
    fn remove(&mut self, range: Range<u64>) -> (u64, Vec<(u64, Chunk)>) {
        let blocks = blocks(range.clone());
        let before = self.covered_in(&blocks);
        self.cut(range.start);
        self.cut(range.end);
        // Data beside the range may no longer overlap a run in flight.
        self.fresh.add(range.start, range.end);
        let removed = self.chunks.extract_if(range, |_, _| true).collect();
        let freed = before - self.covered_in(&blocks);
        self.covered -= freed;
        (freed, removed)
    }

    /// Splits the chunk that has bytes on both sides of `at`.
    fn cut(&mut self, at: u64) {
        let Some((start, chunk)) = self.chunks.range_mut(..at).next_back() else { return };
        if start + chunk.len() > at {
            let bytes = chunk.bytes.split_off((at - start) as usize);
            let tail = Chunk { bytes, mtime: chunk.mtime };
            self.chunks.insert(at, tail);
        }
    }

    /// Stores bytes in place of older ones. Does not update the block count.
    fn put(&mut self, mut offset: u64, mut bytes: &[u8], mtime: Time) {
        while !bytes.is_empty() {
            let slot = slot(offset, CHUNK_BYTES);
            let (here, beyond) = bytes.split_at(bytes.len().min((slot.end - offset) as usize));
            self.put_here(&slot, offset, here, mtime);
            (offset, bytes) = (slot.end, beyond);
        }
    }

    /// Stores bytes that cross no multiple of [`CHUNK_BYTES`].
    fn put_here(&mut self, slot: &Range<u64>, offset: u64, bytes: &[u8], mtime: Time) {
        let end = offset + bytes.len() as u64;
        let limit = |start: u64| (slot.end - start) as usize;
        let found = self.chunks.range_mut(slot.start..=offset).next_back();
        let start = match found.filter(|(start, chunk)| *start + chunk.len() >= offset) {
            Some((&start, chunk)) => {
                let (inside, pos) = (start + chunk.len() >= end, (offset - start) as usize);
                chunk.put(pos, bytes, limit(start));
                chunk.mtime = chunk.mtime.max(mtime);
                if inside {
                    return;
                }
                start
            }
            None => {
                let mut copy = self.buffer(offset, bytes.len(), limit(offset));
                copy.extend_from_slice(bytes);
                self.chunks.insert(offset, Chunk { bytes: copy, mtime });
                offset
            }
        };
        self.join(slot, start, end);
    }

    /// Resolves overlaps after a chunk has grown up to `end`. Chunks that it covers are removed;
    /// the uncovered end of the last one is appended to it if small, and stays behind it otherwise.
    fn join(&mut self, slot: &Range<u64>, start: u64, end: u64) {
        while let Some((&next, _)) = self.chunks.range(start + 1..slot.end.min(end + 1)).next()
            && let Some(mut older) = self.chunks.remove(&next)
        {
            older.bytes.advance((end - next).min(older.len()) as usize);
            let covered = older.bytes.is_empty();
            if older.bytes.len() <= JOIN_BYTES_MAX
                && let Some(chunk) = self.chunks.get_mut(&start)
            {
                chunk.put(chunk.bytes.len(), &older.bytes, (slot.end - start) as usize);
                chunk.mtime = chunk.mtime.max(older.mtime);
            } else {
                self.chunks.insert(end, older);
            }
            if !covered {
                return;
            }
        }
    }

    /// Returns a buffer for a chunk that begins with `len` bytes and may grow to `limit`. If the
    /// chunk continues a long one, the buffer gets its full size at once.
    fn buffer(&mut self, offset: u64, len: usize, limit: usize) -> BytesMut {
        let before = self.chunks.range(..offset).next_back();
        let long = before.is_some_and(|(start, chunk)| start + chunk.len() == offset && chunk.len() >= CHUNK_BYTES / 2);
        let least = len.next_power_of_two().max(ROOM_BYTES_MIN);
        let room = if long || self.ended == offset { limit } else { least.min(limit) };
        let spare = if room as u64 == CHUNK_BYTES { self.spare.pop() } else { None };
        spare.unwrap_or_else(|| BytesMut::with_capacity(room))
    }
}

/// Returns the range of whole blocks around a range of bytes.
fn blocks(range: Range<u64>) -> Range<u64> {
    range.start / BLOCK_BYTES * BLOCK_BYTES..range.end.next_multiple_of(BLOCK_BYTES)
}

/// Returns the aligned range of `size` bytes that contains an offset.
fn slot(offset: u64, size: u64) -> Range<u64> {
    let size = size.max(BLOCK_BYTES);
    let start = offset / size * size;
    start..start.saturating_add(size)
}

/// Converts an inclusive range to a half-open one, clipped to valid offsets. `None` if it is empty.
fn half_open((start, last): (u64, u64)) -> Option<Range<u64>> {
    (start <= last && start < OFFSET_END).then(|| start..last.saturating_add(1).min(OFFSET_END))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: (u64, u64) = (0, u64::MAX);

    fn at(sec: i64) -> Time {
        Time { sec, nsec: 0 }
    }

    fn bulk(len: usize, value: u8) -> Bulk {
        Bytes::from(vec![value; len]).into()
    }

    /// Takes all runs, and returns their offsets, lengths and grants.
    fn flush(extents: &mut Extents, max_bytes: u64) -> Vec<(u64, usize, u64)> {
        let mut runs = Vec::new();
        while let Some(run) = extents.take(ALL, max_bytes, true) {
            runs.push((run.offset, run.data.len(), run.covered));
            extents.done(run.offset);
        }
        assert!(extents.is_empty());
        runs
    }

    #[test]
    fn small_sequential_writes_are_sent_in_full_rpcs_of_few_pieces() {
        let rpc = 4 << 20;
        let mut extents = Extents::default();
        let mut sent = Vec::new();
        for i in 0..2560 {
            assert_eq!(extents.write(i * 4096, &bulk(4096, i as u8), at(0)), 4096);
            if extents.next_full(rpc) {
                sent.push(extents.take(ALL, rpc, false).unwrap());
            }
            assert!(!extents.next_full(rpc));
        }
        assert_eq!(sent.iter().map(|run| (run.offset, run.covered)).collect::<Vec<_>>(), [(0, rpc), (rpc, rpc)]);
        for run in sent {
            assert_eq!(run.data.segments().len(), 4);
            let bytes = run.data.into_bytes();
            assert!(bytes.iter().enumerate().all(|(i, &b)| b == (i / 4096) as u8), "4 MiB repeat the values");
            extents.done(run.offset);
        }
        assert_eq!(extents.dirty_bytes(), 2 << 20);
        assert_eq!(flush(&mut extents, rpc), [(2 * rpc, 2 << 20, 2 << 20)]);
    }

    #[test]
    fn unaligned_adjacent_writes_become_one_run_in_any_order() {
        const RECORD: u64 = 47_008;
        for order in [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [0, 2, 4, 3, 1]] {
            let mut extents = Extents::default();
            let costs: u64 = order.iter().map(|i| extents.write(i * RECORD, &bulk(47_008, *i as u8), at(0))).sum();
            assert_eq!(costs, (5 * RECORD).next_multiple_of(BLOCK_BYTES));
            let run = extents.take(ALL, 1 << 20, true).unwrap();
            assert_eq!((run.offset, run.covered), (0, costs));
            let bytes = run.data.into_bytes();
            assert_eq!(bytes.len() as u64, 5 * RECORD);
            assert!(bytes.iter().enumerate().all(|(i, &b)| b as u64 == i as u64 / RECORD));
        }
    }

    #[test]
    fn single_byte_writes_in_falling_order_become_few_chunks() {
        let mut extents = Extents::default();
        for offset in (0..20_000).rev() {
            extents.write(offset, &bulk(1, 1), at(0));
        }
        assert!(extents.chunks.len() <= 5, "{} chunks", extents.chunks.len());
        assert_eq!(flush(&mut extents, 1 << 20), [(0, 20_000, 20_480)]);
    }

    #[test]
    fn scattered_byte_writes_bound_the_number_of_chunks() {
        let mut extents = Extents::default();
        for i in 0..10_000 {
            extents.write(i * 2, &bulk(1, 1), at(0));
            while extents.next_full(1 << 20) {
                let run = extents.take(ALL, 1 << 20, false).unwrap();
                extents.done(run.offset);
            }
            assert!(extents.chunks.len() as u64 <= PIECES_PER_BLOCK_MAX * extents.dirty_bytes() / BLOCK_BYTES);
        }
    }

    #[test]
    fn write_that_crosses_rpc_boundary_is_not_sent_early() {
        let mut extents = Extents::default();
        extents.write((1 << 20) - 20_000, &bulk(47_008, 1), at(0));
        assert!(!extents.next_full(1 << 20));
        extents.write((1 << 20) - 600_000, &bulk(580_000, 1), at(0));
        assert!(extents.next_full(1 << 20));
        assert_eq!(extents.take(ALL, 1 << 20, false).unwrap().data.len(), 600_000);
    }

    #[test]
    fn take_skips_bytes_that_overlap_a_run_in_flight() {
        let mut extents = Extents::default();
        extents.write(0, &bulk(4096, 1), at(1));
        let old = extents.take(ALL, 4096, true).unwrap();
        extents.write(100, &bulk(50, 2), at(2));
        assert_eq!(extents.overlaps((100, 149)), (true, true));
        assert!(extents.take(ALL, 4096, true).is_none());
        extents.done(old.offset);
        let run = extents.take(ALL, 4096, true).unwrap();
        assert_eq!((run.offset, run.mtime, run.covered), (100, at(2), 4096));
        assert_eq!(run.data.into_bytes(), [2; 50][..]);
    }

    #[test]
    fn extents_report_end_and_mtime_until_clean() {
        let mut extents = Extents::default();
        assert_eq!((extents.end(), extents.mtime()), (0, None));
        extents.write(10, &bulk(10, 1), at(5));
        extents.write(20, &bulk(10, 1), at(7));
        extents.write(9000, &bulk(10, 1), at(6));
        assert_eq!((extents.end(), extents.mtime()), (9010, Some(at(7))));
        let run = extents.take((0, 4095), 4096, true).unwrap();
        assert_eq!((run.mtime, extents.mtime()), (at(7), Some(at(7))));
        assert_eq!(extents.discard((4096, u64::MAX)), 4096);
        assert_eq!((extents.end(), extents.is_empty()), (30, false));
        extents.done(run.offset);
        assert_eq!((extents.end(), extents.mtime(), extents.is_empty()), (0, None, true));
    }

    /// Bytes that the model does not distinguish.
    const UNIT: u64 = 64;
    /// Number of units that are written to, around the end of a chunk.
    const UNITS: usize = 512;
    const BASE: u64 = CHUNK_BYTES - UNITS as u64 * UNIT / 2;

    #[derive(Clone, Debug)]
    enum Op {
        Write(usize, usize),
        Take(usize, usize, bool),
        Done(usize),
        Discard(usize, usize),
    }

    fn ops() -> impl Strategy<Value = Vec<Op>> {
        let len = prop_oneof![1usize..4, 1usize..80, 60usize..200];
        let op = prop_oneof![
            6 => (0..UNITS, len.clone()).prop_map(|(at, len)| Op::Write(at, len)),
            3 => (0..UNITS, len.clone(), any::<bool>()).prop_map(|(at, len, whole)| Op::Take(at, len, whole)),
            3 => any::<bool>().prop_map(|whole| Op::Take(0, UNITS, whole)),
            2 => (0usize..4).prop_map(Op::Done),
            1 => (0..UNITS, len).prop_map(|(at, len)| Op::Discard(at, len)),
        ];
        prop::collection::vec(op, 1..60)
    }

    /// The number of the write that each unit is from.
    type Units = Vec<Option<u8>>;

    struct Model {
        dirty: Units,
        flying: Units,
        ost: Units,
        runs: Vec<Run>,
    }

    impl Model {
        fn dirty_bytes(&self) -> u64 {
            let per_block = (BLOCK_BYTES / UNIT) as usize;
            self.dirty.chunks(per_block).filter(|block| block.iter().any(Option::is_some)).count() as u64 * BLOCK_BYTES
        }

        /// Returns the first run that `take` must find.
        fn candidates(&self, range: Range<usize>, max_units: usize, whole: bool) -> Option<Range<usize>> {
            let first = (BASE / UNIT) as usize;
            let mut start = range.start;
            while start < range.end {
                let limit = ((first + start) / max_units + 1) * max_units - first;
                let end =
                    (start..limit.min(range.end)).find(|&i| self.dirty[i].is_none()).unwrap_or(limit.min(range.end));
                let full = end == limit && (end - start) * 2 >= max_units;
                let free = self.flying[start..end].iter().all(Option::is_none);
                if end > start && free && (whole || full) {
                    return Some(start..end);
                }
                start = end.max(start + 1);
            }
            None
        }
    }

    fn range(at: usize, len: usize) -> (Range<usize>, (u64, u64)) {
        let end = (at + len).min(UNITS);
        (at..end, (BASE + at as u64 * UNIT, BASE + end as u64 * UNIT - 1))
    }

    fn units_of(run: &Run) -> (Range<usize>, Units) {
        let start = ((run.offset - BASE) / UNIT) as usize;
        let bytes = run.data.clone().into_bytes();
        let units: Units = bytes.chunks(UNIT as usize).map(|unit| Some(unit[0])).collect();
        (start..start + units.len(), units)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn random_writes_deliver_newest_bytes_and_count_each_block_once(ops in ops(), rpc in prop_oneof![Just(2u64), Just(3), Just(4)]) {
            let rpc = rpc * BLOCK_BYTES;
            let mut extents = Extents::default();
            let none = || vec![None; UNITS];
            let mut model = Model { dirty: none(), flying: none(), ost: none(), runs: Vec::new() };
            for (now, op) in ops.into_iter().enumerate() {
                let before = extents.dirty_bytes();
                match op {
                    Op::Write(start, len) => {
                        let (units, (offset, last)) = range(start, len);
                        let cost = extents.cost(offset, last + 1 - offset);
                                                let mut data = bulk(40, now as u8);
                        data.append(bulk((last + 1 - offset) as usize - 40, now as u8));
                        prop_assert_eq!(extents.write(offset, &data, at(now as i64)), cost);
                        prop_assert_eq!(extents.dirty_bytes(), before + cost);
                        model.dirty[units].fill(Some(now as u8));
                    }
                    Op::Take(start, len, whole) => {
                        let crowded = extents.chunks.len() as u64 > extents.covered / BLOCK_BYTES * PIECES_PER_BLOCK_MAX;
                        let (units, bytes) = range(start, len);
                        let want = model.candidates(units, (rpc / UNIT) as usize, whole || crowded);
                        let run = extents.take(bytes, rpc, whole);
                        prop_assert_eq!(run.as_ref().map(|run| units_of(run).0), want);
                        if let Some(run) = run {
                            let (units, bytes) = units_of(&run);
                            prop_assert_eq!(&model.dirty[units.clone()], &bytes[..]);
                            prop_assert!(bytes.iter().flatten().max() <= Some(&(run.mtime.sec as u8)));
                            model.flying[units.clone()].clone_from_slice(&bytes);
                            model.dirty[units].fill(None);
                            prop_assert_eq!(extents.dirty_bytes(), before - run.covered);
                            model.runs.push(run);
                        }
                    }
                    Op::Done(i) if i < model.runs.len() => {
                        let run = model.runs.remove(i);
                        let (units, bytes) = units_of(&run);
                        model.ost[units.clone()].clone_from_slice(&bytes);
                        model.flying[units].fill(None);
                        extents.done(run.offset);
                    }
                    Op::Discard(start, len) => {
                        let (units, bytes) = range(start, len);
                        model.dirty[units].fill(None);
                        prop_assert_eq!(before - extents.discard(bytes), extents.dirty_bytes());
                    }
                    Op::Done(_) => {}
                }
                prop_assert_eq!(extents.dirty_bytes(), model.dirty_bytes());
                let end = (0..UNITS).rev().find(|&i| model.dirty[i].or(model.flying[i]).is_some());
                prop_assert_eq!(extents.end(), end.map_or(0, |i| BASE + (i as u64 + 1) * UNIT));
                prop_assert_eq!(extents.is_empty(), end.is_none());
                if extents.chunks.len() as u64 <= extents.covered / BLOCK_BYTES * PIECES_PER_BLOCK_MAX {
                    let full = model.candidates(0..UNITS, (rpc / UNIT) as usize, false);
                    prop_assert_eq!(extents.next_full(rpc), full.is_some());
                }
                let third = UNITS / 3;
                let (units, bytes) = range(third, third);
                let any = |what: &Units| what[units.clone()].iter().any(Option::is_some);
                prop_assert_eq!(extents.overlaps(bytes), (any(&model.dirty), any(&model.flying)));
            }
            let newest: Units = (0..UNITS).map(|i| model.dirty[i].or(model.flying[i]).or(model.ost[i])).collect();
            let mut rest: Vec<Run> = std::mem::take(&mut model.runs);
            loop {
                for run in rest.drain(..).rev() {
                    let (units, bytes) = units_of(&run);
                    model.ost[units].clone_from_slice(&bytes);
                    extents.done(run.offset);
                }
                rest.extend(std::iter::from_fn(|| extents.take(ALL, rpc, true)));
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert!(extents.is_empty());
            prop_assert_eq!(extents.dirty_bytes(), 0);
            prop_assert_eq!(model.ost, newest);
        }
    }
}
