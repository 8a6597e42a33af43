//! The files of a file system that `sheen up` created.
//!
//! ```text
//! DIR/sheen.toml   its configuration: name, number of OSTs, address
//! DIR/mgs, DIR/mdt0, DIR/ost0, …   the targets
//! DIR/run.json     the process that serves it, while it runs
//! DIR/sheen.log    the log of that process
//! ```

use std::path::{Path, PathBuf};

use crate::error::{Context, Failure, Result};

/// Name of the configuration file.
pub const CONFIG_FILE: &str = "sheen.toml";

/// The directory of a file system.
#[derive(Clone, Debug)]
pub struct Home(PathBuf);

impl Home {
    /// `dir`, or the default: `$XDG_DATA_HOME/sheen`, else `~/.local/share/sheen`.
    pub fn new(dir: Option<&Path>) -> Result<Home> {
        let dir = match dir {
            Some(dir) => dir.to_owned(),
            None => default_dir(),
        };
        let dir = std::path::absolute(&dir).context(format!("cannot use {} as the directory", dir.display()))?;
        Ok(Home(dir))
    }

    /// The directory itself.
    pub fn dir(&self) -> &Path {
        &self.0
    }

    /// The configuration file.
    pub fn config(&self) -> PathBuf {
        self.0.join(CONFIG_FILE)
    }

    /// Returns the failure of a command that needs a file system in this directory and finds none.
    pub fn no_file_system(&self) -> Failure {
        Failure::new(format!("no file system in {}", self.0.display()))
            .advise(format!("it has no {CONFIG_FILE}; use --dir to specify the directory that was given to `sheen up`"))
    }

    /// The file that describes the process that serves the file system.
    pub fn run(&self) -> PathBuf {
        self.0.join("run.json")
    }

    /// The log file of that process.
    pub fn log(&self) -> PathBuf {
        self.0.join("sheen.log")
    }

    /// The directory of the MGS.
    pub fn mgs(&self) -> PathBuf {
        self.0.join("mgs")
    }

    /// An MDT's directory.
    pub fn mdt(&self, index: u32) -> PathBuf {
        self.0.join(format!("mdt{index}"))
    }

    /// An OST's directory.
    pub fn ost(&self, index: u32) -> PathBuf {
        self.0.join(format!("ost{index}"))
    }
}

fn default_dir() -> PathBuf {
    if let Some(data) = std::env::var_os("XDG_DATA_HOME").filter(|d| !d.is_empty()) {
        return PathBuf::from(data).join("sheen");
    }
    let home = std::env::var_os("HOME").map_or_else(|| PathBuf::from("."), PathBuf::from);
    home.join(".local/share/sheen")
}

/// Returns the real path of a mount point, as the kernel shows it in /proc/mounts. Accesses only
/// the directories above it: its mount may not respond. The directory need not exist.
pub fn mount_point(path: &Path) -> Result<PathBuf> {
    let mut path = std::path::absolute(path).context(path.display())?;
    // Follow links in the last component by hand, up to the kernel's limit.
    for _ in 0..40 {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(path) };
        let parent = parent.canonicalize().unwrap_or_else(|_| parent.to_owned());
        let here = parent.join(name);
        match std::fs::read_link(&here) {
            Ok(to) => path = parent.join(to),
            Err(_) => return Ok(here),
        }
    }
    Err(Failure::new(format!("{}: too many levels of symbolic links", path.display())))
}

/// Creates a directory that only its owner can enter, unless it exists. On a server's disk the data
/// of all users is in plain files, without the modes that the files have on the mount.
pub fn private_dir(dir: &Path) -> Result {
    use std::os::unix::fs::DirBuilderExt;
    if let Some(parent) = dir.parent() {
        std::fs::create_dir_all(parent).context(format!("cannot create {}", parent.display()))?;
    }
    match std::fs::DirBuilder::new().mode(0o700).create(dir) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(Failure::new(format!("cannot create {}: {e}", dir.display())))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn mount_point_follows_symbolic_links() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        std::fs::create_dir(base.join("real")).unwrap();
        symlink("real", base.join("link")).unwrap();
        symlink("link", base.join("twice")).unwrap();
        symlink("self", base.join("self")).unwrap();
        for name in ["real", "link", "twice", "real/../link"] {
            assert_eq!(mount_point(&base.join(name)).unwrap(), base.join("real"), "{name}");
        }
        assert_eq!(mount_point(&base.join("link/new")).unwrap(), base.join("real/new"));
        assert!(mount_point(&base.join("self")).is_err());
    }

    #[test]
    fn private_dir_creates_directories_with_mode_0700() {
        let dir = tempfile::tempdir().unwrap();
        let made = dir.path().join("a/b");
        private_dir(&made).unwrap();
        private_dir(&made).unwrap();
        assert_eq!(std::fs::metadata(&made).unwrap().permissions().mode() & 0o777, 0o700);
    }
}
