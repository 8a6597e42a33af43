//! What a command says when it cannot do its work: what went wrong, and what to do about it.

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

    /// The same with what to do next.
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

/// Adds what was being done to an error of another kind.
pub trait Context<T> {
    /// `what: the error`.
    fn context(self, what: impl fmt::Display) -> Result<T>;
}

impl<T, E: fmt::Display> Context<T> for std::result::Result<T, E> {
    fn context(self, what: impl fmt::Display) -> Result<T> {
        self.map_err(|e| Failure::new(format!("{what}: {e}")))
    }
}
