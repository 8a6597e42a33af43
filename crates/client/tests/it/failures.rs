//! Requests that fail for good, and their log lines, over fake servers.

use std::{fmt, sync::Arc, time::Duration};

use parking_lot::Mutex;
use sheen_client::OpenFile;
use sheen_wire::{Errno, Mds, mds::flags};
use tracing_subscriber::{Layer, layer::SubscriberExt};

use crate::fake::{FakeMds, Mounted, ROOT, bulk, name, root, with_tcp};

/// How long operations of a mount over tcp wait for a disconnected server: as with `-o soft=100`.
const SOFT: Duration = Duration::from_secs(100);
/// The pauses and attempts to connect that a failure may add to this time.
const ROUNDS: Duration = Duration::from_secs(10);

/// Records the messages of all log lines.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl<S: tracing::Subscriber> Layer<S> for Log {
    fn on_event(&self, event: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
        event.record(&mut |_: &tracing::field::Field, value: &dyn fmt::Debug| {
            self.0.lock().push(format!("{value:?}"));
        });
    }
}

impl Log {
    /// Returns the lines about failed requests.
    fn failed(&self) -> Vec<String> {
        self.0.lock().iter().filter(|line| line.contains("request failed")).cloned().collect()
    }
}

fn logged(test: impl AsyncFnOnce(Mounted, &Log)) {
    let log = Log::default();
    let subscriber = tracing_subscriber::registry().with(log.clone());
    tracing::subscriber::with_default(subscriber, || with_tcp(2, 65536, &[0], async |m| test(m, &log).await));
}

async fn written(m: &Mounted) -> Arc<OpenFile> {
    let flags = flags::RDWR | flags::CREAT;
    let file = m.client.create(&ROOT, root(), &name("f"), flags, 0o644, 0).await.unwrap().1;
    assert_eq!(m.client.write(&file, 0, bulk(b"data")).await, Ok(4));
    file
}

#[test]
fn read_from_disconnected_ost_logs_target_request_and_cause_once() {
    logged(async |m, log| {
        let file = written(&m).await;
        m.server.remove("sheen-OST0000");
        assert!(m.client.lookup(&ROOT, root(), &name("missing")).await.is_err_and(|e| e == Errno::ENOENT));
        assert_eq!(log.failed(), [""; 0], "an ordinary answer");
        let read = || m.client.read_as(&file, 0, 4, false);
        let (first, second) = tokio::join!(read(), read());
        assert_eq!([first.map(|_| ()), second.map(|_| ())], [Err(Errno::ETIMEDOUT); 2]);
        let lines = log.failed();
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains("sheen-OST0000: read"), "{lines:?}");
        assert!(lines[0].contains(": lost the connection and could not restore it in 100 s"), "{lines:?}");
        assert_eq!(m.client.read_as(&file, 0, 4, false).await.map(|_| ()), Err(Errno::ETIMEDOUT));
        assert!(log.failed()[1].ends_with("; failures since the last line: 1"), "{:?}", log.failed());
    });
}

#[test]
fn read_from_inactive_ost_logs_the_reason() {
    logged(async |m, log| {
        let file = written(&m).await;
        m.params.set("osc.*OST0000*.active", "0").unwrap();
        assert_eq!(m.client.read_as(&file, 0, 4, false).await.map(|_| ()), Err(Errno::EIO));
        let lines = log.failed();
        assert_eq!(lines, ["request failed: sheen-OST0000: read: the OST is inactive on this mount (EIO)"]);
    });
}

#[test]
fn soft_mount_fails_operations_on_disconnected_servers_when_its_time_is_over() {
    with_tcp(1, 65536, &[0], async |m| {
        let (file, rt) = (written(&m).await, m.net.rt().clone());
        let mkdir = async || m.client.mkdir(&ROOT, root(), &name("d"), 0o755, 0).await.map(drop);
        m.server.remove("sheen-MDT0000");
        let since = rt.now();
        assert_eq!(mkdir().await, Err(Errno::ETIMEDOUT));
        let waited = rt.now().since(since);
        assert!((SOFT..SOFT + ROUNDS).contains(&waited), "mkdir waited {waited:?}");
        {
            let mut state = m.world.state.lock();
            state.incarnation = 2;
            state.open.clear();
        }
        m.server.add::<Mds>("sheen-MDT0000", Arc::new(FakeMds(m.world.clone())));
        assert_eq!(mkdir().await, Ok(()), "the MDT is back");

        m.server.remove("sheen-OST0000");
        let since = rt.now();
        assert_eq!(m.client.read_as(&file, 0, 4, false).await.map(drop), Err(Errno::ETIMEDOUT));
        let waited = rt.now().since(since);
        assert!((SOFT..SOFT + ROUNDS).contains(&waited), "read waited {waited:?}");
    });
}
