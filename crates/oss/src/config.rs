//! What an OST is told when it starts.

use std::path::PathBuf;

use sheen_lnet::Nid;
use sheen_objects::Sharing;

/// Files that an OST keeps open unless told otherwise: enough that a busy set of some thousand
/// objects is not opened again and again, and a small part of the 20,000 to 1,000,000 descriptors
/// that distributions allow a process.
pub const OPEN_FILES_MAX: usize = 4096;

/// What an OST is told when it starts.
#[derive(Clone, Debug)]
pub struct OstConfig {
    /// Where its objects lie; created and formatted if it is missing or empty.
    pub dir: PathBuf,
    /// File system that it belongs to.
    pub fsname: String,
    /// Index that it shall have. `None`: the one it has, or, if new, the one that the MGS gives it.
    pub index: Option<u32>,
    /// Where the MGS is.
    pub mgs: Vec<Nid>,
    /// Where this process can be reached, as told to the MGS.
    pub nids: Vec<String>,
    /// How many targets of this process lie on which device: one value for all of them.
    pub sharing: Sharing,
    /// Most files to keep open; [`OPEN_FILES_MAX`] unless the process's limit of descriptors is
    /// low.
    pub open_files_max: usize,
}

/// What the data service of an MDT is told when it starts: an OST's code in a directory of the MDT.
#[derive(Clone, Debug)]
pub struct DataConfig {
    /// Where its objects lie; created and formatted if it is missing or empty.
    pub dir: PathBuf,
    /// File system that it belongs to.
    pub fsname: String,
    /// Index of the MDT.
    pub index: u32,
    /// Name of the MDT: `sheen-MDT0000`.
    pub mdt: String,
    /// Its uuid, by which clients know that they reached the right one.
    pub uuid: String,
    /// As an OST's: the space that it promises to clients is promised once, whoever else is on the
    /// device. It takes no part of what the OSTs there show as theirs.
    pub sharing: Sharing,
    /// As an OST's.
    pub open_files_max: usize,
}

impl OstConfig {
    /// With defaults for everything but what it is and where.
    pub fn new(
        dir: impl Into<PathBuf>,
        fsname: &str,
        index: Option<u32>,
        mgs: Vec<Nid>,
        nids: Vec<String>,
    ) -> OstConfig {
        OstConfig {
            dir: dir.into(),
            fsname: fsname.to_string(),
            index,
            mgs,
            nids,
            sharing: Sharing::new(),
            open_files_max: OPEN_FILES_MAX,
        }
    }
}
