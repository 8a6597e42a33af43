//! Searches of directory trees for entries by their attributes, their striping, and the targets of
//! their objects.
//!
//! A [`Query`] is a list of tests that must all hold ([`test`]). Cheap tests come first. Attributes
//! are therefore fetched only if the name matches, and layouts only if the attributes match
//! ([`facts`], [`entry`]). Several threads share the directories among themselves ([`walk`]).
//! A [`Collect`] takes what the caller wants of each entry that was found.

pub mod entry;
pub mod facts;
mod needs;
mod query;
mod range;
pub mod test;
mod walk;

pub use needs::Needs;
pub use query::Query;
pub use range::{Range, Side};
pub use walk::{Collect, Event, walk};
