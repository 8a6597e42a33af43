//! The self-test: loads that a server sends to another one.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use sheen_keys::{Key, Keyring};
use sheen_lnet::{Keys, Net, Nid, Trust};
use sheen_rpc::{Import, ImportConfig, SelftestService, Server};
use sheen_rt::sim::{Sim, SimConfig, World};
use sheen_wire::{
    Errno, Selftest,
    auth::{ClusterId, Issued, KeyId, Role, User},
    selftest::{Done, Load, Reply, Request, TARGET},
};

use crate::common::until;

const PORT: u16 = 7988;
/// The host of the server that sends loads.
const FROM: u32 = 1;
/// The host of the server that answers.
const TO: u32 = 2;
/// The host of a tool.
const TOOL: u32 = 3;
/// The host of another tool.
const OTHER: u32 = 4;
/// The host of a third tool.
const THIRD: u32 = 5;

const LOAD: Load = Load { sent_bytes: 0, reply_bytes: 0, in_flight: 1, time_ms: 50, delay_us: 1000 };

fn config() -> SimConfig {
    SimConfig { time_max: Duration::from_secs(600), ..SimConfig::default() }
}

fn key() -> Key {
    Key::new(ClusterId(1), 1, [1; 32], 0)
}

fn trust(key: Key) -> Trust {
    Keys::new(Keyring::of(vec![key])).into()
}

/// Starts the self-test of a host.
async fn serve(world: &World, host: u32) -> Arc<Server> {
    let net = Net::trusting(world.rt(host), trust(key()));
    let server = Server::new(net.clone());
    server.add::<Selftest>(TARGET, SelftestService::new(&net));
    server.listen(world.addr(host, PORT)).await.unwrap();
    server
}

/// Returns the connection of a tool with this key to the server that sends loads.
fn tool(world: &World, host: u32, key: Key) -> Arc<Import<Selftest>> {
    let config = ImportConfig::new(&format!("tool-{host}"), TARGET, vec![Nid::Tcp(world.addr(FROM, PORT))]);
    Import::new(Net::trusting(world.rt(host), trust(key)), config)
}

/// Has a load sent to an address.
async fn load(tool: &Import<Selftest>, to: SocketAddr, load: Load) -> Result<Reply, Errno> {
    let to = vec![Nid::Tcp(to).to_string()];
    Ok(tool.request(Request::Load { to, load }).send().await?.body)
}

#[track_caller]
fn done(reply: Result<Reply, Errno>) -> Done {
    match reply {
        Ok(Reply::Loaded(done)) => done,
        other => panic!("{other:?}"),
    }
}

#[test]
fn server_sends_a_load_to_another_one_and_delays_only_that() {
    let sim = Sim::new(1, config());
    let to = sim.addr(TO, PORT);
    sim.run(async {
        let _servers = [serve(&sim, FROM).await, serve(&sim, TO).await];
        let tool = tool(&sim, TOOL, key());
        for (sent_bytes, reply_bytes) in [(0, 0), (70_000, 0), (0, 70_000)] {
            let done = done(load(&tool, to, Load { sent_bytes, reply_bytes, ..LOAD }).await);
            assert!(done.nanos >= 50_000_000 && (1..=51).contains(&done.requests), "{done:?}");
            let four = Load { sent_bytes, reply_bytes, in_flight: 4, delay_us: 0, ..LOAD };
            let undelayed = self::done(load(&tool, to, four).await);
            assert!(undelayed.requests > done.requests, "{undelayed:?}, {done:?}");
        }
        let began = sim.rt(TOOL).now();
        let slow = Load { delay_us: 1_000_000, time_ms: 0, ..LOAD };
        assert_eq!(done(load(&tool, to, slow).await).requests, 1);
        let took = sim.rt(TOOL).now().since(began);
        assert!((1000..1500).contains(&took.as_millis()), "the reply to the tool is not delayed: {took:?}");
    })
    .unwrap();
}

#[test]
fn server_refuses_loads_of_issued_keys_and_beyond_limits() {
    let sim = Sim::new(2, config());
    let to = sim.addr(TO, PORT);
    sim.run(async {
        let _servers = [serve(&sim, FROM).await, serve(&sim, TO).await];
        let user = Role::User(User { uid: 1000, gid: 1, groups: Vec::new(), nodemap: None });
        for (id, role) in [(2, Role::Host(None)), (3, user)] {
            let issued = key().issue(Issued { id: KeyId(id), role: role.clone() }, 0).unwrap();
            let tool = tool(&sim, TOOL, issued);
            assert_eq!(load(&tool, to, LOAD).await, Err(Errno::EPERM), "{role}");
            tool.close().await;
        }
        let tool = tool(&sim, TOOL, key());
        for bad in [Load { in_flight: 257, ..LOAD }, Load { time_ms: 60_001, ..LOAD }] {
            assert_eq!(load(&tool, to, bad).await, Err(Errno::EINVAL), "{bad:?}");
        }
        let nowhere = Request::Load { to: Vec::new(), load: LOAD };
        assert_eq!(tool.request(nowhere).send().await.unwrap_err(), Errno::EINVAL);
        done(load(&tool, to, LOAD).await);
    })
    .unwrap();
}

#[test]
fn server_without_authentication_sends_no_load() {
    let sim = Sim::new(5, config());
    let to = sim.addr(TO, PORT);
    sim.run(async {
        let net = Net::new(sim.rt(FROM));
        let server = Server::new(net.clone());
        server.add::<Selftest>(TARGET, SelftestService::new(&net));
        server.listen(sim.addr(FROM, PORT)).await.unwrap();
        let nids = vec![Nid::Tcp(sim.addr(FROM, PORT))];
        let tool: Arc<Import<Selftest>> = Import::new(Net::new(sim.rt(TOOL)), ImportConfig::new("tool", TARGET, nids));
        assert_eq!(load(&tool, to, LOAD).await, Err(Errno::EPERM));
    })
    .unwrap();
}

#[test]
fn load_to_a_server_that_does_not_answer_fails_with_the_reason() {
    let sim = Sim::new(3, config());
    let to = sim.addr(TO, PORT);
    sim.run(async {
        // The host is there, and nothing listens.
        let _ = sim.rt(TO);
        let _server = serve(&sim, FROM).await;
        let tool = tool(&sim, TOOL, key());
        match load(&tool, to, LOAD).await {
            Ok(Reply::Failed { why }) => assert!(why.contains("cannot reach selftest"), "{why}"),
            other => panic!("{other:?}"),
        }
        let _to = serve(&sim, TO).await;
        done(load(&tool, to, LOAD).await);
    })
    .unwrap();
}

#[test]
fn one_client_measures_at_a_time_and_its_end_ends_its_load() {
    let sim = Sim::new(4, config());
    let to = sim.addr(TO, PORT);
    sim.run(async {
        let servers = [serve(&sim, FROM).await, serve(&sim, TO).await];
        let [first, second] = [TOOL, OTHER].map(|host| tool(&sim, host, key()));
        done(load(&first, to, LOAD).await);
        assert_eq!(load(&second, to, LOAD).await, Err(Errno::EBUSY), "the first one has its turn");
        let long = first.clone();
        let long = sim.rt(TOOL).spawn("load", async move { load(&long, to, Load { time_ms: 60_000, ..LOAD }).await });
        sim.rt(OTHER).sleep(Duration::from_secs(20)).await;
        assert_eq!(load(&second, to, LOAD).await, Err(Errno::EBUSY), "a load is being sent");

        let began = sim.rt(OTHER).now();
        first.close().await;
        assert_eq!(long.await.unwrap(), Err(Errno::ESHUTDOWN));
        until(&sim.rt(OTHER), || servers[1].connections() == 0).await;
        done(load(&second, to, LOAD).await);
        assert!(sim.rt(OTHER).now().since(began) < Duration::from_secs(5), "it did not wait for the load's time");

        // A client that sends no load loses its turn.
        let third = tool(&sim, THIRD, key());
        assert_eq!(load(&third, to, LOAD).await, Err(Errno::EBUSY));
        sim.rt(OTHER).sleep(Duration::from_secs(11)).await;
        done(load(&third, to, LOAD).await);
    })
    .unwrap();
}
