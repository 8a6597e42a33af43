//! Tests with real mounts and real system calls, over `/dev/fuse` and over io_uring. Where mounting
//! or io_uring is not permitted, they are skipped with a message.

#![allow(
    clippy::disallowed_methods,
    clippy::duplicate_mod,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking; the tests run over each transport"
)]

mod device;
mod ring;
