//! Locks of clients: waiting for them, losing them, blocking callbacks for them.

use sheen_wire::{Errno, Fid, ast::Callback, ldlm::*, ost};

use crate::common::*;

#[test]
fn enqueue_wait_returns_when_the_lock_is_granted() {
    run(async |s| {
        for lo in [true, false] {
            let (a, b) = (s.client("a", lo, Answer::Never).await, s.client("b", lo, Answer::Never).await);
            let id = a.lock(Mode::Pw, 1).await;
            let waits = s.rt.spawn("waits", {
                let b = b.clone();
                async move { b.lock(Mode::Pr, 1).await }
            });
            s.until(|| a.asked() == [id]).await;
            assert!(!waits.is_finished());
            a.cancel(id).await;
            let id = waits.await.unwrap();
            b.cancel(id).await;
            assert!(b.heard.lock().is_empty(), "the answer has the lock");
        }
    });
}

#[test]
fn enqueue_wait_ends_when_its_client_cancels_or_disconnects() {
    run(async |s| {
        for lo in [true, false] {
            let a = s.client("a", lo, Answer::Never).await;
            let id = a.lock(Mode::Pw, 1).await;
            let waiting = |name: &'static str| {
                let s = &s;
                async move {
                    let b = s.client(name, lo, Answer::Never).await;
                    let before = s.service.locks(1);
                    let asking = b.clone();
                    let request = ost::Request::Enqueue { locks: vec![b.ask(object(1), Mode::Pw, whole())], want: 0 };
                    let call = s.rt.spawn("waits", async move { asking.import.request(request).send().await });
                    s.until(|| s.service.locks(1) == before + 1).await;
                    (b, call)
                }
            };
            let (b, call) = waiting("b").await;
            let (c, ended) = waiting("c").await;
            let theirs = s.service.lockd.resource_locks(object(1));
            let theirs = theirs.iter().find(|l| l.lock.client == s.service.export("b").id()).unwrap();
            b.cancel(theirs.lock.id).await;
            match call.await.unwrap().unwrap().body {
                ost::Reply::Enqueued { locks: answers, .. } => {
                    assert_eq!(answers[0].0, Enqueued::Refused(Errno::ESHUTDOWN))
                }
                other => panic!("{other:?}"),
            }
            c.import.close().await;
            match ended.await.unwrap().map(|r| r.body) {
                Err(error) if error == Errno::ESHUTDOWN => {}
                Ok(ost::Reply::Enqueued { locks: answers, .. }) if lo => {
                    assert_eq!(answers[0].0, Enqueued::Refused(Errno::ESHUTDOWN));
                }
                other => panic!("{other:?}"),
            }
            s.until(|| s.service.locks(1) == 1).await;
            a.cancel(id).await;
            let d = s.client("d", lo, Answer::Never).await;
            d.lock(Mode::Pw, 1).await;
            d.import.close().await;
            s.until(|| s.service.locks(1) == 0).await;
        }
    });
}

#[test]
fn dropped_enqueue_wait_cancels_its_request() {
    run(async |s| {
        let (a, b) = (s.client("a", true, Answer::Never).await, s.client("b", true, Answer::Never).await);
        let id = a.lock(Mode::Pw, 1).await;
        assert!(now(b.enqueue(Mode::Pw, 1)).is_none());
        assert_eq!(s.service.locks(1), 1);
        a.cancel(id).await;
        assert_eq!(s.service.locks(1), 0);
    });
}

#[test]
fn disconnected_client_is_granted_nothing() {
    run(async |s| {
        for lo in [true, false] {
            let a = s.client("a", lo, Answer::Never).await;
            let export = s.service.export("a");
            a.import.close().await;
            s.until(|| s.service.ended.lock().contains(&"a".to_owned())).await;
            let ask = a.ask(object(1), Mode::Pr, whole());
            assert_eq!(s.service.lockd.enqueue(&export, &ask), Enqueued::Refused(Errno::ESHUTDOWN));
            assert_eq!(s.service.locks(1), 0);
            s.service.ended.lock().clear();
        }
    });
}

#[test]
fn waiting_flock_gets_a_completion_callback() {
    run(async |s| {
        for lo in [true, false] {
            let (a, b) = (s.client("a", lo, Answer::Never).await, s.client("b", lo, Answer::Never).await);
            let file = Resource::flock(Fid::new(9, 9));
            let flock = |owner| Policy::Flock(Flock { start: 0, end: EOF, owner, pid: 1, kind: FlockKind::Posix });
            granted(a.send(a.ask(file, Mode::Pw, flock(1))).await);
            let ask = b.ask(file, Mode::Pr, flock(1));
            let Enqueued::Waiting { id } = b.send(ask).await else { panic!("it must wait") };
            let test = Enqueue { flags: Flags { test: true, ..Flags::default() }, ..b.ask(file, Mode::Pr, flock(2)) };
            assert!(matches!(b.send(test).await, Enqueued::WouldBlock { .. }));
            a.send(a.ask(file, Mode::Nl, flock(1))).await;
            s.until(|| !b.heard.lock().is_empty()).await;
            let completion =
                Callback::Completion { id, cookie: ask.cookie, resource: file, mode: Mode::Pr, policy: flock(1) };
            assert_eq!((&b.heard.lock()[..], a.heard.lock().len()), (&[completion][..], 0));
            b.import.close().await;
            s.until(|| s.service.lockd.stats().lock_count() == 0).await;
        }
    });
}

#[test]
fn client_that_ignores_a_blocking_callback_is_evicted() {
    run(async |s| {
        s.service.lockd.tune(|t| t.lock_timeout_ms = 100);
        for lo in [true, false] {
            let (a, b) = (s.client("a", lo, Answer::Soon).await, s.client("b", lo, Answer::Never).await);
            a.lock(Mode::Pr, 1).await;
            b.lock(Mode::Pr, 1).await;
            let other = b.lock(Mode::Pr, 2).await;
            let (export, began) = (s.service.export("b"), s.rt.now());
            s.local(1, None).wait().await;
            let took = s.rt.now().since(began).as_millis();
            assert!((100..200).contains(&took), "{took} ms; the lock timeout is 100 ms");
            s.until(|| !s.service.ended.lock().is_empty()).await;
            assert_eq!(*s.service.ended.lock(), ["b"]);
            assert!(export.is_ended() && s.service.locks(2) == 0, "all of its locks were dropped");
            assert!(!s.service.export("a").is_ended());

            // The client reconnects as an unknown one.
            let lost = b.import.request(cancel_of(other)).urgent().send().await;
            assert!(lost.err().is_none_or(|e| e == Errno::EIO), "it was evicted, and may first learn of that here");
            let new = b.lock(Mode::Pr, 2).await;
            assert!(s.service.export("b").id() != export.id() && s.service.locks(2) == 1);
            b.cancel(new).await;
            a.import.close().await;
            b.import.close().await;
            s.until(|| s.service.ended.lock().len() == 3).await;
            s.service.ended.lock().clear();
        }
        assert_eq!(s.service.lockd.stats().evictions, 2);
    });
}

#[test]
fn granting_20000_waiting_locks_does_not_grow_the_stack() {
    run(async |s| {
        const WAITERS: u64 = 20_000;
        let a = s.client("a", true, Answer::Inline).await;
        let b = s.client("b", true, Answer::Inline).await;
        let exports = [s.service.export("a"), s.service.export("b")];
        // The clients cancel each lock from within the handler of its blocking callback, which
        // grants the next lock.
        for n in 0..WAITERS {
            let client = [&a, &b][n as usize % 2];
            let ask = client.ask(object(1), Mode::Pw, whole());
            s.service.lockd.enqueue(&exports[n as usize % 2], &ask);
        }
        s.until(|| s.service.locks(1) == 1).await;
        let completions = |c: &crate::common::Client| {
            c.heard.lock().iter().filter(|c| matches!(c, Callback::Completion { .. })).count() as u64
        };
        assert_eq!(completions(&a) + completions(&b), WAITERS - 1);
    });
}
