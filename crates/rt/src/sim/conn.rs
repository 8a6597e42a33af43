//! Connections between hosts, as the world stores them: ends, pipes, and packets in flight.
//!
//! A connection has two ends (0 opened it, 1 accepted it) and two pipes. Pipe `i` carries the bytes
//! that end `i` sends.

use std::{
    collections::{BTreeMap, VecDeque},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    task::Waker,
};

use bytes::Bytes;

use crate::time::Instant;

/// Network events in flight. Events of connections that no longer exist are ignored.
pub(crate) enum Event {
    /// A connection request reaches the other host.
    Syn { conn: u64 },
    /// The answer to a connection request reaches the opener.
    SynAck { conn: u64, refused: bool },
    /// The time limit of the connection request expires.
    ConnectTimeout { conn: u64 },
    /// The packet at the head of a pipe arrives, unless it is lost.
    Deliver { conn: u64, pipe: usize },
    /// The sender learns that the reader has read some bytes.
    Window { conn: u64, pipe: usize, bytes: usize },
    /// An end learns that the other end is closed.
    Reset { conn: u64, end: usize },
    /// A partition may have reached its time limit. `since` distinguishes it from a later one.
    PartitionTimeout { a: u32, b: u32, since: Instant },
}

#[derive(Default)]
pub(crate) struct Net {
    pub(crate) conns: BTreeMap<u64, Conn>,
    pub(crate) conns_made: u64,
    pub(crate) listeners: BTreeMap<(u32, u16), Listening>,
    pub(crate) partitions: BTreeMap<(u32, u32), Instant>,
}

pub(crate) struct Listening {
    pub(crate) backlog: VecDeque<u64>,
    pub(crate) wakers: Vec<Waker>,
}

pub(crate) struct Conn {
    pub(crate) ends: [End; 2],
    pub(crate) pipes: [Pipe; 2],
    /// The opener has received the answer to its connection request.
    pub(crate) established: bool,
}

pub(crate) struct End {
    pub(crate) host: u32,
    pub(crate) addr: SocketAddr,
    /// The errno of every operation, once the connection is broken.
    pub(crate) error: Option<i32>,
    /// No stream refers to this end: it is not yet accepted, refused or dropped, or its host
    /// crashed.
    pub(crate) closed: bool,
    pub(crate) readers: Vec<Waker>,
    pub(crate) writers: Vec<Waker>,
}

#[derive(Default)]
pub(crate) struct Pipe {
    pub(crate) flight: VecDeque<Packet>,
    pub(crate) planned: bool,
    pub(crate) lost_in_a_row: u32,
    pub(crate) inbox: VecDeque<Bytes>,
    /// Bytes sent that the sender does not know to be read; at most the window.
    pub(crate) unread: usize,
    /// Bytes read that were not yet reported to the sender.
    pub(crate) unreported: usize,
    pub(crate) fin_sent: bool,
    pub(crate) fin_arrived: bool,
}

pub(crate) struct Packet {
    pub(crate) due: Instant,
    /// `None` marks the end of the stream.
    pub(crate) data: Option<Bytes>,
}

/// Returns two hosts in their order.
pub(crate) fn pair(a: u32, b: u32) -> (u32, u32) {
    (a.min(b), a.max(b))
}

impl Conn {
    pub(crate) fn between(&self, a: u32, b: u32) -> bool {
        pair(self.ends[0].host, self.ends[1].host) == pair(a, b)
    }

    pub(crate) fn hosts(&self) -> (u32, u32) {
        (self.ends[0].host, self.ends[1].host)
    }
}

/// Returns the address of a host: 10.0.0.HOST for numbers up to 255.
pub(crate) fn host_ip(host: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(0x0A00_0000 | (host & 0x00FF_FFFF)))
}
