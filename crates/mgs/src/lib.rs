//! The management service: which targets a file system has and where they are.
//!
//! * [`registry`]: what is known, as a state machine;
//! * [`service`]: the target `MGS`: persists every change before it is answered, and wakes those who watch.
//!
//! Clients of it use the crate `sheen-mgc`.

pub mod registry;
pub mod service;

pub use registry::{Registry, RegistryError};
pub use service::{Mgs, MgsError};
