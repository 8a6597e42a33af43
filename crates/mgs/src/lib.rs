//! The management service: which targets a file system has and where they are, into which pools its
//! OSTs are put, and how parameters are set wherever they are.
//!
//! * [`registry`]: what is known, as a state machine; [`pools`]: its part that has to do with
//!   pools; [`settings`]: that with parameters;
//! * [`service`]: the target `MGS`: persists every change before it is answered, and wakes those
//!   who watch.
//!
//! Clients of it use the crate `sheen-mgc`.

pub mod pools;
pub mod registry;
pub mod service;
pub mod settings;

pub use registry::{Registry, RegistryError};
pub use service::{Mgs, MgsError};
