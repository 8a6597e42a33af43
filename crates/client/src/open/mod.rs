//! Open files and directories, and the state that they have in this client.
//!
//! With a lock on a file's OPEN bit, the client opens the file without a request to the MDT, which
//! then has no handle for it. Such an open is *local*. Before the lock is cancelled, and whenever
//! else the MDT must know, the client registers local opens at the MDT ([`OpenFiles::register`]).
//!
//! Invariants:
//! * a file is in [`OpenFiles`] from its open to its release; all open files of one inode share one
//!   `Inode`;
//! * for each file in it, the MDT has a handle or this client holds the OPEN lock, which is
//!   cancelled only after the MDT has a handle.

mod close_queue;
mod dir;
mod file;
mod files;
mod group;
mod group_members;
mod inode;
pub mod listing;
mod migration;
mod read_end;
mod registration;
mod scan_page;

pub use close_queue::Closes;
pub use dir::OpenDir;
pub(crate) use file::OpenBy;
pub use file::OpenFile;
pub(crate) use files::OpenFiles;
pub(crate) use group::{Group, Member, Seat};
pub use listing::{Limits, Listing, Names, Step};
pub(crate) use migration::Migration;
pub use read_end::ReadEnd;
pub(crate) use scan_page::ScanPages;
pub use scan_page::{ScanItem, ScanPage};
