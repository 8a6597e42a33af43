//! The receiving direction of a connection.
//!
//! A small buffer takes what the socket has: usually a header and its body with one system call.
//! Bulk is received directly into pooled, page-aligned buffers, which the caller gets. Only its
//! first bytes are copied, if the small buffer has them already.
//!
//! A frame is checked as early as possible: the header before memory is allocated for the frame,
//! the rest before the frame is returned. Until the handshake is over ([`Receiver::handshaken`])
//! only short frames without bulk are accepted. So an unknown peer cannot make this process hold
//! much memory.

use std::{
    io,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use bytes::Bytes;
use sheen_rt::{ReadHalf, Rt, buf::BufferPool};
use sheen_wire::{
    Bulk,
    auth::PIECE_BYTES_MAX,
    frame::{FLAG_BULK_CRC, FLAG_BULK_LIVE, FrameError, HEADER_LEN, Header},
};

use crate::{
    auth_error::Stranger,
    frame::Frame,
    seal::{Forged, Seal, Tag},
    sender::Shared,
};

/// Size of the small buffer in bytes: a header, the body of nearly all requests and replies, and a
/// page of bulk. So one system call receives a page. With a larger buffer, more of each bulk would
/// be copied.
const AHEAD_BYTES: usize = 5120;
/// Largest body before the handshake is over, in bytes. Such a body has only names and numbers.
const HANDSHAKE_BODY_MAX: u32 = 4096;
/// Size of the buffers for large bulk, in bytes: the usual size of one request of a program. Each
/// takes whole pieces of protected bulk.
const LARGE_BYTES: usize = 1 << 20;
const _: () = assert!(LARGE_BYTES.is_multiple_of(PIECE_BYTES_MAX));
/// Size of the buffers for small bulk, in bytes.
const SMALL_BYTES: usize = 64 << 10;
/// Unused buffers of each size that a process retains: at most 64 MiB of the large ones and 4 MiB
/// of the small ones.
const BUFFERS_IDLE_MAX: usize = 64;

/// Buffers for received bulk. All connections of a process share them.
#[derive(Clone)]
pub(crate) struct Pools {
    large: BufferPool,
    small: BufferPool,
}

impl Pools {
    pub(crate) fn new() -> Pools {
        Pools {
            large: BufferPool::new(LARGE_BYTES, BUFFERS_IDLE_MAX),
            small: BufferPool::new(SMALL_BYTES, BUFFERS_IDLE_MAX),
        }
    }
}

/// Why no frame was received. The connection cannot be used any more.
#[derive(Debug, thiserror::Error)]
pub enum RecvError {
    /// The peer closed it, between two frames.
    #[error("the peer closed the connection")]
    Eof,
    /// This side closed it.
    #[error("the connection was closed")]
    Closed,
    /// The received bytes are not a frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The received bytes are not those that the authenticated peer sent.
    #[error("a frame was changed, repeated or left out on the way from the peer")]
    Forged,
    /// The peer was not authenticated.
    #[error("refusing the connection: {0}")]
    Stranger(Stranger),
    /// The rest of a frame did not arrive in time.
    #[error("the peer stopped in the middle of a frame")]
    Stalled,
    /// The connection broke.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Receives frames from a connection. Dropping it closes the connection.
pub struct Receiver {
    rt: Rt,
    shared: Arc<Shared>,
    half: ReadHalf,
    pools: Pools,
    stall_timeout: Duration,
    handshaken: bool,
    /// Opens the frames of a protected connection.
    seal: Option<Seal>,
    ahead: Box<[u8; AHEAD_BYTES]>,
    /// The bytes of `ahead` that are filled and not used yet.
    start: usize,
    end: usize,
}

impl Receiver {
    pub(crate) fn new(rt: Rt, shared: Arc<Shared>, half: ReadHalf, pools: Pools, stall_timeout: Duration) -> Receiver {
        Receiver {
            rt,
            shared,
            half,
            pools,
            stall_timeout,
            handshaken: false,
            seal: None,
            ahead: Box::new([0; AHEAD_BYTES]),
            start: 0,
            end: 0,
        }
    }

    /// Accepts frames as large as the protocol allows from now on.
    pub fn handshaken(&mut self) {
        self.handshaken = true;
    }

    /// Accepts only frames that the peer sealed from now on.
    pub(crate) fn protect(&mut self, seal: Seal) {
        self.seal = Some(seal);
    }

    /// Returns the next frame, whole and checked. Waits for its first byte without limit, and for
    /// its rest for a limited time.
    ///
    /// The call must not be dropped half way: the connection is then out of step and must be
    /// closed.
    pub async fn recv(&mut self) -> Result<Frame, RecvError> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            let shared = self.shared.clone();
            let n = tokio::select! {
                biased;
                n = self.half.read_some(&mut self.ahead[..]) => n?,
                () = shared.closed() => return Err(RecvError::Closed),
            };
            if n == 0 {
                return Err(RecvError::Eof);
            }
            self.end = n;
        }
        let (rt, shared, limit) = (self.rt.clone(), self.shared.clone(), self.stall_timeout);
        let frame = tokio::select! {
            biased;
            f = rt.timeout(limit, self.frame()) => f.map_err(|_| RecvError::Stalled)??,
            () = shared.closed() => return Err(RecvError::Closed),
        };
        if self.shared.closed.load(Ordering::Acquire) {
            return Err(RecvError::Closed);
        }
        Ok(frame)
    }

    async fn frame(&mut self) -> Result<Frame, RecvError> {
        let (header, crc) = self.header().await?;
        if !self.handshaken && (header.body_len > HANDSHAKE_BODY_MAX || header.bulk_len > 0) {
            return Err(FrameError::TooLarge { body: header.body_len, bulk: header.bulk_len }.into());
        }
        let mut tags = self.tags(&header).await?.into_iter();
        let body = self.body(header.body_len as usize, &mut tags).await?;
        header.verify(crc, &body)?;
        let bulk = self.bulk(header.bulk_len as usize, &mut tags).await?;
        let damaged = header.flags & FLAG_BULK_CRC != 0 && bulk.crc() != header.bulk_crc;
        if damaged && header.flags & FLAG_BULK_LIVE == 0 {
            return Err(FrameError::Checksum("bulk").into());
        }
        Ok(Frame { header, body, bulk, live: None, damaged })
    }

    async fn header(&mut self) -> Result<(Header, u32), RecvError> {
        let mut bytes = [0; HEADER_LEN];
        self.read_small(&mut bytes).await?;
        if self.seal.is_some() {
            let mut tag = Tag::default();
            self.read_small(&mut tag).await?;
            self.open(&mut bytes, Some(tag))?;
        }
        Ok(Header::decode(&bytes)?)
    }

    /// Reads the tags of the body and the bulk, if the connection has them.
    async fn tags(&mut self, header: &Header) -> Result<Vec<Tag>, RecvError> {
        if self.seal.is_none() {
            return Ok(Vec::new());
        }
        let pieces = (header.bulk_len as usize).div_ceil(PIECE_BYTES_MAX);
        let mut tags = vec![Tag::default(); usize::from(header.body_len > 0) + pieces];
        for tag in &mut tags {
            self.read_small(tag).await?;
        }
        Ok(tags)
    }

    /// Checks a piece of a frame, and decrypts it. Does nothing if the connection is not protected.
    fn open(&mut self, piece: &mut [u8], tag: Option<Tag>) -> Result<(), RecvError> {
        match (&mut self.seal, tag) {
            (None, _) => Ok(()),
            (Some(seal), Some(tag)) => seal.open(piece, &tag).map_err(|Forged| RecvError::Forged),
            (Some(_), None) => Err(RecvError::Forged),
        }
    }

    /// Fills `to`, at most the size of the small buffer. Reads as much as that has room for.
    async fn read_small(&mut self, to: &mut [u8]) -> Result<(), RecvError> {
        while self.end - self.start < to.len() {
            if self.end == AHEAD_BYTES {
                self.ahead.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
            }
            match self.half.read_some(&mut self.ahead[self.end..]).await? {
                0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                n => self.end += n,
            }
        }
        self.take_ahead(to);
        Ok(())
    }

    async fn body(&mut self, len: usize, tags: &mut impl Iterator<Item = Tag>) -> Result<Bytes, RecvError> {
        if len == 0 {
            return Ok(Bytes::new());
        }
        let mut body = vec![0; len];
        let n = self.take_ahead(&mut body);
        self.half.read_exact(&mut body[n..]).await?;
        self.open(&mut body, tags.next())?;
        Ok(body.into())
    }

    async fn bulk(&mut self, len: usize, tags: &mut impl Iterator<Item = Tag>) -> Result<Bulk, RecvError> {
        let mut bulk = Bulk::new();
        while bulk.len() < len {
            let left = len - bulk.len();
            let pool = if left > SMALL_BYTES { &self.pools.large } else { &self.pools.small };
            let mut buffer = pool.take(left.min(LARGE_BYTES));
            let step = if self.seal.is_some() { PIECE_BYTES_MAX } else { LARGE_BYTES };
            for piece in buffer.chunks_mut(step) {
                let n = self.take_ahead(piece);
                self.half.read_exact(&mut piece[n..]).await?;
                self.open(piece, tags.next())?;
            }
            let filled = buffer.len();
            bulk.push(buffer.freeze(0..filled));
        }
        Ok(bulk)
    }

    /// Copies to `to` what the small buffer has. Returns the number of bytes.
    fn take_ahead(&mut self, to: &mut [u8]) -> usize {
        let n = to.len().min(self.end - self.start);
        to[..n].copy_from_slice(&self.ahead[self.start..self.start + n]);
        self.start += n;
        n
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.shared.close();
    }
}
