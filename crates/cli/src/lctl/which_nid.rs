//! `lctl which_nid`: the NID among several that this host would use.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket},
};

use sheen_lnet::{Nid, NidName};

use super::{options, tool::Tool, usage};
use crate::lfs::getopt::Spec;

const WHICH_NID: Spec = Spec { short: "", long: &[] };
/// Exit code if no NID can be used, as in Lustre.
const EXIT_NONE: i32 = 1;

/// `which_nid NID...`
///
/// # Errors
/// The output cannot be written.
pub fn run(args: &[String], tool: &mut Tool<'_>) -> io::Result<i32> {
    let Some(given) = options::parse("which_nid", &WHICH_NID, args, tool)? else { return Ok(usage::EXIT) };
    if given.rest.is_empty() {
        return options::wrong("which_nid", tool);
    }
    let mut names = Vec::new();
    for nid in &given.rest {
        match nid.parse::<NidName>() {
            Ok(name) => names.push(name),
            Err(e) => {
                writeln!(tool.err, "Can't parse NID {nid}: {e}")?;
                return Ok(EXIT_NONE);
            }
        }
    }
    let nids: Vec<Nid> = names.iter().flat_map(resolve).collect();
    match nearest(&nids, source_address) {
        Some(nid) => {
            writeln!(tool.out, "{nid}")?;
            Ok(0)
        }
        None => {
            writeln!(tool.err, "No reachable NID")?;
            Ok(EXIT_NONE)
        }
    }
}

/// Returns the NIDs of a name: none of a host without an address.
fn resolve(name: &NidName) -> Vec<Nid> {
    match name {
        NidName::Lo => vec![Nid::Lo],
        NidName::Tcp { host, port } => {
            (host.as_str(), *port).to_socket_addrs().map_or_else(|_| Vec::new(), |found| found.map(Nid::Tcp).collect())
        }
    }
}

/// Returns this host's address for packets to an address. Connecting a UDP socket sends nothing.
fn source_address(to: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(to).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// Returns the first NID of the smallest distance. `source`: this host's address for packets to an
/// address, if it has a route.
fn nearest(nids: &[Nid], source: impl Fn(SocketAddr) -> Option<IpAddr>) -> Option<Nid> {
    // As in LNet: 0 for this host, 1 for other hosts of its networks.
    let distance = |nid: &Nid| match nid {
        Nid::Lo => Some(0),
        Nid::Tcp(to) => source(*to).map(|from| u32::from(from != to.ip() && !to.ip().is_loopback())),
    };
    let reachable = nids.iter().filter_map(|nid| Some((distance(nid)?, *nid)));
    reachable.min_by_key(|(distance, _)| *distance).map(|(_, nid)| nid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_prefers_this_host_and_then_the_first_nid_with_a_route() {
        let source = |to: SocketAddr| -> Option<IpAddr> {
            match to.ip().to_string().as_str() {
                "192.0.2.1" => None,
                "127.0.0.2" => "127.0.0.1".parse().ok(),
                _ => "10.0.0.1".parse().ok(),
            }
        };
        let nearest = |list: &str| {
            let nids: Vec<Nid> = list.split(' ').map(|nid| nid.parse().unwrap()).collect();
            nearest(&nids, source).map(|nid| nid.to_string())
        };
        for (list, want) in [
            ("10.0.0.3@tcp 10.0.0.2@tcp", Some("10.0.0.3@tcp")),
            ("192.0.2.1@tcp 10.0.0.2@tcp", Some("10.0.0.2@tcp")),
            ("10.0.0.3@tcp 10.0.0.1@tcp", Some("10.0.0.1@tcp")),
            ("10.0.0.3@tcp 127.0.0.2@tcp", Some("127.0.0.2@tcp")),
            ("10.0.0.3@tcp 0@lo", Some("0@lo")),
            ("192.0.2.1@tcp", None),
        ] {
            assert_eq!(nearest(list).as_deref(), want, "{list}");
        }
    }
}
