//! Owners of the lock tables: what happens before a lock is cancelled, and after locks were lost.
//!
//! An owner drops the data that a lock guards: in the caches of this client, then in the kernel. It
//! flushes the dirty data under a lock, and tells the MDT of opens and closes that the lock let
//! this client postpone. Then it sends the cancel.
//!
//! * [`MdtLocks`]: owner of the MDT's lock table;
//! * [`OstLocks`]: owner of an OST's lock table.

mod invalidation;
mod mdt;
mod ost;

pub use mdt::MdtLocks;
pub use ost::OstLocks;
