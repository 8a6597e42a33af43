//! A file system and its model.

use std::{io, path::Path};

use crate::{
    machine,
    predict::store::{Key, Model, Store},
    processes::{mount_info, osts},
};

/// A file system, as this host sees it.
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

    /// Returns the model. `None`: it was not calibrated, or with another number of OSTs.
    ///
    /// # Errors
    /// The model cannot be read.
    pub fn model(&self, store: &Store) -> io::Result<Option<Model>> {
        Ok(store.model(&self.key)?.filter(|model| model.osts == self.osts))
    }
}

/// Returns the model of the file system that contains a file or directory. Asks no server if there
/// is none.
pub fn model_at(path: &Path, store: &Store) -> Option<Model> {
    store.model(&key(path).ok()?).ok()??;
    System::of(path).ok()?.model(store).ok()?
}

fn key(path: &Path) -> io::Result<Key> {
    let info = mount_info(path)?;
    let [_, host, _] = machine::system();
    Ok(Key::new(&info.fsname, &info.mgs_nids, &host))
}
