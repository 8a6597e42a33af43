//! Addresses on which the file systems of tests listen.

use std::{
    net::Ipv4Addr,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

/// Returns a loopback address that no other file system uses, neither in this process nor in
/// another one on this machine. Connections do not have it as their source, so that a port of it
/// stays free while its server is down.
pub fn own_address() -> Ipv4Addr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    /// Low bits of the address that distinguish the clusters of one process. Of the 24 free bits of
    /// a loopback address, a process number takes up to 22.
    const CLUSTER_BITS: u32 = 2;
    let host = std::process::id() << CLUSTER_BITS | NEXT.fetch_add(1, Relaxed) & ((1 << CLUSTER_BITS) - 1);
    let [_, b, c, d] = host.to_be_bytes();
    Ipv4Addr::new(127, b, c, d)
}
