//! The load of a survey, as a run uses it: an OST makes it itself, or this process sends it.

use std::io;

use crate::survey::{args::Test, plan::Point};

/// The work of an OST in a test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Done {
    /// Bytes that were transferred.
    pub bytes: u64,
    /// Microseconds that it took.
    pub micros: u64,
}

/// The load of a case, on all OSTs at once.
pub trait Load {
    /// Removes the objects.
    ///
    /// # Errors
    /// Of an OST, or an interruption by the user.
    fn remove(&self) -> io::Result<()>;

    /// Executes a test. Returns the results of the OSTs, in the order of the plan.
    ///
    /// # Errors
    /// As [`Load::remove`].
    fn test(&self, point: Point, test: Test) -> io::Result<Vec<Done>>;

    /// Stops what runs and removes the objects, also after an interruption. Returns a warning for
    /// each OST that has objects left.
    fn end(&self) -> Vec<String>;
}

/// Adds the name of an OST to an error.
pub fn named_ost(ost: &str, e: &io::Error) -> io::Error {
    io::Error::new(e.kind(), format!("{ost}: {e}"))
}

/// Returns the warning of [`Load::end`].
pub fn objects_left(ost: &str, e: &io::Error) -> String {
    format!("{ost}: the objects of the survey are left until its next start: {e}")
}
