//! Projects: the attribute `lustre.project`, inheritance, and the boundary around a project.
//!
//! * Every file has a project, 0 unless it was set or inherited. Everybody reads it.
//! * Setting it: only the owner (EPERM), as chmod. EINVAL for a value that is no project, and for a
//!   removal. The flags of setxattr(2) do not matter. Also sets ctime.
//! * A new entry of a directory whose flag is set gets the directory's project id. Only a new
//!   directory gets the flag as well.
//! * Such a directory takes names of its own project only: EXDEV for a link or a rename of any
//!   other file. In an exchange either directory may refuse. As on ext4 and XFS the rule includes a
//!   rename within the directory.

use sheen_wire::{self as wire, Errno, Fid, FileKind, Project};

use crate::{Namespace, Store, interface::Cx, record::Inode};

/// Returns the project of a new entry of directory `dir`.
pub(crate) fn inherited(dir: &Inode, kind: FileKind) -> Project {
    match dir.project {
        Project { id, inherits: true } => Project { id, inherits: kind == FileKind::Dir },
        Project { inherits: false, .. } => Project::default(),
    }
}

/// Checks that the file may get a name in directory `dir`.
pub(crate) fn check_boundary(dir: &Inode, inode: &Inode) -> wire::Result<()> {
    let differs = dir.project.inherits && dir.project.id != inode.project.id;
    if differs { Err(Errno::EXDEV) } else { Ok(()) }
}

impl<S: Store> Namespace<S> {
    /// Sets the project. The caller has checked the owner.
    pub(crate) fn set_project(&mut self, cx: &Cx, fid: Fid, value: Option<&[u8]>) -> wire::Result<()> {
        let project = Project::decode(value.ok_or(Errno::EINVAL)?)?;
        self.edit(fid, |i| {
            i.project = project;
            i.ctime = cx.now;
        })
    }
}
