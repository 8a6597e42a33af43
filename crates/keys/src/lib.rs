//! Keys: secrets that the servers and clients of a file system share.
//!
//! A key proves to a server that a client may speak to it, and to the client that the server is the
//! right one. The first server makes it: `sheen up` or `sheen mgs`, in the directory of the MGS.
//! The servers that share keys are a cluster. A key file has mode 0600 and the name
//! `<cluster>-<key>.key`, so that a client finds the key for a server by the server's cluster.
//!
//! * `key`: a key, and the text of its file;
//! * `dir`: directories with key files;
//! * `keyring`: the keys that a process uses and accepts;
//! * `signer`: proofs that servers make for each other;
//! * `witness`: services by which processes prove as which user they run, such as MUNGE.
//!
//! Invariants:
//! * No secret appears in a log, in an error or in the arguments of a process.
//! * A key file that others can read is refused.

#![allow(
    clippy::disallowed_methods,
    reason = "key files lie outside the simulated world: a simulated process gets its keys in memory"
)]

mod dir;
mod key;
mod keyring;
mod signer;
mod witness;

pub use dir::{
    Found, Listing, list, load, record, records, remove, search_dirs, store, store_for_server, user_dir, withdraw,
};
pub use key::{Issue, Key, KeyError, Record, Secret};
pub use keyring::{Keyring, Refreshed};
pub use signer::Signer;
pub use witness::Witness;
