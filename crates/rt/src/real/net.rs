//! TCP through tokio.

use std::{
    future::poll_fn,
    io::{self, IoSlice},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    pin::Pin,
    time::Duration,
};

use super::disk::File;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg, sockopt};
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::{
        TcpListener, TcpSocket, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    runtime::Handle,
};

/// Maximum number of connections waiting for `accept`: all clients of a large job may connect at
/// once after a restart.
const BACKLOG: u32 = 4096;
/// Time after which an idle connection is probed. With the interval and the number of probes below,
/// a dead host is detected within a minute even if nothing is sent.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
/// Interval between probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// Number of unanswered probes after which the connection breaks.
const KEEPALIVE_PROBES: u32 = 3;

/// Time after which a connection breaks if sent data is not acknowledged, or not taken by a peer
/// that is stopped. As long as an idle connection to a dead host lasts. The kernel's own limit is a
/// quarter of an hour.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(60);

/// Maximum low-water mark in bytes. While a reader expects many bytes, it sleeps until this many
/// have arrived (SO_RCVLOWAT; the kernel sizes its buffer for it). Otherwise the sender's kernel
/// wakes it for each packet of 64 KiB. The mark is not larger, so that sender and receiver copy at
/// the same time.
const LOW_WATER_BYTES_MAX: usize = 256 << 10;
/// Minimum low-water mark in bytes. For fewer bytes the system call costs more than it saves.
const LOW_WATER_BYTES_MIN: usize = 64 << 10;

fn new_socket(addr: SocketAddr) -> io::Result<TcpSocket> {
    if addr.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }
}

/// Congestion control between processes of one host, where congestion does not occur. The host's
/// default may be an algorithm that paces packets by timers (BBR), which takes a third of the
/// processor's time at this speed. Every process may choose Reno.
const LOOPBACK_CONGESTION: &str = "reno";

/// Sets the options of a connection: no Nagle, so that a request is sent at once, and limits
/// after which a dead peer is noticed.
///
/// The sizes of socket buffers are deliberately not set. A size set by hand is limited to
/// `net.core.wmem_max` (208 KiB by default) and disables the kernel's autotuning, which goes up to
/// 4-6 MiB.
fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVE_PROBES)?;
    sockopt::set_tcp_user_timeout(stream, UNACKNOWLEDGED_MAX.as_millis() as u32)?;
    if stream.peer_addr()?.ip() == stream.local_addr()?.ip() {
        // An optimisation only: ignore errors.
        let _ = sockopt::set_tcp_congestion(stream, LOOPBACK_CONGESTION);
    }
    Ok(())
}

pub(crate) fn listen(handle: &Handle, addr: SocketAddr) -> io::Result<Listener> {
    let _context = handle.enter();
    let socket = new_socket(addr)?;
    // A restarted server gets its port at once, even if old connections linger.
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    Ok(Listener(socket.listen(BACKLOG)?))
}

pub(crate) async fn connect(handle: &Handle, addr: SocketAddr) -> io::Result<Stream> {
    let mut connecting = Box::pin(async move {
        let stream = new_socket(addr)?.connect(addr).await?;
        tune(&stream)?;
        Ok(Stream(stream))
    });
    // tokio registers the socket with the runtime of the polling thread. The polling thread may not
    // belong to the runtime (a FUSE worker).
    poll_fn(|cx| {
        let _context = handle.enter();
        connecting.as_mut().poll(cx)
    })
    .await
}

/// Returns this host's source address for packets to `to`. connect(2) of a UDP socket looks up the
/// route and sends nothing.
pub(crate) fn source_address(to: SocketAddr) -> io::Result<IpAddr> {
    let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(to)?;
    Ok(socket.local_addr()?.ip())
}

pub(crate) struct Listener(TcpListener);

impl Listener {
    pub(crate) async fn accept(&self) -> io::Result<(Stream, SocketAddr)> {
        loop {
            let accepted = self.0.accept().await;
            match accepted.and_then(|(stream, addr)| tune(&stream).map(|()| (Stream(stream), addr))) {
                // The peer closed the connection before it was accepted: skip it.
                Err(e) if matches!(e.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) => {}
                Err(e) if matches!(e.kind(), io::ErrorKind::NotConnected | io::ErrorKind::InvalidInput) => {}
                other => return other,
            }
        }
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

pub(crate) struct Stream(TcpStream);

impl Stream {
    pub(crate) fn split(self) -> (ReadHalf, WriteHalf) {
        let (r, w) = self.0.into_split();
        (ReadHalf { half: r, low_water: 1 }, WriteHalf(w))
    }

    pub(crate) fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.peer_addr()
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

pub(crate) struct ReadHalf {
    half: OwnedReadHalf,
    /// The last value set for the socket's SO_RCVLOWAT.
    low_water: usize,
}

impl ReadHalf {
    /// Reads as [`ReadHalf::read_some`], if the peer will send all of `buf`. Wakes up only after
    /// a large part of it has arrived. (May return fewer bytes all the same.)
    pub(crate) async fn read_expected(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        // Never more than the bytes still expected, or the last of them would not wake the reader.
        let mark = buf.len().min(LOW_WATER_BYTES_MAX);
        self.set_low_water(if mark < LOW_WATER_BYTES_MIN { 1 } else { mark })?;
        self.poll(buf).await
    }

    pub(crate) async fn read_some(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.set_low_water(1)?;
        self.poll(buf).await
    }

    /// Sets the number of available bytes from which on the socket counts as readable. (The kernel
    /// checks the new condition at once.)
    fn set_low_water(&mut self, bytes: usize) -> io::Result<()> {
        if self.low_water != bytes {
            set_rcvlowat(self.half.as_ref().as_fd(), bytes)?;
            self.low_water = bytes;
        }
        Ok(())
    }

    // `poll_read` rather than `try_read` because it takes part in tokio's cooperative budget: a
    // peer that sends without a pause cannot monopolise the thread. It also saves the system call
    // that would only return EAGAIN.
    async fn poll(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let mut buf = ReadBuf::new(buf);
        poll_fn(|cx| Pin::new(&mut self.half).poll_read(cx, &mut buf)).await?;
        Ok(buf.filled().len())
    }
}

fn set_rcvlowat(socket: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    let value = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    // SAFETY: SO_RCVLOWAT reads an int through the pointer, and the length is the size of an int.
    let failed = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

pub(crate) struct WriteHalf(OwnedWriteHalf);

impl WriteHalf {
    pub(crate) async fn write_some(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        poll_fn(|cx| Pin::new(&mut self.0).poll_write_vectored(cx, bufs)).await
    }

    pub(crate) fn try_write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(bufs)
    }

    pub(crate) fn try_write_more(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let socket: &TcpStream = self.0.as_ref();
        let flags = SendFlags::MORE | SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        socket.try_io(Interest::WRITABLE, || Ok(sendmsg(socket, bufs, &mut SendAncillaryBuffer::default(), flags)?))
    }

    pub(crate) fn try_send_file(&self, file: &File, mut offset: u64, len: usize) -> io::Result<usize> {
        let socket: &TcpStream = self.0.as_ref();
        socket.try_io(Interest::WRITABLE, || Ok(rustix::fs::sendfile(socket, file.fd(), Some(&mut offset), len)?))
    }

    pub(crate) async fn writable(&self) -> io::Result<()> {
        self.0.writable().await
    }

    pub(crate) async fn shutdown(&mut self) -> io::Result<()> {
        poll_fn(|cx| Pin::new(&mut self.0).poll_shutdown(cx)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_breaks_when_its_data_stays_unacknowledged() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async {
            let socket = new_socket("127.0.0.1:0".parse().unwrap()).unwrap();
            socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let listener = socket.listen(BACKLOG).unwrap();
            let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            tune(&stream).unwrap();
            assert_eq!(sockopt::tcp_user_timeout(&stream).unwrap(), 60_000);
        });
    }
}
