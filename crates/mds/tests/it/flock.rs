//! Locks of programs, flock(2) and fcntl(2), between clients of an MDT.

use std::time::Duration;

use crate::common::client::Client;
use crate::common::{Host, config, with_host};
use crate::common::{MDS, PORT};
use sheen_wire::ast::Callback;
use sheen_wire::ldlm::{Enqueue, Enqueued, Flags, Flock, FlockKind, LockId, Mode, Policy, Resource};
use sheen_wire::mds::{Reply, Request};
use sheen_wire::{Errno, Fid, Result};

const FILE: Fid = Fid::new(0x2_0000_0400, 1);

/// Runs a test with one client on the MDT's host and one on another host.
fn with_clients(test: impl AsyncFn(&Host, Client, Client)) {
    with_host(1, config(), async |sim, _, host| {
        host.server.listen(sim.addr(MDS, PORT)).await.unwrap();
        let (a, b) = (Client::lo(&host, "a").await, Client::tcp(sim, &host, 2).await);
        test(&host, a, b).await;
    });
}

fn range(start: u64, end: u64) -> Flock {
    Flock { start, end, owner: 1, pid: 77, kind: FlockKind::Posix }
}

async fn lock(client: &Client, mode: Mode, flock: Flock, flags: Flags) -> Result<Enqueued> {
    let want = Enqueue::new(Resource::flock(FILE), mode, Policy::Flock(flock), client.new_cookie());
    match client.ask(Request::Enqueue(Enqueue { flags, ..want })).await?.reply {
        Reply::Enqueued(answer) => Ok(answer),
        other => panic!("{other:?}"),
    }
}

fn nowait() -> Flags {
    Flags { nowait: true, ..Flags::default() }
}

#[test]
fn nowait_flock_returns_the_conflicting_lock() {
    with_clients(async |_, a, b| {
        assert!(matches!(lock(&a, Mode::Pw, range(10, 19), nowait()).await, Ok(Enqueued::Granted { .. })));
        assert!(matches!(lock(&b, Mode::Pw, range(20, 29), nowait()).await, Ok(Enqueued::Granted { .. })));
        assert!(matches!(lock(&b, Mode::Pr, range(19, 19), nowait()).await, Ok(Enqueued::WouldBlock { .. })));
        // F_GETLK.
        let test = Flags { test: true, ..Flags::default() };
        let Ok(Enqueued::WouldBlock { by }) = lock(&b, Mode::Pr, range(0, u64::MAX), test).await else { panic!() };
        assert!(by.mode == Mode::Pw && by.policy == Policy::Flock(range(10, 19)));
        assert!(matches!(lock(&b, Mode::Pr, range(0, 9), test).await, Ok(Enqueued::Granted { id: LockId::NONE, .. })));
        assert_eq!(a.called(), [], "programs' locks get no blocking callbacks");
    });
}

#[test]
fn waiting_flock_gets_completion_callback_when_granted() {
    with_clients(async |_, a, b| {
        lock(&a, Mode::Pw, range(0, u64::MAX), nowait()).await.unwrap();
        let Ok(Enqueued::Waiting { id }) = lock(&b, Mode::Pw, range(0, 9), Flags::default()).await else { panic!() };
        b.a_while().await;
        assert_eq!(b.called(), []);
        // Unlocks the middle, then everything.
        lock(&a, Mode::Nl, range(5, 100), nowait()).await.unwrap();
        b.a_while().await;
        assert_eq!(b.called(), [], "only a part is free");
        let unlocked = lock(&a, Mode::Nl, range(0, u64::MAX), nowait()).await;
        assert!(matches!(unlocked, Ok(Enqueued::Granted { id: LockId::NONE, .. })), "{unlocked:?}");
        b.a_while().await;
        let called = b.called();
        let [Callback::Completion { id: granted, resource, mode: Mode::Pw, policy, .. }] = called[..] else {
            panic!("{called:?}")
        };
        assert_eq!((granted, resource, policy), (id, Resource::flock(FILE), Policy::Flock(range(0, 9))));
    });
}

#[test]
fn cancelled_waiting_flock_is_dropped() {
    with_clients(async |_, a, b| {
        lock(&a, Mode::Pw, range(0, 9), nowait()).await.unwrap();
        let Ok(Enqueued::Waiting { id }) = lock(&b, Mode::Pw, range(0, 9), Flags::default()).await else { panic!() };
        b.cancel(&[id]).await;
        lock(&a, Mode::Nl, range(0, 9), nowait()).await.unwrap();
        b.a_while().await;
        assert_eq!(b.called(), []);
        assert!(matches!(lock(&a, Mode::Pw, range(0, 9), nowait()).await, Ok(Enqueued::Granted { .. })));
    });
}

#[test]
fn flock_that_would_deadlock_is_refused() {
    with_clients(async |_, a, b| {
        lock(&a, Mode::Pw, range(0, 0), nowait()).await.unwrap();
        lock(&b, Mode::Pw, range(1, 1), nowait()).await.unwrap();
        assert!(matches!(lock(&a, Mode::Pw, range(1, 1), Flags::default()).await, Ok(Enqueued::Waiting { .. })));
        assert_eq!(lock(&b, Mode::Pw, range(0, 0), Flags::default()).await, Ok(Enqueued::Deadlock));
    });
}

#[test]
fn flocks_of_disconnected_client_are_dropped() {
    with_clients(async |_, a, b| {
        lock(&a, Mode::Pw, range(0, 9), nowait()).await.unwrap();
        assert!(matches!(lock(&b, Mode::Pr, range(0, 9), Flags::default()).await, Ok(Enqueued::Waiting { .. })));
        a.import.close().await;
        b.a_while().await;
        assert!(matches!(b.called()[..], [Callback::Completion { .. }]));
    });
}

#[test]
fn resent_flock_request_takes_one_lock() {
    with_clients(async |host, a, _| {
        let want = Enqueue::new(Resource::flock(FILE), Mode::Pw, Policy::Flock(range(0, 9)), a.new_cookie());
        let mut answers = Vec::new();
        for _ in 0..2 {
            let Reply::Enqueued(answer) = a.ask(Request::Enqueue(want)).await.unwrap().reply else { panic!() };
            answers.push(answer);
        }
        assert_eq!(answers[0], answers[1]);
        assert_eq!(host.param("ldlm.namespaces.mdt-sheen-MDT0000_UUID.lock_count"), "1");
    });
}

#[test]
fn enqueue_accepts_only_flocks_which_never_time_out() {
    with_clients(async |host, a, _| {
        for (resource, policy) in [
            (Resource::bits(FILE), Policy::bits(1)),
            (Resource::extent(FILE), Policy::extent(0, 9)),
            (Resource::flock(FILE), Policy::bits(1)),
        ] {
            let want = Enqueue::new(resource, Mode::Pr, policy, a.new_cookie());
            assert_eq!(a.ask(Request::Enqueue(want)).await.err(), Some(Errno::EINVAL), "{resource:?}");
        }
        // A program may hold a lock for as long as it likes.
        lock(&a, Mode::Pw, range(0, 9), nowait()).await.unwrap();
        host.rt.sleep(Duration::from_secs(3600)).await;
        assert!(matches!(lock(&a, Mode::Nl, range(0, 9), nowait()).await, Ok(Enqueued::Granted { .. })));
    });
}
