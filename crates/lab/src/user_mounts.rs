//! Mounts of an existing file system that the user has named. They stand for nodes.

use std::{io, path::PathBuf};

use sheen_wire::control::MountInfo;

use crate::{processes, program::Sheen};

/// Mounts of one file system.
#[derive(Clone, Debug)]
pub struct UserMounts {
    /// Mount points.
    pub mounts: Vec<PathBuf>,
    /// Name of the file system.
    pub fsname: String,
    /// The program, which reaches all processes of the user.
    pub program: Sheen,
    infos: Vec<MountInfo>,
}

impl UserMounts {
    /// Looks at the mounts.
    ///
    /// # Errors
    /// One is not on a mount of Sheen, or they belong to several file systems.
    pub fn new(mounts: &[PathBuf]) -> io::Result<UserMounts> {
        let infos = mounts.iter().map(|mount| processes::mount_info(mount)).collect::<io::Result<Vec<_>>>()?;
        let first = infos.first().ok_or_else(|| io::Error::other("--mounts: name a mount"))?;
        let fsname = first.fsname.clone();
        if let Some(other) = infos.iter().find(|info| info.fsname != fsname) {
            return Err(io::Error::other(format!("--mounts: {fsname} and {} are two file systems", other.fsname)));
        }
        Ok(UserMounts { mounts: mounts.to_vec(), fsname, program: Sheen::here()?, infos })
    }

    /// Returns whether all mounts are processes of this user on this host. Root's may be here as
    /// well, but answer with public parameters only, so this asks for one that is not public.
    ///
    /// # Errors
    /// `lctl` fails.
    pub fn are_here(&self) -> io::Result<bool> {
        for info in &self.infos {
            if self.program.get_param(&format!("llite.{}-{}.access_patterns", self.fsname, info.instance))?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Empties the caches of the mounts: they write back their dirty data and cancel their locks.
    ///
    /// # Errors
    /// A process is not one of this user's, or does not answer.
    pub fn empty_caches(&self) -> io::Result<()> {
        for info in &self.infos {
            let namespaces = format!("ldlm.namespaces.{}-*-{}.lru_size", self.fsname, info.instance);
            self.program.set_param(&namespaces, "clear")?;
        }
        Ok(())
    }
}

/// Returns a value that occurs twice in an option.
pub fn twice<T: PartialEq>(values: &[T]) -> Option<&T> {
    values.iter().enumerate().find(|(n, value)| values[..*n].contains(value)).map(|(_, value)| value)
}
