//! The whole system in one thread: real MGS, MDT, OSTs and clients on simulated hosts, with a
//! network that loses and breaks and disks that forget, all from one seed.
//!
//! Three clients do random operations at the same time; each answer is held against a [`model`],
//! which knows one right answer: operations that could see each other half done are kept apart
//! ([`claims`]). Up to 16 clients that are not kept apart [`race`].
//!
//! * [`cluster`]: hosts, services, mounts; [`faults`]: trouble between them;
//! * [`op`]: operations and answers; [`striping`]: how files are striped; [`model`]: what they
//!   ought to be; [`draw`]: which come next; [`perform`]: doing them, [`copy`]: what tools do;
//! * [`run`]: programs that do all this; [`promise`]: what a crash may take and what not; [`tree`]:
//!   the outcome as it is read back;
//! * [`race`]: clients that meet, and whether a legal order of what they did explains all they were
//!   told;
//! * [`outage`]: mirrors while an OST is down;
//! * [`scenario`]: the stories that the tests tell, and their seeds.

#![allow(missing_docs, reason = "fields of operations are named after the system call's")]

pub mod claims;
pub mod cluster;
pub mod copy;
pub mod draw;
pub mod faults;
pub mod model;
pub mod op;
pub mod outage;
pub mod perform;
pub mod promise;
pub mod race;
pub mod run;
pub mod scenario;
pub mod striping;
pub mod tree;

pub use cluster::{CLIENTS, MDS, OSSES};
