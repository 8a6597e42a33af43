//! The list of a client's waits: for a slot, a connection, a recovery and a reply.

use std::sync::Arc;

use sheen_params::{Wait, WaitKind};
use sheen_rpc::{Import, ImportState};
use sheen_rt::{
    JoinHandle, Rt, operation,
    sim::{Sim, SimConfig},
};
use sheen_wire::{JobId, Mds};
use tokio::sync::Semaphore;

use crate::common::*;
use crate::sim::{client, server};

fn waits(import: &Import<Mds>) -> Vec<Wait> {
    import.waiting(|_| None)
}

/// Starts a task that sends `AllocSeq` for a job.
fn begin(rt: &Rt, import: &Arc<Import<Mds>>) -> JoinHandle<sheen_wire::Result<u64>> {
    let import = import.clone();
    rt.spawn("seq", operation::within(JobId::new(b"dd.1000"), async move { seq(&import).await }))
}

/// Asserts what an operation of the job waits for.
fn assert_wait(wait: &Wait, kind: WaitKind, request: &str) {
    assert_eq!((wait.kind, wait.request.as_str(), wait.job.as_str()), (kind, request, "dd.1000"), "{wait:?}");
    assert_eq!((wait.target.as_str(), wait.client.as_str()), (TARGET, "client-2"), "{wait:?}");
}

#[test]
fn waits_for_a_slot_and_a_reply_are_listed_until_they_end() {
    let sim = Sim::new(1, SimConfig::default());
    let echo = Arc::new(Echo::gated(1));
    sim.run(async {
        let _server = server(&sim, &echo).await;
        let (import, rt) = (client(&sim, 2), sim.rt(2));
        import.set_max_rpcs_in_flight(1).unwrap();
        let first = begin(&rt, &import);
        until(&rt, || echo.executed() == 1).await;
        assert_eq!(waits(&import), [], "a reply is no wait at first");
        let second = begin(&rt, &import);
        until(&rt, || !waits(&import).is_empty()).await;
        assert_wait(&waits(&import)[0], WaitKind::Slot, "alloc_seq");
        until(&rt, || waits(&import).len() == 2).await;
        let listed = waits(&import);
        assert_wait(&listed[0], WaitKind::Slot, "alloc_seq");
        assert_wait(&listed[1], WaitKind::Reply, "alloc_seq");
        assert_eq!(listed[1].state, "FULL");
        echo.gate.add_permits(2);
        assert_eq!((first.await.unwrap(), second.await.unwrap()), (Ok(1), Ok(2)));
        assert_eq!(waits(&import), []);
    })
    .unwrap();
}

#[test]
fn wait_for_a_connection_is_listed_until_it_ends() {
    let sim = Sim::new(2, SimConfig::default());
    let echo = Arc::new(Echo::new(1));
    sim.run(async {
        let _server = server(&sim, &echo).await;
        let (import, rt) = (client(&sim, 2), sim.rt(2));
        sim.partition(1, 2);
        let call = begin(&rt, &import);
        until(&rt, || !waits(&import).is_empty()).await;
        let listed = waits(&import);
        assert_eq!(listed.len(), 1, "{listed:?}");
        assert_wait(&listed[0], WaitKind::Connection, "");
        sim.heal(1, 2);
        // The reply or the error of the connection ends the wait.
        assert!(call.await.is_ok());
        assert_eq!(waits(&import), []);
    })
    .unwrap();
}

#[test]
fn wait_for_a_recovery_is_listed_until_it_ends() {
    let sim = Sim::new(3, SimConfig::default());
    sim.run(async {
        let first = server(&sim, &Arc::new(Echo::new(1))).await;
        let (import, rt) = (client(&sim, 2), sim.rt(2));
        assert_eq!(seq(&import).await, Ok(1));
        let gate = Arc::new(Semaphore::new(0));
        import.on_restart({
            let gate = gate.clone();
            move |_| {
                let gate = gate.clone();
                Box::pin(async move {
                    gate.acquire().await.unwrap().forget();
                    Ok(())
                })
            }
        });
        first.stop().await;
        drop(first);
        let _server = server(&sim, &Arc::new(Echo::new(2))).await;
        until(&rt, || import.state() == ImportState::Recover).await;
        let call = begin(&rt, &import);
        until(&rt, || !waits(&import).is_empty()).await;
        let listed = waits(&import);
        assert_eq!(listed.len(), 1, "{listed:?}");
        assert_wait(&listed[0], WaitKind::Recovery, "");
        assert_eq!(listed[0].state, "RECOVER");
        gate.add_permits(1);
        assert_eq!(call.await.unwrap(), Ok(1));
        assert_eq!(waits(&import), []);
    })
    .unwrap();
}
