//! The file operations of a mount (Lustre's llite): one file per operation.
//!
//! Every operation is a method of [`crate::Client`]. It is answered from the caches where a lock
//! guards them (`attr_cache`). Otherwise the client asks the MDT, and the OSTs where size, space or
//! data matter.

mod attr;
mod attr_cache;
mod changelog;
mod client;
mod control;
mod copy;
mod create;
mod degraded;
mod dom_inline;
mod dot_lustre;
mod fallocate;
mod group_lock;
mod ladvise;
mod layout_lookup;
mod link;
mod list;
mod lock;
mod lookup;
mod mirrors;
mod open;
mod page;
mod read;
mod read_ahead;
mod readdir;
mod relayout;
mod release;
mod rename;
mod scan;
mod seek;
mod setattr;
mod small_file_prefetch;
mod statahead;
mod statfs;
mod swap_layouts;
mod sync;
mod unlink;
mod with_layout;
mod write;
mod xattr;

pub use client::Client;
pub use read_ahead::ReadAheadWindow;
pub(crate) use read_ahead::{READ_AHEAD_MB_LIMIT, ReadAhead, read_ahead_text};
pub(crate) use relayout::LAYOUT_TRUST;
pub(crate) use statahead::{
    STATAHEAD_MAX_LIMIT, STATAHEAD_RUNNING_LIMIT, STATAHEAD_TIMEOUT_LIMIT, Statahead, statahead_text,
};
pub(crate) use statfs::summary;
