//! Real mounts, used by real system calls. Skipped, with a line that says so, where mounting is not
//! permitted.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod coherence;
mod memfs;
mod mounted;
