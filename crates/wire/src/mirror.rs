//! Changes to the mirrors of a file: the value of a `setxattr` of [`XATTR`], which cannot be read.
//!
//! One attribute serves all changes, so that each change is one request, done as a whole or not at
//! all.

use serde::{Deserialize, Serialize};

use crate::{Errno, Fid, Result, Time};

/// The attribute's name.
pub const XATTR: &str = "lustre.lov.mirror";

/// A change to the mirrors of a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum MirrorChange {
    /// Adds mirrors, which are stale. The components are requested by a template (the value of a
    /// `setxattr lustre.lov`).
    Extend {
        /// Encoded template.
        template: Vec<u8>,
    },
    /// Adds another file's components as one more mirror, which is stale. The other file then has
    /// no layout.
    Merge {
        /// The other file.
        other: Fid,
    },
    /// Removes a mirror.
    Split {
        /// Its id.
        mirror: u16,
        /// File without a layout that gets the mirror as its layout. `None`: the mirror's objects
        /// are destroyed.
        into: Option<Fid>,
    },
    /// Begins a resync of mirrors. They are stale from now on, and get objects. Writers must ask
    /// the MDT. The layout's next generation is the ticket for [`MirrorChange::Resynced`].
    /// EUCLEAN: no other mirror is fresh.
    Resync {
        /// Ids of the mirrors.
        mirrors: Vec<u16>,
        /// End of the range in which they need objects, in bytes.
        end: u64,
    },
    /// Ends a resync: the mirrors are fresh. EBUSY if the layout has another generation, because a
    /// client wrote meanwhile or the layout was changed.
    Resynced {
        /// The ticket: the layout's generation after [`MirrorChange::Resync`].
        generation: u32,
        /// Ids of the mirrors.
        mirrors: Vec<u16>,
        /// Time of the file's last change, because the copies are newer.
        mtime: Time,
    },
    /// Gives one mirror objects in `[start, end)`, before it is written there alone.
    Objects {
        /// Its id.
        mirror: u16,
        /// First byte.
        start: u64,
        /// Byte after the last.
        end: u64,
    },
}

impl MirrorChange {
    /// Encodes the attribute's value.
    ///
    /// # Errors
    /// EINVAL: it cannot be encoded.
    pub fn encode(&self) -> Result<Vec<u8>> {
        postcard::to_allocvec(self).map_err(|_| Errno::EINVAL)
    }

    /// Decodes the attribute's value. Allocates at most in proportion to the value's length.
    ///
    /// # Errors
    /// EINVAL: it is not an encoded change, or bytes follow it.
    pub fn decode(bytes: &[u8]) -> Result<MirrorChange> {
        match postcard::take_from_bytes(bytes) {
            Ok((change, [])) => Ok(change),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Returns the other file that it changes.
    pub fn other(&self) -> Option<Fid> {
        match self {
            MirrorChange::Merge { other } => Some(*other),
            MirrorChange::Split { into, .. } => *into,
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirror_changes_round_trip_and_invalid_bytes_are_refused() {
        for change in [
            MirrorChange::Extend { template: vec![1, 2, 3] },
            MirrorChange::Merge { other: Fid::new(1, 2) },
            MirrorChange::Split { mirror: 3, into: Some(Fid::new(1, 2)) },
            MirrorChange::Split { mirror: 3, into: None },
            MirrorChange::Resync { mirrors: vec![1, 2], end: u64::MAX },
            MirrorChange::Resynced { generation: 7, mirrors: vec![2], mtime: Time { sec: -1, nsec: 2 } },
            MirrorChange::Objects { mirror: 2, start: 0, end: 1 << 40 },
        ] {
            let mut bytes = change.encode().unwrap();
            assert_eq!(MirrorChange::decode(&bytes), Ok(change));
            bytes.push(0);
            assert_eq!(MirrorChange::decode(&bytes), Err(Errno::EINVAL), "something follows");
        }
        // A list that is longer than the value.
        assert_eq!(MirrorChange::decode(&[3, 0xff, 0xff, 0xff, 0x7f]), Err(Errno::EINVAL));
        assert_eq!(MirrorChange::decode(&[]), Err(Errno::EINVAL));
    }
}
