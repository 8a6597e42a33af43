//! Clients and a lock server over `lo` and over tcp, in the simulator.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod callbacks;
mod common;
mod glimpse;
mod local;
mod sim;
mod sizes;
mod waits;
