//! Ids that must never be handed out twice: FID sequences for clients, object ids on each OST.
//!
//! A client may write an object, or send a FID, before the create that named it is committed. A
//! crash can then lose the create but not the object. Therefore:
//!
//! * Only ids up to a durable bound are handed out.
//! * The bound is raised in large steps ahead of use ([`RESERVE`]), and a restart continues above
//!   it.
//! * Object ids between the last one in a committed layout and the bound may exist on the OST
//!   although no layout names them. They form an [`OrphanRange`], stored until the OST has
//!   destroyed the objects.
//!
//! A client chooses the FIDs of new files within its sequences; [`Sequences::check`] tells which of
//! them are certainly unused.
//!
//! All ids belong to sequences of this MDT ([`sheen_wire::seq`]), so that no two MDTs hand out the
//! same one.

use std::collections::BTreeMap;

use sheen_wire::{
    self as wire, Errno, Fid,
    fid::SEQ_WIDTH,
    seq::{MdtIndex, client_seqs, ost_seq},
};

use crate::{
    OpError, Store, StoreError,
    error::OpResult,
    key,
    record::{OstIds, decode, encode},
    table_scan::for_each_in,
    tables::Tables,
};

/// Object ids reserved at once on one OST. Enough for 32 files of 2000 stripes on that OST between
/// two commits, and a restart wastes little of 2^32.
pub(crate) const RESERVE: u32 = 64 << 10;
/// Sequences reserved at once. One sequence serves a client for 131,072 files.
pub(crate) const SEQ_RESERVE: u64 = 1024;
/// Maximum number of sequences whose use is tracked. Beyond it the oldest are no longer tracked,
/// and each create in them reads the store.
const SEQ_TRACKED_MAX: usize = 65536;

/// Range of object ids that were reserved before a crash, and are not known to be used after it:
/// `first <= oid <= last` of `seq`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct OrphanRange {
    /// Index of the OST.
    pub ost: u32,
    /// Sequence of this MDT's objects on it ([`ost_seq`]).
    pub seq: u64,
    /// First id.
    pub first: u32,
    /// Last id.
    pub last: u32,
}

#[derive(Clone, Copy, Debug)]
struct Ost {
    /// Last id handed out.
    last: u32,
    /// Bound in the active layer. `sealed`: in the committing layer. `durable`: in the store.
    reserved: u32,
    sealed: u32,
    durable: u32,
    /// Whether the record differs from the one in the active layer.
    dirty: bool,
}

/// Object ids of all OSTs.
#[derive(Default, Debug)]
pub(crate) struct Objects {
    mdt: MdtIndex,
    osts: BTreeMap<u32, Ost>,
    orphans: BTreeMap<(u32, u32), u32>,
}

impl Objects {
    /// Reads the object ids from an MDT's store. Ids that were reserved and not used before the
    /// restart become orphan ranges.
    pub(crate) fn open<S: Store>(tables: &mut Tables<S>, mdt: MdtIndex) -> Result<Objects, StoreError> {
        let mut objects = Objects { mdt, ..Objects::default() };
        let damaged = |key: &[u8]| StoreError::Corrupt { key: format!("{key:02x?}"), why: "malformed key".into() };
        for_each_in(tables.store(), b'r', |key, value| {
            let at = key::ost_index(key).zip(key::orphan_first(key)).ok_or_else(|| damaged(key))?;
            objects.orphans.insert(at, decode(key, value)?);
            Ok(())
        })?;
        for_each_in(tables.store(), b'o', |key, value| {
            let index = key::ost_index(key).ok_or_else(|| damaged(key))?;
            let OstIds { last, reserved } = decode(key, value)?;
            let ost = Ost { last: reserved, reserved, sealed: reserved, durable: reserved, dirty: last < reserved };
            objects.osts.insert(index, ost);
            if last < reserved {
                objects.orphans.insert((index, last + 1), reserved);
            }
            Ok(())
        })?;
        for (&(ost, first), last) in &objects.orphans {
            tables.set_raw(key::orphan_range(ost, first), Some(encode(last, Vec::new())?));
        }
        // The raised bounds go into the same batch, so that requests after a restart find free ids
        // without another commit.
        objects.osts.values_mut().for_each(Ost::raise);
        Ok(objects)
    }

    /// Allocates an object for each stripe. An error changes nothing, except that a bound may be
    /// raised.
    pub(crate) fn take(&mut self, osts: &[u32]) -> OpResult<Vec<Fid>> {
        let mut wanted = BTreeMap::new();
        osts.iter().for_each(|ost| *wanted.entry(*ost).or_insert(0u32) += 1);
        for (index, count) in wanted {
            let ost =
                self.osts.entry(index).or_insert(Ost { last: 0, reserved: 0, sealed: 0, durable: 0, dirty: false });
            if count > u32::MAX - ost.last {
                return Err(Errno::ENOSPC.into());
            }
            if ost.durable - ost.last < count.max(RESERVE / 2) {
                ost.raise();
            }
            if ost.durable - ost.last < count {
                return Err(OpError::CommitFirst);
            }
        }
        let mdt = self.mdt;
        let mut next = |index: &u32| {
            let ost = self.osts.get_mut(index).ok_or(Errno::EIO)?;
            ost.last += 1;
            ost.dirty = true;
            Ok(Fid::new(ost_seq(mdt, *index), ost.last))
        };
        osts.iter().map(&mut next).collect()
    }

    /// Writes changed records to the active layer; called before a seal.
    pub(crate) fn flush<S: Store>(&mut self, tables: &mut Tables<S>) -> Result<(), StoreError> {
        for (index, ost) in self.osts.iter_mut().filter(|(_, ost)| ost.dirty) {
            let record = OstIds { last: ost.last, reserved: ost.reserved };
            tables.set_raw(key::ost(*index), Some(encode(&record, Vec::new())?));
            ost.dirty = false;
        }
        Ok(())
    }

    /// Records that the active layer became the committing one.
    pub(crate) fn sealed(&mut self) {
        self.osts.values_mut().for_each(|ost| ost.sealed = ost.reserved);
    }

    /// Records that the committing layer is durable.
    pub(crate) fn committed(&mut self) {
        self.osts.values_mut().for_each(|ost| ost.durable = ost.sealed);
    }

    /// Releases the ids above the last one handed out, for a clean stop. Takes effect with the next
    /// batch; no id may be taken afterwards.
    pub(crate) fn release_unused(&mut self) {
        for ost in self.osts.values_mut() {
            *ost = Ost { reserved: ost.last, durable: ost.last, dirty: true, ..*ost };
        }
    }

    pub(crate) fn orphans(&self) -> Vec<OrphanRange> {
        let range = |(&(ost, first), &last): (&(u32, u32), &u32)| {
            let seq = ost_seq(self.mdt, ost);
            OrphanRange { ost, seq, first, last }
        };
        self.orphans.iter().map(range).collect()
    }

    /// Returns whether an object is in an orphan range: no file has it, and none ever had it as far
    /// as the store knows.
    pub(crate) fn is_orphan(&self, ost: u32, object: Fid) -> bool {
        let before = self.orphans.range((ost, 0)..=(ost, object.oid)).next_back();
        object.seq == ost_seq(self.mdt, ost) && before.is_some_and(|(_, last)| *last >= object.oid)
    }

    /// Removes an object from its orphan range with the next batch: a file has it. The range is
    /// divided in two.
    pub(crate) fn claim<S: Store>(&mut self, tables: &mut Tables<S>, ost: u32, object: Fid) -> wire::Result<()> {
        let oid = object.oid;
        let before = self.orphans.range((ost, 0)..=(ost, oid)).next_back();
        let Some((&(_, first), &last)) = before.filter(|_| self.is_orphan(ost, object)) else { return Ok(()) };
        self.orphans.remove(&(ost, first));
        tables.set_raw(key::orphan_range(ost, first), None);
        for (first, last) in [(first, oid - 1), (oid + 1, last)].into_iter().filter(|(first, last)| first <= last) {
            let record = encode(&last, Vec::new());
            let record = tables.fail(record)?;
            tables.set_raw(key::orphan_range(ost, first), Some(record));
            self.orphans.insert((ost, first), last);
        }
        Ok(())
    }

    pub(crate) fn orphan_range_destroyed<S: Store>(&mut self, tables: &mut Tables<S>, range: &OrphanRange) {
        if self.orphans.remove(&(range.ost, range.first)).is_some() {
            tables.set_raw(key::orphan_range(range.ost, range.first), None);
        }
    }
}

impl Ost {
    fn raise(&mut self) {
        let to = self.last.saturating_add(RESERVE);
        if to > self.reserved {
            self.reserved = to;
            self.dirty = true;
        }
    }
}

/// Sequences for clients.
#[derive(Debug)]
pub(crate) struct Sequences {
    /// Bounds of the MDT's sequences. The first sequence is never handed out, as in Lustre.
    first: u64,
    end: u64,
    /// Last sequence handed out.
    last: u64,
    reserved: u64,
    sealed: u64,
    durable: u64,
    /// Lowest unused id of each sequence that was handed out since the start.
    fresh: BTreeMap<u64, u32>,
}

impl Sequences {
    /// `reserved`: the bound in the MDT's store; 0 in a new store.
    pub(crate) fn open(reserved: u64, mdt: MdtIndex) -> Sequences {
        let (first, end) = client_seqs(mdt).into_inner();
        // Stores of format 1 could reserve a little beyond the end.
        let last = reserved.clamp(first, end);
        let reserved = end.min(last + SEQ_RESERVE);
        Sequences { first, end, last, reserved, sealed: 0, durable: 0, fresh: BTreeMap::new() }
    }

    pub(crate) fn take(&mut self) -> OpResult<u64> {
        if self.last >= self.end {
            return Err(Errno::ENOSPC.into());
        }
        if self.durable < self.last + SEQ_RESERVE / 2 {
            self.reserved = self.reserved.max(self.end.min(self.last + SEQ_RESERVE));
        }
        if self.durable <= self.last {
            return Err(OpError::CommitFirst);
        }
        self.last += 1;
        if self.fresh.len() >= SEQ_TRACKED_MAX {
            self.fresh.pop_first();
        }
        self.fresh.insert(self.last, 1);
        Ok(self.last)
    }

    /// Checks whether a client may use this FID for a new file (else EINVAL). Returns whether the
    /// caller must read the store to see if the FID is taken.
    pub(crate) fn check(&mut self, fid: Fid) -> wire::Result<bool> {
        let ours = (self.first..=self.last).contains(&fid.seq) && (1..=SEQ_WIDTH).contains(&fid.oid) && fid.ver == 0;
        if !ours {
            return Err(Errno::EINVAL);
        }
        Ok(match self.fresh.get_mut(&fid.seq) {
            Some(fresh) if fid.oid >= *fresh => {
                *fresh = fid.oid + 1;
                false
            }
            _ => true,
        })
    }

    pub(crate) fn reserved(&self) -> u64 {
        self.reserved
    }

    /// Whether the bound must be written.
    pub(crate) fn is_dirty(&self) -> bool {
        self.reserved != self.sealed
    }

    pub(crate) fn sealed(&mut self) {
        self.sealed = self.reserved;
    }

    pub(crate) fn committed(&mut self) {
        self.durable = self.sealed;
    }

    pub(crate) fn release_unused(&mut self) {
        self.reserved = self.last;
        self.durable = self.last;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the sequences of an MDT whose store has reserved all up to `reserved`.
    fn opened(reserved: u64, mdt: MdtIndex) -> Sequences {
        let mut sequences = Sequences::open(reserved, mdt);
        sequences.sealed();
        sequences.committed();
        sequences
    }

    #[test]
    fn alloc_seq_fails_past_the_mdts_range() {
        for index in [0, 1, MdtIndex::MAX] {
            let mdt = MdtIndex::new(index).unwrap();
            let (first, end) = client_seqs(mdt).into_inner();
            assert_eq!(opened(0, mdt).take(), Ok(first + 1), "MDT {mdt}");
            let mut last = opened(end - 2, mdt);
            assert_eq!([last.take(), last.take(), last.take()], [Ok(end - 1), Ok(end), Err(Errno::ENOSPC.into())]);
            assert_eq!(last.reserved(), end, "MDT {mdt}");
            assert_eq!(opened(end + SEQ_RESERVE, mdt).take(), Err(Errno::ENOSPC.into()), "reserved by format 1");
        }
    }

    #[test]
    fn fids_of_another_mdts_sequences_are_refused() {
        let [mine, other] = [1, 2].map(|index| MdtIndex::new(index).unwrap());
        let mut sequences = opened(0, other);
        let given = sequences.take().unwrap();
        assert_eq!(sequences.check(Fid::new(given, 1)), Ok(false));
        let mut sequences = opened(0, mine);
        sequences.take().unwrap();
        for seq in [given, *client_seqs(MdtIndex::ZERO).start() + 1, ost_seq(mine, 0)] {
            assert_eq!(sequences.check(Fid::new(seq, 1)), Err(Errno::EINVAL), "{seq:#x}");
        }
    }
}
