//! A model of a disk below an OST's memory: it tells how long a request has to wait until a disk of
//! a [`DiskSpec`] would have done it. The lab sets it, so that several OSTs of one machine behave
//! as several disks.
//!
//! The disk works on one request at a time, in the order in which they come. Its time is virtual:
//! each request takes the time from the end of the one before, or from now. So a late wake-up of a
//! request costs the others nothing.
//!
//! Invariants:
//! * the model changes when requests are answered, and nothing else;
//! * a write waits until the memory has room, a sync until all is written, a read until it is read;
//! * what memory holds is read without the disk. Only whole pieces of [`PIECE`] bytes are held;
//! * state is bounded: [`OBJECTS_MAX`] objects with [`STREAMS_MAX`] streams each, and the pieces of
//!   the memory.

use std::{num::NonZeroUsize, ops::Range, time::Duration};

use lru::LruCache;
use sheen_rt::Instant;
use sheen_wire::Fid;

use crate::disk_spec::DiskSpec;

const MIB: u64 = 1 << 20;
/// Unit of memory, in bytes.
const PIECE: u64 = 64 << 10;
/// Most objects whose positions are known.
const OBJECTS_MAX: NonZeroUsize = NonZeroUsize::new(4096).unwrap();
/// Most streams of an object whose ends are known: a shared file has one for each client.
const STREAMS_MAX: usize = 32;
/// A request continues a stream if it begins at most this many bytes from the stream's end.
/// Parallel requests of one stream come in any order, and the disk sorts them.
const STREAM_BYTES: u64 = 16 * MIB;

/// A disk.
#[derive(Debug)]
pub struct DiskModel {
    spec: DiskSpec,
    /// When the disk has done all requests so far.
    free_at: Instant,
    objects: LruCache<Fid, Object>,
    memory: LruCache<(Fid, u64), ()>,
}

/// State of an object.
#[derive(Debug)]
struct Object {
    /// Ends of the last requests of its streams, in bytes; the latest is last.
    ends: Vec<u64>,
    /// When the local file system has passed on all requests so far.
    free_at: Instant,
}

impl Object {
    /// Notes a request. Returns whether it continues a stream.
    fn go_on(&mut self, offset: u64, len: u64) -> bool {
        let stream = self.ends.iter().rposition(|end| end.abs_diff(offset) <= STREAM_BYTES);
        match stream {
            Some(stream) => drop(self.ends.remove(stream)),
            None if self.ends.len() == STREAMS_MAX => drop(self.ends.remove(0)),
            None => {}
        }
        self.ends.push(offset.saturating_add(len));
        stream.is_some()
    }
}

impl DiskModel {
    /// Creates a disk that is idle.
    pub fn new(spec: DiskSpec) -> DiskModel {
        let (objects, memory) = (LruCache::new(OBJECTS_MAX), LruCache::unbounded());
        DiskModel { spec, free_at: Instant::ZERO, objects, memory }
    }

    /// Returns the properties.
    pub fn spec(&self) -> &DiskSpec {
        &self.spec
    }

    /// Notes a write of `len` bytes. Returns when it may be answered.
    pub fn write(&mut self, now: Instant, object: Fid, offset: u64, len: u64) -> Instant {
        let passed = self.pass(now, object, offset, len, self.spec.write);
        self.hold(object, offset, len);
        let room = time(self.spec.cache * MIB, self.spec.write);
        let backlog = self.free_at.since(now).saturating_sub(room);
        let latency = if self.spec.cache == 0 { Duration::from_micros(self.spec.latency_us) } else { Duration::ZERO };
        passed.max(now + backlog) + latency
    }

    /// Notes a read of `len` bytes. Returns when it may be answered.
    pub fn read(&mut self, now: Instant, object: Fid, offset: u64, len: u64) -> Instant {
        if self.holds(object, offset, len) {
            return now;
        }
        let passed = self.pass(now, object, offset, len, self.spec.read);
        self.hold(object, offset, len);
        passed.max(self.free_at) + Duration::from_micros(self.spec.latency_us)
    }

    /// Returns when all that was written is on the disk.
    pub fn sync(&self, now: Instant) -> Instant {
        self.free_at.max(now)
    }

    /// Gives the disk a request. Returns when the local file system has passed it on.
    fn pass(&mut self, now: Instant, object: Fid, offset: u64, len: u64, rate: u64) -> Instant {
        let state = self.objects.get_or_insert_mut(object, || Object { ends: Vec::new(), free_at: now });
        let seek = if state.go_on(offset, len) { Duration::ZERO } else { Duration::from_micros(self.spec.seek_us) };
        self.free_at = self.free_at.max(now) + seek + time(len, rate);
        state.free_at = state.free_at.max(now);
        if self.spec.object > 0 {
            state.free_at += time(len, self.spec.object);
        }
        state.free_at
    }

    fn hold(&mut self, object: Fid, offset: u64, len: u64) {
        let pieces = (self.spec.cache * MIB / PIECE) as usize;
        for piece in whole_pieces(offset, len) {
            self.memory.put((object, piece), ());
            if self.memory.len() > pieces {
                self.memory.pop_lru();
            }
        }
    }

    fn holds(&mut self, object: Fid, offset: u64, len: u64) -> bool {
        let mut pieces = offset / PIECE..offset.saturating_add(len).div_ceil(PIECE);
        pieces.all(|piece| self.memory.get(&(object, piece)).is_some())
    }
}

/// Returns the pieces that a range contains as a whole.
fn whole_pieces(offset: u64, len: u64) -> Range<u64> {
    offset.div_ceil(PIECE)..offset.saturating_add(len) / PIECE
}

/// Returns the time of `bytes` at `rate` MiB/s.
fn time(bytes: u64, rate: u64) -> Duration {
    let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1) * MIB);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Fid = Fid { seq: 1 << 32, oid: 1, ver: 0 };
    const B: Fid = Fid { seq: 1 << 32, oid: 2, ver: 0 };
    const T0: Instant = Instant::from_nanos(1_000_000_000);

    fn millis(from: Instant, to: Instant) -> u128 {
        to.since(from).as_millis()
    }

    fn disk(text: &str) -> DiskModel {
        DiskModel::new(text.parse().unwrap())
    }

    #[test]
    fn writes_wait_for_room_in_memory_and_a_sync_for_the_disk() {
        let mut disk = disk("write=100 cache=10");
        // 100 MiB/s: 10 ms for each MiB.
        let answered: Vec<u128> = (0..12).map(|i| millis(T0, disk.write(T0, A, i * MIB, MIB))).collect();
        assert_eq!(answered, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 20]);
        assert_eq!(millis(T0, disk.sync(T0)), 120);
        let later = T0 + Duration::from_millis(500);
        assert_eq!(disk.sync(later), later, "an idle disk");
        assert_eq!(disk.write(later, A, 0, MIB), later);
    }

    #[test]
    fn what_memory_holds_is_read_without_the_disk() {
        let mut disk = disk("write=100 read=50 cache=2 latency_us=1000");
        let at = T0 + Duration::from_secs(10);
        disk.write(T0, A, 0, 2 * MIB);
        assert_eq!(disk.read(at, A, 100, MIB), at);
        assert_eq!(millis(at, disk.read(at, A, 2 * MIB, MIB)), 21, "20 ms, and the latency");
        // The oldest bytes had to make room.
        let later = at + Duration::from_secs(10);
        assert_eq!(millis(later, disk.read(later, A, MIB, MIB)), 21);
        // A part of a piece is not held.
        disk.read(later, B, 0, 4096);
        let last = later + Duration::from_secs(10);
        assert!(disk.read(last, B, 0, 4096) > last);
    }

    #[test]
    fn seek_is_charged_where_a_stream_does_not_continue() {
        let mut disk = disk("write=100 seek_us=8000");
        let mut took = |object, offset| {
            let before = disk.sync(T0);
            disk.write(T0, object, offset, MIB);
            millis(before, disk.sync(T0))
        };
        assert_eq!(took(A, 0), 18, "the first request of an object");
        assert_eq!([took(A, 2 * MIB), took(A, MIB)], [10, 10], "two that overtake each other");
        assert_eq!(took(B, 0), 18);
        assert_eq!(took(A, 3 * MIB), 10, "streams of several objects are merged");
        assert_eq!(took(A, 1 << 30), 18);
        assert_eq!([took(A, 4 * MIB), took(A, (1 << 30) + MIB)], [10, 10], "two streams of an object");
    }

    #[test]
    fn one_object_is_slower_than_the_disk() {
        let mut disk = disk("write=100 object=50");
        let one: Vec<u128> = (0..3).map(|i| millis(T0, disk.write(T0, A, i * MIB, MIB))).collect();
        assert_eq!(one, [20, 40, 60]);
        assert_eq!(millis(T0, disk.sync(T0)), 30);
        let both = disk.write(T0, B, 0, MIB);
        assert_eq!(millis(T0, both), 40, "the disk is free then, as there is no memory");
    }
}
