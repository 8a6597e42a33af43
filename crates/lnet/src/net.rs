//! What one process has of the network.

use std::{
    any::Any,
    collections::BTreeMap,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::{Mutex, RwLock};
use sheen_rt::{Listener, Rt, Stream};
use tokio::sync::{Notify, futures::Notified};

use crate::{
    Nid,
    fault::{Fault, Faults},
    receiver::{Pools, Receiver},
    sender::Sender,
};

/// A service of this process, whose type the layer above knows.
pub type Local = Arc<dyn Any + Send + Sync>;

/// How long to wait before the next accept when the process is out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Bounds of a process's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections accepted at a time; more are closed at once. Each costs a file descriptor and a
    /// small buffer.
    pub connections_max: usize,
    /// How long a peer may take to read one frame (at most 20 MiB: 340 KB/s).
    pub write_timeout_ms: u64,
    /// How long the rest of a frame may take once its first byte is there.
    pub stall_timeout_ms: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { connections_max: 4096, write_timeout_ms: 60_000, stall_timeout_ms: 60_000 }
    }
}

/// What one process has of the network: its services, its addresses, the faults to inject. One for
/// each process, or simulated host.
pub struct Net {
    rt: Rt,
    limits: Limits,
    services: RwLock<BTreeMap<String, Local>>,
    /// Raised by each change of `services`.
    generation: AtomicU64,
    changed: Notify,
    addresses: Mutex<Vec<SocketAddr>>,
    faults: Arc<Faults>,
    pools: Pools,
    accepted: Arc<AtomicUsize>,
}

/// A tcp connection: the two directions.
pub struct Connection {
    /// Sends frames.
    pub sender: Sender,
    /// Receives frames. Dropping it closes the connection.
    pub receiver: Receiver,
}

/// Accepts connections. Dropping it stops that.
pub struct Acceptor {
    net: Arc<Net>,
    listener: Listener,
    addr: SocketAddr,
}

/// One of the accepted connections, as long as it exists.
pub(crate) struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Net {
    /// A process's network, with the usual limits.
    pub fn new(rt: Rt) -> Arc<Net> {
        Net::with_limits(rt, Limits::default())
    }

    /// A process's network.
    pub fn with_limits(rt: Rt, limits: Limits) -> Arc<Net> {
        Arc::new(Net {
            rt,
            limits,
            services: RwLock::default(),
            generation: AtomicU64::new(1),
            changed: Notify::new(),
            addresses: Mutex::default(),
            faults: Arc::default(),
            pools: Pools::new(),
            accepted: Arc::default(),
        })
    }

    /// Clock, tasks and so on of this process.
    pub fn rt(&self) -> &Rt {
        &self.rt
    }

    /// Makes a service reachable over `lo` under a target's name. Returns the one that had the name
    /// before.
    pub fn register(&self, target: &str, service: Local) -> Option<Local> {
        let before = self.services.write().insert(target.to_owned(), service);
        self.announce();
        before
    }

    /// Takes a service away. Calls that run go on.
    pub fn unregister(&self, target: &str) -> Option<Local> {
        let before = self.services.write().remove(target);
        self.announce();
        before
    }

    /// The service of that name in this process.
    pub fn local(&self, target: &str) -> Option<Local> {
        self.services.read().get(target).cloned()
    }

    /// Names of all services of this process, sorted.
    pub fn targets(&self) -> Vec<String> {
        self.services.read().keys().cloned().collect()
    }

    /// Changes whenever a service comes or goes: what was looked up before may be out of date.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Resolves at the next change of the services.
    pub fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    fn announce(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
        self.changed.notify_waiters();
    }

    /// Says that this process can be reached at `addr` (beyond the addresses that it listens on,
    /// such as those of a host that listens on all its interfaces), so that its targets are called
    /// directly from within.
    pub fn add_address(&self, addr: SocketAddr) {
        let mut addresses = self.addresses.lock();
        if !addresses.contains(&addr) {
            addresses.push(addr);
        }
        drop(addresses);
        self.announce();
    }

    /// Whether a NID leads to this process.
    pub fn is_own(&self, nid: &Nid) -> bool {
        match nid {
            Nid::Lo => true,
            Nid::Tcp(addr) => self.addresses.lock().contains(addr),
        }
    }

    /// Addresses at which this process can be reached.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.addresses.lock().clone()
    }

    /// Delays or loses the frames that this process sends over tcp from now on.
    pub fn set_fault(&self, fault: Fault) {
        self.faults.set(fault);
    }

    /// The fault in force.
    pub fn fault(&self) -> Fault {
        self.faults.get()
    }

    /// Listens at an address; port 0 takes a free one. The address (for a wildcard: the loopback
    /// address) becomes one of this process's own.
    ///
    /// Errors: as bind(2), such as EADDRINUSE.
    pub async fn listen(self: &Arc<Net>, addr: SocketAddr) -> io::Result<Acceptor> {
        let listener = self.rt.listen(addr).await?;
        let addr = listener.local_addr()?;
        let reachable = match addr.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), addr.port()),
            IpAddr::V6(ip) if ip.is_unspecified() => SocketAddr::new(Ipv6Addr::LOCALHOST.into(), addr.port()),
            _ => addr,
        };
        self.add_address(reachable);
        Ok(Acceptor { net: self.clone(), listener, addr })
    }

    /// Opens a connection. Takes as long as the network lets it: put a timeout around it.
    ///
    /// Errors: as connect(2).
    pub async fn connect(&self, addr: SocketAddr) -> io::Result<Connection> {
        Ok(self.connection(self.rt.connect(addr).await?, addr, None))
    }

    fn connection(&self, stream: Stream, peer: SocketAddr, counted: Option<Counted>) -> Connection {
        let (read, write) = stream.split();
        let (write_timeout, stall_timeout) = (self.limits.write_timeout_ms, self.limits.stall_timeout_ms);
        let write_timeout = Duration::from_millis(write_timeout);
        let sender = Sender::new(self.rt.clone(), peer, write, self.faults.clone(), write_timeout, counted);
        let stall_timeout = Duration::from_millis(stall_timeout);
        let receiver = Receiver::new(self.rt.clone(), sender.shared().clone(), read, self.pools.clone(), stall_timeout);
        Connection { sender, receiver }
    }
}

impl Acceptor {
    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// The next connection. Errors of single connections are passed over, as are those over the
    /// limit.
    pub async fn accept(&self) -> Connection {
        let mut complained = false;
        loop {
            match self.listener.accept().await {
                Ok((stream, peer)) => match self.net.count() {
                    Some(counted) => return self.net.connection(stream, peer, Some(counted)),
                    None => {
                        tracing::warn!(%peer, limit = self.net.limits.connections_max, "too many connections: closing one")
                    }
                },
                Err(error) => {
                    if !std::mem::replace(&mut complained, true) {
                        tracing::warn!(%error, "cannot accept connections; trying again");
                    }
                    self.net.rt.sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

impl Net {
    /// Counts a connection in, if the limit allows one more.
    fn count(&self) -> Option<Counted> {
        let counted = Counted(self.accepted.clone());
        // The guard gives back what is counted here, also where it is one too many.
        (self.accepted.fetch_add(1, Ordering::AcqRel) < self.limits.connections_max).then_some(counted)
    }
}
