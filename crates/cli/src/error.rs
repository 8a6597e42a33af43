//! Failures of commands: what failed, and what the user can do about it.

use std::fmt;

/// A failure with advice. Printed as two lines: `sheen: …` and, where there is any, `  …`.
#[derive(Debug)]
pub struct Failure {
    what: String,
    advice: Option<String>,
}

/// The result of a command.
pub type Result<T = ()> = std::result::Result<T, Failure>;

impl Failure {
    /// A failure without advice.
    pub fn new(what: impl Into<String>) -> Failure {
        Failure { what: what.into(), advice: None }
    }

    /// Adds what the user can do next.
    pub fn advise(self, advice: impl Into<String>) -> Failure {
        Failure { advice: Some(advice.into()), ..self }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.what)?;
        match &self.advice {
            Some(advice) => write!(f, "\n  {advice}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Failure {}

/// Adds to an error of another type what was being done.
pub trait Context<T> {
    /// Turns the error into the failure `what: error`.
    fn context(self, what: impl fmt::Display) -> Result<T>;
}

impl<T, E: fmt::Display> Context<T> for std::result::Result<T, E> {
    fn context(self, what: impl fmt::Display) -> Result<T> {
        self.map_err(|e| Failure::new(format!("{what}: {e}")))
    }
}
