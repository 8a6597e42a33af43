//! Projects of files: the value of the extended attribute [`XATTR`], and the ioctls of Linux that
//! read and set it on a mount (`lsattr -p`, `chattr -p`, `lfs project`).

use serde::{Deserialize, Serialize};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{Errno, Result};

/// Attribute with a file's project. Every file has it; it is never listed, and cannot be removed.
pub const XATTR: &str = "lustre.project";

/// Largest project id. In Linux the next one means no project.
pub const ID_MAX: u32 = u32::MAX - 1;
/// Bit of [`Project::inherits`] in the attribute's value.
const INHERITS: u32 = 1;

/// Project of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Project {
    /// Id, at most [`ID_MAX`]; 0 unless one was set or inherited.
    pub id: u32,
    /// New entries of this directory get its id, new subdirectories also this flag. Without a
    /// meaning for other files.
    pub inherits: bool,
}

impl Project {
    /// Bytes of the attribute's value.
    pub const BYTES: usize = 8;

    /// Encodes the attribute's value: id and flags, little-endian.
    pub fn encode(self) -> [u8; Project::BYTES] {
        let flags = if self.inherits { INHERITS } else { 0 };
        let mut value = [0; Project::BYTES];
        value[..4].copy_from_slice(&self.id.to_le_bytes());
        value[4..].copy_from_slice(&flags.to_le_bytes());
        value
    }

    /// Decodes the attribute's value.
    ///
    /// # Errors
    /// EINVAL: it is not a project.
    pub fn decode(value: &[u8]) -> Result<Project> {
        let value: [u8; Project::BYTES] = value.try_into().map_err(|_| Errno::EINVAL)?;
        let [a, b, c, d, e, f, g, h] = value;
        let (id, flags) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
        if id > ID_MAX || flags & !INHERITS != 0 {
            return Err(Errno::EINVAL);
        }
        Ok(Project { id, inherits: flags & INHERITS != 0 })
    }
}

/// `FS_IOC_GETFLAGS`, by which lsattr(1) reads flags. The result is a `u32`, although the number
/// encodes a `long`.
pub const GET_FLAGS: u32 = 0x8008_6601;
/// `FS_IOC_SETFLAGS`, by which chattr(1) sets flags. The argument is a `u32`.
pub const SET_FLAGS: u32 = 0x4008_6602;
/// `FS_IOC_FSGETXATTR`: returns an [`FsXattr`].
pub const GET_FSXATTR: u32 = 0x801c_581f;
/// `FS_IOC_FSSETXATTR`: the argument is an [`FsXattr`].
pub const SET_FSXATTR: u32 = 0x401c_5820;

/// `FS_PROJINHERIT_FL`, in the flags of [`GET_FLAGS`] and [`SET_FLAGS`].
pub const INHERIT_FLAG: u32 = 0x2000_0000;
/// `FS_EXTENT_FL`: set for each file and directory, as on Lustre with ldiskfs. It cannot be
/// removed; programs that read flags before they set some return it.
pub const EXTENT_FLAG: u32 = 0x0008_0000;
/// `FS_XFLAG_PROJINHERIT`, in [`FsXattr::xflags`].
pub const INHERIT_XFLAG: u32 = 0x200;

/// Linux's `struct fsxattr`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FsXattr {
    /// Flags; Sheen has [`INHERIT_XFLAG`] alone.
    pub xflags: u32,
    /// Extent size hint; not supported.
    pub extsize: u32,
    /// Number of extents; not supported.
    pub nextents: u32,
    /// Project id.
    pub projid: u32,
    /// Extent size hint for copies on write; not supported.
    pub cowextsize: u32,
    /// Reserved.
    pub pad: [u8; 8],
}

impl FsXattr {
    /// Decodes a program's argument; `None` if the length is wrong.
    pub fn decode(bytes: &[u8]) -> Option<FsXattr> {
        FsXattr::read_from_bytes(bytes).ok()
    }

    /// Encodes the result for the program.
    pub fn encode(&self) -> &[u8] {
        self.as_bytes()
    }

    /// Returns the project in it.
    pub fn project(&self) -> Project {
        Project { id: self.projid, inherits: self.xflags & INHERIT_XFLAG != 0 }
    }

    /// Returns it with another project. All other fields stay.
    #[must_use]
    pub fn with_project(self, project: Project) -> FsXattr {
        let others = self.xflags & !INHERIT_XFLAG;
        let xflags = if project.inherits { others | INHERIT_XFLAG } else { others };
        FsXattr { xflags, projid: project.id, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn project_value_is_pinned_and_bad_values_are_refused() {
        let project = Project { id: 0x0102_0304, inherits: true };
        assert_eq!(project.encode(), [4, 3, 2, 1, 1, 0, 0, 0]);
        for project in [project, Project::default(), Project { id: ID_MAX, inherits: false }] {
            assert_eq!(Project::decode(&project.encode()), Ok(project));
        }
        let without_project = Project { id: u32::MAX, inherits: false };
        for bad in [&b""[..], &[0; 7], &[0; 9], &[0, 0, 0, 0, 2, 0, 0, 0], &without_project.encode()] {
            assert_eq!(Project::decode(bad), Err(Errno::EINVAL), "{bad:?}");
        }
    }

    #[test]
    fn ioctl_numbers_and_fsxattr_match_linux() {
        let number = |direction: u32, letter: u8, nr: u32, bytes: usize| {
            direction << 30 | (bytes as u32) << 16 | u32::from(letter) << 8 | nr
        };
        assert_eq!((GET_FLAGS, SET_FLAGS), (number(2, b'f', 1, 8), number(1, b'f', 2, 8)));
        let bytes = size_of::<FsXattr>();
        assert_eq!((GET_FSXATTR, SET_FSXATTR), (number(2, b'X', 31, bytes), number(1, b'X', 32, bytes)));
        let project = Project { id: 7, inherits: true };
        let other = FsXattr { xflags: 0x80, extsize: 1, ..FsXattr::default() }.with_project(project);
        assert_eq!((other.xflags, other.extsize, other.project()), (0x280, 1, project));
        assert_eq!(other.with_project(Project::default()).xflags, 0x80);
        assert_eq!(FsXattr::decode(other.encode()), Some(other));
        assert_eq!(other.encode()[12..16], 7u32.to_ne_bytes());
        assert_eq!(FsXattr::decode(&[0; 27]), None);
    }
}
