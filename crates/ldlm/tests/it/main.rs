//! The lock engine: grants, glimpses, flock, and a client and a server against each other.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod flock;
mod glimpse;
mod grants;
mod pair;
