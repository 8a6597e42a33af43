//! The address at which a server listens, and the NID that it registers with the MGS.
//!
//! Invariants:
//! * A server registers a loopback address only if the MGS is on loopback: then all of the file
//!   system is on this host. `--announce` is the exception, for tunnels.
//! * A server that listens on a wildcard address registers the source address of its connections
//!   to the MGS.
//! * A host's own name may resolve to a loopback address on that host (Debian: 127.0.1.1). An MGS
//!   that is named so counts as reachable from other hosts.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use sheen_lnet::{DEFAULT_PORT, Nid, NidName, split_nids};
use sheen_rt::Rt;

use crate::error::{Context, Failure, Result};

/// Port of `sheen mds` if `--listen` names none. The MGS uses [`DEFAULT_PORT`].
pub const MDS_PORT: u16 = DEFAULT_PORT + 1;
/// Port of `sheen oss`, for all of its OSTs.
pub const OSS_PORT: u16 = DEFAULT_PORT + 2;

/// Time for one NID of the MGS to accept a connection, if that decides which address is registered.
const PROBE: Duration = Duration::from_secs(2);
/// Wait before all NIDs of the MGS are tried again.
const PROBE_RETRY: Duration = Duration::from_millis(500);
/// An address for documentation (RFC 5737), which no host has: its route is the default route.
/// Nothing is sent there.
const OUTSIDE_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 9);

/// The MGS, as `--mgs` names it.
#[derive(Debug, Default)]
pub struct MgsAt {
    /// In the order in which they are tried.
    pub nids: Vec<Nid>,
    /// A host name, other than `localhost`, that resolves only to loopback addresses here: this
    /// host's own name.
    own_name: Option<String>,
}

/// The listen address of a server, and the address that it registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The listen address.
    pub listen: SocketAddr,
    /// The address that it registers.
    pub ip: IpAddr,
    /// The port that it registers. `None`: the port that it listens on.
    pub port: Option<u16>,
}

impl Plan {
    /// Returns the NID that a server registers if it listens at `bound`.
    pub fn nid(&self, bound: SocketAddr) -> Nid {
        Nid::Tcp(SocketAddr::new(self.ip, self.port.unwrap_or(bound.port())))
    }
}

impl MgsAt {
    /// Parses and resolves the MGS NIDs that a user gave.
    pub async fn resolve(rt: &Rt, text: &str) -> Result<MgsAt> {
        let mut mgs = MgsAt::default();
        for word in split_nids(text).into_iter().filter(|w| !w.is_empty()) {
            let name: NidName = word.parse().map_err(|e| {
                Failure::new(format!("invalid NID '{word}': {e}"))
                    .advise(format!("write it as HOST@tcp (port {DEFAULT_PORT}) or HOST:PORT@tcp"))
            })?;
            let found = name.resolve(rt).await.context(format!("cannot resolve {word}"))?;
            if let NidName::Tcp { host, .. } = name
                && is_host_name(&host)
                && addresses(&found).all(|addr| is_loopback(addr.ip()))
            {
                mgs.own_name = Some(host);
            }
            mgs.nids.extend(found);
        }
        if mgs.nids.is_empty() { Err(Failure::new("--mgs contains no NID")) } else { Ok(mgs) }
    }

    /// Returns the addresses that are not on loopback.
    fn remote(&self) -> Vec<SocketAddr> {
        addresses(&self.nids).filter(|addr| !is_loopback(addr.ip())).collect()
    }

    /// Returns this host's address as other hosts see it, or a loopback address if the MGS is on
    /// loopback.
    async fn own_address(&self, rt: &Rt) -> Result<IpAddr> {
        let remote = self.remote();
        if !remote.is_empty() {
            return source_address(rt, &remote).await;
        }
        if let Some(name) = &self.own_name
            && let Some(ip) = network_address(rt, |_| true).await
        {
            tracing::info!(
                "{name} resolves to a loopback address on this host: registering {ip}; use --announce to register another address"
            );
            return Ok(ip);
        }
        let to = addresses(&self.nids).min_by_key(|addr| addr.is_ipv6());
        Ok(to.and_then(|to| rt.source_address(to).ok()).unwrap_or(Ipv4Addr::LOCALHOST.into()))
    }
}

/// Decides where an MDS or OSS listens and which address it registers. `port`: its default port.
pub async fn plan(rt: &Rt, mgs: &MgsAt, listen: Option<SocketAddr>, port: u16, announce: Option<&str>) -> Result<Plan> {
    if let Some(text) = announce {
        let (ip, named) = announced(rt, text).await?;
        return Ok(Plan { listen: listen.unwrap_or_else(|| listen_by_default(ip, port)), ip, port: named });
    }
    let (listen, ip) = match listen {
        None => {
            let own = mgs.own_address(rt).await?;
            (listen_by_default(own, port), own)
        }
        Some(listen) if listen.ip().is_unspecified() => (listen, wildcard(listen, mgs.own_address(rt).await?)?),
        Some(listen) => (listen, listen.ip()),
    };
    if is_loopback(ip) {
        check_loopback(mgs, listen, ip)?;
    }
    Ok(Plan { listen, ip, port: None })
}

/// Refuses a loopback address that other hosts would receive. Warns if only this host can reach the
/// registered address.
fn check_loopback(mgs: &MgsAt, listen: SocketAddr, ip: IpAddr) -> Result {
    if let Some(far) = mgs.remote().first() {
        let nid = Nid::Tcp(*far);
        return Err(Failure::new(format!(
            "other hosts cannot reach a server at {ip}, and the MGS at {nid} is not on loopback"
        ))
        .advise(format!(
            "omit --listen, or specify an address that other hosts can reach: --listen 0.0.0.0:{}@tcp",
            listen.port()
        )));
    }
    if listen.ip().is_unspecified() || mgs.own_name.is_some() {
        tracing::warn!(
            "registering {ip}, which only this host can reach, because the MGS is on loopback; to serve other hosts, \
             give --mgs an address that they can reach, or use --announce"
        );
    }
    Ok(())
}

/// Returns the plan of `sheen up`, whose MGS is in the same process.
pub async fn plan_alone(rt: &Rt, bound: SocketAddr) -> Plan {
    let ip = match bound.ip() {
        ip if !ip.is_unspecified() => ip,
        ip => {
            let found = network_address(rt, |own| ip.is_ipv6() || own.is_ipv4()).await;
            found.unwrap_or_else(|| {
                tracing::warn!("this host has only loopback addresses: other hosts cannot reach the file system");
                if ip.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() }
            })
        }
    };
    Plan { listen: bound, ip, port: None }
}

/// Returns the address that a server registers if it listens on a wildcard address and reaches the
/// MGS from `own`.
fn wildcard(listen: SocketAddr, own: IpAddr) -> Result<IpAddr> {
    if listen.is_ipv4() && own.is_ipv6() {
        return Err(Failure::new(format!(
            "{} accepts only IPv4, and this host reaches the MGS from {own}",
            listen.ip()
        ))
        .advise(format!("use --listen [::]:{}@tcp, which accepts IPv4 and IPv6", listen.port())));
    }
    Ok(own)
}

/// Returns the default listen address: `ip` itself if it is a loopback address, else all addresses.
fn listen_by_default(ip: IpAddr, port: u16) -> SocketAddr {
    match ip {
        ip if is_loopback(ip) => SocketAddr::new(ip, port),
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, port).into(),
        IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, port).into(),
    }
}

/// Parses `--announce`. Returns the address, and the port if it names one.
async fn announced(rt: &Rt, text: &str) -> Result<(IpAddr, Option<u16>)> {
    let name: NidName = text.parse().context(format!("--announce {text}"))?;
    let nids = name.resolve(rt).await.context(format!("--announce {text}"))?;
    match addresses(&nids).next() {
        Some(addr) => Ok((addr.ip(), names_port(text).then_some(addr.port()))),
        None => {
            Err(Failure::new(format!("invalid --announce '{text}': expected an address that other hosts can reach")))
        }
    }
}

/// Returns the NIDs to register for a server at `own`, which others may replace: its own first. A
/// NID without a port has the port of `own`.
pub async fn with_servicenodes(rt: &Rt, own: Nid, others: &[String]) -> Result<Vec<Nid>> {
    let mut nids = vec![own];
    for word in others.iter().flat_map(|list| split_nids(list)) {
        let name: NidName = word.parse().context(format!("--servicenode {word}"))?;
        for nid in name.resolve(rt).await.context(format!("--servicenode {word}"))? {
            let nid = match (nid, own) {
                (Nid::Tcp(addr), Nid::Tcp(own)) if !names_port(word) => {
                    Nid::Tcp(SocketAddr::new(addr.ip(), own.port()))
                }
                _ => nid,
            };
            if !nids.contains(&nid) {
                nids.push(nid);
            }
        }
    }
    Ok(nids)
}

/// Returns whether a valid NID names a port.
fn names_port(text: &str) -> bool {
    let address = text.split_once('@').map_or(text, |(address, _)| address);
    match address.strip_prefix('[') {
        Some(rest) => rest.contains("]:"),
        None => address.contains(':') && address.parse::<Ipv6Addr>().is_err(),
    }
}

/// Returns the address from which this host reaches the MGS. If it differs between the NIDs, the
/// first NID that accepts a connection decides.
async fn source_address(rt: &Rt, mgs: &[SocketAddr]) -> Result<IpAddr> {
    let route = |to: &SocketAddr| rt.source_address(*to).ok().map(|from| (*to, from));
    let routes: Vec<(SocketAddr, IpAddr)> = mgs.iter().filter_map(route).collect();
    let Some((to, first)) = routes.first() else {
        let nids: Vec<String> = mgs.iter().map(|addr| Nid::Tcp(*addr).to_string()).collect();
        return Err(Failure::new(format!("this host has no route to the MGS at {}", nids.join(", ")))
            .advise("bring the network up first, or use --mgs to specify an MGS that this host can reach"));
    };
    let from = match routes.iter().all(|(_, from)| from == first) {
        true => *first,
        false => answering(rt, &routes).await,
    };
    if is_loopback(from) {
        return Err(Failure::new(format!(
            "this host reaches the MGS at {} from {from}, a loopback address",
            Nid::Tcp(*to)
        ))
        .advise("use --announce to specify the address to register"));
    }
    Ok(from)
}

/// Returns the source address of a connection to the first address of the MGS that accepts one.
/// Waits until one does.
async fn answering(rt: &Rt, routes: &[(SocketAddr, IpAddr)]) -> IpAddr {
    let mut said = false;
    loop {
        for (to, _) in routes {
            if let Ok(Ok(stream)) = rt.timeout(PROBE, rt.connect(*to)).await
                && let Ok(from) = stream.local_addr()
            {
                return from.ip();
            }
        }
        if !std::mem::replace(&mut said, true) {
            tracing::warn!(
                "no MGS answers yet: waiting, because the first one that answers decides which address to register; \
                 use --announce to specify the address"
            );
        }
        rt.sleep(PROBE_RETRY).await;
    }
}

/// Returns an address of this host that other hosts can reach: the one that the host name resolves
/// to, else the source address of the default route.
async fn network_address(rt: &Rt, fits: impl Fn(&IpAddr) -> bool) -> Option<IpAddr> {
    let host = NidName::Tcp { host: sheen_rt::proc::hostname(), port: DEFAULT_PORT };
    let named = host.resolve(rt).await.unwrap_or_default();
    // The name may resolve to a former address of this host. A host's own address is its own
    // source.
    let is_own = |ip: &IpAddr| rt.source_address(SocketAddr::new(*ip, DEFAULT_PORT)).is_ok_and(|from| from == *ip);
    let usable = |ip: &IpAddr| !is_loopback(*ip) && fits(ip);
    let own = addresses(&named).map(|addr| addr.ip()).filter(|ip| usable(ip) && is_own(ip));
    own.min_by_key(IpAddr::is_ipv6).or_else(|| rt.source_address(OUTSIDE_ADDRESS).ok().filter(usable))
}

fn addresses(nids: &[Nid]) -> impl Iterator<Item = SocketAddr> {
    nids.iter().filter_map(|nid| match nid {
        Nid::Tcp(addr) => Some(*addr),
        Nid::Lo => None,
    })
}

fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

/// Returns whether `host` is a host name: neither an address nor a name of loopback.
fn is_host_name(host: &str) -> bool {
    let host = host.to_ascii_lowercase();
    host.parse::<IpAddr>().is_err() && !host.contains("localhost") && host != "ip6-loopback"
}

#[cfg(test)]
mod tests {
    use sheen_rt::sim::{Sim, SimConfig};

    use super::*;

    /// Returns the plan of a server on host 10.0.0.2.
    fn planned(mgs: &str, listen: Option<&str>, announce: Option<&str>) -> Result<Plan> {
        let sim = Sim::new(1, SimConfig::default());
        let rt = sim.rt(2);
        let listen = listen.map(|addr| addr.parse().unwrap());
        let planned = async {
            let mgs = MgsAt::resolve(&rt, mgs).await?;
            plan(&rt, &mgs, listen, OSS_PORT, announce).await
        };
        sim.run(planned).unwrap()
    }

    /// Returns the listen address and the registered NID.
    fn says(mgs: &str, listen: Option<&str>, announce: Option<&str>) -> (String, String) {
        let plan = planned(mgs, listen, announce).unwrap();
        (plan.listen.to_string(), plan.nid(plan.listen).to_string())
    }

    fn both(listen: &str, nid: &str) -> (String, String) {
        (listen.to_owned(), nid.to_owned())
    }

    #[test]
    fn a_server_registers_the_source_address_of_its_connections_to_the_mgs() {
        assert_eq!(says("10.0.0.1@tcp", None, None), both("0.0.0.0:7990", "10.0.0.2:7990@tcp"));
        assert_eq!(says("10.0.0.1@tcp", Some("0.0.0.0:40001"), None), both("0.0.0.0:40001", "10.0.0.2:40001@tcp"));
        assert_eq!(says("10.0.0.1@tcp", Some("[::]:5"), None), both("[::]:5", "10.0.0.2:5@tcp"));
        assert_eq!(says("10.0.0.1@tcp", Some("10.0.0.9:5"), None), both("10.0.0.9:5", "10.0.0.9:5@tcp"));
        let mixed = "127.0.0.1@tcp,10.0.0.1@tcp";
        assert_eq!(says(mixed, None, None), both("0.0.0.0:7990", "10.0.0.2:7990@tcp"));
    }

    #[test]
    fn a_server_of_an_mgs_on_loopback_stays_on_loopback() {
        assert_eq!(says("127.0.0.1@tcp", None, None), both("127.0.0.1:7990", "127.0.0.1:7990@tcp"));
        assert_eq!(says("127.0.0.1@tcp", Some("0.0.0.0:7"), None), both("0.0.0.0:7", "127.0.0.1:7@tcp"));
        assert_eq!(says("127.0.0.1@tcp", Some("127.0.0.5:7"), None), both("127.0.0.5:7", "127.0.0.5:7@tcp"));
        assert_eq!(says("[::1]:7988@tcp", None, None), both("[::1]:7990", "[::1]:7990@tcp"));
    }

    #[test]
    fn a_loopback_address_is_refused_for_an_mgs_elsewhere() {
        let refused = planned("10.0.0.1@tcp", Some("127.0.0.1:7990"), None).unwrap_err().to_string();
        assert!(refused.contains("127.0.0.1") && refused.contains("10.0.0.1@tcp"), "{refused}");
        assert!(refused.contains("--listen 0.0.0.0:7990@tcp"), "{refused}");
        let refused = wildcard("0.0.0.0:5".parse().unwrap(), "fd00::2".parse().unwrap()).unwrap_err().to_string();
        assert!(refused.contains("--listen [::]:5@tcp"), "{refused}");
    }

    #[test]
    fn announce_option_sets_the_registered_nid_for_any_mgs() {
        let at = |announce| says("10.0.0.1@tcp", None, Some(announce)).1;
        assert_eq!(at("10.9.9.9@tcp"), "10.9.9.9:7990@tcp");
        assert_eq!(at("10.9.9.9:5@tcp"), "10.9.9.9:5@tcp");
        assert_eq!(at("[fd00::9]:5@tcp"), "[fd00::9]:5@tcp");
        assert_eq!(at("fd00::9@tcp"), "[fd00::9]:7990@tcp");
        assert_eq!(at("127.0.0.1:5@tcp"), "127.0.0.1:5@tcp");
    }

    #[test]
    fn servicenode_option_adds_nids_behind_the_servers_own() {
        let sim = Sim::new(1, SimConfig::default());
        let own: Nid = "10.0.0.1:7989@tcp".parse().unwrap();
        let nids = |others: &[&str]| {
            let others: Vec<String> = others.iter().map(|s| (*s).to_owned()).collect();
            let nids = sim.run(with_servicenodes(&sim.rt(1), own, &others)).unwrap();
            nids.map(|nids| nids.iter().map(Nid::to_string).collect::<Vec<_>>().join(" "))
        };
        let both = "10.0.0.1:7989@tcp 10.0.0.2:7989@tcp";
        assert_eq!(nids(&["10.0.0.1@tcp", "10.0.0.2@tcp"]).unwrap(), both);
        assert_eq!(nids(&["10.0.0.2@tcp:10.0.0.1@tcp"]).unwrap(), both);
        assert_eq!(nids(&["10.0.0.2:1@tcp"]).unwrap(), "10.0.0.1:7989@tcp 10.0.0.2:1@tcp");
        assert!(nids(&["10.0.0.2"]).unwrap_err().to_string().contains("--servicenode 10.0.0.2"));
    }

    #[test]
    fn host_names_are_distinguished_from_addresses_and_loopback_names() {
        assert!(["node1", "node1.cluster", "n-1"].into_iter().all(is_host_name));
        assert!(
            !["10.0.0.1", "::1", "localhost", "LocalHost.localdomain", "ip6-loopback"].into_iter().any(is_host_name)
        );
        assert!(is_loopback("::ffff:127.0.0.1".parse().unwrap()) && is_loopback("127.0.1.1".parse().unwrap()));
    }
}
