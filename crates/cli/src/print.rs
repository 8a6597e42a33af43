//! Output of commands that may be read by a program that ends early.

use std::io::{self, Write};

use crate::error::{Failure, Result};

/// Writes a text to standard output. A reader that has closed the pipe, as `head` does, is no
/// failure.
///
/// # Errors
/// Standard output cannot be written, for example because its disk is full.
pub fn to_stdout(text: &str) -> Result {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(Failure::new(format!("cannot write the output: {e}"))),
        _ => Ok(()),
    }
}
