//! The management service: the targets of file systems and their addresses, the pools of their
//! OSTs, permanent settings, and nodemaps.
//!
//! * [`registry`]: its state, as a state machine, with parts for [`pools`], [`settings`] and
//!   [`nodemaps`];
//! * [`service`]: the target `MGS`. It persists every change before it replies, and notifies the
//!   clients that watch.
//!
//! Clients of the MGS use the crate `sheen-mgc`.

pub mod nodemaps;
pub mod pools;
pub mod registry;
pub mod service;
pub mod settings;

pub use registry::{Registry, RegistryError};
pub use service::{Mgs, MgsError};
