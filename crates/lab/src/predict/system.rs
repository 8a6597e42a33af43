//! A file system, or a pool of it, and its model.

use std::{io, path::Path};

use sheen_layout::Pool;

use crate::{
    machine,
    predict::store::{Key, Model, Store},
    processes::{mount_info, osts, osts_of_pool},
};

/// A file system, or a pool of it, as this host sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct System {
    /// Its key in the store.
    pub key: Key,
    /// Number of OSTs.
    pub osts: u32,
    /// Index of the first one.
    pub first_ost: u32,
}

impl System {
    /// Returns the file system that contains a file or directory.
    ///
    /// # Errors
    /// The file is not on a mount of Sheen, or all OSTs are deactivated.
    pub fn of(path: &Path) -> io::Result<System> {
        let (key, osts) = (key(path)?, osts(path)?);
        let none = || io::Error::other(format!("the file system of {} has no active OST", path.display()));
        let first_ost = *osts.first().ok_or_else(none)?;
        Ok(System { key, osts: osts.len() as u32, first_ost })
    }

    /// Returns a pool of that file system; without `pool`, as [`System::of`].
    ///
    /// # Errors
    /// There is no such pool, or all its OSTs are deactivated. Otherwise as [`System::of`].
    pub fn in_pool(path: &Path, pool: Option<&str>) -> io::Result<System> {
        let Some(pool) = pool else { return System::of(path) };
        let (key, osts) = (key(path)?.of_pool(pool), osts_of_pool(path, pool)?);
        let none = || io::Error::other(format!("pool {pool} of {} has no active OST", key.fsname));
        let first_ost = *osts.first().ok_or_else(none)?;
        Ok(System { key, osts: osts.len() as u32, first_ost })
    }

    /// Describes it: `sheen`, or `sheen, pool fast`.
    pub fn name(&self) -> String {
        self.key.name()
    }

    /// Returns the model. `None`: it was not calibrated, or with another number of OSTs.
    ///
    /// # Errors
    /// The model cannot be read.
    pub fn model(&self, store: &Store) -> io::Result<Option<Model>> {
        Ok(store.model(&self.key)?.filter(|model| model.osts == self.osts))
    }
}

/// Whether there is a model of the file system that contains a file or directory, or of one of its
/// pools. Asks no server.
pub fn is_modelled(path: &Path, store: &Store) -> bool {
    key(path).is_ok_and(|key| store.has_models(&key))
}

/// Returns the command that calibrates a model of the file system at `dir`, or of a pool.
pub fn calibration(dir: &Path, pool: Option<&str>) -> String {
    let pool = pool.map_or_else(String::new, |pool| format!(" --pool {pool}"));
    format!("sheen lab model --calibrate {}{pool}", dir.display())
}

/// Reads the name of a pool.
///
/// # Errors
/// A message for the user.
pub fn pool_name(text: &str) -> Result<String, String> {
    Pool::new(text).map(|pool| pool.as_str().to_owned()).map_err(|e| e.to_string())
}

fn key(path: &Path) -> io::Result<Key> {
    let info = mount_info(path)?;
    let [_, host, _] = machine::system();
    Ok(Key::new(&info.fsname, &info.mgs_nids, &host))
}
