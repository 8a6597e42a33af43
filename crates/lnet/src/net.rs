//! A process's view of the network.

use std::{
    any::Any,
    collections::BTreeMap,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::{Mutex, RwLock};
use sheen_keys::{Keyring, Signer};
use sheen_rt::{Listener, Rt, Stream};
use sheen_wire::auth::{Claim, Flavor};
use tokio::sync::{Notify, Semaphore, futures::Notified};

use crate::{
    Nid,
    accepted::{Accepted, Counted},
    application::{Applying, Issuing},
    audit::{Audit, Event},
    fault::{Fault, Faults},
    protection::Demands,
    receiver::{Pools, Receiver},
    sender::{Ends, Sender},
};

/// A service of this process. The layer above knows its type.
pub type Local = Arc<dyn Any + Send + Sync>;

/// Number of clients whose applications for a key are checked at the same time. Others wait.
const APPLICANTS_MAX: usize = 8;
/// Pause before the next accept when the process is out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Shortest time between two lines about too many connections, unless one is accepted between.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Bounds of a process's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of accepted connections; further ones are closed at once. Each takes a file
    /// descriptor and a small buffer.
    pub connections_max: usize,
    /// Maximum number of accepted connections that authenticate at the same time; further ones are
    /// refused.
    pub strangers_max: usize,
    /// Time that a peer may take to read one frame (at most 20 MiB: 340 KB/s).
    pub write_timeout_ms: u64,
    /// Time that a frame may take to arrive after its first byte.
    pub stall_timeout_ms: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { connections_max: 4096, strangers_max: 256, write_timeout_ms: 60_000, stall_timeout_ms: 60_000 }
    }
}

/// Whom a process trusts as the other end of a tcp connection.
#[derive(Clone, Debug)]
pub enum Trust {
    /// Everybody.
    All,
    /// Those who know a key.
    Keys(Keys),
}

/// How a process authenticates the other ends of its connections.
#[derive(Clone, Debug)]
pub struct Keys {
    /// The keys that this process uses and accepts.
    pub keyring: Arc<Keyring>,
    /// As a client, this process also speaks to servers that authenticate nobody.
    pub open_servers: bool,
    /// As a server, this process also accepts connections on its host that somebody passes on, such
    /// as a tunnel.
    pub relays: bool,
    /// The least protection of connections. `None`: that of [`Net::demand`], or the default.
    pub flavor: Option<Flavor>,
    /// As a client, this process applies for a key if it has none.
    pub applying: Option<Applying>,
    /// As a server, this process issues keys to clients that have none.
    pub issuing: Option<Issuing>,
}

impl Keys {
    /// Returns the defaults of a process with this keyring.
    pub fn new(keyring: impl Into<Arc<Keyring>>) -> Keys {
        let keyring = keyring.into();
        Keys { keyring, open_servers: false, relays: false, flavor: None, applying: None, issuing: None }
    }
}

impl From<Keys> for Trust {
    fn from(keys: Keys) -> Trust {
        Trust::Keys(keys)
    }
}

/// A process's view of the network: its services, its addresses, the faults to inject. Each
/// process, or simulated host, has one.
pub struct Net {
    rt: Rt,
    limits: Limits,
    trust: Trust,
    demands: Arc<Demands>,
    audit: Option<Arc<dyn Audit>>,
    services: RwLock<BTreeMap<String, Local>>,
    /// Incremented by each change of `services` or `addresses`.
    generation: AtomicU64,
    changed: Notify,
    addresses: Mutex<Vec<SocketAddr>>,
    faults: Arc<Faults>,
    pools: Pools,
    accepted: Accepted,
    strangers: Accepted,
    /// Clients whose applications are checked at a time.
    applicants: Arc<Semaphore>,
    /// Held while this process applies for a key.
    applying: tokio::sync::Mutex<()>,
    /// Held while key files are searched.
    key_search: Arc<tokio::sync::Mutex<()>>,
}

/// A tcp connection: the two directions.
pub struct Connection {
    /// Sends frames.
    pub sender: Sender,
    /// Receives frames. Dropping it closes the connection.
    pub receiver: Receiver,
}

/// Accepts connections until it is dropped.
pub struct Acceptor {
    net: Arc<Net>,
    listener: Listener,
    addr: SocketAddr,
}

impl Net {
    /// Creates the network of a process that trusts everybody, with the default limits.
    pub fn new(rt: Rt) -> Arc<Net> {
        Net::with_limits(rt, Trust::All, Limits::default())
    }

    /// Creates a process's network, with the default limits.
    pub fn trusting(rt: Rt, trust: Trust) -> Arc<Net> {
        Net::with_limits(rt, trust, Limits::default())
    }

    /// Creates the network of a process with an audit trail, with the default limits.
    pub fn audited(rt: Rt, trust: Trust, audit: Option<Arc<dyn Audit>>) -> Arc<Net> {
        Arc::new(Net::of(rt, trust, Limits::default(), audit))
    }

    /// Creates a process's network.
    pub fn with_limits(rt: Rt, trust: Trust, limits: Limits) -> Arc<Net> {
        Arc::new(Net::of(rt, trust, limits, None))
    }

    /// Returns a second network of this process, without services, addresses and faults. It trusts
    /// and demands the same as this one. So a measurement delays its own frames only.
    pub fn apart(&self) -> Arc<Net> {
        let apart = Net::of(self.rt.clone(), self.trust.clone(), self.limits, self.audit.clone());
        Arc::new(Net { demands: self.demands.clone(), pools: self.pools.clone(), ..apart })
    }

    fn of(rt: Rt, trust: Trust, limits: Limits, audit: Option<Arc<dyn Audit>>) -> Net {
        Net {
            rt,
            limits,
            trust,
            demands: Arc::default(),
            audit,
            services: RwLock::default(),
            generation: AtomicU64::new(1),
            changed: Notify::new(),
            addresses: Mutex::default(),
            faults: Arc::default(),
            pools: Pools::new(),
            accepted: Accepted::default(),
            strangers: Accepted::default(),
            applicants: Arc::new(Semaphore::new(APPLICANTS_MAX)),
            applying: tokio::sync::Mutex::default(),
            key_search: Arc::default(),
        }
    }

    /// Returns the clock, tasks and so on of this process.
    pub fn rt(&self) -> &Rt {
        &self.rt
    }

    /// Returns whom this process trusts.
    pub fn trust(&self) -> &Trust {
        &self.trust
    }

    /// Returns the audit trail of this process, if it has one.
    pub fn audit(&self) -> Option<&Arc<dyn Audit>> {
        self.audit.as_ref()
    }

    /// Returns the signer of this process, as a server, for a purpose. `None`: it runs without
    /// authentication.
    pub fn signer(&self, purpose: &[u8]) -> Option<Signer> {
        match &self.trust {
            Trust::All => None,
            Trust::Keys(keys) => Some(keys.keyring.signer(purpose)),
        }
    }

    /// Returns whether this process accepts a key as a server.
    pub fn accepts(&self, claim: &Claim) -> bool {
        match &self.trust {
            Trust::All => true,
            Trust::Keys(keys) => keys.keyring.accepts(claim),
        }
    }

    /// Sets the least flavor of new connections of this process, because a file system demands it.
    /// `None`: it leaves the flavor to its processes. Present connections stay ([`Net::protects`]).
    pub fn demand(&self, fsname: &str, flavor: Option<Flavor>) {
        self.demands.set(fsname, flavor);
    }

    /// Returns the flavor that a file system demands. `None`: it leaves the flavor to its
    /// processes.
    pub fn demanded(&self, fsname: &str) -> Option<Flavor> {
        self.demands.of(fsname)
    }

    /// Returns whether a connection has the protection that this process and its file systems
    /// demand.
    pub fn protects(&self, sender: &Sender) -> bool {
        match &self.trust {
            Trust::Keys(keys) => sender.flavor() >= self.demands.least(keys.flavor).unwrap_or(Flavor::Null),
            Trust::All => true,
        }
    }

    /// Returns the least flavor of a new connection. By default it is null within a host: nobody
    /// but root can change what two processes of a host send each other.
    pub(crate) fn least_flavor(&self, keys: &Keys, is_within_host: bool) -> Flavor {
        let default = if is_within_host { Flavor::Null } else { Flavor::Integrity };
        self.demands.least(keys.flavor).unwrap_or(default)
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(crate) fn key_search(&self) -> &Arc<tokio::sync::Mutex<()>> {
        &self.key_search
    }

    pub(crate) fn strangers(&self) -> &Accepted {
        &self.strangers
    }

    pub(crate) fn applicants(&self) -> &Arc<Semaphore> {
        &self.applicants
    }

    pub(crate) fn applying(&self) -> &tokio::sync::Mutex<()> {
        &self.applying
    }

    /// Makes a service reachable over `lo` under a target's name. Returns the service that had the
    /// name before.
    pub fn register(&self, target: &str, service: Local) -> Option<Local> {
        let before = self.services.write().insert(target.to_owned(), service);
        self.announce();
        before
    }

    /// Removes a service. Running calls continue.
    pub fn unregister(&self, target: &str) -> Option<Local> {
        let before = self.services.write().remove(target);
        self.announce();
        before
    }

    /// Returns the service of that name in this process.
    pub fn local(&self, target: &str) -> Option<Local> {
        self.services.read().get(target).cloned()
    }

    /// Returns the names of all services of this process, sorted.
    pub fn targets(&self) -> Vec<String> {
        self.services.read().keys().cloned().collect()
    }

    /// Returns a number that changes when a service is added or removed. Earlier lookups may then
    /// be out of date.
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

    /// Adds an address of this process to those that it listens on, such as those of a host that
    /// listens on all its interfaces. Targets at own addresses are called directly.
    pub fn add_address(&self, addr: SocketAddr) {
        let mut addresses = self.addresses.lock();
        if !addresses.contains(&addr) {
            addresses.push(addr);
        }
        drop(addresses);
        self.announce();
    }

    /// Returns whether a NID leads to this process.
    pub fn is_own(&self, nid: &Nid) -> bool {
        match nid {
            Nid::Lo => true,
            Nid::Tcp(addr) => self.addresses.lock().contains(addr),
        }
    }

    /// Returns the addresses at which this process can be reached.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.addresses.lock().clone()
    }

    /// Sets the fault for the frames that this process sends over tcp from now on.
    pub fn set_fault(&self, fault: Fault) {
        self.faults.set(fault);
    }

    /// Returns the current fault.
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

    /// Opens a connection and authenticates its ends. Takes as long as the network takes; the
    /// caller adds a timeout.
    ///
    /// Errors: as connect(2). `PermissionDenied` with an [`crate::AuthError`]: repeating the call
    /// does not help.
    pub async fn connect(&self, addr: SocketAddr) -> io::Result<Connection> {
        let mut connection = self.connection(self.rt.connect(addr).await?, addr, None);
        self.introduce(&connection.sender, &mut connection.receiver).await?;
        Ok(connection)
    }

    fn connection(&self, stream: Stream, peer: SocketAddr, counted: Option<Counted>) -> Connection {
        // The address that was dialled may be a wildcard.
        let peer = stream.peer_addr().unwrap_or(peer);
        let ends = Ends { peer, own: stream.local_addr().ok() };
        let (read, write) = stream.split();
        let (write_timeout, stall_timeout) = (self.limits.write_timeout_ms, self.limits.stall_timeout_ms);
        let write_timeout = Duration::from_millis(write_timeout);
        let sender = Sender::new(self.rt.clone(), ends, write, self.faults.clone(), write_timeout, counted);
        let stall_timeout = Duration::from_millis(stall_timeout);
        let receiver = Receiver::new(self.rt.clone(), sender.shared().clone(), read, self.pools.clone(), stall_timeout);
        Connection { sender, receiver }
    }
}

impl Acceptor {
    /// Returns the address on which it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns the next connection. Ignores errors of single connections, and closes connections
    /// over the limit.
    pub async fn accept(&self) -> Connection {
        let (mut complained, mut refused) = (false, None);
        loop {
            match self.listener.accept().await {
                Ok((stream, peer)) => match self.net.accepted.count(self.net.limits.connections_max) {
                    Some(counted) => return self.net.connection(stream, peer, Some(counted)),
                    None => {
                        if let Some(audit) = self.net.audit() {
                            let reason = "too many connections".to_owned();
                            audit.record(Event::RefusedConnection { nid: Nid::Tcp(peer), reason, key: None });
                        }
                        let now = self.net.rt.now();
                        if refused.is_none_or(|last| now.since(last) >= LINE_EVERY) {
                            refused = Some(now);
                            let limit = self.net.limits.connections_max;
                            tracing::warn!(%peer, limit, "too many connections: closing one, and further ones");
                        }
                    }
                },
                Err(error) => {
                    if !std::mem::replace(&mut complained, true) {
                        tracing::warn!(%error, "cannot accept connections; retrying every 100 ms");
                    }
                    self.net.rt.sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}
