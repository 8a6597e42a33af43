//! The kind of Sheen data in a directory, detected by its files. A server refuses the directory of
//! another server: a new OST in the directory of an MDT would be registered permanently.

use std::{fmt, fs, io::Read, path::Path};

use sheen_mds::IDENTITY as MDT_FILE;
use sheen_mgs::service::FILE as MGS_FILE;
use sheen_oss::store::format::IDENTITY as OST_FILE;

use crate::{
    error::{Failure, Result},
    paths::CONFIG_FILE,
};

/// First bytes of the identity of a target. Other programs have files of these names, too.
const IDENTITY_START: &[u8] = b"# A Sheen target";
/// A word near the start of an MGS's registry.
const REGISTRY_WORD: &[u8] = b"\"file_systems\"";
/// Bytes of a file that are examined.
const START_BYTES: u64 = 256;

/// The kind of data that a server, or `sheen up`, stores in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirKind {
    /// A file system of `sheen up`.
    FileSystem,
    /// The registry of an MGS.
    Mgs,
    /// An MDT.
    Mdt,
    /// An OST.
    Ost,
    /// The OSTs of `sheen oss`, in directories `0`, `1`, …
    Osts,
}

impl fmt::Display for DirKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DirKind::FileSystem => "a file system of `sheen up`",
            DirKind::Mgs => "an MGS",
            DirKind::Mdt => "an MDT",
            DirKind::Ost => "an OST",
            DirKind::Osts => "OSTs of `sheen oss`",
        })
    }
}

impl DirKind {
    const ALL: [DirKind; 5] = [DirKind::FileSystem, DirKind::Mgs, DirKind::Mdt, DirKind::Ost, DirKind::Osts];

    /// Returns whether the directory holds data of this kind. A file that cannot be read counts as
    /// missing.
    pub fn is_in(self, dir: &Path) -> bool {
        let is_target = |file: &str| start_of(&dir.join(file)).starts_with(IDENTITY_START);
        match self {
            DirKind::FileSystem => dir.join(CONFIG_FILE).is_file(),
            DirKind::Mgs => {
                let start = start_of(&dir.join(MGS_FILE));
                start.windows(REGISTRY_WORD.len()).any(|word| word == REGISTRY_WORD)
            }
            DirKind::Mdt => is_target(MDT_FILE),
            DirKind::Ost => is_target(OST_FILE),
            DirKind::Osts => DirKind::Ost.is_in(&dir.join("0")),
        }
    }

    /// Returns the kind of data in the directory, if any.
    pub fn of(dir: &Path) -> Option<DirKind> {
        DirKind::ALL.into_iter().find(|kind| kind.is_in(dir))
    }

    /// Refuses a directory that holds another kind of data. Accepts one that holds this kind or no
    /// data of Sheen.
    ///
    /// # Errors
    /// The directory holds another kind.
    pub fn expect_in(self, dir: &Path) -> Result {
        match DirKind::of(dir).filter(|_| !self.is_in(dir)) {
            None => Ok(()),
            Some(found) => Err(Failure::new(format!("{} holds {found}, not {self}", dir.display()))
                .advise("use --dir to specify another directory; it is created if it does not exist")),
        }
    }
}

/// Returns the first bytes of a regular file; none if there is no such file.
fn start_of(path: &Path) -> Vec<u8> {
    let mut start = Vec::new();
    // Only regular files: opening a fifo would block.
    if fs::metadata(path).is_ok_and(|found| found.is_file())
        && let Ok(file) = fs::File::open(path)
    {
        let _ = file.take(START_BYTES).read_to_end(&mut start);
    }
    start
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dir_kind_is_detected_from_the_files_in_a_directory() {
        let base = tempfile::tempdir().unwrap();
        let dir = |name: &str, file: &str, text: &str| {
            let path = base.path().join(name).join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
            base.path().join(name)
        };
        let identity = "# A Sheen target; do not edit.\nformat = 1\n";
        let mdt = dir("mdt", "identity", identity);
        let ost = dir("ost", "target", identity);
        let osts = dir("osts", "0/target", identity);
        let mgs = dir("mgs", "registry.json", "{\n  \"format\": 3,\n  \"file_systems\": []\n}\n");
        let up = dir("up", "sheen.toml", "fsname = \"sheen\"\n");
        let found = [&mdt, &ost, &osts, &mgs, &up].map(|dir| DirKind::of(dir).unwrap());
        assert_eq!(found, [DirKind::Mdt, DirKind::Ost, DirKind::Osts, DirKind::Mgs, DirKind::FileSystem]);
        let cargo = dir("cargo", "target/debug", "");
        for other in [cargo, dir("text", "identity", "mine\n"), base.path().join("none")] {
            assert_eq!(DirKind::of(&other), None, "{}", other.display());
        }
        assert!(DirKind::Mdt.expect_in(&mdt).is_ok() && DirKind::Mdt.expect_in(&base.path().join("none")).is_ok());
        let refused = DirKind::Osts.expect_in(&mdt).unwrap_err().to_string();
        assert!(refused.contains("holds an MDT, not OSTs of `sheen oss`"), "{refused}");
    }

    #[test]
    fn directory_with_an_mdt_and_osts_is_accepted_as_either() {
        let dir = tempfile::tempdir().unwrap();
        let identity = "# A Sheen target; do not edit.\n";
        fs::write(dir.path().join("identity"), identity).unwrap();
        fs::create_dir(dir.path().join("0")).unwrap();
        fs::write(dir.path().join("0/target"), identity).unwrap();
        assert!(DirKind::Mdt.expect_in(dir.path()).is_ok() && DirKind::Osts.expect_in(dir.path()).is_ok());
        assert!(DirKind::Mgs.expect_in(dir.path()).is_err());
    }
}
