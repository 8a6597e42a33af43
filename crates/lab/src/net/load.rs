//! The requests of one measurement.

use std::{io, time::Duration};

use bytes::Bytes;
use sheen_lnet::{Fault, NidName, Trust};
use sheen_rpc::{Import, RPCS_IN_FLIGHT_LIMIT, SelftestConnection};
use sheen_rt::Rt;
use sheen_wire::{Bulk, Selftest, bulk::BULK_BYTES_MAX};

use crate::{
    echo::echo,
    net::{args::Test, plan::Point},
    stop,
};

/// Time limit for the connection, and for its restoration.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval at which a run notices an interruption.
const STOP_POLL: Duration = Duration::from_millis(100);

/// A connection to a server, and the data of its requests.
pub struct Load {
    rt: Rt,
    connection: SelftestConnection,
    data: Bytes,
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
    /// Connects to a server. `trust`: of this process.
    ///
    /// # Errors
    /// The name has no address. The server cannot be reached, or has no self-test.
    pub fn connect(trust: Trust, name: &NidName) -> io::Result<Load> {
        let connection = SelftestConnection::open(trust, name, RPCS_IN_FLIGHT_LIMIT, CONNECT_TIMEOUT)?;
        let data = Bytes::from(vec![0x5a; BULK_BYTES_MAX]);
        Ok(Load { rt: connection.net().rt().clone(), connection, data })
    }

    /// Sets the added round trip, in milliseconds. This process delays its requests by all of it.
    pub fn set_delay(&self, milliseconds: f64) {
        let delay = Duration::from_secs_f64(milliseconds / 1e3);
        self.connection.net().set_fault(Fault { delay, ..Fault::default() });
    }

    /// Sends requests for a time.
    ///
    /// # Errors
    /// Of a request, or an interruption by the user.
    pub fn run(&self, point: Point, time: Duration) -> io::Result<Done> {
        self.connection.block_on(async {
            let start = self.rt.now();
            let tasks: Vec<_> = (0..point.in_flight)
                .map(|_| {
                    let (rt, import, data) = (self.rt.clone(), self.connection.import().clone(), self.data.clone());
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
        // The connection ends after this, without a delay.
        self.set_delay(0.0);
    }
}

async fn one(import: &Import<Selftest>, data: &Bytes, point: Point) -> io::Result<()> {
    let size = point.size as usize; // at most BULK_BYTES_MAX
    let (bulk, reply_bytes) = match point.test {
        Test::Ping => (Bulk::new(), 0),
        Test::Write => (Bulk::from(data.slice(..size)), 0),
        Test::Read => (Bulk::new(), point.size as u32),
    };
    echo(import, bulk, reply_bytes).await
}
