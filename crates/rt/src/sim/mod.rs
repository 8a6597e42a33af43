//! The simulated world: hosts, their disks and the network between them, in one thread and
//! controlled by one seed.
//!
//! [`Sim::run`] drives a future and all tasks that it spawns. Time is virtual: it stands still
//! while a task is ready, and then jumps to the next timer or packet. An hour of timeouts passes
//! at once.
//!
//! One generator makes all decisions: which ready task runs next, how long a packet takes, and
//! which parts of an unsynced file survive a crash. So the same seed gives the same run, which
//! [`World::trace_hash`] proves.
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
//!
//! * One thread, one generator, ordered maps only. Nothing in this module asks the real clock or
//!   the kernel.
//! * An [`Rt`](crate::Rt) belongs to one life of a host. [`World::crash_host`] and
//!   [`World::remount_disk`] end the life. Then the old ones are dead: their disk returns EIO,
//!   their timers never fire, and tasks that they spawn are dropped. So a destructor cannot undo a
//!   crash.
//! * A panic in any task ends the run: in a simulation it is a bug found.
//!
//! Simulated code must not contain the following, because the run would not replay:
//!
//! * `tokio::select!` without `biased;`
//! * iteration over a map with a random order
//! * counters in statics, because a second simulation in the process starts with other values
//! * threads
//!
//! Modules:
//!
//! * `state`: the shared state and virtual time, made of `tasks`, `conn` and `tree`;
//! * `tasks`, `exec`: tasks, their wakers, and the run loop;
//! * `conn`, `link`, `net`, `socket`: connections, the rates of links, the transport of packets,
//!   and a host's sockets;
//! * `sparse`, `inode`, `tree`: the content of files and the directories of a disk;
//! * `file`, `disk`: a host's open files and its disk;
//! * `host`: one life of a host;
//! * `world`: the control by a test;
//! * `trace`: the record of a run.

mod config;
mod conn;
mod disk;
mod exec;
mod file;
mod host;
mod inode;
mod link;
mod net;
mod socket;
mod sparse;
mod state;
mod tasks;
mod trace;
mod tree;
mod world;

pub use config::{SimConfig, SimError};
pub use exec::Sim;
pub use world::World;

pub(crate) use disk::{Disk, Lock, OpenDir};
pub(crate) use exec::Join;
pub(crate) use file::File;
pub(crate) use host::{Host, Sleep};
pub(crate) use socket::{Listener, ReadHalf, Stream, WriteHalf};
