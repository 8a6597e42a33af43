//! Tests with real mounts and real system calls. Where mounting is not permitted, they are skipped
//! with a message.

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
