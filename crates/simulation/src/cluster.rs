//! The hosts of a simulated file system, and their services and mounts.

use std::{path::Path, sync::Arc};

use sheen_client::{Client, ClientOptions};
use sheen_lnet::{DEFAULT_PORT, Net, Nid, Trust};
use sheen_mds::{Mdt, MdtConfig};
use sheen_mgs::Mgs;
use sheen_oss::{Ost, OstConfig};
use sheen_params::{Params, Value};
use sheen_rpc::Server;
use sheen_rt::{Rt, join::join_all, sim::World};

use crate::{
    error::{Result, SimulationError, failed},
    hardware::Hardware,
    job::Locks,
};

/// The host of the MGS and the MDT.
const MDS: u32 = 1;
/// The host of the first OST.
const OSS: u32 = 1 << 8;
/// The host of the first client.
const CLIENT: u32 = 1 << 16;
const FSNAME: &str = "sheen";
/// Default of a mount's `lockless_write_kb`.
const LOCKLESS_KB: &str = "256";
/// Bytes of a MiB.
const MIB: u64 = 1 << 20;

/// A running file system. Dropping it ends nothing; the end of the world does.
pub struct Cluster {
    /// The mounts, one for each node.
    pub clients: Vec<Arc<Client>>,
    /// Parameters of all servers and mounts.
    params: Params,
    /// The servers run as long as these live.
    _servers: Vec<(Arc<Server>, Service)>,
}

/// A service of a server.
enum Service {
    Mds(#[allow(dead_code, reason = "keeps it running")] Arc<Mgs>, #[allow(dead_code, reason = "likewise")] Arc<Mdt>),
    Oss(#[allow(dead_code, reason = "likewise")] Arc<Ost>),
}

impl Cluster {
    /// Starts the servers, and mounts the file system on this many nodes.
    ///
    /// # Errors
    /// Of a service or a mount.
    pub async fn start(world: &World, hardware: &Hardware, nodes: u32) -> Result<Cluster> {
        let params = Params::new();
        let mut servers = Vec::new();
        let (net, server) = listen(world, MDS).await?;
        world.set_link(MDS, hardware.server_link * MIB);
        let mgs = Mgs::start(world.rt(MDS), Path::new("/mgs"), params.clone()).await.map_err(failed("the MGS"))?;
        server.add::<sheen_wire::Mgs>(sheen_mgc::MGS_TARGET, mgs.clone());
        let config = MdtConfig::new("/mdt", FSNAME, 0, vec![nid(world, MDS)], vec![nid(world, MDS).to_string()]);
        let started = Mdt::start(world.rt(MDS), net, &server, config, params.clone()).await;
        let mdt = started.map_err(failed("the MDT"))?;
        servers.push((server, Service::Mds(mgs, mdt.clone())));
        for index in 0..hardware.osts {
            let host = OSS + index;
            world.set_link(host, hardware.server_link * MIB);
            let (net, server) = listen(world, host).await?;
            let mut config =
                OstConfig::new("/ost", FSNAME, Some(index), vec![nid(world, MDS)], vec![nid(world, host).to_string()]);
            config.disk = Some(hardware.disk);
            let ost = Ost::start(net, &server, config, params.clone()).await.map_err(failed("an OST"))?;
            servers.push((server, Service::Oss(ost)));
        }
        mdt.wait_osts(hardware.osts as usize).await;
        let mounts = (0..nodes).map(|node| {
            world.set_link(CLIENT + node, hardware.client_link * MIB);
            mount(world, CLIENT + node, &params)
        });
        let clients = join_all(mounts).await.into_iter().collect::<Result<_>>()?;
        Ok(Cluster { clients, params, _servers: servers })
    }

    /// Sets the kind of locks, and switches checksums off: computing them takes no virtual time.
    ///
    /// # Errors
    /// A parameter is missing.
    pub fn tune(&self, locks: Locks) -> Result<()> {
        let switch = |on: bool| if on { "1" } else { "0" };
        for (pattern, value) in [
            ("ldlm.namespaces.filter-*.lock_expand", switch(locks != Locks::Exact)),
            ("ldlm.namespaces.filter-*.lock_adaptive", switch(locks == Locks::Adaptive)),
            // Without adaptive locks, clients take locks for large writes, as Lustre's do.
            ("llite.*.lockless_write_kb", if locks == Locks::Adaptive { LOCKLESS_KB } else { "0" }),
            ("osc.*.checksums", "0"),
        ] {
            self.params.set(pattern, value).map_err(failed(pattern))?;
        }
        Ok(())
    }

    /// Returns the sum of a counter of the locks of all OSTs.
    ///
    /// # Errors
    /// There is no such counter.
    pub fn count(&self, name: &str) -> Result<u64> {
        let found = self.params.typed_of("ldlm.namespaces.filter-*.stats", None).map_err(failed("counters"))?;
        let of = |value: &Value| match value {
            Value::Counters(stats) => stats.get(name).map(|sample| sample.count),
            _ => None,
        };
        let counts: Option<Vec<u64>> = found.iter().map(|param| of(&param.value)).collect();
        counts.map(|all| all.iter().sum()).ok_or_else(|| SimulationError(format!("no counter {name}")))
    }
}

fn nid(world: &World, host: u32) -> Nid {
    Nid::Tcp(world.addr(host, DEFAULT_PORT))
}

async fn listen(world: &World, host: u32) -> Result<(Arc<Net>, Arc<Server>)> {
    let net = Net::trusting(world.rt(host), Trust::All);
    let server = Server::new(net.clone());
    server.listen(world.addr(host, DEFAULT_PORT)).await.map_err(failed("listen"))?;
    Ok((net, server))
}

async fn mount(world: &World, host: u32, params: &Params) -> Result<Arc<Client>> {
    let rt: Rt = world.rt(host);
    let net = Net::trusting(rt.clone(), Trust::All);
    let mgs = vec![nid(world, MDS)];
    Client::mount(rt, net, mgs, FSNAME, ClientOptions::default(), params.clone()).await.map_err(failed("a mount"))
}
