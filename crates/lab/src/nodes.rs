//! Nodes: hosts, and mounts of one host that stand for nodes. Tasks use them in turn.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::{launch, output::named};

// A doc comment here would become the description of the tool in `--help`.
#[allow(missing_docs, reason = "as above")]
#[derive(Args, Clone, Debug, Default)]
pub struct PlaceArgs {
    /// Mounts of the file system, which stand for nodes: task N uses mount N modulo their number.
    /// The measured path is then relative, or in the first mount
    #[arg(long, value_name = "DIR,…", value_delimiter = ',')]
    pub mounts: Vec<PathBuf>,
    /// Do not bind tasks to processors. By default each task is bound to one if there are enough
    #[arg(long)]
    pub no_bind: bool,
    /// Under mpirun: a directory that all hosts share, in which the processes find each other
    /// [default: the working directory]
    #[arg(long, value_name = "DIR")]
    pub rendezvous: Option<PathBuf>,
}

impl PlaceArgs {
    /// Checks that the mounts are directories.
    ///
    /// # Errors
    /// A message for the user, with the path of the option.
    pub fn check(&self) -> Result<(), String> {
        self.mounts.iter().try_for_each(|mount| check_dir("--mounts", mount))
    }
}

/// Checks that a path of an option is a directory.
///
/// # Errors
/// A message for the user, with the option and the path.
pub fn check_dir(option: &str, path: &Path) -> Result<(), String> {
    let is_dir =
        |found: fs::Metadata| found.is_dir().then_some(()).ok_or(io::Error::from(io::ErrorKind::NotADirectory));
    fs::metadata(path).and_then(is_dir).map_err(|e| format!("{option}: {}", named("open", path, &e)))
}

/// The mounts of a run.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Nodes {
    /// The mounts. Empty: one node; paths are used as they are.
    mounts: Vec<PathBuf>,
    /// Path of the measured file or directory below each mount.
    below: PathBuf,
    /// Number of hosts. The tasks of each one use its mounts in turn.
    hosts: u32,
}

impl Nodes {
    /// Checks that `path` is relative or in the first mount.
    ///
    /// # Errors
    /// A message for the user.
    pub fn new(mounts: &[PathBuf], path: &Path) -> Result<Nodes, String> {
        let hosts = launch::hosts();
        let Some(first) = mounts.first() else { return Ok(Nodes { hosts, ..Nodes::default() }) };
        let below = match path.strip_prefix(first) {
            Ok(below) => below,
            Err(_) if path.is_relative() => path,
            Err(_) => return Err(format!("{} is not in the first mount, {}", path.display(), first.display())),
        };
        mounts.iter().try_for_each(|mount| text(mount).map(drop))?;
        Ok(Nodes { mounts: mounts.to_vec(), below: below.to_owned(), hosts })
    }

    /// Whether the user has named mounts.
    pub fn are_named(&self) -> bool {
        !self.mounts.is_empty()
    }

    /// Returns the number of nodes.
    pub fn count(&self) -> u32 {
        let mounts = u32::try_from(self.mounts.len()).unwrap_or(u32::MAX).max(1);
        mounts.saturating_mul(self.hosts.max(1))
    }

    /// Returns the path of the measured file or directory for the task `rank`. `path` is its path
    /// if there are no mounts.
    pub fn path(&self, rank: u32, path: &Path) -> PathBuf {
        let of_host = (rank / self.hosts.max(1)) as usize;
        match self.mounts.get(of_host % self.mounts.len().max(1)) {
            Some(mount) => mount.join(&self.below),
            None => path.to_owned(),
        }
    }
}

/// Returns a path as text: it becomes part of messages between tasks, and of records.
///
/// # Errors
/// A message for the user if it is not UTF-8.
pub fn text(path: &Path) -> Result<&str, String> {
    path.to_str().ok_or_else(|| format!("{}: the name is not UTF-8", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_names_the_option_and_the_path_of_the_user() {
        let places =
            |mounts: &[&str]| PlaceArgs { mounts: mounts.iter().map(PathBuf::from).collect(), ..PlaceArgs::default() };
        assert_eq!(places(&[]).check(), Ok(()));
        assert_eq!(places(&["/", "/dev"]).check(), Ok(()));
        let refused = places(&["/", "/nonexistent/b"]).check().unwrap_err();
        assert!(refused.starts_with("--mounts: cannot open /nonexistent/b: No such file"), "{refused}");
        let refused = check_dir("-d", Path::new("/dev/null")).unwrap_err();
        assert_eq!(refused, "-d: cannot open /dev/null: not a directory");
    }
}
