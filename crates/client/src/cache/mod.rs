//! The client's caches. They are emptied when locks are cancelled ([`crate::lock_owners`]).
//!
//! * `meta`: attributes, names, link targets and extended attributes, under inodebits locks of the
//!   MDT;
//! * `layouts`: decoded layouts;
//! * `data`: the kernel's pages, under extent locks of the OSTs;
//! * `change`: a change by this client itself, which its own locks do not stop.
//!
//! No MDT lock is in use while a request to the MDT is in flight. The request may wait for a change
//! by another client, and that change waits for this lock.

mod caches;
mod change;
pub mod data;
mod hits;
mod layouts;
pub mod meta;
mod stalls;

pub use caches::Cache;
pub use data::ReadRefs;
pub use hits::{Hits, cache_stats_text};
pub use layouts::{Layouts, is_as_new, is_settled};
