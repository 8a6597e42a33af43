//! The transport of packets over the connections between hosts.
//!
//! A pipe preserves order: the packet at its head waits for its delay, its retransmissions or the
//! end of a partition, and the other packets wait behind it. So bytes never arrive out of order
//! within a connection, but packets of different connections overtake each other.
//!
//! Invariant: a pipe with packets in flight has exactly one planned `Deliver`, or it crosses a
//! partition. The end of the partition plans a `Deliver`.

use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    net::{IpAddr, SocketAddr},
    task::{Context, Waker},
    time::Duration,
};

use bytes::{Buf, Bytes};
use sheen_wire::Errno;

use super::{
    conn::{Conn, End, Event, Listening, Packet, host_ip, pair},
    state::{self, State},
    trace::{Note, digest},
};
use crate::time::Instant;

/// Maximum number of connections waiting for `accept`. One more is refused.
const BACKLOG: usize = 4096;
/// Time after which a SYN, SYN-ACK, reset or window update that could not pass a partition or was
/// lost is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// First port for callers that request port 0.
const PORTS_FIRST: u16 = 49_152;
/// ECONNRESET and other Linux errnos that Sheen itself never returns.
const ECONNRESET: i32 = 104;
const ECONNREFUSED: i32 = 111;
const EPIPE: i32 = 32;
const EADDRINUSE: i32 = 98;
const EADDRNOTAVAIL: i32 = 99;

fn errno(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

fn remember(wakers: &mut Vec<Waker>, cx: &Context<'_>) {
    if !wakers.iter().any(|w| w.will_wake(cx.waker())) {
        wakers.push(cx.waker().clone());
    }
}

/// Opening and accepting connections.
impl State {
    pub(crate) fn net_listen(&mut self, host: u32, addr: SocketAddr) -> io::Result<SocketAddr> {
        let mine = addr.ip().is_unspecified() || addr.ip().is_loopback() || addr.ip() == host_ip(host);
        if !mine {
            return Err(errno(EADDRNOTAVAIL));
        }
        let port = if addr.port() == 0 { self.free_port(host) } else { addr.port() };
        if self.net.listeners.contains_key(&(host, port)) {
            return Err(errno(EADDRINUSE));
        }
        self.net.listeners.insert((host, port), Listening { backlog: VecDeque::new(), wakers: Vec::new() });
        Ok(SocketAddr::new(addr.ip(), port))
    }

    fn free_port(&mut self, host: u32) -> u16 {
        loop {
            let given = &mut self.host(host).ports_given;
            let port = PORTS_FIRST + *given % (u16::MAX - PORTS_FIRST);
            *given = given.wrapping_add(1);
            if !self.net.listeners.contains_key(&(host, port)) {
                return port;
            }
        }
    }

    /// Returns the number of the next connection at a listener.
    pub(crate) fn net_accept(&mut self, host: u32, port: u16, cx: &Context<'_>) -> io::Result<Option<u64>> {
        let listening = self.net.listeners.get_mut(&(host, port)).ok_or_else(|| errno(EADDRNOTAVAIL))?;
        let conn = listening.backlog.pop_front();
        if conn.is_none() {
            remember(&mut listening.wakers, cx);
        }
        Ok(conn)
    }

    pub(crate) fn net_unlisten(&mut self, host: u32, port: u16) {
        let Some(listening) = self.net.listeners.remove(&(host, port)) else { return };
        for conn in listening.backlog {
            self.abandon(conn, 1);
        }
    }

    pub(crate) fn net_connect(&mut self, host: u32, to: SocketAddr) -> io::Result<u64> {
        let (peer, from_ip) = match to.ip() {
            ip if ip.is_loopback() => (host, ip),
            IpAddr::V4(ip) if ip.octets()[0] == 10 => (ip.to_bits() & 0x00FF_FFFF, host_ip(host)),
            _ => return Err(Errno::EHOSTUNREACH.into()),
        };
        let from = SocketAddr::new(from_ip, self.free_port(host));
        self.net.conns_made += 1;
        let conn = self.net.conns_made;
        let end =
            |host, addr, closed| End { host, addr, error: None, closed, readers: Vec::new(), writers: Vec::new() };
        let ends = [end(host, from, false), end(peer, to, true)];
        self.net.conns.insert(conn, Conn { ends, pipes: Default::default(), established: false });
        self.note(Note::Connect { conn, from: host, to: peer });
        self.plan_net(self.config.connect_timeout, Event::ConnectTimeout { conn });
        self.travel(host, peer, Event::Syn { conn });
        Ok(conn)
    }

    /// Whether the connection is open: `None` while this is not known.
    pub(crate) fn net_connected(&mut self, conn: u64, cx: &Context<'_>) -> io::Result<Option<()>> {
        let c = self.net.conns.get_mut(&conn).ok_or_else(|| errno(ECONNRESET))?;
        if let Some(error) = c.ends[0].error {
            return Err(errno(error));
        }
        if c.established {
            return Ok(Some(()));
        }
        remember(&mut c.ends[0].writers, cx);
        Ok(None)
    }

    /// Returns the addresses of an end: the local one and the peer's.
    pub(crate) fn net_addrs(&self, conn: u64, end: usize) -> Option<(SocketAddr, SocketAddr)> {
        let c = self.net.conns.get(&conn)?;
        Some((c.ends[end].addr, c.ends[1 - end].addr))
    }
}

/// Reading and writing.
impl State {
    /// Reads arrived bytes. Returns `None` if there are none yet, and 0 at the end of the stream.
    pub(crate) fn net_read(
        &mut self,
        conn: u64,
        end: usize,
        buf: &mut [u8],
        cx: &Context<'_>,
    ) -> io::Result<Option<usize>> {
        let short = self.chance(self.config.short_io);
        let take_max = if short && buf.len() > 1 { self.rng.usize(1..buf.len()) } else { buf.len() };
        let c = self.net.conns.get_mut(&conn).ok_or_else(|| errno(ECONNRESET))?;
        if let Some(error) = c.ends[end].error {
            return Err(errno(error));
        }
        let pipe = &mut c.pipes[1 - end];
        let mut n = 0;
        while n < take_max
            && let Some(head) = pipe.inbox.front_mut()
        {
            let take = head.len().min(take_max - n);
            buf[n..n + take].copy_from_slice(&head[..take]);
            head.advance(take);
            if head.is_empty() {
                pipe.inbox.pop_front();
            }
            n += take;
        }
        if n == 0 && !pipe.fin_arrived && !buf.is_empty() {
            remember(&mut c.ends[end].readers, cx);
            return Ok(None);
        }
        pipe.unreported += n;
        // The sender is notified only now and then, as with real windows.
        if n > 0 && pipe.unreported >= self.config.window_bytes / 4 {
            let bytes = std::mem::take(&mut pipe.unreported);
            let (a, b) = c.hosts();
            self.travel(a, b, Event::Window { conn, pipe: 1 - end, bytes });
        }
        Ok(Some(n))
    }

    /// Returns the number of bytes that an end may send now.
    fn room(&self, conn: u64, end: usize) -> io::Result<usize> {
        let c = self.net.conns.get(&conn).ok_or_else(|| errno(ECONNRESET))?;
        if let Some(error) = c.ends[end].error {
            return Err(errno(error));
        }
        if c.pipes[end].fin_sent {
            return Err(errno(EPIPE));
        }
        Ok(self.config.window_bytes.max(1).saturating_sub(c.pipes[end].unread))
    }

    /// Waits for space in the window. Returns `None` while there is none.
    pub(crate) fn net_writable(&mut self, conn: u64, end: usize, cx: &Context<'_>) -> io::Result<Option<()>> {
        if self.room(conn, end)? > 0 {
            return Ok(Some(()));
        }
        if let Some(c) = self.net.conns.get_mut(&conn) {
            remember(&mut c.ends[end].writers, cx);
        }
        Ok(None)
    }

    /// Sends as many bytes as the window allows. WouldBlock if it is full.
    pub(crate) fn net_write(&mut self, conn: u64, end: usize, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut room = self.room(conn, end)?;
        let want: usize = bufs.iter().map(|b| b.len()).sum();
        if want == 0 {
            return Ok(0);
        }
        if room == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        room = room.min(want);
        if room > 1 && self.chance(self.config.short_io) {
            room = self.rng.usize(1..room);
        }
        let mut data = Vec::with_capacity(room);
        for buf in bufs {
            data.extend_from_slice(&buf[..buf.len().min(room - data.len())]);
        }
        let mut data = Bytes::from(data);
        while !data.is_empty() {
            let packet = data.split_to(data.len().min(self.config.packet_bytes.max(1)));
            self.send(conn, end, Some(packet));
        }
        Ok(room)
    }

    pub(crate) fn net_shutdown(&mut self, conn: u64, end: usize) -> io::Result<()> {
        let c = self.net.conns.get_mut(&conn).ok_or_else(|| errno(ECONNRESET))?;
        if let Some(error) = c.ends[end].error {
            return Err(errno(error));
        }
        if !std::mem::replace(&mut c.pipes[end].fin_sent, true) {
            self.send(conn, end, None);
        }
        Ok(())
    }

    /// Closes an end that no stream refers to any more.
    pub(crate) fn net_close(&mut self, conn: u64, end: usize) {
        let Some(c) = self.net.conns.get_mut(&conn) else { return };
        if c.pipes[1 - end].inbox.is_empty() {
            let _ = self.net_shutdown(conn, end);
            self.close(conn, end);
        } else {
            // As in TCP: an end that leaves bytes unread sends a reset instead of the end of the
            // stream.
            self.abandon(conn, end);
        }
    }

    fn send(&mut self, conn: u64, end: usize, data: Option<Bytes>) {
        let Some(c) = self.net.conns.get(&conn) else { return };
        let (a, b) = c.hosts();
        let (from, to) = if end == 0 { (a, b) } else { (b, a) };
        let bytes = data.as_ref().map_or(0, Bytes::len);
        let due = self.due(from, to, bytes);
        let Some(c) = self.net.conns.get_mut(&conn) else { return };
        c.pipes[end].unread += bytes;
        c.pipes[end].flight.push_back(Packet { due, data });
        self.plan_delivery(conn, end);
    }
}

/// Transport of packets.
impl State {
    fn plan_net(&mut self, after: Duration, event: Event) {
        self.plan(after, state::Event::Net(event));
    }

    /// Returns when a packet arrives: after the links of both hosts, and the delay.
    fn due(&mut self, from: u32, to: u32, bytes: usize) -> Instant {
        let delay = self.packet_delay(from, to);
        if from == to {
            return self.now + delay;
        }
        let now = self.now;
        let sent = self.host(from).links[0].carry(now, bytes);
        self.host(to).links[1].carry(sent + delay, bytes)
    }

    fn packet_delay(&mut self, a: u32, b: u32) -> Duration {
        let range = if a == b { &self.config.loopback_delay } else { &self.config.delay };
        let range = range.clone();
        self.sample(&range)
    }

    /// Sends a protocol message.
    fn travel(&mut self, a: u32, b: u32, event: Event) {
        let delay = self.packet_delay(a, b);
        self.plan_net(delay, event);
    }

    fn partitioned(&self, (a, b): (u32, u32)) -> bool {
        self.net.partitions.contains_key(&pair(a, b))
    }

    /// Returns the hosts of a connection, if this end is open and not broken. For other connections
    /// the event is dropped, because it would be retried for ever across a partition.
    fn whole(&self, conn: u64, end: usize) -> Option<(u32, u32)> {
        let c = self.net.conns.get(&conn)?;
        (!c.ends[end].closed && c.ends[end].error.is_none()).then(|| c.hosts())
    }

    /// Whether a message between these hosts does not arrive this time.
    fn blocked(&mut self, hosts: (u32, u32)) -> bool {
        self.partitioned(hosts) || (hosts.0 != hosts.1 && self.chance(self.config.loss))
    }

    fn plan_delivery(&mut self, conn: u64, pipe: usize) {
        let Some(c) = self.net.conns.get_mut(&conn) else { return };
        let p = &mut c.pipes[pipe];
        let Some(head) = p.flight.front() else { return };
        if !std::mem::replace(&mut p.planned, true) {
            let after = head.due.since(self.now);
            self.plan_net(after, Event::Deliver { conn, pipe });
        }
    }

    pub(crate) fn net_event(&mut self, event: Event) {
        match event {
            Event::Syn { conn } => self.syn_arrives(conn),
            Event::SynAck { conn, refused } => self.answer_arrives(conn, refused),
            Event::ConnectTimeout { conn } => {
                if self.net.conns.get(&conn).is_some_and(|c| !c.established) {
                    self.break_end(conn, 0, Errno::ETIMEDOUT.0);
                    self.later_reset(conn, 1);
                }
            }
            Event::Deliver { conn, pipe } => self.packet_arrives(conn, pipe),
            Event::Window { conn, pipe, bytes } => {
                let Some(hosts) = self.whole(conn, pipe) else { return };
                if self.partitioned(hosts) {
                    self.plan_net(RETRY, event);
                } else if let Some(c) = self.net.conns.get_mut(&conn) {
                    c.pipes[pipe].unread = c.pipes[pipe].unread.saturating_sub(bytes);
                    self.wakes.append(&mut c.ends[pipe].writers);
                }
            }
            Event::Reset { conn, end } => {
                let Some(hosts) = self.whole(conn, end) else { return };
                if self.partitioned(hosts) {
                    self.plan_net(RETRY, event);
                } else {
                    self.break_end(conn, end, ECONNRESET);
                }
            }
            Event::PartitionTimeout { a, b, since } => {
                if self.net.partitions.get(&pair(a, b)) == Some(&since) {
                    self.break_between(a, b, Errno::ETIMEDOUT.0);
                }
            }
        }
    }

    fn syn_arrives(&mut self, conn: u64) {
        let Some(hosts) = self.whole(conn, 0) else { return };
        if self.blocked(hosts) {
            return self.plan_net(RETRY, Event::Syn { conn });
        }
        let Some(c) = self.net.conns.get_mut(&conn) else { return };
        let port = c.ends[1].addr.port();
        let room = self.net.listeners.get_mut(&(hosts.1, port)).filter(|l| l.backlog.len() < BACKLOG);
        let refused = room.is_none();
        if let Some(listening) = room {
            c.ends[1].closed = false;
            listening.backlog.push_back(conn);
            self.wakes.append(&mut listening.wakers);
        }
        self.travel(hosts.0, hosts.1, Event::SynAck { conn, refused });
    }

    fn answer_arrives(&mut self, conn: u64, refused: bool) {
        let Some(hosts) = self.whole(conn, 0) else { return };
        if self.blocked(hosts) {
            return self.plan_net(RETRY, Event::SynAck { conn, refused });
        }
        if refused {
            self.note(Note::Refused { conn });
            return self.break_end(conn, 0, ECONNREFUSED);
        }
        self.note(Note::Established { conn });
        if let Some(c) = self.net.conns.get_mut(&conn) {
            c.established = true;
            self.wakes.append(&mut c.ends[0].writers);
        }
    }

    fn packet_arrives(&mut self, conn: u64, pipe: usize) {
        let Some(c) = self.net.conns.get_mut(&conn) else { return };
        c.pipes[pipe].planned = false;
        let hosts = c.hosts();
        if self.partitioned(hosts) {
            return; // `heal` plans it again
        }
        if self.blocked(hosts) {
            return self.packet_lost(conn, pipe);
        }
        let Some(c) = self.net.conns.get_mut(&conn) else { return };
        let receiver = 1 - pipe;
        let to = c.ends[receiver].host;
        c.pipes[pipe].lost_in_a_row = 0;
        let Some(packet) = c.pipes[pipe].flight.pop_front() else { return };
        if c.ends[receiver].closed && packet.data.is_some() {
            return self.later_reset(conn, pipe);
        }
        self.wakes.append(&mut c.ends[receiver].readers);
        match packet.data {
            Some(data) => {
                let note = Note::Packet { conn, to, len: data.len(), digest: digest(&data) };
                c.pipes[pipe].inbox.push_back(data);
                self.note(note);
            }
            None => {
                c.pipes[pipe].fin_arrived = true;
                self.note(Note::Fin { conn, to });
            }
        }
        self.plan_delivery(conn, pipe);
    }

    fn packet_lost(&mut self, conn: u64, pipe: usize) {
        self.note(Note::Lost { conn });
        let Some(c) = self.net.conns.get_mut(&conn) else { return };
        let p = &mut c.pipes[pipe];
        let again = self.config.retransmit_delay.saturating_mul(1 << p.lost_in_a_row.min(16));
        p.lost_in_a_row += 1;
        if p.lost_in_a_row > self.config.retransmits_max {
            self.break_end(conn, pipe, Errno::ETIMEDOUT.0);
            return self.later_reset(conn, 1 - pipe);
        }
        p.planned = true;
        self.plan_net(again, Event::Deliver { conn, pipe });
    }
}

/// Breaking and closing connections.
impl State {
    /// Breaks one end: from now on its operations return `error`.
    fn break_end(&mut self, conn: u64, end: usize, error: i32) {
        let Some(c) = self.net.conns.get_mut(&conn) else { return };
        if c.ends[end].closed || c.ends[end].error.is_some() {
            return;
        }
        c.ends[end].error = Some(error);
        self.wakes.append(&mut c.ends[end].readers);
        self.wakes.append(&mut c.ends[end].writers);
        c.pipes[end].flight.clear();
        c.pipes[1 - end].inbox.clear();
        self.note(Note::Reset { conn, end, errno: error });
    }

    /// Reports the broken connection to this end after the delay of a packet.
    fn later_reset(&mut self, conn: u64, end: usize) {
        let Some((a, b)) = self.net.conns.get(&conn).map(Conn::hosts) else { return };
        self.travel(a, b, Event::Reset { conn, end });
    }

    fn close(&mut self, conn: u64, end: usize) {
        let Some(c) = self.net.conns.get_mut(&conn) else { return };
        c.ends[end].closed = true;
        if c.ends[1 - end].closed {
            self.net.conns.remove(&conn);
        }
    }

    /// Closes this end without sending the end of the stream.
    fn abandon(&mut self, conn: u64, end: usize) {
        if let Some(c) = self.net.conns.get_mut(&conn) {
            c.pipes[end].flight.clear();
        }
        self.later_reset(conn, 1 - end);
        self.close(conn, end);
    }

    fn conns_where(&self, test: impl Fn(&Conn) -> bool) -> Vec<u64> {
        self.net.conns.iter().filter(|(_, c)| test(c)).map(|(&id, _)| id).collect()
    }

    fn break_between(&mut self, a: u32, b: u32, error: i32) {
        for conn in self.conns_where(|c| c.between(a, b)) {
            self.break_end(conn, 0, error);
            self.break_end(conn, 1, error);
        }
    }

    pub(crate) fn reset_connections(&mut self, a: u32, b: u32) {
        self.break_between(a, b, ECONNRESET);
    }

    pub(crate) fn partition(&mut self, a: u32, b: u32) {
        let since = self.now;
        if self.net.partitions.contains_key(&pair(a, b)) {
            return;
        }
        self.net.partitions.insert(pair(a, b), since);
        self.note(Note::Partition { a, b });
        self.plan_net(self.config.partition_timeout, Event::PartitionTimeout { a, b, since });
    }

    pub(crate) fn heal(&mut self, a: u32, b: u32) {
        if self.net.partitions.remove(&pair(a, b)).is_none() {
            return;
        }
        self.note(Note::Heal { a, b });
        for conn in self.conns_where(|c| c.between(a, b)) {
            self.plan_delivery(conn, 0);
            self.plan_delivery(conn, 1);
        }
    }

    /// Closes all connection ends of a crashed host.
    pub(crate) fn net_crash(&mut self, host: u32) {
        self.net.listeners.retain(|&(h, _), _| h != host);
        for conn in self.conns_where(|c| c.ends[0].host == host || c.ends[1].host == host) {
            for end in 0..2 {
                let open = |c: &Conn| c.ends[end].host == host && !c.ends[end].closed;
                if self.net.conns.get(&conn).is_some_and(open) {
                    self.abandon(conn, end);
                }
            }
        }
    }
}
