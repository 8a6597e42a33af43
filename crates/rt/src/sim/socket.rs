//! Listeners and streams of a simulated host.

use std::{
    future::poll_fn,
    io::{self, IoSlice, IoSliceMut},
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    task::Poll,
};

use super::{file::File, host::Host, state::State};

/// Maximum bytes of a file sent in one call. Small enough that other events occur during a
/// transfer.
const SEND_FILE_BYTES_MAX: usize = 64 << 10;
/// Placeholder for the addresses of a connection that no longer exists.
const UNKNOWN_ADDR: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

pub(crate) struct Listener {
    host: Host,
    addr: SocketAddr,
}

impl Listener {
    pub(crate) async fn accept(&self) -> io::Result<(Stream, SocketAddr)> {
        let port = self.addr.port();
        let conn = poll_fn(|cx| ready(self.host.with(|s| s.net_accept(self.host.id, port, cx)))).await?;
        let stream = Stream::new(self.host.clone(), conn, 1);
        let peer = stream.peer;
        Ok((stream, peer))
    }

    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.host.quietly(|s| s.net_unlisten(self.host.id, self.addr.port()));
    }
}

/// Converts a result to a poll: `None` is pending.
fn ready<T>(result: io::Result<Option<T>>) -> Poll<io::Result<T>> {
    match result {
        Ok(None) => Poll::Pending,
        Ok(Some(out)) => Poll::Ready(Ok(out)),
        Err(e) => Poll::Ready(Err(e)),
    }
}

impl Host {
    pub(crate) fn listen(&self, addr: SocketAddr) -> io::Result<Listener> {
        let addr = self.with(|s| s.net_listen(self.id, addr))?;
        Ok(Listener { host: self.clone(), addr })
    }

    pub(crate) async fn connect(&self, to: SocketAddr) -> io::Result<Stream> {
        let conn = self.with(|s| s.net_connect(self.id, to))?;
        // Created before the wait, so that dropping the future closes the connection.
        let stream = Stream::new(self.clone(), conn, 0);
        poll_fn(|cx| ready(self.with(|s| s.net_connected(conn, cx)))).await?;
        Ok(stream)
    }

    /// As [`Host::with`], for destructors: does nothing if this life of the host has ended.
    fn quietly(&self, f: impl FnOnce(&mut State)) {
        let _ = self.with(|s| {
            f(s);
            Ok(())
        });
    }
}

/// One end of a connection. Closed when dropped.
struct End {
    host: Host,
    conn: u64,
    end: usize,
}

impl Drop for End {
    fn drop(&mut self) {
        self.host.quietly(|s| s.net_close(self.conn, self.end));
    }
}

pub(crate) struct Stream {
    end: Arc<End>,
    local: SocketAddr,
    peer: SocketAddr,
}

impl Stream {
    fn new(host: Host, conn: u64, end: usize) -> Stream {
        let (local, peer) = host.core.with(|s| s.net_addrs(conn, end)).unwrap_or((UNKNOWN_ADDR, UNKNOWN_ADDR));
        Stream { end: Arc::new(End { host, conn, end }), local, peer }
    }

    pub(crate) fn split(self) -> (ReadHalf, WriteHalf) {
        (ReadHalf(self.end.clone()), WriteHalf(self.end))
    }

    pub(crate) fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.local
    }
}

pub(crate) struct ReadHalf(Arc<End>);

impl ReadHalf {
    pub(crate) async fn read_some(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let End { host, conn, end } = &*self.0;
        poll_fn(|cx| ready(host.with(|s| s.net_read(*conn, *end, buf, cx)))).await
    }
}

pub(crate) struct WriteHalf(Arc<End>);

impl WriteHalf {
    pub(crate) async fn write_some(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.writable().await?;
        self.try_write_vectored(bufs)
    }

    pub(crate) fn try_write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let End { host, conn, end } = &*self.0;
        host.with(|s| s.net_write(*conn, *end, bufs))
    }

    /// Sends part of a file, copied in pieces. The real one may also send less than requested.
    pub(crate) fn try_send_file(&self, file: &File, offset: u64, len: usize) -> io::Result<usize> {
        let mut piece = vec![0; len.min(SEND_FILE_BYTES_MAX)];
        let n = file.read_vectored_at(offset, &mut [IoSliceMut::new(&mut piece)])?;
        if n == 0 { Ok(0) } else { self.try_write_vectored(&[IoSlice::new(&piece[..n])]) }
    }

    pub(crate) async fn writable(&self) -> io::Result<()> {
        let End { host, conn, end } = &*self.0;
        poll_fn(|cx| ready(host.with(|s| s.net_writable(*conn, *end, cx)))).await
    }

    pub(crate) fn shutdown(&mut self) -> io::Result<()> {
        let End { host, conn, end } = &*self.0;
        host.with(|s| s.net_shutdown(*conn, *end))
    }
}

impl Drop for WriteHalf {
    fn drop(&mut self) {
        let End { host, conn, end } = &*self.0;
        host.quietly(|s| drop(s.net_shutdown(*conn, *end)));
    }
}
