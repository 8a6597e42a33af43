//! Allocations of a call over `lo`: the service's boxed future, and nothing else on the heap.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    sync::Arc,
};

use sheen_lnet::Net;
use sheen_rpc::{BoxFuture, Export, Import, ImportConfig, Response, Server, Service};
use sheen_rt::{RealOptions, Rt};
use sheen_wire::{Bulk, Ost, ost};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: forwards to the system's allocator, and counts.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|n| n.set(n.get() + 1));
        // SAFETY: the caller upholds the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

struct Null;

impl Service<Ost> for Null {
    fn call<'a>(
        &'a self,
        _: &'a Arc<Export>,
        _: ost::Request,
        _: Bulk,
    ) -> BoxFuture<'a, sheen_wire::Result<Response<ost::Reply>>> {
        Box::pin(async { Ok(ost::Reply::Ok.into()) })
    }

    fn incarnation(&self) -> u64 {
        1
    }
}

#[test]
fn lo_call_allocates_only_the_service_future() {
    let (runtime, rt) = Rt::real(RealOptions::default()).unwrap();
    let net = Net::new(rt);
    let server = Server::new(net.clone());
    server.add::<Ost>("sheen-OST0000", Arc::new(Null));
    let import = Import::<Ost>::new(net, ImportConfig::new("c", "sheen-OST0000", vec![]));
    runtime.block_on(async {
        import.request(ost::Request::StatFs).send().await.unwrap();
        let before = ALLOCATIONS.with(Cell::get);
        for _ in 0..100 {
            import.request(ost::Request::StatFs).send().await.unwrap();
        }
        assert_eq!(ALLOCATIONS.with(Cell::get) - before, 100);
    });
}
