//! Locks of the server itself.

use std::time::Duration;

use sheen_params::Params;
use sheen_wire::{Errno, ldlm::*};

use crate::common::*;

#[test]
fn local_lock_waits_until_all_holders_have_cancelled() {
    run(async |s| {
        for lo in [true, false] {
            let lockd = s.service.lockd.clone();
            let (a, b) = (s.client("a", lo, Answer::Never).await, s.client("b", lo, Answer::Never).await);
            let (ida, idb) = (a.lock(Mode::Pr, 1).await, b.lock(Mode::Pr, 1).await);
            assert!(!lockd.is_changing(object(1), &whole()));

            let mut local = s.local(1, None);
            assert!(!local.is_granted() && a.heard.lock().is_empty(), "no callback is sent before the wait");
            assert!(lockd.is_changing(object(1), &whole()) && !lockd.is_changing(object(2), &whole()));
            assert!(now(local.wait()).is_none());
            s.until(|| a.asked() == [ida] && b.asked() == [idb]).await;
            match a.heard.lock()[..] {
                [sheen_wire::ast::Callback::Blocking { cookie, resource, wanted, .. }] => {
                    assert_eq!((cookie, resource, wanted), (Cookie(1), object(1), (Mode::Pw, whole())));
                }
                ref other => panic!("{other:?}"),
            }
            a.cancel(ida).await;
            assert!(!local.is_granted());
            let settled = s.rt.spawn("settled", {
                let lockd = lockd.clone();
                async move { lockd.settled(object(1), &whole()).await }
            });
            b.cancel(idb).await;
            s.rt.timeout(Duration::from_secs(5), local.wait()).await.unwrap();
            assert!(local.is_granted() && lockd.is_changing(object(1), &Policy::extent(5, 5)));

            let nowait = a.ask(object(1), Mode::Pr, whole());
            let nowait = Enqueue { flags: Flags { nowait: true, ..Flags::default() }, ..nowait };
            assert!(matches!(a.send(nowait).await, Enqueued::WouldBlock { .. }));
            let reader = s.rt.spawn("reader", {
                let b = b.clone();
                async move { b.lock(Mode::Pr, 1).await }
            });
            s.until(|| s.service.locks(1) == 2).await;
            assert!(!settled.is_finished() && !reader.is_finished());
            drop(local);
            settled.await.unwrap();
            b.cancel(reader.await.unwrap()).await;
            assert_eq!((s.service.locks(1), lockd.is_changing(object(1), &whole())), (0, false));
            assert_eq!(b.heard.lock().len(), 1, "a client that waits for the answer gets no completion callback");
        }
    });
}

#[test]
fn local_lock_does_not_revoke_the_requesters_locks() {
    run(async |s| {
        for lo in [true, false] {
            let (a, b) = (s.client("a", lo, Answer::Soon).await, s.client("b", lo, Answer::Soon).await);
            let id = a.lock(Mode::Pr, 1).await;
            assert!(s.local(1, Some(&a)).is_granted(), "only its own lock exists");
            b.lock(Mode::Pr, 1).await;
            let mut local = s.local(1, Some(&a));
            assert!(!local.is_granted());
            local.wait().await;
            assert_eq!((a.heard.lock().len(), b.asked().len()), (0, 1));
            drop(local);
            a.cancel(id).await;
            assert_eq!(s.service.locks(1), 0);
        }
    });
}

#[test]
fn client_of_this_process_may_cancel_from_its_handler() {
    run(async |s| {
        let clients = [s.client("a", true, Answer::Inline).await, s.client("b", true, Answer::Inline).await];
        for client in &clients {
            client.lock(Mode::Pr, 1).await;
        }
        let core = s.service.core.lock();
        let mut local = s.local(1, None);
        assert!(!local.is_granted(), "the client's handler would need the mutex held here");
        drop(core);
        assert!(now(local.wait()).is_some(), "no task, no wait");
    });
}

#[test]
fn local_locks_with_overlapping_parts_do_not_wait_for_each_other() {
    run(async |s| {
        let a = s.client("a", true, Answer::Soon).await;
        let part = |n, start, end| (object(n), Mode::Pw, Policy::extent(start, end));
        let wants = [part(1, 0, 9), part(2, 0, EOF), part(1, 5, 20), part(1, 100, EOF)];
        let local = s.service.lockd.local(&wants, None);
        assert!(local.is_granted());
        assert_eq!((s.service.locks(1), s.service.locks(2)), (2, 1));
        let lockd = &s.service.lockd;
        assert!(!lockd.is_changing(object(1), &Policy::extent(21, 99)));
        drop(local);

        // A request that waits for locks of two clients at once.
        a.lock(Mode::Pr, 1).await;
        a.lock(Mode::Pr, 2).await;
        let mut local = lockd.local(&wants, None);
        assert!(!local.is_granted());
        local.wait().await;
        assert_eq!((local.is_granted(), a.asked().len()), (true, 2));
        drop(local);
        assert_eq!(lockd.stats().lock_count(), 0);
        assert!(lockd.local(&[], None).is_granted());
    });
}

#[test]
fn local_locks_on_the_same_objects_do_not_deadlock() {
    run(async |s| {
        let lockd = &s.service.lockd;
        let part = |n| (object(n), Mode::Ex, whole());
        let first = lockd.local(&[part(1), part(2)], None);
        let mut second = lockd.local(&[part(2), part(3), part(1)], None);
        let mut third = lockd.local(&[part(3)], None);
        assert!(first.is_granted() && !second.is_granted() && !third.is_granted());
        drop(first);
        second.wait().await;
        assert!(!third.is_granted(), "it was enqueued later");
        drop(second);
        third.wait().await;
        assert!(lockd.is_changing(object(3), &whole()) && !lockd.is_changing(object(2), &whole()));
        drop(third);
        assert_eq!(lockd.stats().lock_count(), 0);
    });
}

#[test]
fn dropped_local_lock_wait_leaves_no_lock() {
    run(async |s| {
        let a = s.client("a", false, Answer::Never).await;
        let id = a.lock(Mode::Pr, 1).await;
        let mut local = s.local(1, None);
        assert!(now(local.wait()).is_none());
        drop(local);
        assert!(!s.service.lockd.is_changing(object(1), &whole()));
        assert!(a.lock(Mode::Pr, 1).await != id, "no lock conflicts with a reader");
        assert_eq!(s.service.locks(1), 2);
    });
}

#[test]
fn ldlm_namespace_parameters_have_lustres_names() {
    run(async |s| {
        let params = Params::new();
        s.service.lockd.register(&params);
        let get = |field: &str| {
            let found = params.get(&format!("ldlm.namespaces.filter-sheen-OST0000_UUID.{field}")).unwrap();
            found[0].value.clone()
        };
        let a = s.client("a", true, Answer::Never).await;
        a.lock(Mode::Pr, 1).await;
        a.lock(Mode::Pr, 2).await;
        a.lock(Mode::Pr, 2).await;
        let fields = ["lock_count", "resource_count", "lock_timeouts", "contended_locks", "contention_seconds"];
        assert_eq!(fields.map(get), ["3", "2", "0", "8", "2"]);
        assert!(get("stats").lines().any(|l| l.split_whitespace().eq(["granted", "3"])), "{}", get("stats"));
        let set = params.set("ldlm.namespaces.*.contention_seconds", "7").unwrap();
        assert!(set[0].result.is_ok());
        assert_eq!((get("contention_seconds"), s.service.lockd.tunables().contention_seconds), ("7".into(), 7));
        s.service.lockd.unregister(&params);
        assert!(params.get("ldlm.*.*.lock_count").is_err());
    });
}

#[test]
fn ldlm_tunables_take_effect_and_stats_count_callbacks() {
    run(async |s| {
        let params = Params::new();
        s.service.lockd.register(&params);
        let name = |field: &str| format!("ldlm.namespaces.filter-*.{field}");
        let get = |field: &str| params.get(&name(field)).unwrap()[0].value.clone();
        let set =
            |field: &str, value: &str| params.set(&name(field), value).unwrap()[0].result.clone().map_err(|e| e.errno);
        let count = |what: &str| -> u64 {
            let stats = get("stats");
            let row = stats.lines().find_map(|line| line.strip_prefix(what)?.strip_prefix(' '));
            row.unwrap_or_else(|| panic!("no {what} in {stats}")).trim().parse().unwrap()
        };
        let (a, b) = (s.client("a", true, Answer::Inline).await, s.client("b", true, Answer::Inline).await);
        let part = |client: &Client, n, start| client.ask(object(n), Mode::Pw, Policy::extent(start, start + 4095));

        assert_eq!((get("lock_expand"), set("lock_expand", "0"), get("lock_expand")), ("1".into(), Ok(()), "0".into()));
        for (n, client) in [&a, &b].into_iter().enumerate() {
            granted(client.send(part(client, 1, n as u64 * 4096)).await);
        }
        assert_eq!((count("granted"), count("ldlm_bl_callback")), (2, 0), "not expanded");
        set("lock_expand", "1").unwrap();
        for (n, client) in [&a, &b].into_iter().enumerate() {
            granted(client.send(part(client, 2, n as u64 * 4096)).await);
        }
        b.attrs(&[2]).await;
        let names =
            ["ldlm_enqueue", "ldlm_bl_callback", "ldlm_cp_callback", "ldlm_gl_callback", "ldlm_cancel", "lockless"];
        assert_eq!(names.map(count), [4, 1, 1, 0, 1, 0], "{}", get("stats"));
        a.attrs(&[2]).await;
        assert_eq!(count("ldlm_gl_callback"), 1);

        set("stats", "clear").unwrap();
        assert_eq!(names.map(count), [0; 6]);
        assert_eq!((count("granted"), get("lock_count")), (3, "3".to_owned()), "present numbers stay");

        for value in ["clear", "0", "100"] {
            assert_eq!((set("lru_size", value), get("lru_size")), (Ok(()), "0".to_owned()));
        }
        assert_eq!(set("lru_size", "many"), Err(Errno::EINVAL));
        assert_eq!((set("lock_timeout", "7"), get("lock_timeout_ms")), (Ok(()), "7000".to_owned()));
        assert_eq!((set("lock_timeout_ms", "1"), get("lock_timeout")), (Ok(()), "1".to_owned()));
        set("lock_adaptive", "0").unwrap();
        assert!(!s.service.lockd.tunables().adaptive);
    });
}

#[test]
fn local_locks_for_group_members_are_granted_at_once() {
    run(async |s| {
        for lo in [true, false] {
            let (a, b) = (s.client("a", lo, Answer::Never).await, s.client("b", lo, Answer::Never).await);
            let c = s.client("c", lo, Answer::Never).await;
            let mut ids = vec![];
            for client in [&a, &b] {
                ids.push(granted(client.send(client.ask(object(1), Mode::Group, Policy::group(3))).await));
            }
            let local = |client: &Client, start| {
                let export = s.service.export(&client.name);
                let want = (object(1), Mode::Pw, Policy::extent(start, start + 99));
                s.service.lockd.local(&[want], Some(&export))
            };
            let (first, second, mut third) = (local(&a, 0), local(&b, 100), local(&c, 200));
            assert!(first.is_granted() && second.is_granted() && !third.is_granted());
            assert!(now(third.wait()).is_none());
            assert!(local(&a, 200).is_granted(), "a client outside the group waits for the group");
            drop((first, second));
            a.cancel(ids[0]).await;
            b.cancel(ids[1]).await;
            s.rt.timeout(Duration::from_secs(5), third.wait()).await.unwrap();
            drop(third);
            assert_eq!(s.service.locks(1), 0);
        }
    });
}

#[test]
fn resent_enqueue_takes_over_the_waiting_lock() {
    run(async |s| {
        let client = s.client("a", true, Answer::Never).await;
        client.lock(Mode::Pr, 2).await;
        let (lockd, export) = (s.service.lockd.clone(), s.service.export("a"));
        let local = s.local(1, None);
        let ask = client.ask(object(1), Mode::Pr, whole());
        let (mut first, mut second) =
            (Box::pin(lockd.enqueue_wait(&export, &ask)), Box::pin(lockd.enqueue_wait(&export, &ask)));
        assert!(now(first.as_mut()).is_none() && now(second.as_mut()).is_none());
        assert_eq!(first.await, Enqueued::Refused(Errno::ESHUTDOWN));
        drop(local);
        granted(second.await);
        assert_eq!(s.service.locks(1), 1);
    });
}
