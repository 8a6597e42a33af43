//! Readers of the changelog that wait for records, over a fake MDT.

use std::{pin::pin, time::Duration};

use crate::fake::{Mounted, ROOT, name, root, with, with_tcp};
use sheen_wire::{
    Fid, Time,
    changelog::{self, Kind, Record},
};

/// Longest wait.
const WAIT_MAX: Duration = Duration::from_secs(10);

fn record(index: u64) -> Record {
    let (time, none) = (Time { sec: 1, nsec: 0 }, bytes::Bytes::new);
    Record {
        index,
        kind: Kind::Mkdir,
        flags: 0,
        time,
        target: Fid::new(7, 1),
        parent: Fid::ZERO,
        name: none(),
        uid: 0,
        gid: 0,
        nid: none(),
        job: none(),
        xattr: none(),
        source: None,
    }
}

/// Reads an attribute with records. Returns their numbers.
async fn read(m: &Mounted, attribute: &str) -> Vec<u64> {
    let value = m.client.getxattr(&ROOT, root(), &name(attribute)).await.unwrap();
    changelog::decode(&value).unwrap().iter().map(|record| record.index).collect()
}

async fn wait(m: &Mounted) -> Vec<u64> {
    read(m, "sheen.changelog_wait.0.1").await
}

#[test]
fn reader_waits_for_a_record_without_a_request_in_flight() {
    for tcp in [false, true] {
        let test = async |m: Mounted| {
            let rt = m.net.rt();
            m.world.asked();
            let mut waiting = pin!(wait(&m));
            assert!(rt.timeout(WAIT_MAX / 2, waiting.as_mut()).await.is_err(), "there is no record");
            assert_eq!(m.world.asked(), ["mds changelog"]);
            let waits = m.params.get("llite.*.waits").unwrap()[0].value.clone();
            assert!(!waits.contains("changelog"), "no request is in flight: {waits}");
            m.world.record(record(1));
            assert_eq!(waiting.await, [1]);
            // At the end of the log there is none again. A plain read does not wait.
            let began = rt.now();
            assert!(read(&m, "sheen.changelog.0.2").await.is_empty());
            assert!(rt.now().since(began) < WAIT_MAX);
        };
        if tcp { with_tcp(1, 65536, &[0], test) } else { with(1, 65536, &[0], test) }
    }
}

#[test]
fn wait_for_a_record_ends_after_a_bounded_time() {
    with(1, 65536, &[0], async |m| {
        let began = m.net.rt().now();
        assert!(wait(&m).await.is_empty());
        let waited = m.net.rt().now().since(began);
        assert!(waited >= WAIT_MAX && waited < 2 * WAIT_MAX, "{waited:?}");
    });
}

#[test]
fn reader_beyond_the_bound_is_answered_at_once() {
    with(1, 65536, &[0], async |m| {
        let rt = m.net.rt();
        let (mut waiting, began) = (Vec::new(), rt.now());
        for _ in 0..64 {
            let client = m.client.clone();
            waiting.push(rt.spawn("wait", async move {
                client.getxattr(&ROOT, root(), &name("sheen.changelog_wait.0.1")).await.unwrap()
            }));
        }
        rt.sleep(Duration::from_secs(1)).await;
        assert!(wait(&m).await.is_empty());
        assert!(rt.now().since(began) < WAIT_MAX);
        m.world.record(record(1));
        for wait in waiting {
            assert_eq!(changelog::decode(&wait.await.unwrap()).unwrap().len(), 1);
        }
    });
}
