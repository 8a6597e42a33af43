//! The service behind `sheen lab net`: it answers requests and does nothing else. So its speed is
//! that of the network and of this crate.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use sheen_rt::Rt;
use sheen_wire::{
    Bulk, Errno, Result, Selftest,
    bulk::BULK_BYTES_MAX,
    selftest::{Reply, Request},
};

use crate::service::{BoxFuture, Export, Response, Service};

/// The service.
#[derive(Debug)]
pub struct SelftestService {
    incarnation: u64,
    /// The bytes of all replies. They exist from the first request on.
    bytes: OnceLock<Bytes>,
}

impl SelftestService {
    /// Creates the service.
    pub fn new(rt: &Rt) -> Arc<SelftestService> {
        Arc::new(SelftestService { incarnation: rt.random_u64(), bytes: OnceLock::new() })
    }

    fn answer(&self, request: &Request) -> Result<Response<Reply>> {
        let Request::Echo { reply_bytes } = request;
        let len = *reply_bytes as usize;
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
    fn call<'a>(&'a self, _: &'a Arc<Export>, request: Request, _: Bulk) -> BoxFuture<'a, Result<Response<Reply>>> {
        Box::pin(async move { self.answer(&request) })
    }

    fn incarnation(&self) -> u64 {
        self.incarnation
    }

    fn reply_bytes(&self, request: &Request) -> usize {
        let Request::Echo { reply_bytes } = request;
        (*reply_bytes as usize).min(BULK_BYTES_MAX)
    }

    fn inline(&self, request: &Request) -> bool {
        // The checksum of a large reply occupies a processor.
        let Request::Echo { reply_bytes } = request;
        *reply_bytes == 0
    }
}
