//! The directories of servers' keys.

use std::path::{Path, PathBuf};

use sheen_keys::{Found, list};
use sheen_rt::target_dir::KEYS;

use crate::{
    dir_kind::DirKind,
    error::{Context, Failure, Result},
};

/// Returns the directory of a server's keys, and the keys, the oldest first. `dir`: the directory
/// of the server, or of `sheen up`.
pub fn served(dir: &Path) -> Result<(PathBuf, Vec<Found>)> {
    let keys =
        [dir.join("mgs").join(KEYS), dir.join(KEYS)].into_iter().find(|keys| keys.is_dir()).ok_or_else(|| {
            Failure::new(format!("{} is not the directory of a server that has a key", dir.display())).advise(
            "give the directory of `sheen up`, `sheen mgs`, `sheen mds` or `sheen oss`; the first start of the server \
             stores a key there",
        )
        })?;
    let found = list(&keys, None).complete().context("cannot use the server's keys")?;
    Ok((keys, found))
}

/// Checks that a directory is that of an MGS, whose keys are the cluster's.
pub fn of_mgs(dir: &Path) -> Result {
    if DirKind::Mgs.is_in(dir) || DirKind::FileSystem.is_in(dir) {
        return Ok(());
    }
    Err(Failure::new(format!("{} is the directory of no MGS", dir.display()))
        .advise("make the key there, and give a copy to the other servers with `sheen key add --dir`"))
}
