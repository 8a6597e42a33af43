//! Changes to the mirrors of a file: the value of a `setxattr` of [`XATTR`], which cannot be read.
//!
//! One attribute for all, so that each change is one request, done whole or not at all.

use serde::{Deserialize, Serialize};

use crate::{Errno, Fid, Result, Time};

/// The attribute's name.
pub const XATTR: &str = "lustre.lov.mirror";

/// A change to the mirrors of a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Change {
    /// More mirrors, as a template of components asks for them (the value of a
    /// `setxattr lustre.lov`). They are stale.
    Extend {
        /// Its bytes.
        template: Vec<u8>,
    },
    /// Another file's components become one more mirror, which is stale; the other file has no
    /// layout any more.
    Merge {
        /// The other file.
        other: Fid,
    },
    /// A mirror goes.
    Split {
        /// Its id.
        mirror: u16,
        /// The file without a layout whose layout it becomes. `None`: its objects are removed.
        into: Option<Fid>,
    },
    /// Mirrors are about to be brought up to date: they are stale from now on, if they are not, and
    /// get objects; and writers have to ask. The layout's next generation is the ticket for
    /// [`Change::Resynced`]. EUCLEAN: no other mirror is fresh.
    Resync {
        /// Their ids.
        mirrors: Vec<u16>,
        /// Up to which byte they need objects.
        end: u64,
    },
    /// They are up to date. EBUSY if the layout is of another generation: somebody wrote meanwhile.
    Resynced {
        /// The ticket.
        generation: u32,
        /// Their ids.
        mirrors: Vec<u16>,
        /// When the file was last changed: the copies are younger.
        mtime: Time,
    },
    /// Bytes `[start, end)` of one mirror are about to be written, and of no other one: it gets
    /// objects there.
    Objects {
        /// Its id.
        mirror: u16,
        /// First byte.
        start: u64,
        /// Byte after the last.
        end: u64,
    },
}

impl Change {
    /// The attribute's value.
    ///
    /// # Errors
    /// EINVAL: it cannot be said in bytes.
    pub fn encode(&self) -> Result<Vec<u8>> {
        postcard::to_allocvec(self).map_err(|_| Errno::EINVAL)
    }

    /// Reads the attribute's value. What it allocates is bounded by the value's length.
    ///
    /// # Errors
    /// EINVAL: it is none, or something follows it.
    pub fn decode(bytes: &[u8]) -> Result<Change> {
        match postcard::take_from_bytes(bytes) {
            Ok((change, [])) => Ok(change),
            _ => Err(Errno::EINVAL),
        }
    }

    /// The other file that it changes.
    pub fn other(&self) -> Option<Fid> {
        match self {
            Change::Merge { other } => Some(*other),
            Change::Split { into, .. } => *into,
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_survive_and_rubbish_is_refused() {
        for change in [
            Change::Extend { template: vec![1, 2, 3] },
            Change::Merge { other: Fid::new(1, 2) },
            Change::Split { mirror: 3, into: Some(Fid::new(1, 2)) },
            Change::Split { mirror: 3, into: None },
            Change::Resync { mirrors: vec![1, 2], end: u64::MAX },
            Change::Resynced { generation: 7, mirrors: vec![2], mtime: Time { sec: -1, nsec: 2 } },
            Change::Objects { mirror: 2, start: 0, end: 1 << 40 },
        ] {
            let mut bytes = change.encode().unwrap();
            assert_eq!(Change::decode(&bytes), Ok(change));
            bytes.push(0);
            assert_eq!(Change::decode(&bytes), Err(Errno::EINVAL), "something follows");
        }
        // A list that is longer than the value.
        assert_eq!(Change::decode(&[3, 0xff, 0xff, 0xff, 0x7f]), Err(Errno::EINVAL));
        assert_eq!(Change::decode(&[]), Err(Errno::EINVAL));
    }
}
