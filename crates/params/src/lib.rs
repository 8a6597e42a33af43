//! Tunable parameters by Lustre's names, counters in Lustre's form, the list of devices, and the
//! control socket through which `lctl` reaches all three.
//!
//! A process has one [`Params`]; services and mounts register what they let others see or turn, as
//! `osc.<name>.max_rpcs_in_flight`. No value is stored here: a [`Param`] reads and sets its owner's
//! own field, so there is one truth. Settings that last ([`Params::keep`]) are what such fields are
//! set to when they come to be.
//!
//! Invariants:
//! * a getter or setter runs without any lock of this crate held, so it may take its owner's;
//! * results come sorted by name, whatever the order of registration;
//! * a value outside its range never reaches its setter;
//! * a request for one file system sees and sets what belongs to it alone ([`Params::get_of`]).

pub mod control;
mod devices;
mod fsname;
mod glob;
mod kept;
mod param;
mod registry;
pub mod stats;

pub use devices::Device;
pub use glob::matches;
pub use param::{Param, ParamError};
pub use registry::{Found, Node, Params, Set};
pub use stats::Stats;
