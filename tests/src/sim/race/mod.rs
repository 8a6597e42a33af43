//! Clients that race: programs on 2 to 16 mounts do what they like to the same few files and names
//! at the same time, and afterwards it is asked of every answer whether some legal order of the
//! operations explains it.
//!
//! The [model](super::model) next door knows the one right answer, and keeps apart what could meet;
//! here everything meets, and several answers may be right. So operations are written down with the
//! moments at which they were asked and answered ([`span`]), and judged at the end:
//! * [`bytes`]: each byte of a file is a register, its size is bounded by what was written and cut,
//!   [`swaps`]: also where two files exchange them; [`log`]: appended records are there once,
//!   whole, in order; [`names`]: a directory has a legal order, which is searched for ([`search`]);
//!   [`turns`]: fcntl locks exclude;
//! * [`locks`]: while all goes on, no two locks that are granted exclude each other, clients hold
//!   what servers say, and no OST promises more than it has;
//! * [`program`]: what the programs do; [`tools`]: what is done to the same files meanwhile, of
//!   which programs must see nothing; [`stage`]: hosts, mounts, faults; [`kernel`]: the page cache
//!   above a mount;
//! * [`story`]: what happens in the run of a seed.

pub mod bytes;
pub mod judge;
pub mod kernel;
pub mod locks;
pub mod log;
pub mod names;
pub mod program;
pub mod record;
pub mod search;
pub mod span;
pub mod stage;
pub mod story;
pub mod swaps;
pub mod tools;
pub mod turns;
