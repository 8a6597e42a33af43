//! The load of the self-test: requests over one connection, as many under way as it says.
//!
//! Tools send it from their own process. A server sends it at the request of a tool
//! (`selftest_turns`).

use std::{io, sync::Arc, time::Duration};

use bytes::Bytes;
use sheen_lnet::{Fault, Net};
use sheen_rt::{Instant, JoinHandle, Rt};
use sheen_wire::{
    Bulk, Selftest,
    selftest::{Done, LOAD_IN_FLIGHT_MAX, Load, Request},
};

use crate::import::{Import, RPCS_IN_FLIGHT_LIMIT};

const _: () = assert!(LOAD_IN_FLIGHT_MAX as usize <= RPCS_IN_FLIGHT_LIMIT);

/// Sends data to a self-test, and waits for a reply with this many bytes.
///
/// # Errors
/// Of the request. The reply has another length.
pub async fn echo(import: &Import<Selftest>, bulk: Bulk, reply_bytes: u32) -> io::Result<()> {
    let reply = import.request(Request::Echo { reply_bytes }).bulk(bulk).send().await.map_err(io::Error::other)?;
    if reply.bulk.len() == reply_bytes as usize { Ok(()) } else { Err(io::Error::other("the reply is too short")) }
}

/// Sends a load. `net`: the network of the connection. Its frames are delayed as the load says,
/// until the load ends. If the future is dropped, no further requests are sent.
///
/// # Errors
/// Of the first request that fails.
pub async fn send_load(net: &Net, import: &Arc<Import<Selftest>>, load: Load) -> io::Result<Done> {
    let rt = net.rt();
    let data = Bytes::from(vec![0x5a; load.sent_bytes as usize]);
    let _delay = Delay::begin(net, Duration::from_micros(load.delay_us.into()));
    let start = rt.now();
    let sender = Sender { rt: rt.clone(), import: import.clone(), data, load, start };
    let mut senders = Senders((0..load.in_flight).map(|_| rt.spawn("selftest", sender.clone().run())).collect());
    let mut requests = 0;
    for sender in &mut senders.0 {
        requests += sender.await.map_err(io::Error::other)??;
    }
    Ok(Done { requests, nanos: rt.now().since(start).as_nanos() as u64 })
}

/// The task that has one of the requests under way.
#[derive(Clone)]
struct Sender {
    rt: Rt,
    import: Arc<Import<Selftest>>,
    data: Bytes,
    load: Load,
    start: Instant,
}

impl Sender {
    /// Sends requests until the time is over. Returns their number.
    async fn run(self) -> io::Result<u64> {
        let time = Duration::from_millis(self.load.time_ms.into());
        let mut requests = 0;
        // At least one, however late the task begins.
        loop {
            let bulk = if self.data.is_empty() { Bulk::new() } else { Bulk::from(self.data.clone()) };
            echo(&self.import, bulk, self.load.reply_bytes).await?;
            requests += 1;
            if self.rt.now().since(self.start) >= time {
                return Ok(requests);
            }
        }
    }
}

/// The tasks of a load. Dropping it ends them.
struct Senders(Vec<JoinHandle<io::Result<u64>>>);

impl Drop for Senders {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

/// A delay of all frames of a network. Dropping it ends the delay.
struct Delay<'a>(&'a Net);

impl<'a> Delay<'a> {
    fn begin(net: &'a Net, delay: Duration) -> Delay<'a> {
        net.set_fault(Fault { delay, ..Fault::default() });
        Delay(net)
    }
}

impl Drop for Delay<'_> {
    fn drop(&mut self) {
        self.0.set_fault(Fault::default());
    }
}
