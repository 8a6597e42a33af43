//! Messages, codecs and identifiers that Sheen's processes exchange.
//!
//! This crate is the vocabulary of the whole system and knows nothing of sockets, files or time:
//!
//! * [`fid`]: how a file or an object is named; [`seq`]: which MDT gave the name;
//! * [`errno`]: how a failure is named (Linux's numbers, whatever the host);
//! * [`attr`]: what `stat` shows, times, credentials;
//! * [`mds`], [`ost`], [`mgs`]: the three protocols, each a request and a reply enum;
//! * [`ast`]: what a target tells a client of its locks;
//! * [`ldlm`]: locks, how they exclude each other and how they are named;
//! * [`frame`]: how a message lies on a byte stream: fixed header, body, bulk, checksums;
//! * [`control`], [`ioctl`], [`entries`], [`mirror`]: what `lfs`, and programs, ask of a mount;
//! * [`bulk`]: file data that travels beside a message without being copied into it.
//!
//! Invariants: every decoder takes arbitrary bytes and answers with an error, never a panic (fuzz
//! targets in `fuzz/`); every format carries a version; numbers on the wire are little-endian and
//! of fixed width in headers, postcard in bodies.

pub mod ast;
pub mod attr;
pub mod bulk;
pub mod control;
pub mod entries;
pub mod errno;
pub mod fid;
pub mod frame;
pub mod ioctl;
pub mod ldlm;
pub mod mds;
pub mod mgs;
pub mod mirror;
pub mod ost;
pub mod protocol;
pub mod seq;

pub use attr::{Attr, Cred, FileKind, STATE_DEGRADED, StatFs, Time};
pub use bulk::Bulk;
pub use errno::{Errno, Result};
pub use fid::Fid;
pub use protocol::{Mds, Mgs, Ost, Protocol};
