//! Messages, codecs and identifiers that Sheen's processes exchange.
//!
//! This crate is the vocabulary of the whole system, without sockets, files or time:
//!
//! * [`fid`]: names of files and objects; [`seq`]: the MDT that assigned a name;
//! * [`errno`]: error numbers (Linux's, whatever the host);
//! * [`attr`]: attributes that `stat` shows, times, credentials; [`utc`]: dates of times;
//! * [`mds`], [`ost`], [`mgs`]: the three protocols, each a request and a reply enum; [`opener`]:
//!   users of open files;
//! * [`ast`]: callbacks from a target to a client about its locks;
//! * [`ldlm`]: locks, their conflicts and their handles;
//! * [`auth`]: authentication of the ends of a connection, before all other messages;
//! * [`frame`]: form of a message on a byte stream: fixed header, body, bulk, checksums;
//! * [`control`], [`ioctl`], [`entries`], [`mirror`], [`project`], [`quota`]: requests of `lfs` and
//!   programs to a mount;
//! * [`glob`]: patterns of names of files and of parameters; [`pool_name`]: names of pools;
//! * [`bulk`]: file data that travels beside a message without being copied into it;
//! * [`selftest`]: requests that only measure the network; [`echo`]: objects of measurements;
//! * [`op_id`], [`job_id`]: ids of operations, for log lines, and of jobs, for statistics;
//! * [`subject`]: what a request is about, for records of denied ones.
//!
//! Invariants:
//!
//! * Every decoder takes arbitrary bytes and returns an error, never a panic (fuzz targets in
//!   `fuzz/`).
//! * Every format carries a version.
//! * Numbers on the wire are little-endian and of fixed width in headers, postcard in bodies.

pub mod ast;
pub mod attr;
pub mod auth;
pub mod bulk;
pub mod changelog;
pub mod control;
pub mod echo;
pub mod entries;
pub mod errno;
pub mod fid;
pub mod frame;
pub mod glob;
pub mod ioctl;
pub mod job_id;
pub mod ldlm;
pub mod mds;
pub mod mgs;
pub mod mirror;
pub mod nodemap;
pub mod op_id;
pub mod opener;
pub mod ost;
pub mod pool_name;
pub mod project;
pub mod protocol;
pub mod quota;
pub mod selftest;
pub mod seq;
pub mod subject;
pub mod utc;

pub use attr::{Attr, Cred, FileKind, STATE_DEGRADED, StatFs, Time};
pub use bulk::Bulk;
pub use errno::{Errno, Result};
pub use fid::Fid;
pub use job_id::JobId;
pub use op_id::OpId;
pub use pool_name::PoolName;
pub use project::Project;
pub use protocol::{Mds, Mgs, Ost, Protocol, Replays, Selftest};
pub use subject::Subject;
pub use utc::Utc;
