//! The phases of mdtest.

use serde::{Deserialize, Serialize};

/// Kind of a phase.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Kind {
    /// mkdir of items.
    DirCreate,
    /// stat of directories.
    DirStat,
    /// rename of directories: each takes the name of the one before it.
    DirRename,
    /// rmdir of items.
    DirRemove,
    /// open with O_CREAT, write and close.
    FileCreate,
    /// stat of files.
    FileStat,
    /// open, read and close.
    FileRead,
    /// unlink.
    FileRemove,
    /// mkdir of the trees.
    TreeCreate,
    /// rmdir of the trees.
    TreeRemove,
}

impl Kind {
    /// All kinds, in the order of mdtest's table.
    pub const ALL: [Kind; 10] = [
        Kind::DirCreate,
        Kind::DirStat,
        Kind::DirRename,
        Kind::DirRemove,
        Kind::FileCreate,
        Kind::FileStat,
        Kind::FileRead,
        Kind::FileRemove,
        Kind::TreeCreate,
        Kind::TreeRemove,
    ];

    /// Returns the name in mdtest's table.
    pub fn name(self) -> &'static str {
        match self {
            Kind::DirCreate => "Directory creation",
            Kind::DirStat => "Directory stat",
            Kind::DirRename => "Directory rename",
            Kind::DirRemove => "Directory removal",
            Kind::FileCreate => "File creation",
            Kind::FileStat => "File stat",
            Kind::FileRead => "File read",
            Kind::FileRemove => "File removal",
            Kind::TreeCreate => "Tree creation",
            Kind::TreeRemove => "Tree removal",
        }
    }

    /// Whether the phase is about directories that are items.
    pub fn is_about_dirs(self) -> bool {
        matches!(self, Kind::DirCreate | Kind::DirStat | Kind::DirRename | Kind::DirRemove)
    }

    /// Whether the phase is about files.
    pub fn is_about_files(self) -> bool {
        matches!(self, Kind::FileCreate | Kind::FileStat | Kind::FileRead | Kind::FileRemove)
    }

    /// Returns how often the stride is applied before this phase.
    pub fn shifts(self) -> u64 {
        match self {
            Kind::DirCreate | Kind::FileCreate | Kind::TreeCreate | Kind::TreeRemove => 0,
            Kind::DirStat | Kind::DirRename | Kind::FileStat => 1,
            Kind::FileRead => 2,
            Kind::DirRemove | Kind::FileRemove => 3,
        }
    }
}
