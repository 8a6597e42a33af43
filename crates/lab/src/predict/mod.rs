//! A model of a file system: the costs of its parts, and the rate of a job that follows from them.
//!
//! * [`load`]: what a job asks of each part, computed from its accesses and its layout.
//! * [`costs`]: seconds of each part for that, and the rate.
//! * [`fit`]: costs from measurements.
//! * [`flight`]: data in flight to an OST, and the rate that it allows over a distance.
//! * [`mirrors`]: mirrors that are read, and the time of a resync.
//! * [`presets`]: costs of published systems.
//! * [`shape`]: layouts of files. [`system`]: file systems. [`store`]: models, and runs that they
//!   have predicted.

pub mod costs;
pub mod fit;
pub mod flight;
pub mod load;
pub mod mirrors;
pub mod presets;
pub mod shape;
pub mod store;
pub mod system;
