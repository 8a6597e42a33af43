//! The endpoint in the simulator: replies, limits of size, time and number.

#![allow(missing_docs)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use sheen_metrics::{CONNECTIONS_MAX, HEAD_BYTES_MAX, HEAD_TIMEOUT, METRICS_TIMEOUT, serve};
use sheen_rt::{
    ReadHalf, WriteHalf,
    sim::{Sim, SimConfig, World},
};

const PORT: u16 = 9117;
const METRICS: &str = "# TYPE a gauge\na 1\n# EOF\n";
const GET: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n";

/// Runs a test beside an endpoint on host 2, in several worlds.
fn with_endpoint(test: impl AsyncFn(&World)) {
    with_slow_endpoint(Duration::ZERO, async |world, _| test(world).await);
}

/// As [`with_endpoint`]. Reading the metrics takes this time. The test gets the number of reads.
fn with_slow_endpoint(delay: Duration, test: impl AsyncFn(&World, &Arc<AtomicUsize>)) {
    for seed in 0..8 {
        let sim = Sim::new(seed, SimConfig::default());
        let world: &World = &sim;
        sim.run(async {
            let rt = world.rt(2);
            let listener = rt.listen(world.addr(2, PORT)).await.unwrap();
            let reads = Arc::new(AtomicUsize::new(0));
            let (timer, counter) = (rt.clone(), reads.clone());
            let source = move || {
                counter.fetch_add(1, Relaxed);
                let slept = timer.sleep(delay);
                async move {
                    slept.await;
                    METRICS.to_owned()
                }
            };
            drop(rt.spawn("endpoint", serve(rt.clone(), listener, source)));
            test(world, &reads).await;
        })
        .unwrap();
    }
}

async fn connect(world: &World) -> (ReadHalf, WriteHalf) {
    world.rt(1).connect(world.addr(2, PORT)).await.unwrap().split()
}

/// Reads until the server closes the connection.
async fn read_all(from: &mut ReadHalf) -> String {
    let (mut all, mut bytes) = (Vec::new(), [0; 512]);
    while let Ok(n @ 1..) = from.read_some(&mut bytes).await {
        all.extend_from_slice(&bytes[..n]);
    }
    String::from_utf8(all).unwrap()
}

/// Sends a request and returns the head and the body of the reply.
async fn exchange(world: &World, request: &[u8]) -> (String, String) {
    let (mut from, mut to) = connect(world).await;
    to.write_all_vectored(&[IoSlice::new(request)]).await.unwrap();
    let reply = read_all(&mut from).await;
    let (head, body) = reply.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head: {reply:?}"));
    (head.to_owned(), body.to_owned())
}

#[test]
fn get_returns_metrics_and_head_returns_no_body() {
    with_endpoint(async |world| {
        let (head, body) = exchange(world, GET).await;
        assert_eq!(body, METRICS);
        let want = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n\
             Content-Length: {}\r\nConnection: close",
            METRICS.len()
        );
        assert_eq!(head, want);
        let (head, body) = exchange(world, b"HEAD /metrics HTTP/1.1\r\n\r\n").await;
        assert_eq!((head, &body[..]), (want, ""));
        let (head, body) = exchange(world, b"GET / HTTP/1.1\r\n\r\n").await;
        assert!(head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/html"), "{head}");
        assert!(body.contains("href=\"/metrics\""), "{body}");
    });
}

#[test]
fn other_paths_methods_and_bytes_are_refused() {
    with_endpoint(async |world| {
        for (request, status) in [
            ("GET /other HTTP/1.1\r\n\r\n", "404 Not Found"),
            ("POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", "405 Method Not Allowed"),
            ("hello\r\n\r\n", "400 Bad Request"),
            ("GET /metrics\r\n\r\n", "400 Bad Request"),
        ] {
            let (head, _) = exchange(world, request.as_bytes()).await;
            assert!(head.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{request:?}: {head}");
            assert_eq!(head.contains("Allow: GET, HEAD"), status.starts_with("405"), "{head}");
        }
    });
}

#[test]
fn head_beyond_the_limit_is_refused() {
    with_endpoint(async |world| {
        let long = |bytes: usize| format!("GET /metrics HTTP/1.1\r\nA: {}", "a".repeat(bytes));
        let (head, _) = exchange(world, long(3 * HEAD_BYTES_MAX).as_bytes()).await;
        assert!(head.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{head}");
        let (head, _) = exchange(world, format!("{}\r\n\r\n", long(HEAD_BYTES_MAX - 100)).as_bytes()).await;
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    });
}

#[test]
fn slow_client_is_disconnected_at_the_time_limit() {
    with_endpoint(async |world| {
        let before = world.now();
        let (mut from, mut to) = connect(world).await;
        to.write_all_vectored(&[IoSlice::new(&GET[..20])]).await.unwrap();
        assert_eq!(read_all(&mut from).await, "");
        let took = world.now().since(before);
        assert!(took >= HEAD_TIMEOUT, "{took:?}");
        assert_eq!(took.as_secs(), HEAD_TIMEOUT.as_secs());
        assert_eq!(exchange(world, GET).await.1, METRICS, "others are served");
    });
}

#[test]
fn connections_beyond_the_limit_wait_for_their_turn() {
    with_endpoint(async |world| {
        let (before, mut idle) = (world.now(), Vec::new());
        for _ in 0..CONNECTIONS_MAX {
            idle.push(connect(world).await);
        }
        assert_eq!(exchange(world, GET).await.1, METRICS);
        let took = world.now().since(before);
        assert_eq!(took.as_secs(), HEAD_TIMEOUT.as_secs(), "until the first idle one is disconnected: {took:?}");
        drop(idle);
    });
}

#[test]
fn metrics_are_read_for_one_request_at_a_time() {
    let delay = METRICS_TIMEOUT * 2 / 5;
    with_slow_endpoint(delay, async |world, reads| {
        let (before, mut clients, mut replies) = (world.now(), Vec::new(), Vec::new());
        for _ in 0..3 {
            let (from, mut to) = connect(world).await;
            to.write_all_vectored(&[IoSlice::new(GET)]).await.unwrap();
            clients.push((from, to));
        }
        for (from, _) in &mut clients {
            replies.push(read_all(from).await);
        }
        let with_status = |status: &str| replies.iter().filter(|reply| reply.starts_with(status)).count();
        assert_eq!((with_status("HTTP/1.1 200 OK\r\n"), with_status("HTTP/1.1 503 ")), (2, 1), "{replies:?}");
        assert_eq!(world.now().since(before).as_secs(), METRICS_TIMEOUT.as_secs());
        assert_eq!(reads.load(Relaxed), 3, "the third one began before its time limit");
    });
}

#[test]
fn hanging_metrics_are_read_once_and_replies_are_503() {
    let hang = METRICS_TIMEOUT * 4;
    with_slow_endpoint(hang, async |world, reads| {
        for _ in 0..3 {
            let before = world.now();
            let (head, body) = exchange(world, GET).await;
            assert!(head.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{head}");
            assert!(body.contains("may hang"), "{body}");
            assert_eq!(world.now().since(before).as_secs(), METRICS_TIMEOUT.as_secs());
        }
        assert_eq!(exchange(world, b"GET / HTTP/1.1\r\n\r\n").await.0.lines().next(), Some("HTTP/1.1 200 OK"));
        assert_eq!(reads.load(Relaxed), 1, "the first read has not ended");
        world.rt(1).sleep(hang).await;
        assert!(exchange(world, GET).await.0.starts_with("HTTP/1.1 503 "));
        assert_eq!(reads.load(Relaxed), 2, "the first read has ended");
    });
}

#[test]
fn endpoint_survives_arbitrary_bytes() {
    with_endpoint(async |world| {
        let rt = world.rt(1);
        for _ in 0..50 {
            let mut bytes = vec![0; (rt.random_u64() % 300) as usize];
            rt.fill_random(&mut bytes);
            let (mut from, mut to) = connect(world).await;
            let mut request = GET[..(rt.random_u64() % 20) as usize].to_vec();
            request.append(&mut bytes);
            // The server may answer before it has read everything.
            let _ = to.write_all_vectored(&[IoSlice::new(&request)]).await;
            let _ = to.shutdown().await;
            read_all(&mut from).await;
        }
        assert_eq!(exchange(world, GET).await.1, METRICS);
    });
}
