//! The file system as a program sees it (Lustre's llite): one file an operation.
//!
//! Every operation is a method of [`crate::Client`]. What is known under a lock is answered from
//! memory (`known`); else the MDT is asked, and where size, space or data matter, the OSTs.

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
