//! Errors that keep an OST from starting.

use std::{io, path::PathBuf};

use sheen_objects::IdentityError;
use sheen_rt::target_dir::DirError;
use sheen_wire::Errno;

/// The reason why an OST does not start, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum OssError {
    /// The local file system returned an error.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// The operation, such as `create`.
        what: &'static str,
        /// The path of the operation.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// Another process serves the directory, or the local file system returned an error.
    #[error(transparent)]
    Dir(#[from] DirError),
    /// The identity file is corrupt or of another release.
    #[error("{} is not usable: {source}", path.display())]
    Identity {
        /// The identity file.
        path: PathBuf,
        /// The reason.
        source: IdentityError,
    },
    /// The directory holds other files, and no target.
    #[error("{} is not empty and holds no Sheen target; give an empty or new directory", .0.display())]
    NotEmpty(PathBuf),
    /// A formatted directory without its objects.
    #[error(
        "{} is missing, and with it all objects of the OST. Nothing was changed. Restore the directory from a backup; or, if \
         the objects are not needed, give an empty directory, which becomes a new OST",
        .0.display()
    )]
    ObjectsMissing(PathBuf),
    /// Formatted for another file system.
    #[error("{} belongs to the file system '{found}', not '{wanted}'; use --fsname {found} or another directory", dir.display())]
    Fsname {
        /// The OST's directory.
        dir: PathBuf,
        /// The file system in the identity file.
        found: String,
        /// The file system in the configuration.
        wanted: String,
    },
    /// Formatted as another OST.
    #[error("{} holds OST {found}, not OST {wanted}; give each OST its own directory", dir.display())]
    Index {
        /// The OST's directory.
        dir: PathBuf,
        /// The index in the identity file.
        found: u32,
        /// The index in the configuration.
        wanted: u32,
    },
    /// The MGS refused to register the OST.
    #[error("the MGS refused to register the OST in {}: {errno}{}", dir.display(), hint(*errno))]
    Refused {
        /// The OST's directory.
        dir: PathBuf,
        /// The MGS's answer.
        errno: Errno,
    },
}

impl OssError {
    /// Returns the function that names the operation and the path of an error.
    pub(crate) fn io(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> OssError {
        move |source| OssError::Io { what, path: path.into(), source }
    }
}

fn hint(errno: Errno) -> &'static str {
    match errno {
        Errno::EEXIST => " (the MGS has another OST of this index, or this OST by another index; check the MGS nid)",
        Errno::ESTALE => " (it was removed with `lctl del_ost`; empty this directory, and a new OST takes its place)",
        Errno::EINVAL => " (check the file system's name and the index)",
        _ => "",
    }
}
