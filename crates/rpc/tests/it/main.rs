//! Clients and servers over `lo`, over real sockets, and in the simulator.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod audit;
mod callbacks;
mod common;
mod errors;
mod frames;
mod live;
mod lo;
mod op_id;
mod selftest;
mod sim;
mod tcp;
mod waits;
