//! Tunable parameters by Lustre's names, counters in Lustre's form, and the list of devices.
//!
//! A process has one [`Params`]. Services and mounts register the values that others may read or
//! set, such as `osc.<name>.max_rpcs_in_flight`. No value is stored here: a [`Param`] reads and
//! sets a field of its owner, so there is one copy only. Permanent settings ([`Params::keep`]) are
//! applied to parameters when they are registered.
//!
//! Invariants:
//! * No lock of this crate is held while a getter or setter runs, so it may take its owner's locks.
//! * Results are sorted by name, whatever the order of registration.
//! * A setter never receives a value outside the parameter's range.
//! * A request for one file system reads and sets only what belongs to it ([`Params::get_of`]).

mod devices;
mod fsname;
mod param;
mod permanent;
mod registry;
mod settings;
pub mod stats;

pub use devices::Device;
pub use fsname::fsname_of;
pub use param::{Param, ParamError};
pub use registry::{Found, Node, Params, Set};
pub use stats::Stats;
