//! Operations on the files of a mount that take more than one system call: searches of directory
//! trees ([`find`]), migration ([`migrate`]), mirrors ([`mirror`]), swaps ([`swap_layouts`]),
//! removal by FID ([`remove_fid`]).
//!
//! `lfs` and the libraries share these operations. The crate prints nothing and parses no command
//! line. Requests and results are typed. Progress goes to a callback of the caller ([`Progress`],
//! [`find::Collect`], [`mirror::Chunk`]). An operation of several steps returns a [`Failure`]: what
//! failed, on which path, and why.
//!
//! The crate contains no client. Everything goes through system calls on paths and open files of a
//! mount, as in any other program. The calls on paths are those of [`FileSystem`], so that tests
//! need no mount. Functions on open files ([`open_file`], [`data_version_of`], [`swap_layouts_of`])
//! are below those on paths. The C library calls them, and must start no thread: it leaves out
//! [`find`] and [`mounts::answering`].
#![allow(
    clippy::disallowed_methods,
    reason = "a part of ordinary programs, which have no Rt: threads, clocks and files are those of the host"
)]

pub mod attributes;
mod copy;
mod data_version;
mod error;
mod file_system;
pub mod find;
pub mod migrate;
pub mod mirror;
pub mod mounts;
pub mod open_file;
mod pace;
pub mod paths;
mod progress;
pub mod project;
mod rmfid;
mod statx;
mod swap;
mod system;

pub use attributes::not_sheen;
pub use data_version::{data_version, data_version_of};
pub use error::{Failure, Step, os_errno};
pub use file_system::FileSystem;
pub use progress::Progress;
pub use rmfid::{BY_FID, remove_fid};
pub use swap::{swap_layouts, swap_layouts_of};
pub use system::{PROBE, System};
