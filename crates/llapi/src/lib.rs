//! `liblustreapi`: the library by which C programs (and languages that call C) handle layouts,
//! FIDs, group locks and advice on a mount. Its names, types and errors are those of Lustre's
//! library of that name. `include/` contains the headers; `docs/api.md` lists what is implemented.
//!
//! The library contains no client, no runtime and no threads. Everything goes through system calls
//! on paths and open files of a mount: extended attributes and ioctl(2), as in `lfs`. Parameters
//! come from the control sockets of processes, as in `lctl`. A program therefore needs neither
//! privileges nor configuration. A hung server blocks a system call, not the library.
//!
//! * [`layout`]: a layout that is read or built; [`xattr`]: its bytes; [`sanity`]: checks that its
//!   components fit together. These three are pure.
//! * [`mounts`]: information from a mount; [`open`]: files with a layout; [`mirror`]: leases to
//!   write single mirrors. The operations on open files are those of [`sheen_admin`].
//! * [`capi`]: the exported functions. They only translate and call.
//!
//! Invariants of [`capi`], which [`ffi`] maintains:
//! * A null pointer is EINVAL unless it has a defined meaning.
//! * No panic crosses into C.
//! * The error is in `errno`, even if the function also returns it negated.

#![allow(clippy::missing_safety_doc, reason = "`capi` states once what C must guarantee")]

pub mod capi;
pub mod ffi;
pub mod layout;
pub mod mirror;
pub mod mounts;
pub mod open;
pub mod sanity;
pub mod xattr;

pub use layout::{Component, Layout};
