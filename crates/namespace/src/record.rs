//! Records of the store: their types and byte forms.
//!
//! Every value is one byte of format version, followed by the type in postcard. A new version adds
//! a branch in [`encode`] and [`decode`], so that records of old versions stay readable. It also
//! raises [`crate::STORE_FORMAT`]: to the check of an earlier release, its records would be
//! damaged. Tests pin the byte forms.
//!
//! | version | bytes after it |
//! |---|---|
//! | 1 | the type in postcard |
//! | 2 | as in version 1, then the [`Project`]; inodes with a project other than the default |

use std::{fmt, sync::Arc};

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::DeserializeOwned};
use sheen_wire::{Attr, Fid, FileKind, Project, Time, project::ID_MAX, quota::Owner};

use crate::{StoreError, acl::Acl};

/// Version of all records that this build writes, except inodes with a project: the first byte of
/// each.
pub const FORMAT_VERSION: u8 = 1;
/// Version of inodes with a project.
const PROJECT_VERSION: u8 = 2;

/// `st_size` of every directory, as ext4 shows small ones.
const DIR_SIZE: u64 = 4096;
/// Maximum bytes of names and parents stored per file for fid2path, as Lustre's MAX_LINKEA_SIZE.
/// Hard links beyond it work, but fid2path does not find their names. A directory's only name
/// always fits.
pub(crate) const LINKS_BYTES_MAX: usize = 4096;
/// Bytes of an entry in Lustre's link xattr besides the name.
pub(crate) const LINK_ENTRY_BYTES: usize = 18;

/// Name of an entry. One allocation, shared by the entry and its inode.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name(Arc<[u8]>);

impl Name {
    pub(crate) fn new(bytes: &[u8]) -> Name {
        Name(bytes.into())
    }

    pub(crate) fn to_bytes(&self) -> Bytes {
        Bytes::copy_from_slice(&self.0)
    }
}

impl std::ops::Deref for Name {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl std::borrow::Borrow<[u8]> for Name {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&String::from_utf8_lossy(&self.0), f)
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Name, D::Error> {
        <&[u8]>::deserialize(d).map(Name::new)
    }
}

/// One name of a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Link {
    pub parent: Fid,
    pub name: Name,
}

/// A file of any kind. Its FID is the key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Inode {
    pub kind: FileKind,
    /// 0o7777.
    pub perm: u32,
    /// Number of names (directory: 2 + subdirectories). 0: an orphan, which lives while it is open.
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    /// Devices only.
    pub rdev: u32,
    pub atime: Time,
    pub mtime: Time,
    pub ctime: Time,
    pub btime: Time,
    /// When `mtime` was last set: see [`Attr::mtime_set`].
    pub mtime_set: Time,
    /// Directory: number of entries. Regular file that no longer has a layout: number of
    /// generations that its layouts used.
    pub entries: u64,
    /// Bytes of names and values in the file's xattr record; 0: there is no record.
    pub xattr_bytes: u32,
    /// Created by O_TMPFILE without O_EXCL and never linked: may be linked although `nlink` is 0.
    pub linkable: bool,
    /// Names, oldest first, up to [`LINKS_BYTES_MAX`]. A directory has exactly one, the root none.
    pub links: Vec<Link>,
    /// Target of a symbolic link.
    pub target: Option<Bytes>,
    /// Regular file: its layout in Lustre's binary form. Directory: the default for new entries,
    /// likewise.
    pub layout: Option<Bytes>,
    /// Present only if it expresses more than `perm` does.
    pub access_acl: Option<Acl>,
    /// Directories only.
    pub default_acl: Option<Acl>,
    /// Not in the form of version 1: see [`Stored`].
    #[serde(skip)]
    pub project: Project,
}

impl Inode {
    /// Returns an empty file of the superuser, created now, without permissions.
    pub(crate) fn new(kind: FileKind, now: Time) -> Inode {
        Inode {
            kind,
            perm: 0,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            mtime_set: now,
            entries: 0,
            xattr_bytes: 0,
            linkable: false,
            links: Vec::new(),
            target: None,
            layout: None,
            access_acl: None,
            default_acl: None,
            project: Project::default(),
        }
    }

    pub(crate) fn is_dir(&self) -> bool {
        self.kind == FileKind::Dir
    }

    /// Returns those to whom the file is charged.
    pub(crate) fn owner(&self) -> Owner {
        Owner { uid: self.uid, gid: self.gid, project: self.project.id }
    }

    /// Returns the attributes that stat shows. The client adds the size of a striped file.
    pub(crate) fn attr(&self, fid: Fid) -> Attr {
        let (size, blocks) = match self.kind {
            FileKind::Dir => (DIR_SIZE, DIR_SIZE / 512),
            FileKind::Symlink => (self.target.as_ref().map_or(0, |t| t.len() as u64), 0),
            _ => (0, 0),
        };
        Attr {
            fid,
            kind: self.kind,
            perm: self.perm,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            size,
            blocks,
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            btime: self.btime,
            mtime_set: self.mtime_set,
        }
    }

    /// Stores a name if there is room.
    pub(crate) fn add_link(&mut self, parent: Fid, name: Name) {
        let used: usize = self.links.iter().map(|l| l.name.len() + LINK_ENTRY_BYTES).sum();
        if used + name.len() + LINK_ENTRY_BYTES <= LINKS_BYTES_MAX {
            self.links.push(Link { parent, name });
        }
    }

    /// Stores these names, each with its directory, as far as there is room.
    pub(crate) fn set_links(&mut self, names: &[(Fid, Vec<u8>)]) {
        self.links.clear();
        names.iter().for_each(|(dir, name)| self.add_link(*dir, Name::new(name)));
    }

    /// Removes a name if it is stored.
    pub(crate) fn remove_link(&mut self, parent: Fid, name: &[u8]) {
        if let Some(i) = self.links.iter().position(|l| l.parent == parent && *l.name == *name) {
            self.links.remove(i);
        }
    }

    /// Returns the approximate memory use in bytes.
    pub(crate) fn weight(&self) -> usize {
        let acl = |acl: &Option<Acl>| acl.as_ref().map_or(0, |a| a.entries.len() * 8);
        size_of::<Inode>()
            + 64
            + self.links.iter().map(|l| size_of::<Link>() + 16 + l.name.len()).sum::<usize>()
            + self.target.as_ref().map_or(0, |t| t.len())
            + self.layout.as_ref().map_or(0, |l| l.len())
            + acl(&self.access_acl)
            + acl(&self.default_acl)
    }
}

/// An entry of a directory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Dentry {
    /// Distinguishes entries with the same hash; part of the cookie.
    pub index: u8,
    pub kind: FileKind,
    pub fid: Fid,
    pub name: Name,
}

/// All entries of a directory whose names have the same hash: one, except for collisions. Sorted by
/// index.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Bucket {
    pub first: Dentry,
    pub rest: Vec<Dentry>,
}

impl Bucket {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Dentry> {
        std::iter::once(&self.first).chain(&self.rest)
    }

    pub(crate) fn find(&self, name: &[u8]) -> Option<&Dentry> {
        self.iter().find(|d| *d.name == *name)
    }

    pub(crate) fn weight(&self) -> usize {
        self.iter().map(|d| size_of::<Dentry>() + 16 + d.name.len()).sum::<usize>() + 96
    }
}

/// Extended attributes of one file other than ACLs and layout: (name, value), sorted by name.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Xattrs(pub Vec<(Bytes, Bytes)>);

impl Xattrs {
    pub(crate) fn position(&self, name: &[u8]) -> Result<usize, usize> {
        self.0.binary_search_by(|(n, _)| (**n).cmp(name))
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.iter().map(|(n, v)| n.len() + v.len()).sum()
    }
}

/// Superblock: identity of the store and parameters of its hashes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Super {
    pub mdt_index: u32,
    pub hash_seed: u64,
    pub hash_bits: u32,
}

/// Counters as of the end of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Counters {
    /// Last transno.
    pub transno: u64,
    /// Inodes in use.
    pub files: u64,
    /// Last number in the unlink log.
    pub destroy: u64,
    /// Last sequence that may have been handed out to a client.
    pub seq_reserved: u64,
}

/// Object ids of one OST as of the end of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct OstIds {
    /// Last id used in a layout.
    pub last: u32,
    /// Last id that may have been handed out.
    pub reserved: u32,
}

/// A key of the store, and its new record. `None` removes it.
pub(crate) type RawChange = (Vec<u8>, Option<Vec<u8>>);

/// A type of record. Its form in postcard is that of version 1.
pub(crate) trait Stored: Serialize + DeserializeOwned {
    /// Returns the project, if the record has one that is not the default.
    fn project(&self) -> Option<Project> {
        None
    }

    /// Returns the record with its project; `None` if records of this type have none.
    fn with_project(self, _project: Project) -> Option<Self> {
        None
    }
}

impl Stored for Inode {
    fn project(&self) -> Option<Project> {
        Some(self.project).filter(|project| *project != Project::default())
    }

    fn with_project(self, project: Project) -> Option<Inode> {
        Some(Inode { project, ..self })
    }
}

impl Stored for Bucket {}
impl Stored for Bytes {}
impl Stored for Counters {}
impl Stored for Dentry {}
impl Stored for OstIds {}
impl Stored for Super {}
impl Stored for Xattrs {}
impl Stored for () {}
impl Stored for u32 {}
impl Stored for u64 {}
impl Stored for Vec<u64> {}
impl Stored for Vec<(u64, u64)> {}

/// Encodes a record into the buffer `into`, whose content is discarded.
pub(crate) fn encode<T: Stored>(value: &T, into: Vec<u8>) -> Result<Vec<u8>, StoreError> {
    let failed = |e: postcard::Error| StoreError::Failed(format!("encoding a record: {e}"));
    let project = value.project();
    let mut into = into;
    into.clear();
    into.push(if project.is_some() { PROJECT_VERSION } else { FORMAT_VERSION });
    let into = postcard::to_extend(value, into).map_err(failed)?;
    match project {
        Some(project) => postcard::to_extend(&project, into).map_err(failed),
        None => Ok(into),
    }
}

/// Decodes a record; `key` is for the error.
pub(crate) fn decode<T: Stored>(key: &[u8], bytes: &[u8]) -> Result<T, StoreError> {
    let corrupt = |why: String| StoreError::Corrupt { key: key.iter().map(|b| format!("{b:02x}")).collect(), why };
    let unknown = |version: u8| format!("its format version {version} is unknown to this build");
    match bytes.split_first() {
        Some((&FORMAT_VERSION, body)) => postcard::from_bytes(body).map_err(|e| corrupt(e.to_string())),
        Some((&PROJECT_VERSION, body)) => {
            let (value, project): (T, Project) = postcard::from_bytes(body).map_err(|e| corrupt(e.to_string()))?;
            if project.id > ID_MAX {
                return Err(corrupt(format!("no file can have its project id {}", project.id)));
            }
            value.with_project(project).ok_or_else(|| corrupt(unknown(PROJECT_VERSION)))
        }
        Some((&version, _)) => Err(corrupt(unknown(version))),
        None => Err(corrupt("it is empty".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acl::{AclEntry, GROUP_OBJ, MASK, OTHER, USER, USER_OBJ};

    fn unhex(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
    }

    /// Version 1 must be written and read like this forever: a change needs a new version.
    fn pinned<T: Stored + PartialEq + fmt::Debug>(value: &T, hex: &str) {
        let bytes = encode(value, Vec::new()).unwrap();
        assert_eq!(bytes.iter().map(|b| format!("{b:02x}")).collect::<String>(), hex);
        assert_eq!(&decode::<T>(b"k", &unhex(hex)).unwrap(), value);
    }

    fn dentry(index: u8) -> Dentry {
        Dentry { index, kind: FileKind::Symlink, fid: Fid::new(0x2_0000_0401, 7), name: Name::new(b"name") }
    }

    fn inode() -> Inode {
        let entry = |(tag, perm, id)| AclEntry { tag, perm, id };
        let acl =
            [(USER_OBJ, 7, 0), (USER, 6, 300), (GROUP_OBJ, 5, 0), (MASK, 7, 0), (OTHER, 0, 0)].map(entry).to_vec();
        Inode {
            perm: 0o2755,
            uid: 1000,
            gid: 100,
            rdev: 0x0801,
            mtime: Time { sec: -1, nsec: 999_999_999 },
            mtime_set: Time { sec: 1_800_000_001, nsec: 2 },
            entries: 3,
            xattr_bytes: 200,
            linkable: true,
            links: vec![Link { parent: Fid::new(0x2_0000_0007, 1), name: Name::new(b"name") }],
            target: Some(Bytes::from_static(b"t")),
            layout: Some(Bytes::from_static(b"lov")),
            access_acl: Some(Acl { entries: acl }),
            default_acl: None,
            ..Inode::new(FileKind::Dir, Time { sec: 1_800_000_000, nsec: 1 })
        }
    }

    #[test]
    fn records_of_version_1_are_pinned() {
        pinned(&Super { mdt_index: 1, hash_seed: u64::MAX, hash_bits: 56 }, "0101ffffffffffffffffff0138");
        pinned(&Counters { transno: 300, files: 2, destroy: 1, seq_reserved: 0x2_0000_0800 }, "01ac0202018090808020");
        pinned(&OstIds { last: 5, reserved: 65541 }, "0105858004");
        pinned(&crate::STORE_FORMAT, "0104");
        pinned(
            &Bucket { first: dentry(0), rest: vec![dentry(9)] },
            "01000281888080200700046e616d6501090281888080200700046e616d65",
        );
        pinned(&Xattrs(vec![(Bytes::from_static(b"user.a"), Bytes::from_static(b"v"))]), "010106757365722e610176");
        pinned(
            &inode(),
            "0101ed0b01e80764811080c8ceb40d0101ff93ebdc0380c8ceb40d0180c8ceb40d0182c8ceb40d0203c801010187808080200100046e616d6501017401036c6f7601050107000206ac0204050010070020000000",
        );
        pinned(&Bytes::from_static(b"lov"), "01036c6f76");
    }

    #[test]
    fn inode_record_with_project_is_pinned_as_version_2() {
        let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        let plain = hex(&encode(&inode(), Vec::new()).unwrap());
        let rest = plain.strip_prefix("01").unwrap();
        for (project, tail) in [
            (Project { id: 1000, inherits: true }, "e80701"),
            (Project { id: 1, inherits: false }, "0100"),
            (Project { id: 0, inherits: true }, "0001"),
        ] {
            let inode = Inode { project, ..inode() };
            pinned(&inode, &format!("02{rest}{tail}"));
            let bytes = encode(&inode, Vec::new()).unwrap();
            for cut in 0..bytes.len() {
                assert!(decode::<Inode>(b"i", &bytes[..cut]).is_err(), "{cut} bytes");
            }
        }
        assert!(decode::<Bytes>(b"k", &[2, 0, 0, 0]).is_err(), "only inodes have version 2");
        let bytes =
            encode(&Inode { project: Project { id: u32::MAX, inherits: false }, ..inode() }, Vec::new()).unwrap();
        assert!(decode::<Inode>(b"i", &bytes).is_err(), "an id that no file can have");
    }

    #[test]
    fn inode_record_of_ordinary_file_is_small() {
        let one = Inode { target: None, layout: Some(vec![0; 56].into()), access_acl: None, ..inode() };
        assert!(encode(&one, Vec::new()).unwrap().len() < 140);
        assert!(one.weight() < 500, "{}", one.weight());
    }

    #[test]
    fn damage_is_reported_with_its_key() {
        let error = |bytes: &[u8]| decode::<Super>(b"s", bytes).unwrap_err().to_string();
        assert_eq!(error(&[]), "metadata record 73: it is empty");
        assert_eq!(error(&[9, 0]), "metadata record 73: its format version 9 is unknown to this build");
        assert!(error(&[1]).starts_with("metadata record 73: "));
        for cut in 0..encode(&inode(), Vec::new()).unwrap().len() {
            assert!(decode::<Inode>(b"i", &encode(&inode(), Vec::new()).unwrap()[..cut]).is_err());
        }
    }

    #[test]
    fn stored_links_are_bounded_in_bytes() {
        let mut inode = inode();
        for i in 0..1000u32 {
            inode.add_link(Fid::new(1, 1), Name::new(format!("{i:0>200}").as_bytes()));
        }
        assert!(inode.links.len() > 10 && inode.weight() < 8192);
        inode.remove_link(Fid::new(1, 1), b"not remembered");
    }
}
