//! The error of a simulation.

use std::fmt::Display;

/// A simulation that did not end well: a sentence for the user.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the simulation failed: {0}")]
pub struct SimulationError(pub(crate) String);

/// Result of a part of a simulation.
pub type Result<T> = std::result::Result<T, SimulationError>;

/// Returns a function that turns an error into one of the simulation.
pub(crate) fn failed<E: Display>(what: &str) -> impl Fn(E) -> SimulationError + use<'_, E> {
    move |e| SimulationError(format!("{what}: {e}"))
}
