//! Further mounts of a user's file system, which stand for nodes while a tool measures.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{processes::mount_info, program::Sheen, run_dir::RunDir, scratch, stop};

/// FUSE threads of each mount.
const FUSE_THREADS: &str = "4";

/// The mounts. They are unmounted at the end.
#[derive(Debug)]
pub struct OwnMounts {
    /// Mount points.
    pub mounts: Vec<PathBuf>,
    sheen: Sheen,
    // Dropped after the mounts: it removes their directories.
    _run_dir: RunDir,
}

impl OwnMounts {
    /// Mounts the file system that contains `path` `count` times. `tool` names the directory of the
    /// mounts.
    ///
    /// # Errors
    /// `path` is not on a mount of Sheen; a mount fails.
    pub fn new(path: &Path, count: u32, tool: &str) -> io::Result<OwnMounts> {
        let info = mount_info(path)?;
        let source = format!("{}:/{}", info.mgs_nids.join(":"), info.fsname);
        let run_dir = RunDir::claim(&scratch::base_in_memory(), tool, &std::env::current_exe()?)?;
        let dir = run_dir.dir().join("mounts");
        let sheen = Sheen::new(run_dir.program(), dir.join("run"));
        let mut own = OwnMounts { mounts: Vec::new(), sheen, _run_dir: run_dir };
        for number in 0..count {
            stop::check()?;
            let at = dir.join(format!("m{number}"));
            fs::create_dir_all(&at)?;
            own.sheen.run(["mount", &source, &at.to_string_lossy(), "--fuse-threads", FUSE_THREADS])?;
            own.mounts.push(at);
        }
        Ok(own)
    }

    /// Sets a parameter of their processes.
    ///
    /// # Errors
    /// A process refuses it.
    pub fn set_param(&self, name: &str, value: impl std::fmt::Display) -> io::Result<()> {
        self.sheen.set_param(name, value)
    }
}

/// Returns the path of a directory below the root of its file system.
///
/// # Errors
/// The directory is not on a mount of Sheen.
pub fn below(dir: &Path) -> io::Result<PathBuf> {
    let dir = fs::canonicalize(dir)?;
    let root = fs::canonicalize(mount_info(&dir)?.mountpoint)?;
    dir.strip_prefix(&root).map(Path::to_owned).map_err(io::Error::other)
}

impl Drop for OwnMounts {
    fn drop(&mut self) {
        for at in &self.mounts {
            // The run directory detaches what is still mounted.
            let _ = self.sheen.run(["umount", &at.to_string_lossy()]);
        }
    }
}
