//! The errors of failed requests, and their log lines.

use std::{sync::Arc, time::Duration};

use sheen_lnet::{Net, Nid};
use sheen_rpc::{Cause, Import, ImportConfig, ImportState, RequestError};
use sheen_rt::{
    operation::{self, Operation},
    sim::{Sim, SimConfig, World},
};
use sheen_wire::{Errno, Mds, OpId, mds};

use crate::common::*;
use crate::sim::server;

const PORT: u16 = 7988;
const SYNC: mds::Request = mds::Request::Sync { fid: None };
/// A request that [`Echo`] refuses with EOPNOTSUPP.
const STATFS: mds::Request = mds::Request::StatFs;

fn client(world: &World) -> Arc<Import<Mds>> {
    let mut config = ImportConfig::new("client", TARGET, vec![Nid::Tcp(world.addr(1, PORT))]);
    (config.params.connect_timeout_ms, config.params.recovery_timeout_ms) = (3_000, 20_000);
    Import::new(Net::new(world.rt(2)), config)
}

async fn fails(import: &Import<Mds>, request: mds::Request) -> RequestError {
    import.request(request).send().await.unwrap_err()
}

#[test]
fn failed_request_names_its_target_request_xid_and_cause() {
    let sim = Sim::new(1, SimConfig::default());
    let echo = Arc::new(Echo::new(1));
    sim.run(async {
        let import = client(&sim);
        let error = fails(&import, SYNC).await;
        assert!(matches!(error.cause(), Cause::Unreachable { .. }), "{error}");
        assert_eq!((error.target(), error.op(), error.xid()), (TARGET, "sync", None));
        assert_eq!(Errno::from(error), Errno::ENOTCONN);

        let server = server(&sim, &echo).await;
        import.request(SYNC).send().await.unwrap();
        let error = fails(&import, STATFS).await;
        assert_eq!((error.target(), error.op(), error.xid()), (TARGET, "statfs", Some(2)));
        assert_eq!(*error.cause(), Cause::Answered(Errno::EOPNOTSUPP));
        assert_eq!(error.to_string(), "sheen-MDT0000: statfs xid 2: the target answered (EOPNOTSUPP)");

        server.remove(TARGET);
        until(&sim.rt(2), || import.state() != ImportState::Full).await;
        let error = fails(&import, SYNC).await;
        assert_eq!(*error.cause(), Cause::Disconnected { seconds: 20 });
        assert_eq!((error.errno(), error.xid()), (Errno::ETIMEDOUT, None), "it was not sent");

        import.close().await;
        let error = fails(&import, SYNC).await;
        assert_eq!(*error.cause(), Cause::Closed);
        assert_eq!(error.to_string(), "sheen-MDT0000: sync: this client closed the connection (ESHUTDOWN)");
    })
    .unwrap();
}

#[test]
fn request_whose_connection_is_lost_fails_with_its_xid() {
    let sim = Sim::new(1, SimConfig::default());
    let echo = Arc::new(Echo::gated(1));
    sim.run(async {
        let server = server(&sim, &echo).await;
        let import = client(&sim);
        let waits = {
            let import = import.clone();
            sim.rt(2).spawn("call", async move { import.request(SYNC).send().await })
        };
        until(&sim.rt(2), || echo.executed() == 1).await;
        sim.partition(1, 2);
        let error = waits.await.unwrap().unwrap_err();
        assert_eq!((error.xid(), error.cause()), (Some(1), &Cause::Disconnected { seconds: 20 }), "{error}");
        drop(server);
    })
    .unwrap();
}

#[test]
fn failure_is_logged_once_with_its_operation_and_repetitions_are_counted() {
    let lines = logged(|| {
        let sim = Sim::new(1, SimConfig::default());
        sim.run(async {
            let (rt, import) = (sim.rt(2), client(&sim));
            let broken = || import.failure("sync", Cause::Evicted);
            let error = broken();
            for error in [error.clone(), error, broken(), broken()] {
                assert_eq!(error.into_errno(), Errno::EIO);
            }
            rt.sleep(Duration::from_secs(10)).await;
            let late = async { import.failure("sync", Cause::Evicted).into_errno() };
            assert_eq!(operation::within(Operation::without_job(OpId::new(1, 2)), late).await, Errno::EIO);
            for ordinary in [Cause::Answered(Errno::ENOENT), Cause::Answered(Errno::ENOSPC), Cause::Closed] {
                import.failure("sync", ordinary).into_errno();
            }
            let _ = Errno::from(import.failure("sync", Cause::Damaged));
            import.failure("statfs", Cause::Answered(Errno::EIO)).into_errno();
        })
        .unwrap();
    });
    let logged: Vec<_> = lines.iter().filter(|(line, _)| line.contains("request failed")).collect();
    let [first, second, third] = &logged[..] else { panic!("{lines:?}") };
    assert!(first.0.contains("sheen-MDT0000: sync: the target evicted this client"), "{first:?}");
    assert!(second.0.contains("failures since the last line: 2"), "{second:?}");
    assert_eq!(second.1, OpId::new(1, 2));
    assert!(third.0.contains("sheen-MDT0000: statfs: the target answered (EIO)"), "{third:?}");
}
