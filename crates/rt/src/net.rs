//! Byte streams between addresses.
//!
//! A stream is reliable and ordered until it breaks; then both directions fail. Writers may be on
//! any thread: a [`WriteHalf::try_write_vectored`] that accepts bytes costs no task switch.

use std::{
    io::{self, IoSlice},
    net::SocketAddr,
};

use crate::{
    disk::{File, FileInner},
    real, sim,
};

/// Accepts streams at an address. Dropping it stops that.
pub struct Listener(pub(crate) ListenerInner);

pub(crate) enum ListenerInner {
    Real(real::net::Listener),
    Sim(sim::Listener),
}

impl Listener {
    /// The next stream and who opened it. May be dropped while waiting without losing a stream.
    ///
    /// # Errors
    /// What accept(2) says; errors of a single connection are passed over. After EMFILE and the
    /// like, wait a moment and try again.
    pub async fn accept(&self) -> io::Result<(Stream, SocketAddr)> {
        match &self.0 {
            ListenerInner::Real(l) => l.accept().await.map(|(s, a)| (Stream(StreamInner::Real(s)), a)),
            ListenerInner::Sim(l) => l.accept().await.map(|(s, a)| (Stream(StreamInner::Sim(s)), a)),
        }
    }

    /// Where it listens; the port is the true one even if 0 was asked for.
    ///
    /// # Errors
    /// What getsockname(2) says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match &self.0 {
            ListenerInner::Real(l) => l.local_addr(),
            ListenerInner::Sim(l) => Ok(l.local_addr()),
        }
    }
}

/// A connection. [`Stream::split`] it to use it.
pub struct Stream(pub(crate) StreamInner);

pub(crate) enum StreamInner {
    Real(real::net::Stream),
    Sim(sim::Stream),
}

impl Stream {
    /// The two directions. The connection is closed when both are dropped; dropping the write half
    /// ends what the peer reads.
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

    /// The other end.
    ///
    /// # Errors
    /// ENOTCONN if the connection is gone already.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        match &self.0 {
            StreamInner::Real(s) => s.peer_addr(),
            StreamInner::Sim(s) => Ok(s.peer_addr()),
        }
    }

    /// This end.
    ///
    /// # Errors
    /// What getsockname(2) says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match &self.0 {
            StreamInner::Real(s) => s.local_addr(),
            StreamInner::Sim(s) => Ok(s.local_addr()),
        }
    }
}

/// What the peer sends.
pub struct ReadHalf(ReadInner);

enum ReadInner {
    Real(real::net::ReadHalf),
    Sim(sim::ReadHalf),
}

impl ReadHalf {
    /// Reads what is there, waiting for at least one byte; 0 at the end of the stream (or for an
    /// empty `buf`). Safe to drop while waiting: no byte is lost.
    ///
    /// # Errors
    /// ECONNRESET, ETIMEDOUT and the like when the connection broke.
    pub async fn read_some(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match &mut self.0 {
            ReadInner::Real(r) => r.read_some(buf).await,
            ReadInner::Sim(r) => r.read_some(buf).await,
        }
    }

    /// Fills `buf`; wakes up for large parts of a large one only. Not to be dropped half way: the
    /// bytes read so far would be lost.
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

/// What is sent to the peer. Dropping it ends the stream for the peer.
pub struct WriteHalf(WriteInner);

enum WriteInner {
    Real(real::net::WriteHalf),
    Sim(sim::WriteHalf),
}

impl WriteHalf {
    /// Sends the buffers one after another. Not to be dropped half way: the peer would see a part.
    ///
    /// # Errors
    /// EPIPE, ECONNRESET, ETIMEDOUT and the like when the connection broke; how much was sent is
    /// then unknown.
    pub async fn write_all_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let mut left: usize = bufs.iter().map(|b| b.len()).sum();
        if left == 0 {
            return Ok(());
        }
        // The usual case: all of it goes at once and no copy of the list is made.
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

    /// Sends at least one byte of non-empty `bufs`, waiting for room.
    async fn write_some(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let sent = match &mut self.0 {
            WriteInner::Real(w) => w.write_some(bufs).await?,
            WriteInner::Sim(w) => w.write_some(bufs).await?,
        };
        if sent == 0 { Err(io::ErrorKind::WriteZero.into()) } else { Ok(sent) }
    }

    /// Sends as much as there is room for now, without waiting; from any thread. The caller sees to
    /// it that writers do not interleave.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] where there is no room (or where that is not known yet, just
    /// after `accept`); else as [`WriteHalf::write_all_vectored`].
    pub fn try_write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        match &self.0 {
            WriteInner::Real(w) => w.try_write_vectored(bufs),
            WriteInner::Sim(w) => w.try_write_vectored(bufs),
        }
    }

    /// As [`WriteHalf::try_write_vectored`], for what more follows right after: the last packet may
    /// wait for it.
    ///
    /// # Errors
    /// As there.
    pub fn try_write_more(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        match &self.0 {
            WriteInner::Real(w) => w.try_write_more(bufs),
            WriteInner::Sim(w) => w.try_write_vectored(bufs),
        }
    }

    /// Sends up to `len` bytes of a file from `offset` on, as much as there is room for now,
    /// without waiting for the peer. The pages of the file are sent as they are, without a copy
    /// (sendfile): what is written to them before the peer has received them may be what it gets.
    /// 0: the file ends at `offset`.
    ///
    /// # Errors
    /// As [`WriteHalf::try_write_vectored`]; and EIO and the like where the file cannot be read.
    pub fn try_send_file(&self, file: &File, offset: u64, len: usize) -> io::Result<usize> {
        match (&self.0, &file.0) {
            (WriteInner::Real(w), FileInner::Real(f)) => w.try_send_file(f, offset, len),
            (WriteInner::Sim(w), FileInner::Sim(f)) => w.try_send_file(f, offset, len),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Waits until [`WriteHalf::try_write_vectored`] is worth a try.
    ///
    /// # Errors
    /// The runtime is shutting down.
    pub async fn writable(&self) -> io::Result<()> {
        match &self.0 {
            WriteInner::Real(w) => w.writable().await,
            WriteInner::Sim(w) => w.writable().await,
        }
    }

    /// Tells the peer that nothing more comes, after what was written.
    ///
    /// # Errors
    /// ENOTCONN if the connection is gone already.
    pub async fn shutdown(&mut self) -> io::Result<()> {
        match &mut self.0 {
            WriteInner::Real(w) => w.shutdown().await,
            WriteInner::Sim(w) => w.shutdown(),
        }
    }
}
