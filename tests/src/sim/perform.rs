//! Executes operations through the real client, as the FUSE mount does for a program.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use sheen_client::{Caller, Client, DirItem, OpenFile, falloc};
use sheen_layout::Asked;
use sheen_wire::{Bulk, Errno, Fid, FileKind, fid::ROOT, mds::SetAttr};

use super::{
    copy::migrate,
    op::{Answer, Op, Outcome, View},
    striping::{LOV, Striping, layout},
};

const ROOT_USER: &Caller = &Caller::ROOT;

/// Further results of an operation.
#[derive(Default)]
pub struct Made {
    /// The file that the operation opened.
    pub file: Option<Arc<OpenFile>>,
}

fn bytes(name: &str) -> Bytes {
    Bytes::copy_from_slice(name.as_bytes())
}

fn seen(attr: sheen_client::EntryAttr) -> Outcome {
    Outcome::Seen(attr.into())
}

/// Executes an operation. `file`: the open file that it uses.
pub async fn perform(client: &Client, op: &Op, file: Option<Arc<OpenFile>>) -> (Answer, Made) {
    let mut made = Made::default();
    let answer = answer(client, op, file, &mut made).await;
    (answer, made)
}

async fn answer(client: &Client, op: &Op, file: Option<Arc<OpenFile>>, made: &mut Made) -> Answer {
    let file = || file.clone().ok_or(Errno::EBADF);
    Ok(match op {
        Op::Lookup { dir, name } => seen(client.lookup(ROOT_USER, *dir, &bytes(name)).await?),
        Op::Walk { path } => {
            let mut at = client.getattr(ROOT, None).await?;
            for name in path {
                at = client.lookup(ROOT_USER, at.attr.fid, &bytes(name)).await?;
            }
            seen(at)
        }
        Op::GetAttr { fid } => seen(client.getattr(*fid, None).await?),
        Op::Create { dir, name, flags, perm } => {
            let (attr, file) = client.create(ROOT_USER, *dir, &bytes(name), *flags, *perm, 0).await?;
            made.file = Some(file);
            seen(attr)
        }
        Op::Mknod { dir, name, perm } => {
            let mode = FileKind::Regular.mode_bits() | perm;
            seen(client.mknod(ROOT_USER, *dir, &bytes(name), mode, 0, 0).await?)
        }
        Op::Mkdir { dir, name, perm } => seen(client.mkdir(ROOT_USER, *dir, &bytes(name), *perm, 0).await?),
        Op::Symlink { dir, name, target } => seen(client.symlink(ROOT_USER, *dir, &bytes(name), &bytes(target)).await?),
        Op::TmpFile { dir } => {
            let (attr, file) = client.tmpfile(ROOT_USER, *dir, op.flags(), 0o600, 0).await?;
            made.file = Some(file);
            seen(attr)
        }
        Op::Open { fid, flags } => {
            made.file = Some(client.open(ROOT_USER, *fid, *flags).await?);
            Outcome::Done
        }
        Op::Close { .. } => {
            client.release(file()?).await?;
            Outcome::Done
        }
        Op::Read { offset, len, .. } => Outcome::Bytes(client.read(&*file()?, *offset, *len).await?.into_bytes()),
        Op::Write { offset, .. } => Outcome::Count(client.write(&*file()?, *offset, Bulk::from(op.data())).await?),
        Op::Punch { offset, len, .. } => {
            client.fallocate(&*file()?, falloc::PUNCH_HOLE | falloc::KEEP_SIZE, *offset, *len).await?;
            Outcome::Done
        }
        Op::Truncate { fid, size, handle } => {
            let set = SetAttr { size: Some(*size), ..SetAttr::default() };
            let file = handle.map(|_| file()).transpose()?;
            seen(client.setattr(ROOT_USER, *fid, set, file.as_deref()).await?)
        }
        Op::Chmod { fid, perm } => {
            let set = SetAttr { perm: Some(*perm), ..SetAttr::default() };
            seen(client.setattr(ROOT_USER, *fid, set, None).await?)
        }
        Op::Link { fid, dir, name } => seen(client.link(ROOT_USER, *fid, *dir, &bytes(name)).await?),
        Op::Unlink { dir, name } => {
            client.unlink(ROOT_USER, *dir, &bytes(name)).await?;
            Outcome::Done
        }
        Op::Rmdir { dir, name } => {
            client.rmdir(ROOT_USER, *dir, &bytes(name)).await?;
            Outcome::Done
        }
        Op::Rename { dir, name, new_dir, new_name, flags } => {
            client.rename(ROOT_USER, *dir, &bytes(name), *new_dir, &bytes(new_name), *flags).await?;
            Outcome::Done
        }
        Op::ReadDir { dir, page, plus } => Outcome::Entries(entries(client, *dir, *page, *plus).await?),
        Op::ReadLink { fid } => Outcome::Bytes(client.readlink(*fid).await?),
        Op::SetXattr { fid, name, value, flags } => {
            client.setxattr(ROOT_USER, *fid, &bytes(name), value, *flags).await?;
            Outcome::Done
        }
        Op::GetXattr { fid, name } => Outcome::Bytes(client.getxattr(ROOT_USER, *fid, &bytes(name)).await?),
        Op::RemoveXattr { fid, name } => {
            client.removexattr(ROOT_USER, *fid, &bytes(name)).await?;
            Outcome::Done
        }
        Op::SetStripe { fid, striping } => {
            client.setxattr(ROOT_USER, *fid, &LOV, &striping.asked().encode().into(), 0).await?;
            Outcome::Done
        }
        Op::GetStripe { fid } => Outcome::Striped(striping(client, *fid).await?),
        Op::Migrate { fid, striping, group } => {
            migrate(client, *fid, striping.asked().encode().into(), *group).await?;
            Outcome::Done
        }
        Op::Fsync { .. } => {
            client.fsync(&*file()?, false).await?;
            Outcome::Done
        }
        Op::SyncFs => {
            client.syncfs().await?;
            Outcome::Done
        }
    })
}

/// Reads a directory to its end. Asserts that its pages are consistent.
pub async fn entries(
    client: &Client,
    dir: Fid,
    page: u32,
    plus: bool,
) -> Result<BTreeMap<String, (Fid, FileKind, Option<View>)>, Errno> {
    let open = client.opendir(ROOT_USER, dir, 0).await?;
    let mut all = BTreeMap::new();
    let mut cookie = 0;
    let result = loop {
        match client.readdir(&open, cookie, page, plus).await {
            Ok(page) => {
                for DirItem { name, fid, kind, cookie: next, attr } in page.entries {
                    assert!(next > cookie, "cookies of {dir} do not grow: {next} after {cookie}");
                    cookie = next;
                    let name = String::from_utf8(name.to_vec()).expect("names in the test are text");
                    let twice = all.insert(name.clone(), (fid, kind, attr.map(View::from)));
                    assert!(twice.is_none(), "{name} is twice in {dir}");
                }
                if page.eof {
                    break Ok(());
                }
            }
            Err(errno) => break Err(errno),
        }
    };
    client.releasedir(open).await?;
    result.map(|()| all)
}

async fn striping(client: &Client, fid: Fid) -> Result<Striping, Errno> {
    if client.getattr(fid, None).await?.attr.kind == FileKind::Dir {
        let value = client.getxattr(ROOT_USER, fid, &LOV).await?;
        let asked = Asked::decode(&value).map_err(|_| Errno::EBADMSG)?;
        return Striping::of_asked(&asked).ok_or(Errno::EBADMSG);
    }
    let layout = layout(client, fid).await?;
    assert_eq!(layout.fid(), fid, "a layout names its file");
    Ok(Striping::of_layout(&layout))
}
