//! The check of a store, its repair while no MDT serves it (`sheen fsck`), and the repairs that a
//! running MDT can make.
//!
//! ```text
//!   Check::of reads all records ─▶ problems ─▶ Check::repair ─▶ a batch ─▶ Check::of …
//! ```
//!
//! A running MDT checks a snapshot, and repairs by operations of the namespace (module `online`).
//!
//! A check reads the state of the last commit. It never fails because of a wrong record: that
//! record is a problem. It does fail if the store itself cannot be read.
//!
//! Invariants:
//! * A check changes nothing. A repair changes only what a problem names.
//! * A repair removes no file and no object with data. Those without a name get one in
//!   `/lost+found`.
//! * Some problems follow from others: a wrong number of links from a missing entry. So a repair
//!   takes the problems of the lowest [`Problem::stage`] only, and the next check finds the rest.

mod check;
mod found;
mod links;
mod object;
mod online;
mod problem;
mod repair;
mod salvage;
mod scan;

pub use check::Check;
pub use object::Expected;
pub use online::{CountBudget, Place};
pub use problem::{EntryAt, Problem};
pub use salvage::{DamagedStore, salvage};
