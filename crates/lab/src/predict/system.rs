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
}

impl System {
    /// Returns the file system that contains a file or directory.
    ///
    /// # Errors
    /// The file is not on a mount of Sheen.
    pub fn of(path: &Path) -> io::Result<System> {
        let info = mount_info(path)?;
        let [_, host, _] = machine::system();
        Ok(System { key: Key::new(&info.fsname, &info.mgs_nids, &host), osts: osts(path)? })
    }

    /// Returns the model. `None`: it was not calibrated, or with another number of OSTs.
    ///
    /// # Errors
    /// The model cannot be read.
    pub fn model(&self, store: &Store) -> io::Result<Option<Model>> {
        Ok(store.model(&self.key)?.filter(|model| model.osts == self.osts))
    }
}
