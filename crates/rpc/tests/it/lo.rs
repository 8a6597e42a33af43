//! A target in the same process.

use std::{
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use sheen_lnet::{Net, Nid};
use sheen_rpc::{Import, ImportState, Server};
use sheen_wire::{Errno, Mds, Ost, frame::FEATURE_OP_ID, mds};

use crate::common::*;

fn now<F: Future>(f: F) -> Option<F::Output> {
    match pin!(f).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(out) => Some(out),
        Poll::Pending => None,
    }
}

#[test]
fn lo_call_completes_at_first_poll_without_a_copy() {
    run(async |rt| {
        let net = Net::new(rt);
        let server = Server::new(net.clone());
        server.add::<Ost>(TARGET, Arc::new(Echo::new(1)));
        let import = Import::<Ost>::new(net, import_config("c", None));
        assert_eq!(import.state(), ImportState::New);
        let sent = data(1 << 20, 5);
        now(import.request(write()).bulk(sent.clone()).send()).expect("ready").unwrap();
        let got = now(import.request(read()).send()).expect("ready").unwrap().bulk;
        assert_eq!(got.segments()[0].as_ptr(), sent.segments()[0].as_ptr());
        assert_eq!((import.state(), import.current_nid()), (ImportState::Full, Some(Nid::Lo)));
        let stats = import.stats();
        let (name, op) = &stats.ops[1];
        assert_eq!((*name, op.count, op.sent.sum, op.received.count), ("write", 1, Some(1 << 20), 0));
        assert_eq!((stats.ops[0].1.received.sum, stats.in_flight, stats.in_flight_max), (Some(1 << 20), 0, 1));
        assert_eq!((stats.active.count, stats.active.max, stats.attempts), (2, Some(1), 1));
        assert!(stats.idle.is_some(), "the service has replied");
        let states: Vec<ImportState> = import.state_history().into_iter().map(|(_, state)| state).collect();
        assert_eq!((states, import.incarnation(), import.evictions()), (vec![ImportState::Full], Some(1), 0));
    });
}

#[test]
fn call_future_size_stays_within_bound() {
    run(async |rt| {
        let import = Import::<Mds>::new(Net::new(rt), import_config("c", None));
        let call = import.request(mds::Request::AllocSeq).send();
        let bytes = size_of_val(&call);
        assert!(bytes <= 3328, "a call's future has {bytes} bytes, which are copied with every call");
    });
}

#[test]
fn lo_target_drain_finishes_running_calls_and_starts_none() {
    run(async |rt| {
        let (first, second) = (Arc::new(Echo::gated(1)), Arc::new(Echo::new(2)));
        let (server, import) = serve_lo(&rt, &first);
        let running = begin_seq(&rt, &import);
        until(&rt, || first.executed() == 1).await;
        let going = server.clone();
        let going = rt.spawn("drain", async move { going.drain(TARGET).await });
        rt.sleep(Duration::from_millis(20)).await;
        let late = begin_seq(&rt, &import);
        rt.sleep(Duration::from_millis(20)).await;
        assert!(!going.is_finished() && first.executed() == 1);
        first.gate.add_permits(1);
        going.await.unwrap();
        assert_eq!(running.await.unwrap(), Ok(1));
        server.add::<Mds>(TARGET, second.clone());
        assert_eq!(late.await.unwrap(), Ok(1));
        assert_eq!((first.executed(), second.executed()), (1, 1));
    });
}

#[test]
fn calls_deliver_features_and_last_committed() {
    run(async |rt| {
        let (_server, import) = serve_lo(&rt, &Arc::new(Echo::new(1)));
        for n in 1..=4 {
            assert_eq!(seq(&import).await, Ok(n));
        }
        assert_eq!((import.features() & !FEATURE_OP_ID, import.last_committed()), (0b010, 2));
    });
}

#[test]
fn a_service_of_another_protocol_is_not_called() {
    run(async |rt| {
        let net = Net::new(rt);
        let server = Server::new(net.clone());
        server.add::<Ost>(TARGET, Arc::new(Echo::new(1)));
        let import = Import::<Mds>::new(net, import_config("c", None));
        assert_eq!(seq(&import).await, Err(Errno::ENOTCONN));
    });
}

#[test]
fn connect_to_a_lo_target_with_another_uuid_reports_it() {
    run(async |rt| {
        let net = Net::new(rt);
        let server = Server::new(net.clone());
        server.add::<Mds>(TARGET, Arc::new(Echo { uuid: "new", ..Echo::new(1) }));
        let import = Import::<Mds>::new(net, import_config("c", None).of("old"));
        let error = import.connect().await.unwrap_err().to_string();
        assert!(error.contains("0@lo: the target of this name has another uuid"), "{error}");
    });
}

#[test]
fn a_call_waits_for_a_target_that_comes_later_and_survives_its_restart() {
    run(async |rt| {
        let net = Net::new(rt.clone());
        let server = Server::new(net.clone());
        let import = Import::<Mds>::new(net, import_config("c", None));
        let early = begin_seq(&rt, &import);
        until(&rt, || import.state() == ImportState::Connecting).await;
        let first = Arc::new(Echo::new(1));
        server.add::<Mds>(TARGET, first.clone());
        assert_eq!(early.await.unwrap(), Ok(1));

        import.on_restart(|recovering| {
            Box::pin(async move {
                assert_eq!(recovering.welcome().incarnation, 2);
                recovering.call(mds::Request::Reopen { files: vec![], first: false, last: false }).await?;
                Ok(())
            })
        });
        server.remove(TARGET);
        assert_eq!(import.state(), ImportState::Disconn);
        let second = Arc::new(Echo::new(2));
        let waits = begin_seq(&rt, &import);
        until(&rt, || import.state() == ImportState::Connecting).await;
        server.add::<Mds>(TARGET, second.clone());
        assert_eq!(waits.await.unwrap(), Ok(2));
        assert_eq!(*second.ops.lock(), ["reopen", "alloc_seq"], "the hook comes first");
        assert!(first.ended.lock().is_empty(), "the removal of a target does not disconnect its clients");
    });
}

#[test]
fn closing_lo_import_fails_waiting_and_later_calls() {
    run(async |rt| {
        let echo = Arc::new(Echo::gated(1));
        let (_server, import) = serve_lo(&rt, &echo);
        expect_close_ends_calls(&rt, &import, &echo).await;
        assert_eq!(*echo.ended.lock(), ["c"]);
        import.close().await;
        drop(import);
        assert_eq!(echo.ended.lock().len(), 1, "disconnected once");
    });
}

#[test]
fn calls_in_flight_stay_within_max_rpcs_in_flight() {
    run(async |rt| {
        let echo = Arc::new(Echo::gated(1));
        let (_server, import) = serve_lo(&rt, &echo);
        assert_eq!(import.set_max_rpcs_in_flight(257), Err(Errno::ERANGE));
        import.set_max_rpcs_in_flight(3).unwrap();
        let calls: Vec<_> = (0..12).map(|_| begin_seq(&rt, &import)).collect();
        until(&rt, || echo.executed() == 3).await;
        echo.gate.add_permits(3);
        until(&rt, || echo.executed() == 6).await;
        assert_eq!(echo.running_max.load(std::sync::atomic::Ordering::SeqCst), 3);
        import.set_max_rpcs_in_flight(5).unwrap();
        until(&rt, || echo.executed() == 8).await;
        echo.gate.add_permits(9);
        for call in calls {
            call.await.unwrap().unwrap();
        }
        assert_eq!(import.stats().in_flight_max, 5);
    });
}
