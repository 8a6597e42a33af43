//! File identifiers, as Lustre defines them: sequence (u64), object id (u32), version (u32).
//!
//! A FID is never used twice. A client gets sequences of [`SEQ_WIDTH`] ids and names new files
//! itself. An MDT names the objects of a file from one sequence per OST, so that creating a file
//! needs no request to an OST. Module [`crate::seq`] defines which MDT has which sequences.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Permanent name of one file (MDT) or one object (OST).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Fid {
    /// Sequence: a range of ids handed out as a whole.
    pub seq: u64,
    /// Id within the sequence, from 1.
    pub oid: u32,
    /// Version: 0, except for an object on an MDT, which has its file's sequence and id.
    pub ver: u32,
}

/// Ids in one sequence handed out to a client (Lustre's LUSTRE_METADATA_SEQ_MAX_WIDTH). Below 2^24,
/// so that [`Fid::ino`] is one to one.
pub const SEQ_WIDTH: u32 = 0x20000;
/// First sequence for files that clients create (Lustre's FID_SEQ_NORMAL).
pub const SEQ_NORMAL: u64 = 0x2_0000_0400;
/// Largest sequence that fits [`Fid::ino`] (40 bits).
pub const SEQ_MAX: u64 = (1 << 40) - 1;
/// The root directory's sequence and FID, `[0x200000007:0x1:0x0]`, as in Lustre.
pub const ROOT: Fid = Fid { seq: 0x2_0000_0007, oid: 1, ver: 0 };

impl Fid {
    /// No file: all zero.
    pub const ZERO: Fid = Fid { seq: 0, oid: 0, ver: 0 };

    /// Returns a FID of version 0.
    pub const fn new(seq: u64, oid: u32) -> Fid {
        Fid { seq, oid, ver: 0 }
    }

    /// Whether this is [`Fid::ZERO`].
    pub fn is_zero(self) -> bool {
        self == Fid::ZERO
    }

    /// Returns the inode number that `stat` shows: Lustre's flattening, `seq << 24 | oid`. It is
    /// one to one for the FID of every file (seq < 2^40, oid < 2^24). So [`Fid::from_ino`] can
    /// reverse it, and no table of inode numbers is needed.
    pub fn ino(self) -> u64 {
        (self.seq << 24).wrapping_add(u64::from(self.oid))
    }

    /// Returns the FID of an inode number from [`Fid::ino`].
    pub fn from_ino(ino: u64) -> Fid {
        Fid::new(ino >> 24, (ino & 0xff_ffff) as u32)
    }

    /// Returns big-endian bytes for use in keys: they sort like the FID itself.
    pub fn to_key(self) -> [u8; 16] {
        let mut k = [0; 16];
        k[..8].copy_from_slice(&self.seq.to_be_bytes());
        k[8..12].copy_from_slice(&self.oid.to_be_bytes());
        k[12..].copy_from_slice(&self.ver.to_be_bytes());
        k
    }

    /// Decodes the bytes of [`Fid::to_key`].
    pub fn from_key(k: &[u8; 16]) -> Fid {
        let [a, b, c, d, e, f, g, h, i, j, l, m, n, o, p, q] = *k;
        Fid {
            seq: u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            oid: u32::from_be_bytes([i, j, l, m]),
            ver: u32::from_be_bytes([n, o, p, q]),
        }
    }
}

impl fmt::Display for Fid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{:#x}:{:#x}:{:#x}]", self.seq, self.oid, self.ver)
    }
}

impl fmt::Debug for Fid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Text that is not a FID.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("'{0}' is not a FID; write it as [0x200000401:0x1:0x0]")]
pub struct ParseFidError(String);

impl FromStr for Fid {
    type Err = ParseFidError;

    /// Accepts `[0x1:0x2:0x0]` and the same without brackets, each number in hex with or without
    /// `0x`.
    fn from_str(s: &str) -> Result<Fid, ParseFidError> {
        let bad = || ParseFidError(s.to_owned());
        let inner = match s.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']').ok_or_else(bad)?,
            None => s,
        };
        let mut parts = inner.split(':').map(|p| p.strip_prefix("0x").unwrap_or(p));
        let mut next = || parts.next().filter(|p| !p.is_empty() && !p.starts_with('+'));
        let seq = next().and_then(|p| u64::from_str_radix(p, 16).ok()).ok_or_else(bad)?;
        let oid = next().and_then(|p| u32::from_str_radix(p, 16).ok()).ok_or_else(bad)?;
        let ver = next().and_then(|p| u32::from_str_radix(p, 16).ok()).ok_or_else(bad)?;
        if parts.next().is_some() {
            return Err(bad());
        }
        Ok(Fid { seq, oid, ver })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fid_prints_and_parses_as_in_lustre() {
        let fid = Fid::new(0x200000401, 0x1b9);
        assert_eq!(fid.to_string(), "[0x200000401:0x1b9:0x0]");
        assert_eq!("[0x200000401:0x1b9:0x0]".parse(), Ok(fid));
        assert_eq!("0x200000401:0x1b9:0x0".parse(), Ok(fid));
        for bad in ["", "[", "[]", "[0x1:0x2]", "[0x1:0x2:0x3", "1:2:3:4", "x:1:1", "[0x1:0x100000000:0x0]", "+1:1:1"] {
            assert!(bad.parse::<Fid>().is_err(), "{bad}");
        }
    }

    #[test]
    fn fid_inode_numbers_match_lustres_and_reverse() {
        // 071-posix.txt of the reference shows inode 144115205289279829 for
        // [0x200000402:0x155:0x0].
        assert_eq!(Fid::new(0x200000402, 0x155).ino(), 144115205289279829);
        for fid in [ROOT, Fid::new(SEQ_NORMAL, 1), Fid::new(SEQ_MAX, SEQ_WIDTH)] {
            assert_eq!(Fid::from_ino(fid.ino()), fid);
        }
    }

    #[test]
    fn fid_keys_sort_like_fids() {
        let a = Fid::new(1, u32::MAX);
        let b = Fid::new(2, 0);
        assert!(a < b && a.to_key() < b.to_key());
        assert_eq!(Fid::from_key(&a.to_key()), a);
    }
}
