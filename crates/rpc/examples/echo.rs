//! Time of a request without data and of its reply, one after another: within a process (`lo`), and
//! over tcp on loopback. `bench/calls.sh` runs it.

#![allow(clippy::unwrap_used, reason = "a measurement ends with its first error")]

use std::{io, time::Duration};

use sheen_lnet::{Net, NidName, Trust};
use sheen_rpc::{SelftestConnection, SelftestService, Server};
use sheen_rt::{RealOptions, Rt};
use sheen_wire::{
    Selftest,
    selftest::{Request, TARGET},
};

#[path = "../../../bench/calls/rounds.rs"]
mod rounds;

/// Time limit for a connection.
const TIMEOUT: Duration = Duration::from_secs(5);

fn main() {
    let (runtime, rt) = Rt::real(RealOptions::default()).unwrap();
    let net = Net::trusting(rt, Trust::All);
    let server = Server::new(net.clone());
    server.add::<Selftest>(TARGET, SelftestService::new(&net));
    let address = runtime.block_on(server.listen(([127, 0, 0, 1], 0).into())).unwrap();
    let tcp = NidName::Tcp { host: address.ip().to_string(), port: address.port() };
    let ways = [("request over `lo`", NidName::Lo, 1_000_000), ("request over tcp on loopback", tcp, 20_000)];
    for (name, to, calls) in ways {
        let connection = SelftestConnection::open(Trust::All, &[to], 1, TIMEOUT).unwrap();
        rounds::print(name, "", calls, || connection.block_on(requests(&connection, calls)).unwrap());
    }
    runtime.block_on(server.stop());
    runtime.shutdown(Duration::from_secs(1));
}

/// Sends requests, and waits for each reply.
async fn requests(connection: &SelftestConnection, count: u32) -> io::Result<()> {
    for _ in 0..count {
        let request = connection.import().request(Request::Echo { reply_bytes: 0 });
        request.send().await.map_err(io::Error::other)?;
    }
    Ok(())
}
