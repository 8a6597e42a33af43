//! The OST's object engine: what an object is called, what may be asked of it, and what is known to
//! be durable.
//!
//! * [`name`]: object FID ↔ path below the OST's directory, as Lustre's ldiskfs lays them out;
//! * [`check`]: bounds on requests, before anything is done for them;
//! * [`plan`]: adjacent parts of a request become one run, so one system call;
//! * [`change`]: what a change touches, so what others may have cached of it;
//! * [`births`]: which directory entries of new objects are durable yet;
//! * [`sums`]: checksums of what is in objects, so that it can be sent unread;
//! * [`grants`]: space promised to clients;
//! * [`identity`]: the file that says which target a directory holds;
//! * [`sharing`]: how targets on one device divide what `statfs` says of it.
//!
//! Invariants: no I/O, no clock, no threads; nothing here panics or allocates by what a peer or a
//! disk says.

pub mod births;
pub mod change;
pub mod check;
pub mod grants;
pub mod identity;
pub mod name;
pub mod plan;
pub mod sharing;
pub mod sums;

pub use births::Births;
pub use grants::Grants;
pub use identity::Identity;
pub use plan::{Run, runs};
pub use sharing::Sharing;
pub use sums::Sums;
