//! Races: programs on 2 to 16 mounts work on the same few files and names at the same time.
//! Afterwards a check searches for a legal order of the operations that explains every reply.
//!
//! The [model](super::model) knows one correct reply of each operation, so its tests separate
//! operations that could affect each other. Here all operations may meet, and several replies may
//! be correct. So each operation is recorded with the times of its request and its reply
//! ([`span`]), and the record is checked at the end.
//!
//! Checks at the end:
//! * [`bytes`]: each byte of a file is a register, and sizes are bounded by writes and truncates.
//!   [`swaps`]: the same for two files whose layouts are swapped.
//! * [`log`]: each appended record is in the file once, whole and in order.
//! * [`names`]: the operations on a directory have a legal order ([`search`]).
//! * [`fcntl_locks`]: fcntl locks exclude each other.
//!
//! Checks during the race, in [`locks`]: granted locks do not conflict, clients hold only locks
//! that the servers know, and no OST grants more space than it has.
//!
//! Further modules:
//! * [`program`]: the operations of programs; [`tools`]: `lfs` tools that work on the same files,
//!   unnoticed by programs.
//! * [`plan`]: parameters; [`stage`]: hosts, mounts, faults.
//! * [`kernel`]: the page cache above a mount.
//! * [`story`]: the run of a seed.

pub mod bytes;
pub mod fcntl_locks;
pub mod judge;
pub mod kernel;
pub mod locks;
pub mod log;
pub mod names;
pub mod plan;
pub mod program;
pub mod record;
pub mod search;
pub mod span;
pub mod stage;
pub mod story;
pub mod swaps;
pub mod tools;
