//! A frame in memory, and the bytes it becomes.

use std::io::{self, IoSlice};

use bytes::Bytes;
use sheen_rt::WriteHalf;
use sheen_wire::{
    Bulk,
    bulk::BULK_BYTES_MAX,
    frame::{BODY_BYTES_MAX, FLAG_BULK_CRC, FrameError, HEADER_LEN, Header, Kind},
};

/// A header, the body and the bulk. `body_len`, `bulk_len` and `bulk_crc` of the header need not be filled in before sending;
/// set [`FLAG_BULK_CRC`] to have the bulk checksummed.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The fixed part.
    pub header: Header,
    /// The message, encoded.
    pub body: Bytes,
    /// File data.
    pub bulk: Bulk,
}

impl Frame {
    /// A frame without body and bulk.
    pub fn new(kind: Kind, xid: u64) -> Frame {
        Frame { header: Header::new(kind, xid), body: Bytes::new(), bulk: Bulk::new() }
    }

    /// Its length on the wire, in bytes.
    pub fn wire_len(&self) -> usize {
        HEADER_LEN + self.body.len() + self.bulk.len()
    }
}

/// Slices given to one system call: header, body and the 16 segments of 1 MiB that the largest bulk usually has.
const SLICES_MAX: usize = 18;

/// A frame being written.
pub(crate) struct Encoded {
    header: [u8; HEADER_LEN],
    body: Bytes,
    bulk: Bulk,
    len: usize,
    written: usize,
}

impl Encoded {
    /// Checks the limits, fills in the header, computes the checksums.
    pub(crate) fn new(frame: Frame) -> Result<Encoded, FrameError> {
        let Frame { mut header, body, bulk } = frame;
        if body.len() > BODY_BYTES_MAX || bulk.len() > BULK_BYTES_MAX {
            let clamp = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
            return Err(FrameError::TooLarge { body: clamp(body.len()), bulk: clamp(bulk.len()) });
        }
        header.body_len = body.len() as u32;
        header.bulk_len = bulk.len() as u32;
        header.bulk_crc = if header.flags & FLAG_BULK_CRC != 0 { bulk.crc() } else { 0 };
        let len = HEADER_LEN + body.len() + bulk.len();
        Ok(Encoded { header: header.encode(&body), body, bulk, len, written: 0 })
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Writes what the socket takes without waiting. True: all is written.
    pub(crate) fn try_write(&mut self, half: &WriteHalf) -> io::Result<bool> {
        while self.written < self.len {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let n = self.unwritten(&mut slices);
            match half.try_write_vectored(&slices[..n]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => self.written += n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }

    /// Writes the rest, waiting for the socket.
    pub(crate) async fn write(&mut self, half: &mut WriteHalf) -> io::Result<()> {
        while self.written < self.len {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let n = self.unwritten(&mut slices);
            let bytes: usize = slices[..n].iter().map(|s| s.len()).sum();
            half.write_all_vectored(&slices[..n]).await?;
            self.written += bytes;
        }
        Ok(())
    }

    /// Fills `slices` with what is not written yet, as much as fits. Returns how many were filled.
    fn unwritten<'a>(&'a self, slices: &mut [IoSlice<'a>; SLICES_MAX]) -> usize {
        let (mut skip, mut n) = (self.written, 0);
        let bulk = self.bulk.segments().iter().map(|s| &s[..]);
        for part in [&self.header[..], &self.body[..]].into_iter().chain(bulk) {
            if skip >= part.len() {
                skip -= part.len();
                continue;
            }
            if n == SLICES_MAX {
                break;
            }
            slices[n] = IoSlice::new(&part[skip..]);
            (skip, n) = (0, n + 1);
        }
        n
    }
}
