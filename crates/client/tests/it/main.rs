//! The client over fake servers, in the simulator.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod append;
mod changelog;
mod coherence;
mod data;
mod failures;
mod fake;
mod groups;
mod life;
mod mirrors;
mod opens;
mod pages;
mod pfl;
mod relayout;
mod statahead;
mod tuning;
mod writeback;
