//! A service whose executions can be counted and delayed, and helpers to run it.

use std::{
    fmt,
    future::Future,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_lnet::{Frame, Net, Nid};
use sheen_rpc::{BoxFuture, Export, Import, ImportConfig, Response, Server, ServerConfig, Service};
use sheen_rt::{
    JoinHandle, RealOptions, Rt, operation,
    sim::{Sim, SimConfig},
};
use sheen_wire::{
    Bulk, Errno, Fid, Mds, OpId, Ost,
    frame::{self, Hello, Kind},
    mds, ost,
};
use tokio::sync::Semaphore;
use tracing_subscriber::{Layer, layer::SubscriberExt};

pub const TARGET: &str = "sheen-MDT0000";
/// Number of simulations of each test.
const SEEDS: u64 = 3;
/// More virtual time than any test takes.
const TIME_MAX: Duration = Duration::from_secs(600);
/// Timeout for real sockets, in milliseconds. No busy machine reaches it.
pub const PATIENT_MS: u64 = 60_000;

/// Answers `AllocSeq` (once) with 1, 2, 3, …, and `Sync`. A gated one waits at the gate before each
/// answer. Reads and writes echo their bulk.
pub struct Echo {
    pub uuid: &'static str,
    pub incarnation: u64,
    pub executed: AtomicU64,
    pub running: AtomicUsize,
    pub running_max: AtomicUsize,
    /// Each permit lets one execution end.
    pub gate: Semaphore,
    pub gated: bool,
    pub ops: Mutex<Vec<&'static str>>,
    pub ended: Mutex<Vec<String>>,
    pub inline: bool,
    /// Bytes of bulk that a read may return.
    pub reply_bytes: usize,
    pub data: Mutex<Bulk>,
    /// Reads are postponed until it is closed.
    pub postponed_until: Option<Arc<Semaphore>>,
    /// As an MDT, how long it says that its recovery may take.
    pub recovery_left: Mutex<Option<Duration>>,
}

impl Echo {
    pub fn new(incarnation: u64) -> Echo {
        Echo {
            uuid: "",
            incarnation,
            executed: AtomicU64::new(0),
            running: AtomicUsize::new(0),
            running_max: AtomicUsize::new(0),
            gate: Semaphore::new(0),
            gated: false,
            ops: Mutex::default(),
            ended: Mutex::default(),
            inline: true,
            reply_bytes: 0,
            data: Mutex::default(),
            postponed_until: None,
            recovery_left: Mutex::default(),
        }
    }

    pub fn gated(incarnation: u64) -> Echo {
        Echo { gated: true, ..Echo::new(incarnation) }
    }

    pub fn executed(&self) -> u64 {
        self.executed.load(Ordering::SeqCst)
    }

    /// Counts an execution, and waits at the gate.
    async fn execute(&self, op: &'static str) -> u64 {
        struct Running<'a>(&'a AtomicUsize);
        impl Drop for Running<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::SeqCst);
            }
        }
        self.ops.lock().push(op);
        let n = self.executed.fetch_add(1, Ordering::SeqCst) + 1;
        let now = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        let _running = Running(&self.running);
        self.running_max.fetch_max(now, Ordering::SeqCst);
        if self.gated {
            self.gate.acquire().await.unwrap().forget();
        }
        n
    }
}

impl Service<Mds> for Echo {
    fn call<'a>(
        &'a self,
        _: &'a Arc<Export>,
        call: mds::Call,
        _: Bulk,
    ) -> BoxFuture<'a, sheen_wire::Result<Response<mds::Answer>>> {
        Box::pin(async move {
            let n = self.execute(call.request.op()).await;
            match call.request {
                mds::Request::AllocSeq => Ok(Response::with_transno(mds::Reply::Seq(n).into(), n)),
                mds::Request::Reopen { .. } => Ok(mds::Answer::from(mds::Reply::Handles(vec![])).into()),
                mds::Request::Sync { .. } => Ok(mds::Answer::from(mds::Reply::Ok).into()),
                _ => Err(Errno::EOPNOTSUPP),
            }
        })
    }

    fn disconnected(&self, export: &Export) {
        self.ended.lock().push(export.client().to_owned());
    }

    fn last_committed(&self) -> u64 {
        self.executed() / 2
    }

    fn uuid(&self) -> &str {
        self.uuid
    }

    fn incarnation(&self) -> u64 {
        self.incarnation
    }

    fn recovery_left(&self) -> Option<Duration> {
        *self.recovery_left.lock()
    }

    fn features(&self) -> u64 {
        0b110
    }

    fn inline(&self, _: &mds::Call) -> bool {
        self.inline
    }
}

impl Service<Ost> for Echo {
    fn call<'a>(
        &'a self,
        _: &'a Arc<Export>,
        request: ost::Request,
        bulk: Bulk,
    ) -> BoxFuture<'a, sheen_wire::Result<Response<ost::Reply>>> {
        Box::pin(async move {
            self.execute(request.op()).await;
            match request {
                ost::Request::Write { .. } => {
                    *self.data.lock() = bulk;
                    Ok(ost::Reply::Ok.into())
                }
                ost::Request::Read { .. } => {
                    let data = self.data.lock().clone();
                    Ok(Response::with_bulk(ost::Reply::Read(vec![data.len() as u32]), data))
                }
                _ => Err(Errno::EOPNOTSUPP),
            }
        })
    }

    fn disconnected(&self, export: &Export) {
        self.ended.lock().push(export.client().to_owned());
    }

    fn incarnation(&self) -> u64 {
        self.incarnation
    }

    fn inline(&self, _: &ost::Request) -> bool {
        self.inline
    }

    fn reply_bytes(&self, request: &ost::Request) -> usize {
        if matches!(request, ost::Request::Read { .. }) { self.reply_bytes } else { 0 }
    }

    fn postponed(&self, _: &Arc<Export>, request: &ost::Request) -> Option<BoxFuture<'static, ()>> {
        let until = self.postponed_until.clone().filter(|_| matches!(request, ost::Request::Read { .. }))?;
        Some(Box::pin(async move {
            assert!(until.acquire().await.is_err(), "it has no permits");
        }))
    }
}

/// Runs a test in several simulations, on one host. A test that hangs fails.
pub fn run(test: impl AsyncFn(Rt)) {
    for seed in 0..SEEDS {
        let sim = Sim::new(seed, SimConfig { time_max: TIME_MAX, ..SimConfig::default() });
        sim.run(test(sim.rt(1))).unwrap();
    }
}

/// Runs a test on real threads and sockets. A test that hangs fails.
pub fn real<F: Future<Output = ()>>(test: impl FnOnce(Rt) -> F) {
    let options = RealOptions { worker_threads: 2, ..RealOptions::default() };
    let (runtime, rt) = Rt::real(options).unwrap();
    let guard = rt.clone();
    let (run, patience) = (test(rt), Duration::from_millis(PATIENT_MS));
    runtime.block_on(async move { guard.timeout(patience, run).await.expect("the test hangs") });
    runtime.shutdown(Duration::from_millis(100));
}

pub fn config(export_timeout_ms: u64) -> ServerConfig {
    ServerConfig { export_timeout_ms, hello_timeout_ms: 100, ..ServerConfig::default() }
}

/// Configuration for real sockets.
pub fn patient_config() -> ServerConfig {
    ServerConfig { export_timeout_ms: PATIENT_MS, hello_timeout_ms: PATIENT_MS, ..ServerConfig::default() }
}

/// Serves `echo` as a metadata service at a loopback port.
pub async fn serve(rt: &Rt, echo: &Arc<Echo>, config: ServerConfig, port: u16) -> (Arc<Net>, Arc<Server>, SocketAddr) {
    let net = Net::new(rt.clone());
    let server = Server::with_config(net.clone(), config);
    server.add::<Mds>(TARGET, echo.clone());
    let addr = server.listen(SocketAddr::from(([127, 0, 0, 1], port))).await.unwrap();
    (net, server, addr)
}

/// Serves `echo` as a metadata service in this process. Returns the server and an import of client
/// `c`.
pub fn serve_lo(rt: &Rt, echo: &Arc<Echo>) -> (Arc<Server>, Arc<Import<Mds>>) {
    let net = Net::new(rt.clone());
    let server = Server::new(net.clone());
    server.add::<Mds>(TARGET, echo.clone());
    (server, Import::new(net, import_config("c", None)))
}

/// Configuration of a mount's import.
pub fn import_config(client: &str, addr: Option<SocketAddr>) -> ImportConfig {
    let mut config = ImportConfig::new(client, TARGET, addr.map(Nid::Tcp).into_iter().collect());
    config.features = 0b011;
    config.params.connect_timeout_ms = 300;
    config
}

/// The same for real sockets.
pub fn patient_import_config(client: &str, addr: Option<SocketAddr>) -> ImportConfig {
    let mut config = import_config(client, addr);
    (config.params.connect_timeout_ms, config.params.ping_interval_ms) = (PATIENT_MS, PATIENT_MS);
    config
}

pub fn import(net: Arc<Net>, addr: SocketAddr) -> Arc<Import<Mds>> {
    Import::new(net, import_config("client", Some(addr)))
}

/// The first frame of a client.
pub fn hello(client: &str, protocol: &str) -> Frame {
    let hello = Hello {
        client: client.into(),
        protocol: protocol.into(),
        target: TARGET.into(),
        target_uuid: String::new(),
        features: 0,
        reconnect: false,
    };
    Frame { body: frame::to_body(&hello).unwrap().into(), ..Frame::new(Kind::Hello, 0) }
}

/// Sends `AllocSeq`; returns the answer.
pub async fn seq(import: &Import<Mds>) -> sheen_wire::Result<u64> {
    match import.request(mds::Request::AllocSeq).send().await?.body.reply {
        mds::Reply::Seq(n) => Ok(n),
        _ => Err(Errno::EPROTO),
    }
}

/// Starts a task that sends `AllocSeq`.
pub fn begin_seq(rt: &Rt, import: &Arc<Import<Mds>>) -> JoinHandle<sheen_wire::Result<u64>> {
    let import = import.clone();
    rt.spawn("seq", async move { seq(&import).await })
}

/// After a restart of the server, the import sends `Reopen` before it resends requests.
pub fn reopen_after_restart(import: &Import<Mds>) {
    import.on_restart(|recovering| {
        Box::pin(async move {
            recovering.call(mds::Request::Reopen { files: vec![], first: false, last: false }).await?;
            Ok(())
        })
    });
}

/// Closes an import while a `Sync` waits at the gate of `echo`. Asserts that the `Sync` and later
/// calls fail with ESHUTDOWN.
pub async fn expect_close_ends_calls(rt: &Rt, import: &Arc<Import<Mds>>, echo: &Echo) {
    let sync = {
        let import = import.clone();
        async move { import.request(mds::Request::Sync { fid: None }).send().await }
    };
    let waits = rt.spawn("waits", sync);
    until(rt, || echo.executed() == 1).await;
    import.close().await;
    assert_eq!(waits.await.unwrap().unwrap_err(), Errno::ESHUTDOWN);
    assert_eq!(seq(import).await, Err(Errno::ESHUTDOWN));
}

/// Records each log line with the operation that it belongs to.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<(String, OpId)>>>);

impl<S: tracing::Subscriber> Layer<S> for Log {
    fn on_event(&self, event: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
        let mut line = String::new();
        event.record(&mut |field: &tracing::field::Field, value: &dyn fmt::Debug| {
            line += &format!("{field}={value:?} ");
        });
        self.0.lock().push((line, operation::current()));
    }
}

pub fn write() -> ost::Request {
    let (file, parts, grant) = (Fid::new(8, 1), vec![part()], ost::Grant::default());
    ost::Request::Write { file, parts, sync: false, mtime: None, grant, held: false }
}

pub fn read() -> ost::Request {
    ost::Request::Read { parts: vec![part()] }
}

fn part() -> ost::Part {
    ost::Part { object: Fid::new(7, 1), offset: 0, len: 1 }
}

pub fn data(len: usize, seed: u8) -> Bulk {
    Bulk::from(Bytes::from((0..len).map(|i| (i / 3) as u8 ^ (i >> 11) as u8 ^ seed).collect::<Vec<_>>()))
}

/// Waits until a condition holds.
pub async fn until(rt: &Rt, mut so: impl FnMut() -> bool) {
    while !so() {
        rt.sleep(Duration::from_millis(2)).await;
    }
}

/// Runs a test. Returns its log lines, each with the operation that it belongs to.
pub fn logged(test: impl FnOnce()) -> Vec<(String, OpId)> {
    let log = Log::default();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(log.clone()), test);
    let lines = log.0.lock();
    lines.clone()
}
