//! The problems that a check can find.

use std::fmt;

use sheen_layout::MDT_OST;
use sheen_wire::{
    Fid, FileKind,
    quota::{Id, Owner},
};

use crate::lost_found::ost_name;

/// The stage of wrong entries, see [`Problem::stage`].
const ENTRIES: u8 = 2;

/// An entry of a directory.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct EntryAt {
    /// The directory.
    pub dir: Fid,
    /// The hash under which the entry is stored.
    pub hash: u64,
    /// Its number among the entries stored under this hash.
    pub position: usize,
    /// Its name.
    pub name: Vec<u8>,
    /// The file that it names.
    pub fid: Fid,
}

/// A problem of the metadata, or of the objects that belong to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Problem {
    /// A record cannot be decoded.
    Unreadable {
        /// Its key.
        key: Vec<u8>,
        /// Cause of the error.
        why: String,
    },
    /// An entry names a file that does not exist.
    Dangling(EntryAt),
    /// A directory has entries, and does not exist itself.
    NoDirectory(Fid),
    /// A lookup cannot find an entry, or must not: its place or its name is wrong.
    BadEntry(EntryAt, &'static str),
    /// An entry and its file have different types.
    WrongType(EntryAt, FileKind),
    /// A directory has another name besides this one.
    SecondName(EntryAt),
    /// A file has no name, and is not listed to be deleted.
    NoName(Fid, FileKind),
    /// A directory is below itself.
    Loop(EntryAt),
    /// The names stored with a file are not its names. Those of a directory lead to its parent
    /// (`..`).
    WrongLinks {
        /// The file.
        fid: Fid,
        /// Directory and name of each that should be stored: as many as there is room for.
        names: Vec<(Fid, Vec<u8>)>,
    },
    /// A file's number of links is not the number of its names (of subdirectories, plus 2).
    LinkCount {
        /// The file.
        fid: Fid,
        /// The stored number.
        stored: u32,
        /// The number found.
        counted: u32,
    },
    /// A directory's number of entries is wrong.
    EntryCount {
        /// The directory.
        fid: Fid,
        /// The stored number.
        stored: u64,
        /// The number found.
        counted: u64,
    },
    /// The size of a file's extended attributes is wrong.
    XattrBytes {
        /// The file.
        fid: Fid,
        /// The stored number.
        stored: u32,
        /// The number found.
        counted: u32,
    },
    /// Extended attributes of a file that does not exist.
    XattrsOfNoFile(Fid),
    /// The list of files to be deleted has one that has names, or that does not exist.
    WrongOrphan(Fid),
    /// A file's layout cannot be decoded.
    BadLayout(Fid, String),
    /// A file's layout names another file.
    LayoutOfOther(Fid, Fid),
    /// Two files use one object.
    SharedObject {
        /// Index of the OST.
        ost: u32,
        /// The object.
        object: Fid,
        /// The two files.
        files: [Fid; 2],
    },
    /// The MDT is about to destroy an object that a file uses.
    DoomedObject {
        /// Index of the OST.
        ost: u32,
        /// The object.
        object: Fid,
        /// The file.
        file: Fid,
    },
    /// The MDT would give the id of an object that a file uses to another file.
    ReusableObject {
        /// Index of the OST.
        ost: u32,
        /// The object with the highest id.
        object: Fid,
        /// The highest id that the MDT knows as used.
        bound: u32,
    },
    /// The MDT would give the FID of a file to another file.
    ReusableFid(Fid),
    /// The number of files is wrong.
    FileCount {
        /// The stored number.
        stored: u64,
        /// The number found.
        counted: u64,
    },
    /// The number of files of a user, group or project is wrong.
    QuotaUsage {
        /// Whose.
        id: Id,
        /// The stored number.
        stored: u64,
        /// The number found.
        counted: u64,
    },
    /// An OST has an object that belongs to no file.
    OrphanObject {
        /// Index of the OST.
        ost: u32,
        /// The object.
        object: Fid,
        /// Its size in bytes.
        bytes: u64,
    },
    /// An OST charges an object to another owner than the file's.
    InconsistentOwner {
        /// Index of the OST.
        ost: u32,
        /// The object.
        object: Fid,
        /// The file.
        file: Fid,
        /// The owner in the OST's record.
        stored: Owner,
        /// The file's owner.
        owner: Owner,
    },
    /// An object has bytes that the file's layout maps to no byte of the file.
    BytesBeyondLayout {
        /// Index of the OST.
        ost: u32,
        /// The object.
        object: Fid,
        /// The file.
        file: Fid,
        /// Size of the object in bytes.
        bytes: u64,
        /// Its maximum size by the layout.
        end: u64,
    },
}

impl Problem {
    /// Returns the problem's name, for programs.
    pub fn name(&self) -> &'static str {
        match self {
            Problem::Unreadable { .. } => "unreadable_record",
            Problem::Dangling(_) => "dangling_entry",
            Problem::NoDirectory(_) => "no_directory",
            Problem::BadEntry(..) => "bad_entry",
            Problem::WrongType(..) => "wrong_type",
            Problem::SecondName(_) => "second_name_of_directory",
            Problem::NoName(..) => "file_without_name",
            Problem::Loop(_) => "directory_loop",
            Problem::WrongLinks { .. } => "wrong_links",
            Problem::LinkCount { .. } => "link_count",
            Problem::EntryCount { .. } => "entry_count",
            Problem::XattrBytes { .. } => "xattr_size",
            Problem::XattrsOfNoFile(_) => "xattrs_of_no_file",
            Problem::WrongOrphan(_) => "wrong_orphan",
            Problem::BadLayout(..) => "bad_layout",
            Problem::LayoutOfOther(..) => "layout_of_other_file",
            Problem::SharedObject { .. } => "shared_object",
            Problem::DoomedObject { .. } => "doomed_object",
            Problem::ReusableObject { .. } => "reusable_object",
            Problem::ReusableFid(_) => "reusable_fid",
            Problem::FileCount { .. } => "file_count",
            Problem::QuotaUsage { .. } => "quota_usage",
            Problem::OrphanObject { .. } => "orphan_object",
            Problem::InconsistentOwner { .. } => "inconsistent_owner",
            Problem::BytesBeyondLayout { .. } => "bytes_beyond_layout",
        }
    }

    /// Returns the file concerned, if there is one.
    pub fn fid(&self) -> Option<Fid> {
        match self {
            Problem::Dangling(at)
            | Problem::BadEntry(at, _)
            | Problem::WrongType(at, _)
            | Problem::SecondName(at)
            | Problem::Loop(at) => Some(at.fid),
            Problem::NoDirectory(fid)
            | Problem::NoName(fid, _)
            | Problem::WrongLinks { fid, .. }
            | Problem::LinkCount { fid, .. }
            | Problem::EntryCount { fid, .. }
            | Problem::XattrBytes { fid, .. }
            | Problem::XattrsOfNoFile(fid)
            | Problem::WrongOrphan(fid)
            | Problem::BadLayout(fid, _)
            | Problem::LayoutOfOther(fid, _)
            | Problem::DoomedObject { file: fid, .. }
            | Problem::InconsistentOwner { file: fid, .. }
            | Problem::BytesBeyondLayout { file: fid, .. }
            | Problem::ReusableFid(fid) => Some(*fid),
            Problem::SharedObject { files: [first, _], .. } => Some(*first),
            Problem::Unreadable { .. }
            | Problem::ReusableObject { .. }
            | Problem::FileCount { .. }
            | Problem::QuotaUsage { .. }
            | Problem::OrphanObject { .. } => None,
        }
    }

    /// Returns the change that a repair makes; `None` if there is no repair.
    pub fn repair(&self) -> Option<&'static str> {
        Some(match self {
            Problem::Unreadable { .. } => "remove the record",
            Problem::NoDirectory(_) => "make the directory again",
            Problem::Dangling(_) | Problem::BadEntry(..) | Problem::SecondName(_) => "remove the entry",
            Problem::WrongType(..) => "set the entry's type",
            Problem::NoName(..) => "link it in /lost+found",
            Problem::Loop(_) => "move it to /lost+found",
            Problem::WrongLinks { .. } => "store its names",
            Problem::LinkCount { .. } | Problem::EntryCount { .. } => "set the number",
            Problem::FileCount { .. } | Problem::QuotaUsage { .. } => "set the number",
            Problem::XattrBytes { .. } => "set the size",
            Problem::XattrsOfNoFile(_) => "remove the attributes",
            Problem::WrongOrphan(_) => "take it off the list",
            Problem::DoomedObject { .. } => "keep the object",
            Problem::ReusableObject { .. } | Problem::ReusableFid(_) => "mark the ids as used",
            Problem::OrphanObject { bytes: 0, .. } => "destroy the object, which is empty",
            Problem::OrphanObject { .. } => "make it a file in /lost+found",
            Problem::InconsistentOwner { .. } => "send the file's owner to its OSTs",
            Problem::BadLayout(..)
            | Problem::LayoutOfOther(..)
            | Problem::SharedObject { .. }
            | Problem::BytesBeyondLayout { .. } => return None,
        })
    }

    /// Returns the directories and files concerned.
    pub fn files(&self) -> impl Iterator<Item = Fid> {
        let dir = match self {
            Problem::Dangling(at)
            | Problem::BadEntry(at, _)
            | Problem::WrongType(at, _)
            | Problem::SecondName(at)
            | Problem::Loop(at) => Some(at.dir),
            _ => None,
        };
        dir.into_iter().chain(self.fid())
    }

    /// Whether a running MDT can repair it, see [`crate::Namespace::repair`]. The others need a
    /// stopped MDT:
    ///
    /// * The MDT may have a record in memory that cannot be read.
    /// * It may have used ids that count as unused, and destroyed objects, since the snapshot.
    /// * A second bad entry of one hash has another position once the first one is removed.
    /// * Each directory of a loop may have been moved since the snapshot.
    pub fn is_repaired_online(&self) -> bool {
        match self {
            Problem::NoDirectory(_)
            | Problem::Dangling(_)
            | Problem::WrongType(..)
            | Problem::SecondName(_)
            | Problem::NoName(..)
            | Problem::WrongLinks { .. }
            | Problem::LinkCount { .. }
            | Problem::EntryCount { .. }
            | Problem::XattrBytes { .. }
            | Problem::XattrsOfNoFile(_)
            | Problem::WrongOrphan(_)
            | Problem::FileCount { .. }
            | Problem::QuotaUsage { .. }
            | Problem::OrphanObject { .. }
            | Problem::InconsistentOwner { .. } => true,
            Problem::Unreadable { .. }
            | Problem::BadEntry(..)
            | Problem::Loop(_)
            | Problem::BadLayout(..)
            | Problem::LayoutOfOther(..)
            | Problem::SharedObject { .. }
            | Problem::BytesBeyondLayout { .. }
            | Problem::DoomedObject { .. }
            | Problem::ReusableObject { .. }
            | Problem::ReusableFid(_) => false,
        }
    }

    /// Whether the repair adds a name to `/lost+found`.
    pub fn needs_lost_found(&self) -> bool {
        matches!(self, Problem::NoName(..) | Problem::OrphanObject { bytes: 1.., .. })
    }

    /// Whether no other problem may be repaired on a running MDT: records are unknown, or new files
    /// could get ids in use.
    pub(super) fn bars_online_repairs(&self) -> bool {
        self.stage() <= 1 && !self.is_repaired_online()
    }

    /// Whether names of files may be unknown because of this problem: a lookup may find an entry
    /// that the check did not count.
    pub(super) fn hides_names(&self) -> bool {
        matches!(self, Problem::BadEntry(..))
    }

    /// Whether a running MDT may repair it only if all names are known
    /// ([`crate::Check::knows_all_names`]). These repairs count names, or add some. That of an
    /// owner of objects does not.
    pub fn needs_all_names(&self) -> bool {
        self.stage() > ENTRIES && !matches!(self, Problem::InconsistentOwner { .. })
    }

    /// Whether objects of files may be unknown because of this problem, or count as unused.
    pub(super) fn hides_objects(&self) -> bool {
        let has_no_layout = matches!(self, Problem::BadLayout(..) | Problem::LayoutOfOther(..));
        has_no_layout || self.stage() <= 1 || matches!(self, Problem::SharedObject { .. })
    }

    /// Returns the position among the repairs: those of a stage may cause or solve problems of
    /// later ones.
    pub fn stage(&self) -> u8 {
        match self {
            Problem::Unreadable { .. } => 0,
            // Before a new file or name can get an id in use.
            Problem::ReusableFid(_)
            | Problem::ReusableObject { .. }
            | Problem::DoomedObject { .. }
            // Before its name counts as dangling.
            | Problem::NoDirectory(_) => 1,
            Problem::Dangling(_)
            | Problem::BadEntry(..)
            | Problem::WrongType(..)
            | Problem::SecondName(_)
            | Problem::Loop(_) => ENTRIES,
            Problem::NoName(..) | Problem::OrphanObject { .. } => 3,
            _ => 4,
        }
    }
}

fn owner_name(id: Id) -> String {
    format!("{} {}", id.kind.name(), id.id)
}

fn owner_names(owner: Owner) -> String {
    owner.ids().map(owner_name).join(", ")
}

/// Returns the name of an OST, or of the MDT's own data service.
fn target_name(ost: u32) -> String {
    if ost == MDT_OST { "the MDT".to_owned() } else { ost_name(ost) }
}

fn quoted(name: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(name))
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entry = |at: &EntryAt| format!("entry {} of directory {}", quoted(&at.name), at.dir);
        match self {
            Problem::Unreadable { key, why } => {
                let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
                write!(f, "record {hex}: {why}")
            }
            Problem::Dangling(at) => write!(f, "{}: file {} does not exist", entry(at), at.fid),
            Problem::NoDirectory(fid) => write!(f, "directory {fid} does not exist, and has entries"),
            Problem::BadEntry(at, why) => write!(f, "{}: {why}", entry(at)),
            Problem::WrongType(at, kind) => write!(f, "{}: wrong type; file {} is of type {kind:?}", entry(at), at.fid),
            Problem::SecondName(at) => write!(f, "{}: directory {} has another name as well", entry(at), at.fid),
            Problem::NoName(fid, kind) => write!(f, "file {fid} of type {kind:?} has no name"),
            Problem::Loop(at) => write!(f, "{}: directory {} is below itself", entry(at), at.fid),
            Problem::WrongLinks { fid, .. } => write!(f, "file {fid}: the names stored with it are not its names"),
            Problem::LinkCount { fid, stored, counted } => {
                write!(f, "file {fid}: the number of links is {stored}, and should be {counted}")
            }
            Problem::EntryCount { fid, stored, counted } => {
                write!(f, "directory {fid}: the number of entries is {stored}, and should be {counted}")
            }
            Problem::XattrBytes { fid, stored, counted } => {
                write!(f, "file {fid}: the size of its attributes is {stored}, and should be {counted}")
            }
            Problem::XattrsOfNoFile(fid) => write!(f, "extended attributes of file {fid}, which does not exist"),
            Problem::WrongOrphan(fid) => write!(f, "file {fid} is listed to be deleted, and has names or is deleted"),
            Problem::BadLayout(fid, why) => write!(f, "file {fid}: its layout is not readable: {why}"),
            Problem::LayoutOfOther(fid, other) => write!(f, "file {fid}: its layout is that of file {other}"),
            Problem::SharedObject { ost, object, files: [first, second] } => {
                write!(f, "object {object} on {} is in file {first} and in file {second}", target_name(*ost))
            }
            Problem::DoomedObject { ost, object, file } => {
                write!(f, "object {object} on {} of file {file} is about to be destroyed", target_name(*ost))
            }
            Problem::ReusableObject { ost, object, bound } => {
                let ost = target_name(*ost);
                write!(f, "object {object} on {ost} is in use, and ids above {bound:#x} count as unused")
            }
            Problem::ReusableFid(fid) => write!(f, "file {fid} exists, and its FID counts as unused"),
            Problem::FileCount { stored, counted } => {
                write!(f, "the number of files is {stored}, and should be {counted}")
            }
            Problem::QuotaUsage { id, stored, counted } => {
                let owner = owner_name(*id);
                write!(f, "the number of files of {owner} is {stored}, and should be {counted}")
            }
            Problem::OrphanObject { ost, object, bytes } => {
                write!(f, "object {object} on {} belongs to no file; it has {bytes} bytes", target_name(*ost))
            }
            Problem::InconsistentOwner { ost, object, file, stored, owner } => {
                let (ost, [stored, owner]) = (target_name(*ost), [stored, owner].map(|owner| owner_names(*owner)));
                write!(f, "object {object} on {ost} of file {file} is charged to {stored}, and should be to {owner}")
            }
            Problem::BytesBeyondLayout { ost, object, file, bytes, end } => {
                let ost = target_name(*ost);
                write!(f, "object {object} on {ost} of file {file} has {bytes} bytes; its layout ends at {end}")
            }
        }
    }
}
