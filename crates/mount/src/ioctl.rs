//! ioctl(2) on open files: layouts, group locks, advice, data versions, flags, selection of a
//! mirror, migration, and layout swaps; and directory entries ([`sheen_wire::ioctl`]).

use bytes::Bytes;
use sheen_client::{Caller, LockedAhead, Seek};
use sheen_fuse::{Ioctl, abi::flags::ioctl::DIR};
use sheen_wire::{
    Errno, Fid, FileKind, Result, entries,
    ioctl::{self, DataVersion, FileId, Ladvise, LadviseList, MigrateEnd, MigrateSeek},
    mds::{flags, xattr},
};

use crate::{
    answer::Answer,
    file::File,
    state::{Inner, Signal, interrupted},
};

/// The attribute with a file's layout.
const LOV: &[u8] = b"lustre.lov";

/// Returns whether the ioctl may wait for a program.
pub fn waits(ioctl: &Ioctl) -> bool {
    matches!(
        ioctl.cmd,
        ioctl::GROUP_LOCK
            | ioctl::GROUP_LOCK_BY_VALUE
            | ioctl::LADVISE
            | ioctl::LADVISE_LIST
            | ioctl::DATA_VERSION
            | ioctl::MIGRATE_BEGIN
            | ioctl::MIGRATE_SEEK
            | ioctl::MIGRATE_END
            | ioctl::SWAP_LAYOUTS
    )
}

/// Returns whether the ioctl changes the file, also through a file that is open for reading alone.
fn changes(cmd: u32) -> bool {
    matches!(
        cmd,
        ioctl::LOV_SETSTRIPE
            | ioctl::LOV_SETSTRIPE_V1
            | ioctl::MIGRATE_BEGIN
            | ioctl::MIGRATE_END
            | ioctl::SWAP_LAYOUTS
    )
}

/// Returns whether the ioctl is one on a regular file that is open.
fn is_of_file(cmd: u32) -> bool {
    matches!(
        cmd,
        ioctl::GROUP_LOCK
            | ioctl::GROUP_LOCK_BY_VALUE
            | ioctl::GROUP_UNLOCK
            | ioctl::GROUP_UNLOCK_BY_VALUE
            | ioctl::LADVISE
            | ioctl::LADVISE_LIST
            | ioctl::DATA_VERSION
            | ioctl::SET_MIRROR
            | ioctl::SET_MIRROR_BY_VALUE
            | ioctl::LOV_SETSTRIPE
            | ioctl::LOV_SETSTRIPE_V1
            | ioctl::LOV_GETSTRIPE
            | ioctl::GET_FILE_FLAGS
            | ioctl::SET_FILE_FLAGS
            | ioctl::CLEAR_FILE_FLAGS
            | ioctl::MIGRATE_BEGIN
            | ioctl::MIGRATE_SEEK
            | ioctl::MIGRATE_END
            | ioctl::SWAP_LAYOUTS
    )
}

/// Executes an ioctl. `signal`: ends a wait, with EINTR.
pub async fn run(fs: &Inner, who: &Caller, ioctl: &Ioctl, signal: Option<Signal>) -> Result<Answer> {
    if ioctl.cmd == ioctl::ENTRIES && ioctl.flags & DIR != 0 {
        return entries(fs, who, ioctl).await;
    }
    if !is_of_file(ioctl.cmd) {
        return Err(if ioctl::is_of_missing_feature(ioctl.cmd) { Errno::EOPNOTSUPP } else { Errno::ENOTTY });
    }
    if ioctl.flags & DIR != 0 {
        return Err(Errno::ENOTTY);
    }
    let file = fs.files.get(ioctl.fh).ok_or(Errno::EBADF)?;
    if changes(ioctl.cmd) && fs.is_read_only() {
        return Err(Errno::EROFS);
    }
    if ioctl.cmd == ioctl::MIGRATE_END {
        // Not interruptible, because a migration must not stop half done.
        let MigrateEnd { seq, oid, ver, group } = MigrateEnd::decode(&ioctl.input).ok_or(Errno::EINVAL)?;
        fs.client.migrate_end(who, &file, Fid { seq, oid, ver }, (group > 0).then_some(group)).await?;
        return Ok(Answer::Ioctl(Bytes::new()));
    }
    if ioctl.cmd == ioctl::SWAP_LAYOUTS {
        // Not interruptible either.
        let other = FileId::decode(&ioctl.input).ok_or(Errno::EINVAL)?;
        fs.client.swap_layouts(who, &file, other.into()).await?;
        return Ok(Answer::Ioctl(Bytes::new()));
    }
    let work = async {
        match ioctl.cmd {
            ioctl::GROUP_LOCK | ioctl::GROUP_LOCK_BY_VALUE => {
                fs.client.group_lock(&file, number(ioctl)?, file.nonblocking()).await?;
            }
            ioctl::MIGRATE_SEEK => {
                let mut seek = MigrateSeek::decode(&ioctl.input).ok_or(Errno::EINVAL)?;
                let what = if seek.hole == 0 { Seek::Data } else { Seek::Hole };
                seek.offset = fs.client.lseek(&file, seek.offset, what).await?;
                return Ok(Answer::Ioctl(Bytes::copy_from_slice(seek.encode())));
            }
            ioctl::DATA_VERSION => {
                let mut asked = DataVersion::decode(&ioctl.input).ok_or(Errno::EINVAL)?;
                if asked.flags & !(ioctl::READ_FLUSH | ioctl::WRITE_FLUSH) != 0 {
                    return Err(Errno::EINVAL);
                }
                (asked.version, asked.layout_version) = fs.client.data_version(&file, asked.flags != 0).await?;
                return Ok(Answer::Ioctl(Bytes::copy_from_slice(asked.encode())));
            }
            ioctl::MIGRATE_BEGIN => fs.client.migrate_begin(&file).await?,
            ioctl::GROUP_UNLOCK | ioctl::GROUP_UNLOCK_BY_VALUE => fs.client.group_unlock(&file, number(ioctl)?)?,
            ioctl::SET_MIRROR | ioctl::SET_MIRROR_BY_VALUE => {
                let id = u16::try_from(number(ioctl)?).map_err(|_| Errno::EINVAL)?;
                fs.client.use_mirror(who, &file, id).await?;
            }
            ioctl::GET_FILE_FLAGS => {
                return Ok(Answer::Ioctl(Bytes::copy_from_slice(&file.program_flags().to_ne_bytes())));
            }
            ioctl::SET_FILE_FLAGS => file.set_program_flags(ioctl::int(&ioctl.input)?)?,
            ioctl::CLEAR_FILE_FLAGS => file.clear_program_flags(ioctl::int(&ioctl.input)?),
            ioctl::LOV_SETSTRIPE | ioctl::LOV_SETSTRIPE_V1 => set_layout(fs, who, &file, &ioctl.input).await?,
            ioctl::LOV_GETSTRIPE => {
                let layout = fs.client.plain_layout(who, &file).await?;
                let fits = layout.len() <= ioctl.out_size as usize;
                return if fits { Ok(Answer::Ioctl(layout)) } else { Err(Errno::ERANGE) };
            }
            ioctl::LADVISE_LIST => {
                let mut list = LadviseList::decode(&ioctl.input).ok_or(Errno::EINVAL)?;
                list.first.result = advise(fs, &file, list.first()?).await?.result;
                return Ok(Answer::Ioctl(Bytes::copy_from_slice(list.encode())));
            }
            _ => {
                let advice = Ladvise::decode(&ioctl.input).ok_or(Errno::EINVAL)?;
                let done = advise(fs, &file, advice).await?;
                return Ok(Answer::Ioctl(Bytes::copy_from_slice(done.encode())));
            }
        }
        Ok(Answer::Ioctl(Bytes::new()))
    };
    tokio::select! {
        biased;
        answer = work => answer,
        () = interrupted(signal) => Err(Errno::EINTR),
    }
}

/// Sets the layout of a file that has none.
async fn set_layout(fs: &Inner, who: &Caller, file: &File, input: &Bytes) -> Result<()> {
    let value = ioctl::plain_layout(input).ok_or(Errno::EINVAL)?;
    // An open file for writing includes the right to set the layout.
    let who = if flags::writes(file.flags()) { &Caller::ROOT } else { who };
    fs.client.setxattr(who, file.fid(), &Bytes::from_static(LOV), &input.slice_ref(value), xattr::CREATE).await
}

/// Returns a page of a directory. The next call returns the entries that do not fit.
async fn entries(fs: &Inner, who: &Caller, ioctl: &Ioctl) -> Result<Answer> {
    let dir = fs.dirs.get(ioctl.fh).ok_or(Errno::EBADF)?;
    let ask = entries::Ask::decode(&ioctl.input).ok_or(Errno::EINVAL)?;
    let mut packer = entries::Packer::new(ioctl.out_size as usize, ask.cookie).ok_or(Errno::EINVAL)?;
    let wants = |flag| ask.flags & flag != 0;
    let page = fs.client.scan(who, &dir, ask.cookie, wants(entries::SIZES), wants(entries::LAZY)).await?;
    let mut items = page.after(ask.cookie).iter();
    let all_in = items.all(|item| {
        let knows = wants(entries::LAYOUTS) && item.kind != FileKind::Dir && item.attr.is_some();
        let layout = knows.then(|| item.layout.as_deref().unwrap_or_default());
        let stat = item.attr.as_ref().map(entries::Stat::from);
        packer.push(&entries::Entry { name: &item.name, kind: item.kind, stat, sized: item.sized, layout }, item.cookie)
    });
    Ok(Answer::Ioctl(packer.finish(all_in && page.eof).into()))
}

/// Returns a number that the program passed by pointer, or in place of the pointer.
fn number(ioctl: &Ioctl) -> Result<u64> {
    match ioctl.cmd {
        ioctl::GROUP_LOCK_BY_VALUE | ioctl::GROUP_UNLOCK_BY_VALUE | ioctl::SET_MIRROR_BY_VALUE => Ok(ioctl.arg),
        _ => <[u8; 8]>::try_from(&ioctl.input[..]).map(u64::from_ne_bytes).map_err(|_| Errno::EINVAL),
    }
}

/// Executes the advice, and returns it with its result filled in.
async fn advise(fs: &Inner, file: &File, mut advice: Ladvise) -> Result<Ladvise> {
    match advice.advice {
        ioctl::WILLREAD | ioctl::DONTNEED => {}
        ioctl::LOCKNOEXPAND => return Err(Errno::EOPNOTSUPP),
        ioctl::LOCKAHEAD => {
            let write = match advice.mode {
                ioctl::MODE_READ => false,
                ioctl::MODE_WRITE => true,
                _ => return Err(Errno::EINVAL),
            };
            let wait = advice.flags & ioctl::ASYNC == 0;
            let found = fs.client.lock_ahead(file, advice.start, advice.last, write, wait).await?;
            advice.result = match found {
                LockedAhead::Same => ioctl::SAME,
                LockedAhead::Different => ioctl::DIFFERENT,
                LockedAhead::Sent => ioctl::SENT,
            };
        }
        _ => return Err(Errno::EINVAL),
    }
    Ok(advice)
}
