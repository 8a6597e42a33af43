//! Mirrors of files: resync, verification, and adding and removing mirrors.
//!
//! The data of one mirror is read and written through an open file that is bound to that mirror
//! ([`FileSystem::mirror`](crate::FileSystem::mirror)). The requests to the MDT are those of
//! [`sheen_wire::mirror`]. Functions on a path bind a descriptor of their own to each mirror.
//! Functions on an open file bind it only during the call ([`as_mirror`]).

mod crc;
mod extend;
mod mirrored_file;
mod resync;
mod single;
mod split;
mod ticket;
mod verify;
mod written;

pub use extend::{Extend, extend, is_same};
pub use mirrored_file::{MirroredFile, NamedFile};
pub use resync::{Resync, copy, declare, resync};
pub use single::{as_mirror, next_data, read};
pub use split::split;
pub use ticket::Ticket;
pub use verify::{Chunk, verify};
pub use written::{copy_to, truncate, write};
