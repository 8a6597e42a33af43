//! ioctl(2)s on a file's project: Linux's `FS_IOC_FSGETXATTR`, `FS_IOC_FSSETXATTR`,
//! `FS_IOC_GETFLAGS` and `FS_IOC_SETFLAGS` ([`sheen_wire::project`]).
//!
//! The kernel passes them on for regular files and directories. It opens the file itself for each
//! of them. The MDT checks the caller's rights.

use bytes::Bytes;
use sheen_client::Caller;
use sheen_fuse::Ioctl;
use sheen_wire::{
    Errno, Fid, Project, Result,
    project::{
        EXTENT_FLAG, FsXattr, GET_FLAGS, GET_FSXATTR, INHERIT_FLAG, INHERIT_XFLAG, SET_FLAGS, SET_FSXATTR, XATTR,
    },
};

use crate::{answer::Answer, state::Inner};

/// Returns whether the ioctl is one of these.
pub fn is_of_project(cmd: u32) -> bool {
    matches!(cmd, GET_FLAGS | SET_FLAGS | GET_FSXATTR | SET_FSXATTR)
}

/// Executes an ioctl on a file's project.
///
/// # Errors
/// EOPNOTSUPP: a flag or a hint that Sheen does not have. EINVAL: the argument has another length,
/// or no file can have the project id. EPERM: the caller is not the superuser. ENOTTY: a file of
/// `.lustre`.
pub async fn run(fs: &Inner, who: &Caller, fid: Fid, ioctl: &Ioctl) -> Result<Answer> {
    match ioctl.cmd {
        GET_FLAGS => {
            let flags = EXTENT_FLAG | if get(fs, who, fid).await?.inherits { INHERIT_FLAG } else { 0 };
            return output(&[flags.to_ne_bytes(), [0; 4]].concat(), ioctl.out_size);
        }
        GET_FSXATTR => {
            let shown = FsXattr::default().with_project(get(fs, who, fid).await?);
            return output(shown.encode(), ioctl.out_size);
        }
        _ if fs.is_read_only() => return Err(Errno::EROFS),
        SET_FLAGS => {
            let flags = ioctl.input.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes)).ok_or(Errno::EINVAL)?;
            if flags & !(INHERIT_FLAG | EXTENT_FLAG) != 0 {
                return Err(Errno::EOPNOTSUPP);
            }
            let project = get(fs, who, fid).await?;
            set(fs, who, fid, Project { inherits: flags & INHERIT_FLAG != 0, ..project }).await?;
        }
        SET_FSXATTR => {
            let wanted = FsXattr::decode(&ioctl.input).ok_or(Errno::EINVAL)?;
            if wanted.xflags & !INHERIT_XFLAG != 0 || wanted.extsize != 0 || wanted.cowextsize != 0 {
                return Err(Errno::EOPNOTSUPP);
            }
            set(fs, who, fid, wanted.project()).await?;
        }
        _ => return Err(Errno::ENOTTY),
    }
    Ok(Answer::Ioctl(Bytes::new()))
}

async fn get(fs: &Inner, who: &Caller, fid: Fid) -> Result<Project> {
    let value = fs.client.getxattr(who, fid, &Bytes::from_static(XATTR.as_bytes())).await;
    Project::decode(&value.map_err(|e| if e == Errno::ENODATA { Errno::ENOTTY } else { e })?)
}

async fn set(fs: &Inner, who: &Caller, fid: Fid, project: Project) -> Result<()> {
    let value = Bytes::copy_from_slice(&project.encode());
    fs.client.setxattr(who, fid, &Bytes::from_static(XATTR.as_bytes()), &value, 0).await
}

/// Returns exactly as many bytes as the kernel has room for. It expects a reply of this length,
/// also where the ioctl's number encodes a longer one.
fn output(bytes: &[u8], out_size: u32) -> Result<Answer> {
    let room = usize::try_from(out_size).map_err(|_| Errno::EINVAL)?;
    bytes.get(..room).map(|bytes| Answer::Ioctl(Bytes::copy_from_slice(bytes))).ok_or(Errno::EINVAL)
}
