//! Proof of the user as whom a process runs, to processes of other hosts.

use std::{fmt::Debug, io};

use sheen_wire::auth::User;

/// A service that all hosts of a site share, such as MUNGE. It attests to a process as which user
/// another one runs. Its methods block.
pub trait Witness: Send + Sync + Debug {
    /// Returns a credential of this process's user for a text.
    ///
    /// # Errors
    /// The service is not there.
    fn attest(&self, text: &str) -> io::Result<String>;

    /// Returns the user of the process that got a credential for this text.
    ///
    /// # Errors
    /// `InvalidData`: the credential is none of this site, is for another text, or has expired.
    /// Otherwise the service is not there.
    fn check(&self, credential: &str, text: &str) -> io::Result<u32>;

    /// Returns a user with its groups, as this host knows them. `None`: there is no such user, or
    /// it is in too many groups.
    ///
    /// # Errors
    /// The directory of users is not there.
    fn user(&self, uid: u32) -> io::Result<Option<User>>;
}
