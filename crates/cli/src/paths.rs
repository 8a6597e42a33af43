//! Where a file system made by `sheen up` keeps its things.
//!
//! ```text
//! DIR/sheen.toml   what it is: name, number of OSTs, address
//! DIR/mgs, DIR/mdt0, DIR/ost0, …   the targets
//! DIR/run.json     the process that serves it, while there is one
//! DIR/sheen.log    what that process has to say
//! ```

use std::path::{Path, PathBuf};

use crate::error::{Context, Result};

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

    /// What the file system is.
    pub fn config(&self) -> PathBuf {
        self.0.join("sheen.toml")
    }

    /// Who serves it.
    pub fn run(&self) -> PathBuf {
        self.0.join("run.json")
    }

    /// What they say.
    pub fn log(&self) -> PathBuf {
        self.0.join("sheen.log")
    }

    /// The management service's directory.
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
