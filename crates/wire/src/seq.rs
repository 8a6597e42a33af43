//! Sequences, and the MDTs that they belong to. A sequence names files created by clients of the
//! MDT, or the MDT's objects on an OST.
//!
//! | sequences | names of |
//! |---|---|
//! | below 0x200000400 | Lustre's own: llog, IGIF, IDIF, `.lustre`, the root; not handed out |
//! | 0x200000400 to 0x27fffffff | files of MDT 0 |
//! | block 10 + n, offset 0x401 + i | objects of MDT i on OST n |
//! | blocks 10 to 1023, second half | files of MDTs 1 to 2028, two MDTs per block |
//!
//! Block b consists of the 2^30 sequences from b × 2^30 on. Lustre's sequence controller gives one
//! target one block at a time. MDT 0 has the same numbers as in release 0.1.0, where sequences had
//! no MDT index, so its stores remain valid (decision 024).
//!
//! Invariants:
//! * these numbers never change: they are part of the FIDs of files and objects, thus of every
//!   store;
//! * no sequence belongs to two MDTs, or names both files and objects;
//! * sequences of files are at most [`SEQ_MAX`], because a file's inode number contains its FID;
//! * [`mdt_of`] and [`ost_seq_owner`] accept every number, and are the inverse of [`client_seqs`]
//!   and [`ost_seq`].

use std::{fmt, ops::RangeInclusive};

use crate::fid::{SEQ_MAX, SEQ_NORMAL};

/// Sequences in a block (Lustre's LUSTRE_SEQ_SUPER_WIDTH).
const BLOCK: u64 = 1 << 30;
/// Block of OST 0 and of MDTs 1 and 2. The blocks below it are Lustre's own and MDT 0's.
const BLOCK_FIRST: u64 = 10;
/// Offset in an OST's block of the sequence for MDT 0. Lustre 2.17 has the same: 0x280000401,
/// 0x2c0000401, …
const OBJECTS: u64 = 0x401;
/// Offset in a block of the first sequence for files.
const FILES: u64 = BLOCK / 2;
/// Sequences for files of one MDT above 0: enough for one mount per second for 8.5 years, or 2^45
/// files.
const FILE_SEQS: u64 = BLOCK / 4;

const _: () = assert!(OBJECTS + (MdtIndex::MAX as u64) < FILES, "objects and files share a sequence");

/// Index of an MDT that has sequences.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct MdtIndex(u32);

impl MdtIndex {
    /// The MDT with the root directory.
    pub const ZERO: MdtIndex = MdtIndex(0);
    /// Largest index. File sequences up to [`SEQ_MAX`] suffice for this many MDTs, which are more
    /// than a directory can have stripes (2000).
    pub const MAX: u32 = 2028;

    /// Returns the index; `None` if it is larger than [`MdtIndex::MAX`].
    pub const fn new(index: u32) -> Option<MdtIndex> {
        if index <= MdtIndex::MAX { Some(MdtIndex(index)) } else { None }
    }

    /// Returns the number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for MdtIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Returns the sequences from which an MDT hands out some to its clients for new files (the MDT's
/// FLD entry in Lustre).
pub fn client_seqs(mdt: MdtIndex) -> RangeInclusive<u64> {
    let Some(nth) = mdt.0.checked_sub(1).map(u64::from) else {
        return SEQ_NORMAL..=BLOCK_FIRST * BLOCK - 1;
    };
    let first = (BLOCK_FIRST + nth / 2) * BLOCK + FILES + nth % 2 * FILE_SEQS;
    first..=first + FILE_SEQS - 1
}

/// Returns the MDT whose clients name files from this sequence; `None` for every other number.
pub fn mdt_of(seq: u64) -> Option<MdtIndex> {
    let (block, offset) = (seq / BLOCK, seq % BLOCK);
    if seq > SEQ_MAX {
        return None;
    }
    if block < BLOCK_FIRST {
        return (seq >= SEQ_NORMAL).then_some(MdtIndex::ZERO);
    }
    let half = offset.checked_sub(FILES)? / FILE_SEQS;
    let index = (block - BLOCK_FIRST) * 2 + half + 1;
    MdtIndex::new(u32::try_from(index).ok()?)
}

/// Returns the sequence from which an MDT names objects of an OST.
pub fn ost_seq(mdt: MdtIndex, ost: u32) -> u64 {
    (BLOCK_FIRST + u64::from(ost)) * BLOCK + OBJECTS + u64::from(mdt.0)
}

/// Returns the MDT and the OST of a sequence from [`ost_seq`]; `None` for every other number.
pub fn ost_seq_owner(seq: u64) -> Option<(MdtIndex, u32)> {
    let (block, offset) = (seq / BLOCK, seq % BLOCK);
    let ost = u32::try_from(block.checked_sub(BLOCK_FIRST)?).ok()?;
    let mdt = u32::try_from(offset.checked_sub(OBJECTS)?).ok()?;
    Some((MdtIndex::new(mdt)?, ost))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fid::ROOT;

    fn mdt(index: u32) -> MdtIndex {
        MdtIndex::new(index).unwrap()
    }

    fn any_mdt() -> impl Strategy<Value = MdtIndex> {
        (0..=MdtIndex::MAX).prop_map(mdt)
    }

    /// Numbers of all sizes, many of them at boundaries.
    fn any_seq() -> impl Strategy<Value = u64> {
        let offset = prop_oneof![
            0..0x1000u64,
            FILES - 3..FILES + 3,
            FILES + FILE_SEQS - 3..FILES + FILE_SEQS + 3,
            BLOCK - 3..BLOCK,
        ];
        let at_border = (0..1100u64, offset).prop_map(|(block, offset)| block * BLOCK + offset);
        prop_oneof![any::<u64>(), 0..=SEQ_MAX, 0..=BLOCK_FIRST * BLOCK, at_border]
    }

    /// Stores of every release have these numbers.
    #[test]
    fn sequence_numbers_are_pinned() {
        assert_eq!(client_seqs(MdtIndex::ZERO), 0x2_0000_0400..=0x2_7fff_ffff);
        assert_eq!(client_seqs(mdt(1)), 0x2_a000_0000..=0x2_afff_ffff);
        assert_eq!(client_seqs(mdt(2)), 0x2_b000_0000..=0x2_bfff_ffff);
        assert_eq!(client_seqs(mdt(3)), 0x2_e000_0000..=0x2_efff_ffff);
        assert_eq!(client_seqs(mdt(MdtIndex::MAX)), 0xff_f000_0000..=SEQ_MAX);
        let of_mdt_0 = [0, 1, 2, 3].map(|ost| ost_seq(MdtIndex::ZERO, ost));
        assert_eq!(of_mdt_0, [0x2_8000_0401, 0x2_c000_0401, 0x3_0000_0401, 0x3_4000_0401]);
        assert_eq!([1, 2].map(|i| ost_seq(mdt(i), 0)), [0x2_8000_0402, 0x2_8000_0403]);
        assert_eq!(ost_seq(mdt(MdtIndex::MAX), 1), 0x2_c000_0bed);
    }

    #[test]
    fn mdt_indices_are_bounded() {
        assert_eq!(MdtIndex::new(MdtIndex::MAX).map(MdtIndex::get), Some(2028));
        assert_eq!([MdtIndex::MAX + 1, u32::MAX].map(MdtIndex::new), [None, None]);
    }

    #[test]
    fn client_sequences_of_mdts_do_not_overlap() {
        let ranges: Vec<_> = (0..=MdtIndex::MAX).map(|index| client_seqs(mdt(index))).collect();
        for (index, pair) in ranges.windows(2).enumerate() {
            assert!(pair[0].end() < pair[1].start(), "MDTs {index} and {}", index + 1);
        }
    }

    #[test]
    fn well_known_sequences_belong_to_no_mdt() {
        let lustres = [
            0,              // objects of before FIDs, llog
            1,              // llog
            2,              // echo
            10,             // llog names
            12,             // IGIF, first
            0xffff_ffff,    // IGIF, last
            0x1_0000_0000,  // IDIF, first
            0x1_ffff_ffff,  // IDIF, last
            0x2_0000_0001,  // local files
            0x2_0000_0002,  // .lustre
            0x2_0000_0006,  // quota
            ROOT.seq,       // the root
            0x2_0000_000a,  // update logs
            SEQ_NORMAL - 1, // the last one that Lustre keeps
            u64::MAX,       // the default layout
        ];
        for seq in lustres {
            assert_eq!((mdt_of(seq), ost_seq_owner(seq)), (None, None), "{seq:#x}");
        }
    }

    proptest! {
        #[test]
        fn mdt_of_inverts_client_seqs(mdt in any_mdt(), at in any::<u64>()) {
            let (first, last) = client_seqs(mdt).into_inner();
            let seq = first + at % (last - first + 1);
            prop_assert_eq!(mdt_of(seq), Some(mdt));
            prop_assert_eq!(ost_seq_owner(seq), None);
            prop_assert!((SEQ_NORMAL..=SEQ_MAX).contains(&seq));
        }

        #[test]
        fn ost_seq_owner_inverts_ost_seq(
            mdt in any_mdt(),
            ost in prop_oneof![0..2000u32, any::<u32>()],
        ) {
            let seq = ost_seq(mdt, ost);
            prop_assert_eq!(ost_seq_owner(seq), Some((mdt, ost)));
            prop_assert_eq!(mdt_of(seq), None);
        }

        #[test]
        fn sequence_has_at_most_one_owner(seq in any_seq()) {
            let (of_files, of_objects) = (mdt_of(seq), ost_seq_owner(seq));
            if let Some(mdt) = of_files {
                prop_assert!(client_seqs(mdt).contains(&seq));
            }
            if let Some((mdt, ost)) = of_objects {
                prop_assert_eq!(ost_seq(mdt, ost), seq);
            }
            prop_assert!(of_files.is_none() || of_objects.is_none());
        }
    }
}
