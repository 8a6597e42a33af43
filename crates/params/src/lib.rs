//! Tunable parameters and statistics by Lustre's names, and the list of devices.
//!
//! A process has one [`Params`]. Services and mounts register the values that others may read or
//! set, such as `osc.<name>.max_rpcs_in_flight`. No value is stored here: a [`Param`] reads and
//! sets a field of its owner, so there is one copy only. Permanent settings ([`Params::keep`]) are
//! applied to parameters when they are registered.
//!
//! A value is typed ([`Value`]); its text is a rendering of it, byte for byte in Lustre's format.
//!
//! * `param`, `value`, `labels`: a parameter, its value and unit, and what it belongs to;
//! * `job_stats`: counters by job;
//! * `stats`, `histogram`, `spread`: counters that are cheap enough for every request;
//!   `snapshot`: their values at one moment;
//! * `columns`: Lustre's tables of reads and writes;
//! * `waits`: lists of waiting clients and operations; [`quotas`]: texts of quotas;
//! * `registry`: all parameters of a process, by name; `public`: those that every user may read;
//! * `permanent`, `settings`: permanent settings.
//!
//! Invariants:
//! * No lock of this crate is held while a getter or setter runs, so it may take its owner's locks.
//! * Results are sorted by name, whatever the order of registration.
//! * A setter never receives a value outside the parameter's range.
//! * A request for one file system reads and sets only what belongs to it ([`Params::get_of`]).
//! * A parameter that the list in `public` does not name is hidden from other users.

mod columns;
mod devices;
mod fsname;
mod histogram;
pub mod job_stats;
mod labels;
mod param;
mod permanent;
mod public;
pub mod quotas;
mod registry;
mod settings;
mod snapshot;
mod spread;
pub mod stats;
mod value;
mod waits;

pub use columns::{Share, share_line, shares};
pub use devices::Device;
pub use fsname::fsname_of;
pub use histogram::{Buckets, Histogram, bucket_label};
pub use job_stats::{JobSnapshot, JobStats, Moment};
pub use labels::Labels;
pub use param::{Param, ParamError};
pub use registry::{Found, Match, Node, Params, Set, TypedParam};
pub use snapshot::{Sample, Snapshot};
pub use spread::Spread;
pub use stats::Stats;
pub use value::{Unit, Value};
pub use waits::{HOLDERS_MAX, Holder, WAITS_MAX, Wait, WaitKind, parse_waits, part_of, waits_text};
