//! The names of the objects in the directory of an OST.

use std::{io, path::Path};

use sheen_objects::name::{self, Dir};
use sheen_rt::Disk;
use sheen_wire::Fid;

/// Returns the objects in `dir` of the OST in `root`; none if it does not exist.
///
/// # Errors
/// Errors of the local file system.
pub fn list(disk: &Disk, root: &Path, dir: Dir) -> io::Result<Vec<Fid>> {
    match disk.read_dir(root.join(dir.path())) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(e),
        Ok(entries) => Ok(entries.iter().filter_map(|e| name::parse_name(dir, e.name.to_str()?)).collect()),
    }
}

/// Returns the sequences that may have objects.
///
/// # Errors
/// Errors of the local file system.
pub fn sequences(disk: &Disk, root: &Path) -> io::Result<Vec<u64>> {
    let entries = disk.read_dir(root.join(name::ROOT))?;
    Ok(entries.iter().filter_map(|e| name::parse_seq(e.name.to_str()?)).collect())
}
