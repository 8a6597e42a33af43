//! Tests of the namespace: its rules, comparison with a model, and crashes of its store.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod changelog;
mod common;
mod composite;
mod crash;
mod dirstripe;
mod etxtbsy;
mod formats;
mod fsck;
mod generations;
mod invalidations;
mod mirrors;
mod model;
mod online_repairs;
mod ops;
mod orphans;
mod owner_log;
mod projects;
mod quotas;
mod reach;
mod readdir;
mod replaced;
mod replay;
mod replies;
mod swap_layouts;
mod take_layout;
mod whiteout;
mod xattrs;
