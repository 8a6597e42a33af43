//! The endpoint: `GET /metrics` over HTTP/1.1, one request for each connection.
//!
//! It has no authentication: everybody who reaches the address can read the metrics. They contain
//! names of file systems, targets, devices and jobs, and numbers.
//!
//! The metrics are read for one request at a time. Reading them may hang with a disk, and a blocked
//! thread does not end at a time limit. So many requests block no more threads than one does.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Duration;

use httparse::{EMPTY_HEADER, Request, Status};
use sheen_rt::{Listener, ReadHalf, Rt, Stream, WriteHalf};
use tokio::sync::Semaphore;
use tracing::warn;

/// Maximum number of connections that are served at once. Others wait until the kernel's queue of
/// connections moves on.
pub const CONNECTIONS_MAX: usize = 64;
/// Maximum length of a request's head in bytes.
pub const HEAD_BYTES_MAX: usize = 8 << 10;
/// Time limit for a client to send the head of its request.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(1);
/// Time limit for the metrics, including the time in which they are read for another request.
pub const METRICS_TIMEOUT: Duration = Duration::from_secs(5);

/// Time limit for a client to take the reply. All limits together are below Prometheus's default of
/// 10 s.
const SEND_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum number of lines in a request's head.
const HEADERS_MAX: usize = 64;
/// Time that a client has to close its end after the reply.
const LINGER: Duration = Duration::from_secs(1);
/// Pause after an error of accept(2), such as EMFILE.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Media type of OpenMetrics text.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";

/// The page at `/`.
const PAGE: &str = "<!DOCTYPE html>\n<html lang=\"en\"><head><title>Sheen</title></head>\n<body><p>Sheen, a parallel \
                    file system: <a href=\"/metrics\">metrics</a> for Prometheus.</p></body></html>\n";

/// Serves metrics for ever. `source` returns their text, anew for each request. Its future runs to
/// the end, also after the time limit of the request. There is one future at a time.
pub async fn serve<F, Fut>(rt: Rt, listener: Listener, source: F)
where
    F: Fn() -> Fut + Send + Sync + 'static,
    Fut: Future<Output = String> + Send + 'static,
{
    let endpoint = Arc::new(Endpoint { rt: rt.clone(), source, reading: Arc::new(Semaphore::new(1)) });
    let (free, mut is_failing) = (Arc::new(Semaphore::new(CONNECTIONS_MAX)), false);
    // The semaphore is never closed.
    while let Ok(permit) = free.clone().acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                is_failing = false;
                let endpoint = endpoint.clone();
                drop(rt.spawn("metrics", async move {
                    // An error concerns only the peer: it disconnected, or it is too slow.
                    let _ = endpoint.answer(stream).await;
                    drop(permit);
                }));
            }
            Err(e) => {
                if !is_failing {
                    warn!("metrics: cannot accept connections: {e}; trying again until it succeeds");
                }
                is_failing = true;
                rt.sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

/// The state of an endpoint.
struct Endpoint<F> {
    rt: Rt,
    source: F,
    /// Its only permit belongs to the task that reads the metrics.
    reading: Arc<Semaphore>,
}

/// A request, as far as it matters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Asked {
    what: What,
    /// Without the body (HEAD).
    is_head: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    Metrics,
    Page,
    /// A path that does not exist.
    Unknown,
    /// A path that exists, with a method that it does not have.
    Method,
    /// Not HTTP, or too long.
    Invalid,
}

/// The parts of a reply.
struct Answer {
    status: &'static str,
    media: &'static str,
    body: String,
}

impl<F, Fut> Endpoint<F>
where
    F: Fn() -> Fut + Send + Sync,
    Fut: Future<Output = String> + Send + 'static,
{
    /// Reads a request and answers it.
    async fn answer(&self, stream: Stream) -> io::Result<()> {
        let (mut from, mut to) = stream.split();
        let Some(asked) = self.rt.timeout(HEAD_TIMEOUT, read(&mut from)).await?? else { return Ok(()) };
        let answer = match asked.what {
            What::Metrics => match self.metrics().await {
                Some(body) => Answer { status: "200 OK", media: OPENMETRICS, body },
                None => plain("503 Service Unavailable", "the metrics take too long: a disk or a process may hang\n"),
            },
            What::Page => Answer { status: "200 OK", media: HTML, body: PAGE.to_owned() },
            What::Unknown => plain("404 Not Found", "not found: the metrics are at /metrics\n"),
            What::Method => plain("405 Method Not Allowed", "only GET and HEAD are supported\n"),
            What::Invalid => plain("400 Bad Request", "invalid request: expected GET /metrics HTTP/1.1\n"),
        };
        self.rt.timeout(SEND_TIMEOUT, send(&mut to, asked, &answer)).await??;
        // If bytes of the request were left unread, closing the connection now would reset it, and
        // the client could lose the reply.
        let _ = self.rt.timeout(LINGER, skip(&mut from)).await;
        Ok(())
    }

    /// Returns the metrics. `None`: not within the time limit.
    async fn metrics(&self) -> Option<String> {
        let text = async {
            let permit = self.reading.clone().acquire_owned().await.ok()?;
            let text = (self.source)();
            // The task holds the permit until the metrics are read, also after the time limit.
            let task = self.rt.spawn("metrics", async move {
                let text = text.await;
                drop(permit);
                text
            });
            task.await.ok()
        };
        self.rt.timeout(METRICS_TIMEOUT, text).await.ok().flatten()
    }
}

fn plain(status: &'static str, text: &str) -> Answer {
    Answer { status, media: PLAIN, body: text.to_owned() }
}

async fn send(to: &mut WriteHalf, asked: Asked, answer: &Answer) -> io::Result<()> {
    let Answer { status, media, body } = answer;
    let allow = if asked.what == What::Method { "Allow: GET, HEAD\r\n" } else { "" };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {media}\r\nContent-Length: {length}\r\n{allow}Connection: close\r\n\r\n"
    );
    let body = if asked.is_head { "" } else { body.as_str() };
    to.write_all_vectored(&[IoSlice::new(head.as_bytes()), IoSlice::new(body.as_bytes())]).await?;
    to.shutdown().await
}

/// Reads the head of a request. `None`: the client has closed the connection without a request.
async fn read(from: &mut ReadHalf) -> io::Result<Option<Asked>> {
    let invalid = Asked { what: What::Invalid, is_head: false };
    let (mut head, mut len) = (vec![0; HEAD_BYTES_MAX], 0);
    while len < HEAD_BYTES_MAX {
        match from.read_some(&mut head[len..]).await? {
            0 if len == 0 => return Ok(None),
            0 => return Ok(Some(invalid)),
            more => len += more,
        }
        if let Some(asked) = parse(&head[..len]) {
            return Ok(Some(asked));
        }
    }
    Ok(Some(invalid))
}

/// Parses the head of a request. `None`: it is not complete.
fn parse(head: &[u8]) -> Option<Asked> {
    let mut headers = [EMPTY_HEADER; HEADERS_MAX];
    let mut request = Request::new(&mut headers);
    match request.parse(head) {
        Ok(Status::Partial) => None,
        Ok(Status::Complete(_)) => Some(route(request.method.unwrap_or_default(), request.path.unwrap_or_default())),
        Err(_) => Some(Asked { what: What::Invalid, is_head: false }),
    }
}

fn route(method: &str, target: &str) -> Asked {
    let what = match (path_of(target), method) {
        ("/metrics", "GET" | "HEAD") => What::Metrics,
        ("/", "GET" | "HEAD") => What::Page,
        ("/metrics" | "/", _) => What::Method,
        _ => What::Unknown,
    };
    Asked { what, is_head: method == "HEAD" }
}

/// Returns the path of a request's target, without the query. A proxy may send an absolute target,
/// `http://HOST/PATH`.
fn path_of(target: &str) -> &str {
    let target = target.split_once('?').map_or(target, |(target, _)| target);
    match target.strip_prefix("http://") {
        Some(rest) => rest.find('/').map_or("/", |at| &rest[at..]),
        None => target,
    }
}

/// Skips bytes until the client closes its end.
async fn skip(from: &mut ReadHalf) {
    let mut bytes = [0; 1024];
    while matches!(from.read_some(&mut bytes).await, Ok(1..)) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_routed_by_path_and_method() {
        for (request, what, is_head) in [
            ("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", What::Metrics, false),
            ("GET /metrics?x=1 HTTP/1.0\r\n\r\n", What::Metrics, false),
            ("HEAD /metrics HTTP/1.1\r\n\r\n", What::Metrics, true),
            ("GET http://h:9117/metrics?x=/ HTTP/1.1\r\nHost: h\r\n\r\n", What::Metrics, false),
            ("GET http://h HTTP/1.1\r\n\r\n", What::Page, false),
            ("GET http://h?x=/metrics HTTP/1.1\r\n\r\n", What::Page, false),
            ("GET http://h/metric HTTP/1.1\r\n\r\n", What::Unknown, false),
            ("GET / HTTP/1.1\r\n\r\n", What::Page, false),
            ("GET /metric HTTP/1.1\r\n\r\n", What::Unknown, false),
            ("POST /other HTTP/1.1\r\n\r\n", What::Unknown, false),
            ("POST /metrics HTTP/1.1\r\n\r\n", What::Method, false),
            ("DELETE / HTTP/1.1\r\n\r\n", What::Method, false),
            ("GET /metrics\r\n\r\n", What::Invalid, false),
            ("GET /metrics HTTP/9.9\r\n\r\n", What::Invalid, false),
            ("\u{1}\u{2}", What::Invalid, false),
        ] {
            assert_eq!(parse(request.as_bytes()), Some(Asked { what, is_head }), "{request:?}");
        }
        for partial in ["", "GET", "GET /metrics HTTP/1.1\r\n", "GET /metrics HTTP/1.1\r\nHost: a\r\n"] {
            assert_eq!(parse(partial.as_bytes()), None, "{partial:?}");
        }
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(HEADERS_MAX + 1));
        assert_eq!(parse(many.as_bytes()).map(|asked| asked.what), Some(What::Invalid));
    }
}
