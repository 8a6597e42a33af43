//! The record of one object in the owner index of an OST: the object's file and its owner.
//!
//! A record of zeros knows neither. It may exist before the object, and is zeros again after the
//! object is destroyed.

use sheen_wire::{Fid, quota::Owner};

/// Bytes of a record.
pub const RECORD_BYTES: usize = 32;
/// The file is known.
const HAS_FILE: u32 = 1;
/// The owner is known.
const HAS_OWNER: u32 = 2;

/// The record of an object in the index.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OwnerRecord {
    /// File of the object, as the request named it that created the object. [`Fid::ZERO`]: unknown.
    pub file: Fid,
    /// Owner, from the MDT. `None`: unknown.
    pub owner: Option<Owner>,
}

impl OwnerRecord {
    /// Returns the place of an object's record in the index of its sequence.
    pub fn place(object: Fid) -> u64 {
        u64::from(object.oid) * RECORD_BYTES as u64
    }

    /// Encodes the record.
    pub fn encode(&self) -> [u8; RECORD_BYTES] {
        let Owner { uid, gid, project } = self.owner.unwrap_or_default();
        let has_file = if self.file.is_zero() { 0 } else { HAS_FILE };
        let flags = has_file | self.owner.map_or(0, |_| HAS_OWNER);
        let mut bytes = [0; RECORD_BYTES];
        bytes[..16].copy_from_slice(&self.file.to_key());
        for (at, word) in (16..).step_by(4).zip([uid, gid, project, flags]) {
            bytes[at..at + 4].copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }

    /// Decodes a record. Any bytes are one: a torn record names a wrong file at worst.
    pub fn decode(bytes: &[u8; RECORD_BYTES]) -> OwnerRecord {
        let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let flags = word(28);
        let owner = Owner { uid: word(16), gid: word(20), project: word(24) };
        let mut key = [0; 16];
        key.copy_from_slice(&bytes[..16]);
        OwnerRecord {
            file: if flags & HAS_FILE == 0 { Fid::ZERO } else { Fid::from_key(&key) },
            owner: (flags & HAS_OWNER != 0).then_some(owner),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_record_is_pinned() {
        let file = Fid { seq: 0x2_0000_0401, oid: 5, ver: 0 };
        let owner = Some(Owner { uid: 1000, gid: 100, project: 7 });
        let whole = OwnerRecord { file, owner };
        let bytes =
            [[0, 0, 0, 2, 0, 0, 4, 1, 0, 0, 0, 5, 0, 0, 0, 0], [0, 0, 3, 0xe8, 0, 0, 0, 100, 0, 0, 0, 7, 0, 0, 0, 3]];
        assert_eq!(whole.encode()[..], bytes.concat()[..]);
        let root = OwnerRecord { owner: Some(Owner::default()), ..whole };
        for record in [whole, root, OwnerRecord { owner: None, ..whole }, OwnerRecord { file: Fid::ZERO, owner }] {
            assert_eq!(OwnerRecord::decode(&record.encode()), record);
        }
        assert_eq!(OwnerRecord::default().encode(), [0; RECORD_BYTES]);
        assert_eq!(OwnerRecord::decode(&[0; RECORD_BYTES]), OwnerRecord::default());
        assert_eq!(OwnerRecord::place(Fid::new(9, 3)), 96);
    }
}
