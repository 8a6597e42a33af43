//! The service behind `sheen lab net`: it answers requests and does nothing else. So its speed is
//! that of the network and of this crate. It also sends such requests to another server.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use sheen_lnet::Net;
use sheen_wire::{
    Bulk, Errno, Result, Selftest,
    bulk::BULK_BYTES_MAX,
    selftest::{Reply, Request},
};

use crate::{
    selftest_turns::Turns,
    service::{BoxFuture, Export, Response, Service},
};

/// The service.
pub struct SelftestService {
    incarnation: u64,
    /// The bytes of all replies. They exist from the first request on.
    bytes: OnceLock<Bytes>,
    turns: Turns,
}

impl SelftestService {
    /// Creates the service. `net`: that of this process.
    pub fn new(net: &Net) -> Arc<SelftestService> {
        let (incarnation, turns) = (net.rt().random_u64(), Turns::new(net));
        Arc::new(SelftestService { incarnation, bytes: OnceLock::new(), turns })
    }

    fn echo(&self, reply_bytes: u32) -> Result<Response<Reply>> {
        let len = reply_bytes as usize;
        if len > BULK_BYTES_MAX {
            return Err(Errno::EINVAL);
        }
        let bulk = match len {
            0 => Bulk::new(),
            _ => self.bytes.get_or_init(|| Bytes::from(vec![0xa5; BULK_BYTES_MAX])).slice(..len).into(),
        };
        Ok(Response::with_bulk(Reply::Echoed, bulk))
    }
}

impl Service<Selftest> for SelftestService {
    fn call<'a>(
        &'a self,
        export: &'a Arc<Export>,
        request: Request,
        _: Bulk,
    ) -> BoxFuture<'a, Result<Response<Reply>>> {
        // The future of an echo stays small.
        match request {
            Request::Echo { reply_bytes } => Box::pin(async move { self.echo(reply_bytes) }),
            Request::Load { to, load } => {
                Box::pin(async move { self.turns.load(export, &to, load).await.map(Response::from) })
            }
        }
    }

    fn disconnected(&self, export: &Export) {
        self.turns.disconnected(export.id());
    }

    fn incarnation(&self) -> u64 {
        self.incarnation
    }

    fn reply_bytes(&self, request: &Request) -> usize {
        match request {
            Request::Echo { reply_bytes } => (*reply_bytes as usize).min(BULK_BYTES_MAX),
            Request::Load { .. } => 0,
        }
    }

    fn inline(&self, request: &Request) -> bool {
        // The checksum of a large reply occupies a processor.
        matches!(request, Request::Echo { reply_bytes: 0 })
    }
}
