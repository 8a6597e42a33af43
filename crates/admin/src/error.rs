//! The error of operations with several steps: what failed, on which path, and why.

use std::{
    io,
    path::{Path, PathBuf},
};

use sheen_wire::Errno;

/// A step of an operation. Callers turn it into a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Start a thread of a search, while there was work for it. The path is empty.
    StartThread,
    /// Examine a path at which a search begins.
    ExamineRoot,
    /// Examine an entry of a directory, or read a directory.
    ExamineEntry,
    /// Open the file that is to be migrated.
    OpenSource,
    /// Create the volatile file that receives the data.
    CreateVolatile,
    /// Get the FID of the volatile file.
    IdentifyVolatile,
    /// Take the group lock that makes writers wait.
    LockGroup,
    /// Tell the servers that a migration begins.
    BeginMigration,
    /// Get the size of the file.
    Stat,
    /// Read the file.
    Read,
    /// Write the copy.
    Write,
    /// Change the size of the copy.
    Resize,
    /// Make the copy durable.
    Sync,
    /// Read the copy.
    ReadCopy,
    /// Compare the copy with the file: they differ.
    CompareCopy,
    /// Open a file whose layout is to be exchanged.
    OpenForSwap,
    /// Exchange the objects of two files. The path is that of the first one.
    Swap,
}

/// A failure of an operation on a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The step that failed.
    pub step: Step,
    /// The path that the operation was called for, or that a search came to.
    pub path: PathBuf,
    /// The reason.
    pub errno: Errno,
}

impl Failure {
    /// Creates a failure.
    pub fn new(step: Step, path: &Path, errno: Errno) -> Failure {
        Failure { step, path: path.to_owned(), errno }
    }

    /// Returns a function that makes a failure of an error of the operating system.
    pub fn of<E: Into<io::Error>>(step: Step, path: &Path) -> impl Fn(E) -> Failure {
        move |e| Failure::new(step, path, os_errno(e))
    }
}

impl From<Failure> for Errno {
    fn from(failure: Failure) -> Errno {
        failure.errno
    }
}

/// Converts an error of the operating system.
pub fn os_errno(e: impl Into<io::Error>) -> Errno {
    Errno::from(e.into())
}
