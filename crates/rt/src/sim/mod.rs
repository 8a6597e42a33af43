//! The simulated outside world: hosts, their disks and the network between them, in one thread,
//! from one seed.
//!
//! [`Sim::run`] drives a future and all tasks that it spawns. Time is virtual: it stands still
//! while a task can go on and then jumps to the next timer or packet, so an hour of timeouts passes
//! in no time. Which of several ready tasks goes next, how long a packet takes, what an unsynced
//! file looks like after a crash: all comes from one generator, so the same seed gives the same
//! run, which [`World::trace_hash`] proves.
//!
//! ```
//! use sheen_rt::sim::{Sim, SimConfig};
//! use std::{io::IoSlice, time::Duration};
//!
//! let sim = Sim::new(42, SimConfig::default());
//! let (server, client, at) = (sim.rt(2), sim.rt(1), sim.addr(2, 988));
//! let got = sim.run(async {
//!     let listener = server.listen(at).await?;
//!     client.spawn("client", {
//!         let client = client.clone();
//!         async move {
//!             let (_r, mut w) = client.connect(at).await.unwrap().split();
//!             client.sleep(Duration::from_secs(3600)).await; // takes no time
//!             w.write_all_vectored(&[IoSlice::new(b"hello")]).await.unwrap();
//!         }
//!     });
//!     let (mut r, _w) = listener.accept().await?.0.split();
//!     let mut buf = [0; 5];
//!     r.read_exact(&mut buf).await.map(|()| buf)
//! });
//! assert_eq!(&got.unwrap().unwrap(), b"hello");
//! ```
//!
//! Invariants:
//! * one thread, one generator, ordered maps only; nothing here asks the real clock or the kernel;
//! * an [`Rt`](crate::Rt) belongs to one life of a host. After [`World::crash_host`] the old ones
//!   do nothing any more: their disk answers EIO, their timers never fire, what they spawn is
//!   dropped. So a destructor cannot undo a crash;
//! * a panic in any task ends the run: in a simulation it is a bug found.
//!
//! What would keep a run from replaying, and must not be in code that is simulated:
//! `tokio::select!` without `biased;`, iterating over a map with a random order, counters in
//! statics (the second simulation of a process finds them further on), threads.
//!
//! * `exec`: tasks, wakers, the run loop; `world`: the state that all share, virtual time, and what
//!   a test may do to it;
//! * `net`: connections; `disk`, `file`, `sparse`: what a host keeps; `trace`: the record of a run.

mod config;
mod disk;
mod exec;
mod file;
mod host;
mod net;
mod socket;
mod sparse;
mod trace;
mod world;

pub use config::{SimConfig, SimError};
pub use exec::Sim;
pub use world::World;

pub(crate) use disk::{Disk, Lock, OpenDir};
pub(crate) use exec::Join;
pub(crate) use file::File;
pub(crate) use host::{Host, Sleep};
pub(crate) use socket::{Listener, ReadHalf, Stream, WriteHalf};
