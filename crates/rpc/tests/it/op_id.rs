//! Operation ids: from a client through one server to another, and in log lines of slow requests.

use std::sync::Arc;

use parking_lot::Mutex;
use sheen_lnet::{Net, Nid};
use sheen_rpc::{BoxFuture, Export, Import, ImportConfig, Response, Server, Service};
use sheen_rt::{
    Rt,
    operation::{self, Operation, SLOW_AFTER},
    sim::{Sim, SimConfig, World},
};
use sheen_wire::{Bulk, Mds, Mgs, OpId, Ost, mds, mgs, ost};

use crate::common::*;
use crate::sim::{break_connections, server};

const PORT: u16 = 7988;
const OST: &str = "sheen-OST0000";

/// Records the operations that its requests belong to. Passes each request on to an OST, if it has
/// one.
struct Witness {
    ost: Option<Arc<Import<Ost>>>,
    seen: Mutex<Vec<OpId>>,
}

impl Witness {
    fn new(ost: Option<Arc<Import<Ost>>>) -> Arc<Witness> {
        Arc::new(Witness { ost, seen: Mutex::default() })
    }

    /// Returns what it has seen, without the repetitions by resends.
    fn seen(&self) -> Vec<OpId> {
        let mut seen = self.seen.lock().clone();
        seen.dedup();
        seen
    }
}

impl Service<Mds> for Witness {
    fn call<'a>(
        &'a self,
        _: &'a Arc<Export>,
        _: mds::Call,
        _: Bulk,
    ) -> BoxFuture<'a, sheen_wire::Result<Response<mds::Answer>>> {
        Box::pin(async move {
            self.seen.lock().push(operation::current());
            if let Some(ost) = &self.ost {
                ost.request(ost::Request::StatFs).send().await?;
            }
            Ok(mds::Answer::from(mds::Reply::Ok).into())
        })
    }

    fn incarnation(&self) -> u64 {
        1
    }
}

impl Service<Ost> for Witness {
    fn call<'a>(
        &'a self,
        _: &'a Arc<Export>,
        _: ost::Request,
        _: Bulk,
    ) -> BoxFuture<'a, sheen_wire::Result<Response<ost::Reply>>> {
        self.seen.lock().push(operation::current());
        Box::pin(async { Ok(ost::Reply::Ok.into()) })
    }

    fn incarnation(&self) -> u64 {
        1
    }
}

fn config(world: &World, client: &str, target: &str, host: u32) -> ImportConfig {
    ImportConfig::new(client, target, vec![Nid::Tcp(world.addr(host, PORT))])
}

#[test]
fn request_carries_operation_id_to_every_server_although_connections_break() {
    for seed in 0..5 {
        let sim = Sim::new(seed, SimConfig { loss: 0.01, ..SimConfig::default() });
        sim.run(async {
            let ost = Witness::new(None);
            let ost_server = Server::new(Net::new(sim.rt(2)));
            ost_server.add::<Ost>(OST, ost.clone());
            ost_server.listen(sim.addr(2, PORT)).await.unwrap();

            let mdt = Witness::new(Some(Import::new(Net::new(sim.rt(1)), config(&sim, "mdt", OST, 2))));
            let mdt_server = Server::new(Net::new(sim.rt(1)));
            mdt_server.add::<Mds>(TARGET, mdt.clone());
            mdt_server.listen(sim.addr(1, PORT)).await.unwrap();

            let import = Import::<Mds>::new(Net::new(sim.rt(3)), config(&sim, "client", TARGET, 1));
            let faults = break_connections(&sim, 2);
            let mut sent = Vec::new();
            for number in 1..=20 {
                let op = if number % 5 == 0 { OpId::NONE } else { OpId::new(0xff00_0000_0000_0001, number) };
                sent.push(op);
                let call = import.request(mds::Request::AllocSeq).send();
                operation::within(Operation::without_job(op), call).await.unwrap();
            }
            faults.abort();
            assert!(import.stats().resent > 0);
            assert_eq!(mdt.seen(), sent, "seed {seed}");
            assert_eq!(ost.seen(), sent, "seed {seed}");
        })
        .unwrap();
    }
}

#[test]
fn lo_call_keeps_the_operation_of_its_caller() {
    run(async |rt| {
        let net = Net::new(rt);
        let (server, mdt) = (Server::new(net.clone()), Witness::new(None));
        server.add::<Mds>(TARGET, mdt.clone());
        let import = Import::<Mds>::new(net, import_config("client", None));
        let op = OpId::new(1, 2);
        operation::within(Operation::without_job(op), import.request(mds::Request::AllocSeq).send()).await.unwrap();
        assert_eq!(mdt.seen(), [op]);
    });
}

#[test]
fn slow_request_is_logged_by_client_and_server_with_its_operation() {
    let lines = logged(|| {
        let sim = Sim::new(1, SimConfig::default());
        sim.run(async {
            let echo = Arc::new(Echo::gated(1));
            let _server = server(&sim, &echo).await;
            let import = Import::<Mds>::new(Net::new(sim.rt(3)), config(&sim, "client", TARGET, 1));
            for (number, time) in [(1, SLOW_AFTER / 2), (2, SLOW_AFTER)] {
                let (rt, echo) = (sim.rt(1), echo.clone());
                let release = sim.rt(1).spawn("release", async move {
                    until(&rt, || echo.executed() == number).await;
                    rt.sleep(time).await;
                    echo.gate.add_permits(1);
                });
                operation::within(Operation::without_job(OpId::new(9, number)), seq(&import)).await.unwrap();
                release.await.unwrap();
            }
        })
        .unwrap();
    });
    let slow: Vec<_> = lines.iter().filter(|(line, _)| line.contains("slow request")).collect();
    let (server, client) = (&slow[0], &slow[1]);
    assert_eq!(slow.len(), 2, "{lines:?}");
    assert!(server.0.contains("request=\"alloc_seq\"") && server.0.contains("xid=2"), "{server:?}");
    assert!(client.0.contains("request=\"alloc_seq\"") && !client.0.contains("xid"), "{client:?}");
    assert_eq!((server.1, client.1), (OpId::new(9, 2), OpId::new(9, 2)));
}

/// Replies after a while, as an MGS does when nothing changes.
struct Calm(Rt);

impl Service<Mgs> for Calm {
    fn call<'a>(
        &'a self,
        _: &'a Arc<Export>,
        _: mgs::Request,
        _: Bulk,
    ) -> BoxFuture<'a, sheen_wire::Result<Response<mgs::Reply>>> {
        Box::pin(async move {
            self.0.sleep(2 * SLOW_AFTER).await;
            Ok(mgs::Reply::Names(Vec::new()).into())
        })
    }

    fn incarnation(&self) -> u64 {
        1
    }
}

#[test]
fn watch_that_waits_for_a_change_is_not_logged_as_slow() {
    let lines = logged(|| {
        let sim = Sim::new(1, SimConfig::default());
        sim.run(async {
            let server = Server::new(Net::new(sim.rt(1)));
            server.add::<Mgs>("MGS", Arc::new(Calm(sim.rt(1))));
            server.listen(sim.addr(1, PORT)).await.unwrap();
            let import = Import::<Mgs>::new(Net::new(sim.rt(3)), config(&sim, "client", "MGS", 1));
            import.request(mgs::Request::Watch { fsname: "t".into(), version: 1 }).send().await.unwrap();
            import.request(mgs::Request::List).send().await.unwrap();
        })
        .unwrap();
    });
    let slow: Vec<_> = lines.iter().filter(|(line, _)| line.contains("slow request")).collect();
    // One line of the client and one of the server.
    assert!(slow.len() == 2 && slow.iter().all(|(line, _)| line.contains("request=\"list\"")), "{lines:?}");
}
