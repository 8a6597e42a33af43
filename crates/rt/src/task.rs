//! Handles of spawned tasks.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use crate::sim;

/// Why a task has no result.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum JoinError {
    /// Aborted, or its runtime or simulated host went down.
    #[error("task was aborted")]
    Aborted,
    /// It panicked. (In a simulation a panic ends the run instead.)
    #[error("task panicked")]
    Panicked,
}

/// A spawned task: a future of its result. Dropping the handle lets the task go on.
pub struct JoinHandle<T>(pub(crate) Inner<T>);

pub(crate) enum Inner<T> {
    Real(tokio::task::JoinHandle<T>),
    Sim(sim::Join<T>),
}

impl<T> JoinHandle<T> {
    /// Ends the task at its next point of waiting (at once, if it waits now). Does nothing to one
    /// that has ended.
    pub fn abort(&self) {
        match &self.0 {
            Inner::Real(h) => h.abort(),
            Inner::Sim(h) => h.abort(),
        }
    }

    /// Whether the task has ended in whatever way.
    pub fn is_finished(&self) -> bool {
        match &self.0 {
            Inner::Real(h) => h.is_finished(),
            Inner::Sim(h) => h.is_finished(),
        }
    }
}

impl<T> Unpin for JoinHandle<T> {}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.get_mut().0 {
            Inner::Real(h) => {
                Pin::new(h).poll(cx).map_err(|e| if e.is_panic() { JoinError::Panicked } else { JoinError::Aborted })
            }
            Inner::Sim(h) => h.poll(cx),
        }
    }
}
