//! The file operations of a mount (Lustre's llite): one file per operation.
//!
//! Every operation is a method of [`crate::Client`]. It is answered from the caches where a lock
//! guards them (`known`). Otherwise the client asks the MDT, and the OSTs where size, space or data
//! matter.

mod attr;
mod beginning;
mod contents;
mod control;
mod copy;
mod create;
mod dot_lustre;
mod fallocate;
pub(crate) mod group_lock;
mod known;
mod ladvise;
mod link;
mod list;
mod lock;
mod lookup;
mod mirrors;
pub(crate) mod moved;
mod named;
mod open;
mod page;
mod place;
mod read;
mod readdir;
mod release;
mod rename;
pub(crate) mod scan;
mod seek;
mod setattr;
mod statfs;
mod swap;
mod sync;
mod unlink;
mod write;
mod xattr;

pub(crate) use statfs::summary;
