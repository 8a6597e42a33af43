//! Mirrors of files: resync, verification, and adding and removing mirrors.
//!
//! The data of one mirror is read and written through an open file that is bound to that mirror
//! ([`FileSystem::mirror`](crate::FileSystem::mirror)). The requests to the MDT are those of
//! [`sheen_wire::mirror`].

mod change;
mod crc;
mod extend;
mod resync;
mod split;
mod ticket;
mod verify;

pub use change::change;
pub use extend::{Extend, extend, is_same};
pub use resync::{Resync, copy, declare, resync};
pub use split::split;
pub use ticket::Ticket;
pub use verify::{Chunk, verify};
