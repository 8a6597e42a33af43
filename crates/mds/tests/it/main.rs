//! The MDS over fake OSTs, in the simulator.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod changelog;
mod commit;
mod common;
mod composite;
mod damage;
mod dom;
mod extending;
mod flock;
mod full_disk;
mod identity;
mod lfsck;
mod locks;
mod lost_objects;
mod mirrors;
mod osts;
mod pools;
mod quota;
mod real;
mod relayout;
mod repairs;
mod restart;
