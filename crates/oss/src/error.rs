//! Why an OST does not start.

use std::{io, path::PathBuf};

use sheen_objects::identity::IdentityError;
use sheen_wire::Errno;

/// Why an OST does not start, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum OssError {
    /// The file system said no.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// What was tried, such as `create`.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// Another process serves the directory.
    #[error("{} is served by another process; stop that one first", .0.display())]
    Locked(PathBuf),
    /// The identity file is not one of this release.
    #[error("{} is not usable: {source}", path.display())]
    Identity {
        /// The identity file.
        path: PathBuf,
        /// What is wrong with it.
        source: IdentityError,
    },
    /// Something else lies there.
    #[error("{} is not empty and holds no Sheen target; give an empty or new directory", .0.display())]
    NotEmpty(PathBuf),
    /// A formatted directory without its objects.
    #[error(
        "{} is missing, and with it all objects of the OST; nothing was changed: restore the directory from a backup, or, if \
         the objects are not needed, name an empty directory, which becomes another OST",
        .0.display()
    )]
    ObjectsMissing(PathBuf),
    /// Formatted for another file system.
    #[error("{} belongs to the file system '{found}', not '{wanted}'; use --fsname {found} or another directory", dir.display())]
    Fsname {
        /// The OST's directory.
        dir: PathBuf,
        /// In the identity file.
        found: String,
        /// In the configuration.
        wanted: String,
    },
    /// Formatted as another OST.
    #[error("{} holds OST {found}, not OST {wanted}; give each OST its own directory", dir.display())]
    Index {
        /// The OST's directory.
        dir: PathBuf,
        /// In the identity file.
        found: u32,
        /// In the configuration.
        wanted: u32,
    },
    /// The MGS refused.
    #[error("the MGS does not take the OST in {}: {errno}{}", dir.display(), hint(*errno))]
    Refused {
        /// The OST's directory.
        dir: PathBuf,
        /// Why.
        errno: Errno,
    },
}

fn hint(errno: Errno) -> &'static str {
    match errno {
        Errno::EEXIST => " (it knows another OST of this index, or this one by another index; is this the right MGS?)",
        Errno::EINVAL => " (check the file system's name and the index)",
        _ => "",
    }
}
