//! The locks that this client holds from one target: the engine [`sheen_ldlm::client::Locks`],
//! connected to the network, the clock and the caches.
//!
//! * [`LockTable`]: looks up locks, processes grants and callbacks, and cancels locks in a task.
//!   The task first drops the cached data, in this process and in the kernel
//!   ([`Owner::drop_cached`]), and then tells the target ([`Owner::cancel`]);
//! * [`LockRef`]: a lock in use; a lock with references is not cancelled;
//! * [`IntentLocks`]: locks that come with the reply to another request (intent locks). Their
//!   handles are chosen before it is known which inodes they will lock;
//! * [`Flocks`]: file locks of programs.
//!
//! Invariants:
//! * data is cached under a lock while a [`LockRef`] to the lock exists, and is dropped before the
//!   cancel is sent. So all cached data is guarded by a lock for as long as it is cached;
//! * a callback handler only queues work and spawns a task, because over `lo` it runs on the thread
//!   of the service;
//! * after the target was restarted or evicted this client ([`LockTable::forget`]), no earlier lock
//!   is valid, whatever reply still arrives. Group locks outlive a restart (`groups`).

mod flock;
mod flush;
mod groups;
mod handles;
mod intent_locks;
mod owner;
mod table;

pub use flock::{Begun, Flocks};
pub use intent_locks::IntentLocks;
pub use owner::{Flush, Owner};
pub use table::{LockRef, LockTable, PendingEnqueue};
