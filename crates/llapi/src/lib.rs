//! `liblustreapi`: what programs in C (and in what calls C) ask of a mount about layouts, FIDs,
//! group locks and advice, by the names, types and errors of Lustre's library of that name.
//! `include/` holds its headers, `docs/api.md` what there is.
//!
//! No client is inside: everything goes through system calls on paths and open files of a mount
//! (extended attributes and ioctl(2), as `lfs` does), so that a program needs no privilege and no
//! configuration, and a hung server hangs a system call and not the library.
//!
//! * [`layout`]: a layout being read or built; [`lum`]: as bytes; [`sanity`]: whether its
//!   components fit together. Pure.
//! * [`sys`]: the system calls; [`mounts`]: what a mount says of itself; [`open`]: files with a
//!   layout; [`mirror`]: single mirrors.
//! * [`capi`]: the exported functions. They translate and call.
//!
//! Invariants of [`capi`], kept by [`border`]: a null pointer is EINVAL unless its meaning is
//! defined; no panic crosses into C; what failed is in `errno`, also where the function returns it
//! negated.

#![allow(clippy::missing_safety_doc, reason = "what C must pass is said once, in `capi`")]

pub mod border;
pub mod capi;
pub mod layout;
pub mod lum;
pub mod mirror;
pub mod mounts;
pub mod open;
pub mod sanity;
pub mod sys;

pub use layout::{Component, Layout};
