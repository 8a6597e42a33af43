//! Byte streams between addresses.
//!
//! A stream is reliable and ordered until it breaks; then both directions fail. Writes may come
//! from any thread: a [`WriteHalf::try_write_vectored`] that accepts bytes costs no task switch.

use std::{
    io::{self, IoSlice},
    net::SocketAddr,
};

use crate::{
    disk::{File, FileInner},
    real, sim,
};

/// Accepts streams at an address. Dropping it stops listening.
pub struct Listener(pub(crate) ListenerInner);

pub(crate) enum ListenerInner {
    Real(real::net::Listener),
    Sim(sim::Listener),
}

impl Listener {
    /// Returns the next stream and its peer's address. No stream is lost if the future is dropped.
    ///
    /// # Errors
    /// The errors of accept(2), except those of single connections, which are skipped. After EMFILE
    /// and similar errors, wait a moment and try again.
    pub async fn accept(&self) -> io::Result<(Stream, SocketAddr)> {
        match &self.0 {
            ListenerInner::Real(l) => l.accept().await.map(|(s, a)| (Stream(StreamInner::Real(s)), a)),
            ListenerInner::Sim(l) => l.accept().await.map(|(s, a)| (Stream(StreamInner::Sim(s)), a)),
        }
    }

    /// Returns the listener's address, with the actual port if port 0 was requested.
    ///
    /// # Errors
    /// The errors of getsockname(2).
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match &self.0 {
            ListenerInner::Real(l) => l.local_addr(),
            ListenerInner::Sim(l) => Ok(l.local_addr()),
        }
    }
}

/// A connection. Use its halves: see [`Stream::split`].
pub struct Stream(pub(crate) StreamInner);

pub(crate) enum StreamInner {
    Real(real::net::Stream),
    Sim(sim::Stream),
}

impl Stream {
    /// Splits the stream into its two directions. The connection is closed when both are dropped.
    /// Dropping the write half ends the stream that the peer reads.
    pub fn split(self) -> (ReadHalf, WriteHalf) {
        match self.0 {
            StreamInner::Real(s) => {
                let (r, w) = s.split();
                (ReadHalf(ReadInner::Real(r)), WriteHalf(WriteInner::Real(w)))
            }
            StreamInner::Sim(s) => {
                let (r, w) = s.split();
                (ReadHalf(ReadInner::Sim(r)), WriteHalf(WriteInner::Sim(w)))
            }
        }
    }

    /// Returns the peer's address.
    ///
    /// # Errors
    /// ENOTCONN if the connection is already closed.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        match &self.0 {
            StreamInner::Real(s) => s.peer_addr(),
            StreamInner::Sim(s) => Ok(s.peer_addr()),
        }
    }

    /// Returns the local address.
    ///
    /// # Errors
    /// The errors of getsockname(2).
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match &self.0 {
            StreamInner::Real(s) => s.local_addr(),
            StreamInner::Sim(s) => Ok(s.local_addr()),
        }
    }
}

/// The receiving direction of a stream.
pub struct ReadHalf(ReadInner);

enum ReadInner {
    Real(real::net::ReadHalf),
    Sim(sim::ReadHalf),
}

impl ReadHalf {
    /// Reads the available bytes, waiting for at least one. Returns 0 at the end of the stream or
    /// for an empty `buf`. No byte is lost if the future is dropped.
    ///
    /// # Errors
    /// ECONNRESET, ETIMEDOUT and similar errors if the connection broke.
    pub async fn read_some(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match &mut self.0 {
            ReadInner::Real(r) => r.read_some(buf).await,
            ReadInner::Sim(r) => r.read_some(buf).await,
        }
    }

    /// Fills `buf`. For a large `buf` it wakes up only when large parts have arrived. Must not be
    /// dropped before it completes: the bytes read so far would be lost.
    ///
    /// # Errors
    /// As [`ReadHalf::read_some`]; [`io::ErrorKind::UnexpectedEof`] if the stream ended before
    /// `buf` was full.
    pub async fn read_exact(&mut self, mut buf: &mut [u8]) -> io::Result<()> {
        while !buf.is_empty() {
            let read = match &mut self.0 {
                ReadInner::Real(r) => r.read_expected(buf).await?,
                ReadInner::Sim(r) => r.read_some(buf).await?,
            };
            match read {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                n => buf = &mut buf[n..],
            }
        }
        Ok(())
    }
}

/// The sending direction of a stream. Dropping it ends the stream for the peer.
pub struct WriteHalf(WriteInner);

enum WriteInner {
    Real(real::net::WriteHalf),
    Sim(sim::WriteHalf),
}

impl WriteHalf {
    /// Sends the buffers in their order. Must not be dropped before it completes: the peer would
    /// receive a part.
    ///
    /// # Errors
    /// EPIPE, ECONNRESET, ETIMEDOUT and similar errors if the connection broke. The number of bytes
    /// sent is then unknown.
    pub async fn write_all_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let mut left: usize = bufs.iter().map(|b| b.len()).sum();
        if left == 0 {
            return Ok(());
        }
        // The usual case: all bytes are accepted at once, and the list is not copied.
        let sent = self.write_some(bufs).await?;
        left -= sent;
        if left == 0 {
            return Ok(());
        }
        let mut rest = bufs.to_vec();
        let mut rest = rest.as_mut_slice();
        IoSlice::advance_slices(&mut rest, sent);
        while left > 0 {
            let sent = self.write_some(rest).await?;
            left -= sent;
            IoSlice::advance_slices(&mut rest, sent);
        }
        Ok(())
    }

    /// Sends at least one byte of non-empty `bufs`. Waits for space in the send buffer.
    async fn write_some(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let sent = match &mut self.0 {
            WriteInner::Real(w) => w.write_some(bufs).await?,
            WriteInner::Sim(w) => w.write_some(bufs).await?,
        };
        if sent == 0 { Err(io::ErrorKind::WriteZero.into()) } else { Ok(sent) }
    }

    /// Sends as many bytes as fit into the send buffer now, without waiting. May be called from any
    /// thread. The caller must ensure that writers do not interleave.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if there is no space, or if the readiness is not known yet,
    /// just after `accept`. Otherwise as [`WriteHalf::write_all_vectored`].
    pub fn try_write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        match &self.0 {
            WriteInner::Real(w) => w.try_write_vectored(bufs),
            WriteInner::Sim(w) => w.try_write_vectored(bufs),
        }
    }

    /// As [`WriteHalf::try_write_vectored`], for bytes that are followed by more at once: the last
    /// packet may wait for them.
    ///
    /// # Errors
    /// As [`WriteHalf::try_write_vectored`].
    pub fn try_write_more(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        match &self.0 {
            WriteInner::Real(w) => w.try_write_more(bufs),
            WriteInner::Sim(w) => w.try_write_vectored(bufs),
        }
    }

    /// Sends up to `len` bytes of a file from `offset` on, as many as fit into the send buffer now.
    /// Does not wait for the peer. Returns 0 if the file ends at `offset`.
    ///
    /// The file's pages are sent without a copy (sendfile). If they are overwritten before the peer
    /// has received them, the peer may receive the new bytes.
    ///
    /// # Errors
    /// As [`WriteHalf::try_write_vectored`], and EIO and similar errors if the file cannot be read.
    pub fn try_send_file(&self, file: &File, offset: u64, len: usize) -> io::Result<usize> {
        match (&self.0, &file.0) {
            (WriteInner::Real(w), FileInner::Real(f)) => w.try_send_file(f, offset, len),
            (WriteInner::Sim(w), FileInner::Sim(f)) => w.try_send_file(f, offset, len),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Waits until [`WriteHalf::try_write_vectored`] is likely to succeed.
    ///
    /// # Errors
    /// The runtime is shutting down.
    pub async fn writable(&self) -> io::Result<()> {
        match &self.0 {
            WriteInner::Real(w) => w.writable().await,
            WriteInner::Sim(w) => w.writable().await,
        }
    }

    /// Ends the stream for the peer, after all bytes written before.
    ///
    /// # Errors
    /// ENOTCONN if the connection is already closed.
    pub async fn shutdown(&mut self) -> io::Result<()> {
        match &mut self.0 {
            WriteInner::Real(w) => w.shutdown().await,
            WriteInner::Sim(w) => w.shutdown(),
        }
    }
}
