//! Projects: the attribute `lustre.project`, inheritance, and the boundary around a project.
//!
//! * Every file has a project, 0 unless it was set or inherited. Everybody reads it.
//! * The superuser changes it, and an owner whom Lustre's `enable_chprojid_gid` permits it
//!   ([`crate::Env::project_changers`]); otherwise EPERM. Each owner may set the value that it has.
//!   EINVAL for a value that is no project, and for a removal. The flags of setxattr(2) do not
//!   matter. Also sets ctime.
//! * A new entry of a directory whose flag is set gets the directory's project id. Only a new
//!   directory gets the flag as well.
//! * Such a directory refuses files with another id: EXDEV for a link, for the rename of a
//!   directory, and in an exchange, where either directory may refuse. The rename of any other file
//!   sets the file's id instead, as in Lustre. Both rules include a rename within the directory.

use sheen_wire::{self as wire, Cred, Errno, Fid, FileKind, Project};

use crate::{Namespace, Store, interface::Cx, record::Inode};

/// Returns the project of a new entry of directory `dir`.
pub(crate) fn inherited(dir: &Inode, kind: FileKind) -> Project {
    match dir.project {
        Project { id, inherits: true } => Project { id, inherits: kind == FileKind::Dir },
        Project { inherits: false, .. } => Project::default(),
    }
}

/// Checks that a name in directory `dir` leaves the file in its project.
pub(crate) fn check_boundary(dir: &Inode, inode: &Inode) -> wire::Result<()> {
    let differs = dir.project.inherits && dir.project.id != inode.project.id;
    if differs { Err(Errno::EXDEV) } else { Ok(()) }
}

impl<S: Store> Namespace<S> {
    /// Sets the project. The caller has checked the owner.
    pub(crate) fn set_project(
        &mut self,
        cx: &Cx,
        cred: &Cred,
        fid: Fid,
        inode: &Inode,
        value: Option<&[u8]>,
    ) -> wire::Result<()> {
        let project = Project::decode(value.ok_or(Errno::EINVAL)?)?;
        if project != inode.project {
            self.check_permitted(cx.env.project_changers(), cred)?;
        }
        self.edit(fid, |i| {
            i.project = project;
            i.ctime = cx.now;
        })
    }
}
