//! Simulation of the whole system in one thread. Real MGS, MDT, OSTs and clients run on simulated
//! hosts. The network loses packets and connections, and the disks lose unsynced data. One seed
//! decides everything.
//!
//! There are two kinds of simulations:
//! * Three clients do random operations at the same time. Each reply is compared with a [`model`],
//!   which knows one correct reply. [`claims`] keep operations apart that could see each other's
//!   intermediate states.
//! * Up to 16 clients [`race`]: their operations may meet.
//!
//! Modules:
//! * [`cluster`]: hosts, services, mounts; [`faults`]: network faults between them.
//! * [`op`]: operations and their results; [`striping`]: layouts of files; [`model`]: the expected
//!   file system.
//! * [`draw`]: the choice of the next operation; [`perform`]: its execution; [`copy`]: the work of
//!   `lfs` tools.
//! * [`run`]: programs that do all this; [`durability`]: what a crash may destroy;
//!   [`tree`]: the file system as read back at the end.
//! * [`race`]: concurrent clients, and the search for a legal order of operations that explains all
//!   replies.
//! * [`crashes`]: crashes of servers under load; [`ost_crash`]: of an OSS, with dirty data.
//! * [`lost_client`]: recoveries that go on without one client; [`lost_load`]: the same under load;
//!   [`client_death`]: clients that die around the crash of a server.
//! * [`late_close`]: access times of closes that wait for the MDT.
//! * [`outage`]: mirrors while an OST is down; [`user_outage`]: a user's mount while a server is.
//! * [`scenario`]: the scenarios that the tests run, and their seeds.

#![allow(missing_docs, reason = "fields of operations have the names of the system call's parameters")]

pub mod claims;
pub mod client_death;
pub mod cluster;
pub mod copy;
pub mod crashes;
pub mod draw;
pub mod durability;
pub mod faults;
pub mod late_close;
pub mod lost_client;
pub mod lost_load;
pub mod model;
pub mod op;
pub mod ost_crash;
pub mod outage;
pub mod perform;
pub mod race;
pub mod run;
pub mod scenario;
pub mod striping;
pub mod tree;
pub mod user_outage;

pub use cluster::{CLIENTS, MDS, OSSES};
