//! Glimpses: sizes of objects with dirty data on clients.

use std::time::Duration;

use sheen_wire::{Fid, Time, ldlm::*, ost, ost::ObjectAttr};

use crate::common::*;

fn knows(size: u64, sec: i64) -> Option<ObjectAttr> {
    Some(ObjectAttr { size, blocks: size / 512, mtime: Some(Time { sec, nsec: 0 }) })
}

/// Takes a PW lock on a part of an object.
async fn write_lock(client: &Client, n: u32, start: u64, end: u64) -> LockId {
    let ask = client.ask(object(n), Mode::Pw, Policy::extent(start, end));
    granted(client.send(Enqueue { flags: Flags { no_expand: true, ..Flags::default() }, ..ask }).await)
}

#[test]
fn glimpse_sees_dirty_data_without_revoking_locks() {
    run(async |s| {
        for (lo, answer) in [(true, Answer::Inline), (true, Answer::Soon), (false, Answer::Soon)] {
            let (a, b) = (s.client("a", lo, answer).await, s.client("b", lo, answer).await);
            let c = s.client("c", lo, answer).await;
            assert_eq!(c.attrs(&[1]).await, [ObjectAttr::default()]);
            let (la, lb) = (write_lock(&a, 1, 0, 99_999).await, write_lock(&b, 1, 100_000, EOF).await);
            (*a.knows.lock(), *b.knows.lock()) = (knows(50_000, 7), knows(200_000, 5));
            let other = c.lock(Mode::Pr, 2).await;
            let [first, second] = c.attrs(&[1, 2]).await[..] else { panic!() };
            assert_eq!((first.size, first.blocks), (200_000, 50_000 / 512 + 200_000 / 512));
            assert_eq!((first.mtime, second), (Some(Time { sec: 7, nsec: 0 }), ObjectAttr::default()));
            assert_eq!((a.glimpsed(), b.glimpsed(), c.heard.lock().len()), (vec![la], vec![lb], 0));

            // The asker knows its own dirty data. A client that can write only below the known size
            // is not asked.
            s.service.sizes.lock().insert(object(1).fid, 150_000);
            assert_eq!(a.attrs(&[1]).await[0].size, 200_000);
            assert_eq!(b.attrs(&[1]).await[0].size, 150_000);
            assert_eq!((a.glimpsed().len(), b.glimpsed().len()), (1, 2));
            assert!(a.asked().is_empty() && b.asked().is_empty() && s.service.locks(1) == 2);
            *b.knows.lock() = None;
            assert_eq!(c.attrs(&[1]).await[0].size, 150_000);
            a.cancel(la).await;
            b.cancel(lb).await;
            c.cancel(other).await;
            s.service.sizes.lock().clear();
            for client in [a, b, c] {
                client.import.close().await;
            }
            s.until(|| s.service.ended.lock().len() == 3).await;
            s.service.ended.lock().clear();
        }
    });
}

#[test]
fn glimpse_without_writers_returns_at_once() {
    run(async |s| {
        let (a, b) = (s.client("a", true, Answer::Never).await, s.client("b", true, Answer::Never).await);
        a.lock(Mode::Pr, 1).await;
        write_lock(&a, 2, 0, 999).await;
        s.service.sizes.lock().insert(object(2).fid, 1000);
        assert!(now(b.attrs(&[1, 2])).is_some());
        assert!(a.heard.lock().is_empty());
    });
}

#[test]
fn glimpse_ends_when_the_writer_cancels_or_disconnects() {
    run(async |s| {
        for lo in [true, false] {
            let (a, b) = (s.client("a", lo, Answer::Never).await, s.client("b", lo, Answer::Never).await);
            let reader = s.client("reader", lo, Answer::Never).await;
            let ask = || {
                let reader = reader.clone();
                s.rt.spawn("asks", async move { reader.attrs(&[1]).await[0].size })
            };
            let (la, lb) = (write_lock(&a, 1, 0, 999).await, write_lock(&b, 1, 1000, EOF).await);
            let (first, second) = (ask(), ask());
            s.until(|| a.glimpsed() == [la] && b.glimpsed() == [lb]).await;
            // The client has flushed.
            s.service.sizes.lock().insert(object(1).fid, 700);
            a.cancel(la).await;
            s.rt.sleep(Duration::from_millis(5)).await;
            assert!(!first.is_finished() && !second.is_finished());
            b.import.close().await;
            assert_eq!((first.await.unwrap(), second.await.unwrap()), (700, 700));
            s.until(|| s.service.locks(1) == 0).await;
            for client in [a, reader] {
                client.import.close().await;
            }
            s.until(|| s.service.ended.lock().len() == 3).await;
            s.service.ended.lock().clear();
            s.service.sizes.lock().clear();
        }
    });
}

#[test]
fn writer_that_ignores_a_glimpse_is_evicted() {
    run(async |s| {
        s.service.lockd.tune(|t| t.lock_timeout_ms = 100);
        for lo in [true, false] {
            let (a, b) = (s.client("a", lo, Answer::Never).await, s.client("b", lo, Answer::Never).await);
            write_lock(&a, 1, 0, EOF).await;
            let began = s.rt.now();
            assert_eq!(b.attrs(&[1]).await[0].size, 0);
            let took = s.rt.now().since(began).as_millis();
            assert!((100..200).contains(&took), "{took} ms; the lock timeout is 100 ms");
            s.until(|| *s.service.ended.lock() == ["a"]).await;
            assert!(!s.service.export("b").is_ended());
            s.service.ended.lock().clear();
            for client in [a, b] {
                client.import.close().await;
            }
            s.until(|| s.service.ended.lock().contains(&"b".to_owned())).await;
            s.service.ended.lock().clear();
        }
    });
}

#[test]
fn dropped_glimpse_leaves_no_ticket() {
    run(async |s| {
        let (a, b) = (s.client("a", true, Answer::Never).await, s.client("b", true, Answer::Never).await);
        let lock = write_lock(&a, 1, 0, EOF).await;
        assert!(now(b.attrs(&[1])).is_none());
        assert!(now(b.attrs(&[1])).is_none());
        assert_eq!(a.glimpsed(), [lock], "one at a time");
        let tell =
            |size| a.import.request(ost::Request::Glimpsed { answers: vec![(lock, knows(size, 1))] }).urgent().send();
        tell(5).await.unwrap();
        assert_eq!(a.glimpsed(), [lock], "no waiter is left");
        let asks = s.rt.spawn("asks", {
            let b = b.clone();
            async move { b.attrs(&[1]).await[0].size }
        });
        s.until(|| a.glimpsed().len() == 2).await;
        tell(6).await.unwrap();
        tell(7).await.unwrap();
        assert_eq!(asks.await.unwrap(), 6);
    });
}

#[test]
fn writer_with_continuous_io_is_not_evicted() {
    run(async |s| {
        s.service.lockd.tune(|t| t.lock_timeout_ms = 200);
        let (a, b) = (s.client("a", false, Answer::Never).await, s.client("b", false, Answer::Never).await);
        let lock = write_lock(&a, 1, 0, EOF).await;
        let reader = s.rt.spawn("reads", {
            let b = b.clone();
            async move { b.lock(Mode::Pr, 1).await }
        });
        s.until(|| a.asked() == [lock]).await;
        for n in 0..12 {
            s.rt.sleep(Duration::from_millis(50)).await;
            let part = ost::Part { object: object(1).fid, offset: n * 100, len: 100 };
            let write = ost::Request::Write {
                file: Fid::ZERO,
                parts: vec![part],
                sync: false,
                mtime: None,
                grant: ost::Grant::default(),
                held: false,
            };
            a.import.request(write).send().await.unwrap();
            assert!(!reader.is_finished());
        }
        a.cancel(lock).await;
        reader.await.unwrap();
        assert!(s.service.ended.lock().is_empty());
    });
}
