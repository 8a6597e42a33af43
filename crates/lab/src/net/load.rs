//! The requests of one measurement.

use std::{io, sync::Arc, time::Duration};

use bytes::Bytes;
use sheen_lnet::{Fault, Net, NidName};
use sheen_rpc::{Import, ImportConfig, ImportParams, RPCS_IN_FLIGHT_LIMIT, SelftestService, Server};
use sheen_rt::{RealOptions, Rt, Runtime};
use sheen_wire::{
    Bulk, Selftest,
    bulk::BULK_BYTES_MAX,
    selftest::{Request, TARGET},
};

use crate::{
    net::{args::Test, plan::Point},
    stop,
};

/// Time limit for the connection, and for its restoration.
const CONNECT_TIMEOUT_MS: u64 = 5_000;
/// Interval at which a run notices an interruption.
const STOP_POLL: Duration = Duration::from_millis(100);
/// Time limit for the end of all tasks.
const END_WAIT: Duration = Duration::from_millis(500);

/// A connection to a server, with a runtime of its own.
pub struct Load {
    runtime: Option<Runtime>,
    rt: Rt,
    net: Arc<Net>,
    import: Arc<Import<Selftest>>,
    data: Bytes,
    /// The service of this process, for requests over `lo`.
    _server: Arc<Server>,
}

/// Result of one measurement.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Done {
    /// Requests that were answered.
    pub requests: u64,
    /// Seconds until the last answer.
    pub seconds: f64,
}

impl Load {
    /// Connects to a server.
    ///
    /// # Errors
    /// The name has no address. The server cannot be reached, or has no self-test.
    pub fn connect(name: &NidName) -> io::Result<Load> {
        let (runtime, rt) = Rt::real(RealOptions::default())?;
        let net = Net::new(rt.clone());
        let server = Server::new(net.clone());
        let nids = runtime.block_on(name.resolve(&rt))?;
        if *name == NidName::Lo {
            server.add::<Selftest>(TARGET, SelftestService::new(&rt));
        }
        let params = ImportParams {
            max_rpcs_in_flight: RPCS_IN_FLIGHT_LIMIT,
            hard: false,
            connect_timeout_ms: CONNECT_TIMEOUT_MS,
            recovery_timeout_ms: CONNECT_TIMEOUT_MS,
            ..ImportParams::default()
        };
        let uuid = format!("selftest-{:016x}", rt.random_u64());
        let config = ImportConfig { params, ..ImportConfig::new(&uuid, TARGET, nids) };
        let import = Import::new(net.clone(), config);
        runtime.block_on(import.connect()).map_err(io::Error::other)?;
        let data = Bytes::from(vec![0x5a; BULK_BYTES_MAX]);
        Ok(Load { runtime: Some(runtime), rt, net, import, data, _server: server })
    }

    /// Sets the added round trip, in milliseconds. This process delays its requests by all of it.
    pub fn set_delay(&self, milliseconds: f64) {
        let delay = Duration::from_secs_f64(milliseconds / 1e3);
        self.net.set_fault(Fault { delay, ..Fault::default() });
    }

    /// Sends requests for a time.
    ///
    /// # Errors
    /// Of a request, or an interruption by the user.
    pub fn run(&self, point: Point, time: Duration) -> io::Result<Done> {
        let Some(runtime) = &self.runtime else { return Err(io::ErrorKind::NotConnected.into()) };
        runtime.block_on(async {
            let start = self.rt.now();
            let tasks: Vec<_> = (0..point.in_flight)
                .map(|_| {
                    let (rt, import, data) = (self.rt.clone(), self.import.clone(), self.data.clone());
                    self.rt.spawn("selftest", async move {
                        let mut requests = 0u64;
                        // At least one, however late the task begins.
                        loop {
                            one(&import, &data, point).await?;
                            requests += 1;
                            if rt.now().since(start) >= time {
                                return Ok::<u64, io::Error>(requests);
                            }
                        }
                    })
                })
                .collect();
            let mut requests = 0;
            for mut task in tasks {
                // The tasks of an interrupted run end with the connection.
                requests += loop {
                    stop::check()?;
                    if let Ok(ended) = self.rt.timeout(STOP_POLL, &mut task).await {
                        break ended.map_err(io::Error::other)??;
                    }
                };
            }
            Ok(Done { requests, seconds: self.rt.now().since(start).as_secs_f64() })
        })
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            self.set_delay(0.0);
            runtime.block_on(self.import.close());
            runtime.shutdown(END_WAIT);
        }
    }
}

async fn one(import: &Import<Selftest>, data: &Bytes, point: Point) -> io::Result<()> {
    let size = point.size as usize; // at most BULK_BYTES_MAX
    let (bulk, reply_bytes) = match point.test {
        Test::Ping => (Bulk::new(), 0),
        Test::Write => (Bulk::from(data.slice(..size)), 0),
        Test::Read => (Bulk::new(), point.size as u32),
    };
    let reply = import.request(Request::Echo { reply_bytes }).bulk(bulk).send().await.map_err(io::Error::other)?;
    if reply.bulk.len() == reply_bytes as usize { Ok(()) } else { Err(io::Error::other("the reply is too short")) }
}
