//! The records that a check has read, as far as they are compared with others.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};
use sheen_wire::{
    Fid, FileKind,
    quota::{Id, Owner},
    seq::MdtIndex,
};

use super::problem::Problem;
use crate::record::{Counters, OstIds, Super};

/// Maximum number of problems that are listed. Further ones are counted.
const PROBLEMS_MAX: usize = 100_000;

/// An object: the index of its OST, and its FID.
pub(crate) type ObjectAt = (u32, Fid);

/// Numbers of files of users, groups and projects.
pub(crate) type Usage = BTreeMap<Id, u64>;

/// The numbers of a file.
pub(crate) struct File {
    pub kind: FileKind,
    pub owner: Owner,
    pub nlink: u32,
    /// Sum of the hashes of the names that are stored with the file, and their number.
    pub links_sum: u64,
    pub links: u32,
    /// The same of the entries that name it.
    pub names_sum: u64,
    pub names: u32,
    /// The directory of its last entry found.
    pub parent: Fid,
    /// Number of entries: stored with it, and found.
    pub entries: u64,
    pub entries_found: u64,
    /// Number of entries found that name directories.
    pub subdirs: u32,
    /// Bytes of extended attributes: stored with it, and found.
    pub xattr_bytes: u32,
    pub xattr_bytes_found: u32,
    /// Whether it is listed to be deleted.
    pub is_orphan: bool,
}

/// An object of a file.
pub(crate) struct ObjectOf {
    pub file: Fid,
    /// Maximum size in bytes, by the file's layout.
    pub end: u64,
}

/// The records that a check has read.
pub(crate) struct Found {
    pub superblock: Super,
    pub counters: Counters,
    pub mdt: MdtIndex,
    pub files: FxHashMap<Fid, File>,
    /// The objects of files.
    pub objects: FxHashMap<ObjectAt, ObjectOf>,
    /// The files in the owner log.
    pub owner_log: FxHashSet<Fid>,
    /// The objects in the unlink log.
    pub unlinked: FxHashSet<ObjectAt>,
    /// Orphan ranges: the last id by OST and first id.
    pub ranges: BTreeMap<(u32, u32), u32>,
    pub ids: BTreeMap<u32, OstIds>,
    /// Whether the store has numbers of files by owner. Stores of earlier formats have none.
    pub counts_files: bool,
    /// Numbers of files by owner: stored, and found.
    pub usage: Usage,
    pub usage_found: Usage,
    pub problems: Vec<Problem>,
    /// Number of problems beyond those listed.
    pub more: u64,
}

impl Found {
    pub(crate) fn report(&mut self, problem: Problem) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(problem);
        } else {
            self.more += 1;
        }
    }

    /// Whether the MDT is going to destroy an object, as far as it is one of this MDT.
    pub(crate) fn is_doomed(&self, (ost, object): ObjectAt) -> bool {
        self.unlinked.contains(&(ost, object)) || self.is_in_range(ost, object.oid)
    }

    /// Whether an id belongs to objects that the next start of the MDT destroys, because no file
    /// that it knows ever had them.
    fn is_in_range(&self, ost: u32, oid: u32) -> bool {
        let range = self.ranges.range((ost, 0)..=(ost, oid)).next_back();
        let ids = self.ids.get(&ost);
        range.is_some_and(|(_, last)| *last >= oid) || ids.is_some_and(|ids| ids.last < oid && oid <= ids.reserved)
    }
}
