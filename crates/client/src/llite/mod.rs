//! The file system as a program sees it (Lustre's llite): one file an operation.
//!
//! Every operation is a method of [`crate::Client`]. Nothing that another client could change is cached: each asks the MDT, and
//! where size, space or data matter, the OSTs.

mod attr;
mod control;
mod copy;
mod create;
mod dot_lustre;
mod fallocate;
mod link;
mod lookup;
mod open;
mod read;
mod readdir;
mod release;
mod rename;
mod seek;
mod setattr;
mod statfs;
mod sync;
mod unlink;
mod write;
mod xattr;

pub(crate) use statfs::summary;
