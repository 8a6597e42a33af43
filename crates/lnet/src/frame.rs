//! A frame in memory, and its encoding.

use std::{
    any::Any,
    fmt,
    io::{self, IoSlice},
    sync::{Arc, LazyLock},
};

use bytes::Bytes;
use sheen_rt::{
    File, WriteHalf,
    buf::{Buffer, BufferPool},
};
use sheen_wire::{
    Bulk, Errno,
    auth::PIECE_BYTES_MAX,
    bulk::BULK_BYTES_MAX,
    frame::{BODY_BYTES_MAX, FLAG_BULK_CRC, FLAG_BULK_LIVE, FrameError, HEADER_LEN, Header, Kind},
};

use crate::seal::{Forged, Seal};

/// A file whose pages are sent directly (sendfile).
pub trait Source: Send + Sync {
    /// The file.
    fn file(&self) -> &File;

    /// Records that the file could not be read, or that the bytes sent did not match their
    /// checksum: its checksums are no longer reliable.
    fn stale(&self);
}

/// A run of bytes of a file.
#[derive(Clone)]
pub struct Stretch {
    /// The file.
    pub source: Arc<dyn Source>,
    /// Offset of the first byte.
    pub offset: u64,
    /// Length in bytes.
    pub len: usize,
}

impl Stretch {
    /// Reads its bytes. Returns the buffer and the number of bytes read.
    fn read(&self) -> io::Result<(Buffer, usize)> {
        let mut buffer = BUFFERS.take(self.len);
        let got = self.source.file().read_at(self.offset, &mut buffer)?;
        Ok((buffer, got))
    }
}

/// Bulk that still lies in files.
#[derive(Clone)]
pub struct Live {
    /// The runs of bytes, in order.
    pub stretches: Vec<Stretch>,
    /// CRC-32C of all bytes; `None` for bulk that stays in this process.
    pub crc: Option<u32>,
    /// Guard against changes of the files, dropped with the last clone. `None` if the checksum
    /// reveals changes.
    pub held: Option<Arc<dyn Any + Send + Sync>>,
}

/// Buffers for live bulk that has to be read after all. Each has the usual size of an RPC; 16 MiB
/// in all.
static BUFFERS: LazyLock<BufferPool> = LazyLock::new(|| BufferPool::new(BUFFER_BYTES, 16));
const BUFFER_BYTES: usize = 1 << 20;

/// Buffers for pieces of sealed bulk; 16 MiB in all.
static PIECES: LazyLock<BufferPool> = LazyLock::new(|| BufferPool::new(PIECE_BYTES_MAX, 64));

/// Reads live bulk piece by piece.
struct Cursor<'a> {
    stretches: &'a [Stretch],
    /// Bytes of the first stretch that were read.
    read: usize,
}

impl Cursor<'_> {
    /// Fills `out` with the next bytes. As in [`Encoded::send_live`], zeros replace what cannot be
    /// read.
    fn fill(&mut self, mut out: &mut [u8]) {
        while let Some((Stretch { source, offset, len }, rest)) = self.stretches.split_first() {
            let (now, later) = out.split_at_mut(out.len().min(len - self.read));
            let got = source.file().read_at(offset + self.read as u64, now).unwrap_or(0);
            if got < now.len() {
                source.stale();
                now[got..].fill(0);
            }
            self.read += now.len();
            out = later;
            if self.read < *len {
                return;
            }
            (self.stretches, self.read) = (rest, 0);
        }
    }
}

impl Live {
    /// Returns the total number of bytes.
    pub fn len(&self) -> usize {
        self.stretches.iter().map(|s| s.len).sum()
    }

    /// Returns whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads the bulk into memory, and invalidates the known checksums of it. If a file was
    /// truncated meanwhile, the missing bytes are zeros.
    ///
    /// Errors: as pread(2).
    pub fn copy(&self) -> io::Result<Bulk> {
        let mut bulk = Bulk::new();
        for stretch in &self.stretches {
            if self.crc.is_some() {
                stretch.source.stale();
            }
            let (mut buffer, got) = stretch.read()?;
            buffer[got..].fill(0);
            bulk.push(buffer.freeze(0..stretch.len));
        }
        Ok(bulk)
    }

    /// Reads the bulk into memory, up to the end of the first file that was truncated meanwhile.
    ///
    /// Errors: as pread(2).
    pub fn read(&self) -> io::Result<Bulk> {
        let mut bulk = Bulk::new();
        for stretch in &self.stretches {
            let (buffer, got) = stretch.read()?;
            bulk.push(buffer.freeze(0..got));
            if got < stretch.len {
                break;
            }
        }
        Ok(bulk)
    }
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Live({} bytes, crc {:#010x?})", self.len(), self.crc)
    }
}

/// A header, the body and the bulk. `body_len`, `bulk_len` and `bulk_crc` of the header are filled
/// in on sending. [`FLAG_BULK_CRC`] requests a checksum of the bulk.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The fixed part.
    pub header: Header,
    /// The message, encoded.
    pub body: Bytes,
    /// File data.
    pub bulk: Bulk,
    /// For sending: file data in place of the bulk.
    pub live: Option<Live>,
    /// After receiving: the bulk was sent live and does not match its checksum.
    pub damaged: bool,
}

impl Frame {
    /// Returns a frame without body and bulk.
    pub fn new(kind: Kind, xid: u64) -> Frame {
        Frame::from(Header::new(kind, xid))
    }
}

impl From<Header> for Frame {
    fn from(header: Header) -> Frame {
        Frame { header, body: Bytes::new(), bulk: Bulk::new(), live: None, damaged: false }
    }
}

/// Slices for one system call: header, tags, body and the 16 segments of 1 MiB that the largest
/// bulk usually has. Sealed bulk has segments of 256 KiB, and takes several calls.
const SLICES_MAX: usize = 19;

/// A frame being written.
pub(crate) struct Encoded {
    header: [u8; HEADER_LEN],
    /// The tags of a frame that is sealed.
    tags: Vec<u8>,
    body: Bytes,
    bulk: Bulk,
    live: Option<Live>,
    /// Bytes of header, tags, body and bulk.
    plain: usize,
    /// Bytes in total.
    len: usize,
    written: usize,
    /// It is to be sealed before it is written.
    unsealed: bool,
    /// The last segment of the bulk before it was sealed. It may count memory in use, until it is
    /// dropped.
    _held: Option<Bytes>,
}

/// Bulk up to this size is sealed in memory of its own.
const SMALL_BYTES_MAX: usize = 64 << 10;

/// Returns a buffer of the pool, unless a smaller one will do.
fn buffer(len: usize, pool: &BufferPool) -> Buffer {
    if len > SMALL_BYTES_MAX { pool.take(len) } else { Buffer::unpooled(len) }
}

/// Returns bulk of at most [`PIECE_BYTES_MAX`] in one run, without a copy if it is one already.
fn joined(bulk: Bulk) -> Bytes {
    if bulk.segments().len() < 2 {
        return bulk.into_bytes();
    }
    let (mut out, mut end) = (buffer(bulk.len(), &PIECES), 0);
    for segment in bulk.segments() {
        out[end..end + segment.len()].copy_from_slice(segment);
        end += segment.len();
    }
    out.freeze(0..end)
}

/// Sent in place of bytes that a file does not have any more.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

impl Encoded {
    /// Checks the limits, fills in the header and computes the checksums. `protected`: the frame is
    /// sealed later, by [`Encoded::seal`].
    pub(crate) fn new(frame: Frame, protected: bool) -> Result<Encoded, FrameError> {
        let Frame { mut header, body, bulk, live, .. } = frame;
        let bulk = if live.is_some() { Bulk::new() } else { bulk };
        let bulk_len = live.as_ref().map_or(bulk.len(), Live::len);
        if body.len() > BODY_BYTES_MAX || bulk_len > BULK_BYTES_MAX {
            let clamp = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
            return Err(FrameError::TooLarge { body: clamp(body.len()), bulk: clamp(bulk_len) });
        }
        header.body_len = body.len() as u32;
        header.bulk_len = bulk_len as u32;
        header.flags |= if live.is_some() { FLAG_BULK_LIVE } else { 0 };
        header.bulk_crc = match &live {
            _ if header.flags & FLAG_BULK_CRC == 0 => 0,
            // Bulk without a checksum is not meant for sending. If it is sent, the peer finds it
            // damaged and requests a copy.
            Some(live) => live.crc.unwrap_or(0),
            None => bulk.crc(),
        };
        let plain = HEADER_LEN + body.len() + bulk.len();
        let len = HEADER_LEN + body.len() + bulk_len;
        let (header, tags) = (header.encode(&body), Vec::new());
        Ok(Encoded { header, tags, body, bulk, live, plain, len, written: 0, unsealed: protected, _held: None })
    }

    /// Seals the frame, unless that is done or not wanted. To be called in the order in which the
    /// frames are written.
    pub(crate) fn seal(&mut self, seal: &mut Seal) -> Result<(), Forged> {
        if !std::mem::replace(&mut self.unsealed, false) {
            return Ok(());
        }
        self.tags.extend(seal.seal(&mut self.header)?);
        if !self.body.is_empty() && seal.encrypts() {
            let mut body = self.body.to_vec();
            self.tags.extend(seal.seal(&mut body)?);
            self.body = body.into();
        } else if !self.body.is_empty() {
            self.tags.extend(seal.tag(&self.body)?);
        }
        match self.live.take() {
            Some(live) => self.seal_live(&live, seal)?,
            None => self.seal_bulk(seal)?,
        }
        self.len += self.tags.len();
        self.plain = self.len;
        Ok(())
    }

    fn seal_bulk(&mut self, seal: &mut Seal) -> Result<(), Forged> {
        let plain = std::mem::take(&mut self.bulk);
        self._held = plain.segments().last().cloned();
        for at in (0..plain.len()).step_by(PIECE_BYTES_MAX) {
            let mut piece = joined(plain.slice(at, PIECE_BYTES_MAX));
            if seal.encrypts() {
                let mut out = buffer(piece.len(), &PIECES);
                self.tags.extend(seal.encrypt(&piece, &mut out)?);
                piece = out.freeze(0..piece.len());
            } else {
                self.tags.extend(seal.tag(&piece)?);
            }
            self.bulk.push(piece);
        }
        Ok(())
    }

    fn seal_live(&mut self, live: &Live, seal: &mut Seal) -> Result<(), Forged> {
        let (mut cursor, len) = (Cursor { stretches: &live.stretches, read: 0 }, live.len());
        for at in (0..len).step_by(BUFFER_BYTES) {
            let mut out = buffer(BUFFER_BYTES.min(len - at), &BUFFERS);
            for piece in out.chunks_mut(PIECE_BYTES_MAX) {
                cursor.fill(piece);
                self.tags.extend(seal.seal(piece)?);
            }
            let filled = out.len();
            self.bulk.push(out.freeze(0..filled));
        }
        Ok(())
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Writes what the socket takes without waiting. Returns true when everything is written.
    pub(crate) fn try_write(&mut self, half: &WriteHalf) -> io::Result<bool> {
        while self.written < self.len {
            match self.write_some(half) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => self.written += n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }

    /// Writes the rest; waits for the socket.
    pub(crate) async fn write(&mut self, half: &mut WriteHalf) -> io::Result<()> {
        while self.written < self.plain {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let n = self.unwritten(&mut slices);
            let bytes: usize = slices[..n].iter().map(|s| s.len()).sum();
            half.write_all_vectored(&slices[..n]).await?;
            self.written += bytes;
        }
        while !self.try_write(half)? {
            half.writable().await?;
        }
        Ok(())
    }

    /// Writes as much as one system call takes.
    fn write_some(&self, half: &WriteHalf) -> io::Result<usize> {
        if self.written >= self.plain {
            return self.send_live(half);
        }
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let n = self.unwritten(&mut slices);
        match &self.live {
            Some(_) => half.try_write_more(&slices[..n]),
            None => half.try_write_vectored(&slices[..n]),
        }
    }

    /// Sends the next bytes of the files. If a file cannot be read, or was truncated, zeros are
    /// sent instead: the length is already announced. The checksum makes the receiver request a
    /// copy.
    fn send_live(&self, half: &WriteHalf) -> io::Result<usize> {
        let mut skip = self.written - self.plain;
        for Stretch { source, offset, len } in self.live.iter().flat_map(|live| &live.stretches) {
            if skip >= *len {
                skip -= len;
                continue;
            }
            let left = len - skip;
            let sent = half.try_send_file(source.file(), offset + skip as u64, left);
            match sent {
                Ok(1..) => return sent,
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => return Err(e),
                // The error may be the file's or the socket's. From now on the file is read into
                // memory, which shows errors of the file.
                _ => source.stale(),
            }
            let unreadable = sent.as_ref().is_err_and(|e| e.raw_os_error() == Some(Errno::EIO.0));
            return if unreadable || sent.is_ok() {
                half.try_write_vectored(&[IoSlice::new(&ZEROS[..left.min(ZEROS.len())])])
            } else {
                sent
            };
        }
        Err(io::ErrorKind::WriteZero.into())
    }

    /// Fills `slices` with unwritten bytes, as much as fits. Returns the number of slices filled.
    fn unwritten<'a>(&'a self, slices: &mut [IoSlice<'a>; SLICES_MAX]) -> usize {
        let (mut skip, mut n) = (self.written, 0);
        let bulk = self.bulk.segments().iter().map(|s| &s[..]);
        for part in [&self.header[..], &self.tags, &self.body].into_iter().chain(bulk) {
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
