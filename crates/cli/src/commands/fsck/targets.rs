//! The directories that a check covers.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use sheen_layout::MDT_OST;
use sheen_mds::{DATA_DIR, Identity};
use sheen_oss::OfflineOst;
use sheen_rt::Disk;

use crate::{
    dir_kind::DirKind,
    error::{Failure, Result},
    oss_slots::OssSlots,
    paths::Home,
};

/// The directories of an MDT and of OSTs.
#[derive(Debug)]
pub struct Targets {
    /// The MDT.
    pub mdt: PathBuf,
    osts: Vec<PathBuf>,
}

/// An OST that is open for a check, or the data service of the MDT.
pub struct OstDir {
    /// Its index; [`MDT_OST`]: the data service.
    pub index: u32,
    /// Its directory.
    pub dir: OfflineOst,
}

impl Targets {
    /// Finds the targets in these directories: those of `sheen up`, `sheen mds` and `sheen oss`. No
    /// directory stands for the default one of `sheen up`.
    ///
    /// # Errors
    /// A directory holds no target, or there is not exactly one MDT.
    pub fn find(dirs: &[PathBuf]) -> Result<Targets> {
        let default = if dirs.is_empty() { vec![Home::new(None)?.dir().to_owned()] } else { Vec::new() };
        let (mut mdts, mut osts) = (Vec::new(), Vec::new());
        for dir in dirs.iter().chain(&default) {
            let home = Home::new(Some(dir))?;
            let dir = home.dir();
            match DirKind::of(dir) {
                Some(DirKind::FileSystem) => {
                    mdts.push(home.mdt(0));
                    osts.extend((0..).map(|n| home.ost(n)).take_while(|ost| ost.exists()));
                }
                Some(DirKind::Mdt) => mdts.push(dir.to_owned()),
                Some(DirKind::Ost) => osts.push(dir.to_owned()),
                Some(DirKind::Osts) => osts.extend(slots(dir)?),
                Some(DirKind::Mgs) | None => {
                    return Err(Failure::new(format!("{} holds no MDT and no OST", dir.display()))
                        .advise("use --dir with the directory of `sheen up`, `sheen mds` or `sheen oss`"));
                }
            }
        }
        let [mdt] = &mdts[..] else {
            let advice = "use --dir with the directory of the MDT, and once more for each directory of OSTs";
            return Err(Failure::new(format!("there are {} MDTs in these directories", mdts.len())).advise(advice));
        };
        Ok(Targets { mdt: mdt.clone(), osts })
    }

    /// Takes the locks of all OSTs, and of the MDT's data service.
    ///
    /// # Errors
    /// An OST is in use, is not readable, or belongs to another file system than the MDT. Two
    /// directories hold the same OST.
    pub fn open_osts(&self, disk: &Disk, mdt: &Identity) -> Result<Vec<OstDir>> {
        let mut osts: Vec<OstDir> = Vec::new();
        for path in &self.osts {
            let dir = OfflineOst::open(disk, path).map_err(|e| Failure::new(e.to_string()))?;
            let (path, fsname) = (path.display(), &dir.identity().fsname);
            if *fsname != mdt.fsname {
                return Err(Failure::new(format!("{path} belongs to the file system {fsname}, not to {}", mdt.fsname)));
            }
            // Without an index it has no objects yet.
            let Some(index) = dir.identity().index else { continue };
            if osts.iter().any(|ost| ost.index == index) {
                return Err(Failure::new(format!("{path} holds OST{index:04x}, as another directory does")));
            }
            osts.push(OstDir { index, dir });
        }
        let data = self.mdt.join(DATA_DIR);
        if DirKind::Ost.is_in(&data) {
            let dir = OfflineOst::open(disk, &data).map_err(|e| Failure::new(e.to_string()))?;
            osts.push(OstDir { index: MDT_OST, dir });
        }
        Ok(osts)
    }
}

/// Returns the indices of OSTs, without that of the MDT's data service.
pub fn indices(osts: &[OstDir]) -> BTreeSet<u32> {
    osts.iter().map(|ost| ost.index).filter(|index| *index != MDT_OST).collect()
}

/// The directories of the OSTs of a `sheen oss`.
fn slots(dir: &Path) -> Result<Vec<PathBuf>> {
    let count = OssSlots::load(dir)?.count().max(1);
    Ok((0..count).map(|slot| dir.join(slot.to_string())).filter(|slot| DirKind::Ost.is_in(slot)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(base: &Path, file: &str) -> PathBuf {
        let path = base.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "# A Sheen target; do not edit.\n").unwrap();
        path.parent().unwrap().to_owned()
    }

    #[test]
    fn targets_are_found_in_directories_of_all_servers() {
        let base = tempfile::tempdir().unwrap();
        let mdt = target(base.path(), "mdt/identity");
        let ost = target(base.path(), "oss/0/target");
        let oss = ost.parent().unwrap().to_owned();
        let found = Targets::find(&[mdt.clone(), oss.clone()]).unwrap();
        assert_eq!((found.mdt, found.osts), (mdt.clone(), vec![ost.clone()]));
        assert_eq!(Targets::find(&[mdt.clone(), ost.clone()]).unwrap().osts, [ost]);

        let up = base.path().join("up");
        let of_up = [target(&up, "mdt0/identity"), target(&up, "ost0/target"), target(&up, "ost1/target")];
        std::fs::write(up.join("sheen.toml"), "").unwrap();
        let found = Targets::find(&[up]).unwrap();
        assert_eq!((&found.mdt, &found.osts[..]), (&of_up[0], &of_up[1..]));
    }

    #[test]
    fn directories_without_exactly_one_mdt_are_refused() {
        let base = tempfile::tempdir().unwrap();
        let mdts = [target(base.path(), "a/identity"), target(base.path(), "b/identity")];
        let ost = target(base.path(), "oss/0/target");
        let refused = |dirs: &[PathBuf]| Targets::find(dirs).unwrap_err().to_string();
        assert!(refused(&mdts).starts_with("there are 2 MDTs"));
        assert!(refused(&[ost]).starts_with("there are 0 MDTs"));
        assert!(refused(&[base.path().to_owned()]).contains("holds no MDT and no OST"));
    }
}
