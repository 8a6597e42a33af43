//! File data beside a message: a list of byte runs, passed on without copying.

use bytes::Bytes;

/// Largest bulk of one message, in bytes: the maximum of `max_pages_per_rpc` (16 MiB, Lustre's
/// limit).
pub const BULK_BYTES_MAX: usize = 16 << 20;

/// Bytes in order, in the pieces in which they arrived.
#[derive(Clone, Default, Debug)]
pub struct Bulk {
    segments: Vec<Bytes>,
    len: usize,
}

impl Bulk {
    /// Creates an empty bulk.
    pub const fn new() -> Bulk {
        Bulk { segments: Vec::new(), len: 0 }
    }

    /// Returns the total bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a piece at the end; an empty one is dropped.
    pub fn push(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.len += bytes.len();
            self.segments.push(bytes);
        }
    }

    /// Adds all pieces of `other` at the end.
    pub fn append(&mut self, other: Bulk) {
        self.len += other.len;
        self.segments.extend(other.segments);
    }

    /// Returns the pieces.
    pub fn segments(&self) -> &[Bytes] {
        &self.segments
    }

    /// Returns the bytes `[start, start + len)`, sharing memory with this bulk. Leaves out bytes
    /// past the end.
    pub fn slice(&self, start: usize, len: usize) -> Bulk {
        let mut out = Bulk::new();
        let (mut skip, mut want) = (start, len);
        for seg in &self.segments {
            if want == 0 {
                break;
            }
            if skip >= seg.len() {
                skip -= seg.len();
                continue;
            }
            let take = want.min(seg.len() - skip);
            out.push(seg.slice(skip..skip + take));
            skip = 0;
            want -= take;
        }
        out
    }

    /// Returns one contiguous buffer; copies only if there is more than one piece.
    pub fn into_bytes(mut self) -> Bytes {
        match self.segments.len() {
            0 => Bytes::new(),
            1 => self.segments.swap_remove(0),
            _ => self.segments.concat().into(),
        }
    }

    /// Returns the CRC-32C over all bytes.
    pub fn crc(&self) -> u32 {
        let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
        for seg in &self.segments {
            digest.update(seg);
        }
        digest.finalize() as u32
    }
}

impl From<Bytes> for Bulk {
    fn from(bytes: Bytes) -> Bulk {
        let mut bulk = Bulk::new();
        bulk.push(bytes);
        bulk
    }
}

impl FromIterator<Bytes> for Bulk {
    fn from_iter<I: IntoIterator<Item = Bytes>>(iter: I) -> Bulk {
        let mut bulk = Bulk::new();
        iter.into_iter().for_each(|b| bulk.push(b));
        bulk
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bulk_slice_spans_pieces() {
        let bulk: Bulk = ["abc", "", "defg", "h"].iter().map(|s| Bytes::from_static(s.as_bytes())).collect();
        assert_eq!(bulk.len(), 8);
        let whole = b"abcdefgh";
        for start in 0..10usize {
            for len in 0..10 {
                let want = &whole[start.min(8)..(start + len).min(8)];
                assert_eq!(&bulk.slice(start, len).into_bytes()[..], want);
            }
        }
        assert_eq!(bulk.crc(), Bulk::from(Bytes::from_static(whole)).crc());
    }
}
