//! Output of a walk, and the callback that takes it from each found entry.

use sheen_wire::Result;

use crate::{
    Failure,
    find::{entry::Entry, needs::Needs},
};

/// Takes from each found entry what the caller wants. The threads of the walk call it.
pub trait Collect: Sync {
    /// A byte of text, or a record of an entry.
    type Item: Send;

    /// Returns what [`Collect::add`] reads from an entry.
    fn needs(&self) -> Needs;

    /// Adds the items of an entry to `items`. After an error, `items` is as before.
    ///
    /// # Errors
    /// The errno of a failed request.
    fn add(&self, entry: &mut Entry<'_>, items: &mut Vec<Self::Item>) -> Result<()>;
}

/// A part of a walk's output.
#[derive(Debug)]
pub enum Event<T> {
    /// The items of some entries. Those of an entry are never divided.
    Found(Vec<T>),
    /// An entry could not be examined, or a thread could not be started.
    Failed(Failure),
}
