//! Configuration of an OST and of an MDT's data service.

use std::path::PathBuf;

use sheen_lnet::Nid;
use sheen_objects::Sharing;

use crate::DiskSpec;

/// Default of the most files that an OST keeps open. A working set of some thousand objects is not
/// opened again and again. It is a small part of the 20,000 to 1,000,000 descriptors that
/// distributions allow a process.
pub const OPEN_FILES_MAX: usize = 4096;

/// Configuration of an OST.
#[derive(Clone, Debug)]
pub struct OstConfig {
    /// Directory of the objects; created and formatted if it is missing or empty.
    pub dir: PathBuf,
    /// File system that the OST belongs to.
    pub fsname: String,
    /// Index of the OST. `None`: the index in the directory or, for a new OST, the one that the MGS
    /// assigns.
    pub index: Option<u32>,
    /// Addresses of the MGS.
    pub mgs: Vec<Nid>,
    /// Addresses of this process, for registration with the MGS.
    pub nids: Vec<String>,
    /// Counts the targets of this process on each device: one value for all targets.
    pub sharing: Sharing,
    /// Most files to keep open: [`OPEN_FILES_MAX`], or less if the process's limit of descriptors
    /// is low.
    pub open_files_max: usize,
    /// Properties of a modelled disk, for measurements.
    pub disk: Option<DiskSpec>,
}

/// Configuration of an MDT's data service: an OST in a directory of the MDT.
#[derive(Clone, Debug)]
pub struct DataConfig {
    /// Directory of the objects; created and formatted if it is missing or empty.
    pub dir: PathBuf,
    /// File system that the MDT belongs to.
    pub fsname: String,
    /// Index of the MDT.
    pub index: u32,
    /// Name of the MDT: `sheen-MDT0000`.
    pub mdt: String,
    /// Uuid of the MDT, by which clients verify that they reached the right service.
    pub uuid: String,
    /// Incarnation of the MDT: clients learn of a restart of both by one number.
    pub incarnation: u64,
    /// As an OST's: all targets on a device grant from the same space, so each byte is granted
    /// once. The data service takes no part of the capacity that the OSTs on the device show.
    pub sharing: Sharing,
    /// As an OST's.
    pub open_files_max: usize,
}

impl OstConfig {
    /// Returns a configuration with defaults for `sharing` and `open_files_max`,
    /// and without a modelled disk.
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
            disk: None,
        }
    }
}
