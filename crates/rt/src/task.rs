//! Handles of spawned tasks.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use crate::{error::JoinError, sim};

/// A handle of a spawned task: a future that yields its result. Dropping the handle does not stop
/// the task.
pub struct JoinHandle<T>(pub(crate) Inner<T>);

pub(crate) enum Inner<T> {
    Real(tokio::task::JoinHandle<T>),
    Sim(sim::Join<T>),
}

impl<T> JoinHandle<T> {
    /// Aborts the task at its next await point, or at once if it is waiting. Has no effect on a
    /// task that has ended.
    pub fn abort(&self) {
        match &self.0 {
            Inner::Real(h) => h.abort(),
            Inner::Sim(h) => h.abort(),
        }
    }

    /// Whether the task has ended: finished, panicked or aborted.
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
