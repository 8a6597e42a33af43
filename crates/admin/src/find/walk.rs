//! Walks of directory trees by several threads.
//!
//! A piece of work is a subtree, or a batch of entries of a directory that is large while other
//! threads are idle. Threads take work from a shared list ([`queue`]). They put new work there as
//! long as the list has room. Beyond that, each thread has a list of its own for the work that its
//! own descent leaves. All lists are last in, first out: the walk goes depth-first, so the lists
//! stay short.
//!
//! Invariants:
//! * Every entry is examined once, after the directory that it lies in.
//! * The items of an entry are sent in one piece.
//! * A single thread sends in the order of names, each directory followed by its contents. Several
//!   threads send in no order.

mod listed;
mod output;
mod page;
mod queue;
mod work;
mod worker;

use std::{
    ffi::CString,
    path::Path,
    sync::mpsc::{Receiver, sync_channel},
    thread,
};

pub use self::output::{Collect, Event};
use self::{queue::Queue, worker::Worker};
use super::query::Query;
use crate::{Failure, Step, os_errno};

/// Most pieces of output that wait for the caller.
const OUTPUT_MAX: usize = 64;

/// Examines everything below `roots` with this many threads. `collect` takes what the caller wants
/// of each found entry. Passes the output to `sink` until `sink` returns false.
pub fn walk<C: Collect>(
    query: &Query,
    collect: &C,
    roots: Vec<CString>,
    threads: usize,
    sink: impl FnMut(Event<C::Item>) -> bool,
) {
    let queue = Queue::new(roots, threads);
    let (to, from) = sync_channel(OUTPUT_MAX);
    thread::scope(|scope| {
        for _ in 0..threads {
            let worker = Worker::new(query, collect, &queue, to.clone(), threads == 1);
            if let Err(e) = thread::Builder::new().spawn_scoped(scope, move || worker.run())
                && queue.leave()
            {
                let failure = Failure::new(Step::StartThread, Path::new(""), os_errno(e));
                let _ = to.try_send(Event::Failed(failure));
            }
        }
        drop(to);
        pass_on(from, sink);
        queue.stop();
    });
}

fn pass_on<T>(from: Receiver<Event<T>>, mut sink: impl FnMut(Event<T>) -> bool) {
    while let Ok(event) = from.recv() {
        if !sink(event) {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
