//! Removing a mirror from a file, or making it a file of its own.

use std::path::Path;

use sheen_wire::{Result, mirror::MirrorChange};

use super::mirrored_file::{MirroredFile, NamedFile};
use crate::{file_system::FileSystem, paths::parent_of};

/// First mode of a file that is created for a mirror. It gets the mode of the mirrored file at the
/// end.
const MODE: u32 = 0o600;

/// Removes a mirror from a file. `target`: the path of a new file that gets the mirror's data;
/// `None`: the data is deleted.
///
/// # Errors
/// EEXIST: the target exists. EUCLEAN: the other mirrors are stale. Otherwise the errno of a failed
/// system call.
pub fn split(fs: &dyn FileSystem, path: &Path, mirror: u16, target: Option<&Path>) -> Result<()> {
    let file = NamedFile { fs, path };
    let Some(target) = target else { return file.change(&MirrorChange::Split { mirror, into: None }) };
    fs.fid(&fs.resolve(parent_of(target))?)?;
    // EEXIST if the name exists, whatever it is.
    fs.make_file(target, MODE)?;
    let made = fs.fid(target)?;
    let done = file.change(&MirrorChange::Split { mirror, into: Some(made) });
    if done.is_err() && fs.fid(target) == Ok(made) {
        let _ = fs.unlink(target);
    }
    done?;
    let from = fs.resolve(path)?;
    copy_project(fs, &from, target);
    // If this fails, only the owner has access to the new file.
    fs.adopt(target, &from)
}

/// Gives the new file the project of the mirrored one, if this user may set projects.
fn copy_project(fs: &dyn FileSystem, from: &Path, target: &Path) {
    let (Ok(project), Ok(own)) = (fs.project(from), fs.project(target)) else { return };
    if project != own {
        let _ = fs.set_project(target, project);
    }
}
