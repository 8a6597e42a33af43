//! ioctl(2)s that need no open file of the client: identity of a file, number of targets, and
//! layouts of directories ([`sheen_wire::ioctl`]).

use bytes::Bytes;
use sheen_client::Caller;
use sheen_fuse::{Ioctl, abi::flags::ioctl::DIR};
use sheen_wire::{
    Errno, Fid, Result, control,
    ioctl::{self, FileId},
    mgs::TargetKind,
};

use crate::{answer::Answer, state::Inner};

/// A directory's default layout of files.
const LOV: &str = "lustre.lov";
/// A directory's layout over MDTs, and the default for its subdirectories.
const LMV: &str = "lustre.lmv";
const DMV: &str = "lustre.dmv";

/// Returns whether the ioctl is one of these.
pub fn answers(ioctl: &Ioctl) -> bool {
    match ioctl.cmd {
        ioctl::FLUSH_CONTEXT | ioctl::TARGET_COUNT | ioctl::PATH_TO_FID | ioctl::MDT_INDEX | ioctl::FID_TO_MDT => true,
        ioctl::LOV_SETSTRIPE
        | ioctl::LOV_SETSTRIPE_V1
        | ioctl::LOV_GETSTRIPE
        | ioctl::LMV_GETSTRIPE
        | ioctl::LMV_SET_DEFAULT => ioctl.flags & DIR != 0,
        _ => false,
    }
}

/// Executes an ioctl on the file `fid`.
///
/// # Errors
/// EROFS: the mount is read-only. Otherwise as documented with each number, and any error of the
/// MDT.
pub async fn run(fs: &Inner, who: &Caller, fid: Fid, ioctl: &Ioctl) -> Result<Answer> {
    let input = &ioctl.input;
    let output = match ioctl.cmd {
        ioctl::FLUSH_CONTEXT => Bytes::new(),
        ioctl::TARGET_COUNT => {
            let kind = if ioctl::int(input)? == 0 { TargetKind::Ost } else { TargetKind::Mdt };
            let count = i32::try_from(fs.client.target_count(kind)).map_err(|_| Errno::EINVAL)?;
            Bytes::copy_from_slice(&count.to_ne_bytes())
        }
        ioctl::PATH_TO_FID => Bytes::copy_from_slice(FileId::from(fid).encode()),
        ioctl::MDT_INDEX => {
            let text = get(fs, who, fid, control::MDT).await?;
            let index: Option<i32> = std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok());
            Bytes::copy_from_slice(&index.ok_or(Errno::EPROTO)?.to_ne_bytes())
        }
        ioctl::FID_TO_MDT => {
            // The result of ioctl(2) is the index: there is one MDT, and its index is 0.
            FileId::decode(input).filter(|file| file.seq != 0 && file.oid != 0).ok_or(Errno::EINVAL)?;
            Bytes::new()
        }
        ioctl::LOV_GETSTRIPE => fitting(get(fs, who, fid, LOV).await?, ioctl, Errno::ERANGE)?,
        ioctl::LMV_GETSTRIPE => {
            let name = match ioctl::int(input)? {
                ioctl::LMV_MAGIC_USER => DMV,
                ioctl::LMV_MAGIC_V1 => LMV,
                _ => return Err(Errno::EINVAL),
            };
            fitting(get(fs, who, fid, name).await?, ioctl, Errno::E2BIG)?
        }
        _ if fs.is_read_only() => return Err(Errno::EROFS),
        ioctl::LMV_SET_DEFAULT => set(fs, who, fid, DMV, input).await?,
        ioctl::LOV_SETSTRIPE | ioctl::LOV_SETSTRIPE_V1 => {
            let value = ioctl::plain_layout(input).ok_or(Errno::EINVAL)?;
            set(fs, who, fid, LOV, &input.slice_ref(value)).await?
        }
        _ => return Err(Errno::ENOTTY),
    };
    Ok(Answer::Ioctl(output))
}

async fn get(fs: &Inner, who: &Caller, fid: Fid, name: &'static str) -> Result<Bytes> {
    fs.client.getxattr(who, fid, &Bytes::from_static(name.as_bytes())).await
}

/// Sets an attribute. Returns the empty output of the ioctl.
async fn set(fs: &Inner, who: &Caller, fid: Fid, name: &'static str, value: &Bytes) -> Result<Bytes> {
    fs.client.setxattr(who, fid, &Bytes::from_static(name.as_bytes()), value, 0).await?;
    Ok(Bytes::new())
}

/// Returns the output if the program has room for it, else the error.
fn fitting(output: Bytes, ioctl: &Ioctl, too_large: Errno) -> Result<Bytes> {
    if output.len() <= ioctl.out_size as usize { Ok(output) } else { Err(too_large) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ioctl(cmd: u32, flags: u32, out_size: u32) -> Ioctl {
        Ioctl { fh: 0, flags, cmd, arg: 0, input: Bytes::new(), out_size }
    }

    #[test]
    fn layout_ioctls_are_queries_of_directories_alone() {
        for cmd in [ioctl::LOV_SETSTRIPE, ioctl::LOV_GETSTRIPE, ioctl::LMV_GETSTRIPE, ioctl::LMV_SET_DEFAULT] {
            assert_eq!((answers(&ioctl(cmd, DIR, 0)), answers(&ioctl(cmd, 0, 0))), (true, false), "{cmd:#x}");
        }
        for cmd in [ioctl::PATH_TO_FID, ioctl::FID_TO_MDT] {
            assert!(answers(&ioctl(cmd, 0, 16)) && answers(&ioctl(cmd, DIR, 16)), "{cmd:#x}");
        }
        assert!(!answers(&ioctl(ioctl::GROUP_LOCK_BY_VALUE, DIR, 0)));
    }

    #[test]
    fn output_without_room_is_an_error() {
        let bytes = Bytes::from_static(b"12345678");
        assert_eq!(fitting(bytes.clone(), &ioctl(0, 0, 8), Errno::E2BIG), Ok(bytes.clone()));
        assert_eq!(fitting(bytes, &ioctl(0, 0, 7), Errno::E2BIG), Err(Errno::E2BIG));
    }
}
