//! An OSS and its store: in the simulator, and on a real disk.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod commits;
mod common;
mod crash;
#[allow(clippy::disallowed_methods, reason = "it looks at the real disk")]
mod descriptors;
mod disk;
mod glimpse;
mod grants;
mod locks;
mod markers;
mod quota;
mod quota_sums;
mod recovery;
mod recreate;
mod repair;
#[allow(clippy::disallowed_methods, reason = "it damages objects on the real disk")]
mod scrub;
mod seal;
mod service;
#[allow(clippy::disallowed_methods, reason = "it looks at the real disk")]
mod store;
mod versions;
