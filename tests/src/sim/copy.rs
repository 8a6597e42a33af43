//! Copies of files as tools make them: `lfs migrate` and `lfs mirror resync`, with the same calls
//! to the client as `crates/cli/src/lfs/{migrate,mirror}/copy.rs` make through a mount.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use sheen_client::{Caller, Client, OpenFile, Seek};
use sheen_layout::{Composite, Layout};
use sheen_rt::Rt;
use sheen_wire::{
    Bulk, Errno, Fid, Result,
    fid::ROOT,
    mds::{SetAttr, flags, xattr},
    mirror::{self, MirrorChange},
};

use super::striping::{LOV, layout};

const ROOT_USER: &Caller = &Caller::ROOT;
/// Maximum number of copies before a tool fails, because another client wrote during each copy.
pub const TRIES: u32 = 3;
/// Bytes copied at a time: few, so that operations of other clients run in between.
const CHUNK: usize = 40_000;
/// Pause between two tries of a resync.
const PAUSE: Duration = Duration::from_millis(1);

/// Copies a file to each of several files and flushes them to disk. Holes stay holes, and the size
/// becomes `size`.
///
/// # Errors
/// Errors of the client. ENOSPC if a write was short.
pub async fn copy(client: &Client, from: &OpenFile, to: &[&OpenFile], size: u64) -> Result<()> {
    let mut at = 0;
    while at < size {
        let start = match client.lseek(from, at, Seek::Data).await {
            Ok(start) => start.min(size),
            Err(Errno::ENXIO) => break,
            Err(errno) => return Err(errno),
        };
        let hole = client.lseek(from, start, Seek::Hole).await.map_or(size, |hole| hole.min(size));
        at = start;
        while at < hole {
            let len = CHUNK.min((hole - at) as usize);
            let data = client.read_as(from, at, len, false).await?.bulk;
            if data.is_empty() {
                // The file was truncated meanwhile. The servers report this at the end of the copy.
                return end(client, to, size).await;
            }
            let len = data.len();
            for to in to {
                write(client, to, at, data.clone()).await?;
            }
            at += len as u64;
        }
    }
    end(client, to, size).await
}

async fn write(client: &Client, to: &OpenFile, at: u64, data: Bulk) -> Result<()> {
    let len = data.len();
    let written = client.write(to, at, data).await?;
    if written == len { Ok(()) } else { Err(Errno::ENOSPC) }
}

async fn end(client: &Client, to: &[&OpenFile], size: u64) -> Result<()> {
    for to in to {
        cut(client, to, size).await?;
        client.fsync(to, false).await?;
    }
    Ok(())
}

/// Truncates an open file (ftruncate).
///
/// # Errors
/// Errors of the client.
pub async fn cut(client: &Client, file: &OpenFile, size: u64) -> Result<()> {
    let set = SetAttr { size: Some(size), ..SetAttr::default() };
    client.setattr(ROOT_USER, file.fid(), set, Some(file)).await.map(drop)
}

/// Migrates a file to new objects with the layout `asked`. With `group`, it holds a group lock, so
/// that all other clients wait.
///
/// # Errors
/// EBUSY if other clients wrote to the file during each of [`TRIES`] copies. EOPNOTSUPP if the file
/// is mirrored. Errors of the client.
pub async fn migrate(client: &Client, fid: Fid, asked: Bytes, group: Option<u64>) -> Result<()> {
    let source = client.open(ROOT_USER, fid, flags::RDWR | flags::DIRECT).await?;
    let done = match client.tmpfile(ROOT_USER, ROOT, flags::RDWR, 0o600, 0).await {
        Ok((_, copy)) => {
            let done = migrate_by(client, &source, &copy, asked, group).await;
            let closed = client.release(copy).await;
            done.and(closed)
        }
        Err(errno) => Err(errno),
    };
    // The release drops the group lock.
    let closed = client.release(source).await;
    done.and(closed)
}

async fn migrate_by(
    client: &Client,
    source: &OpenFile,
    copied: &OpenFile,
    asked: Bytes,
    group: Option<u64>,
) -> Result<()> {
    client.setxattr(ROOT_USER, copied.fid(), &LOV, &asked, xattr::REPLACE).await?;
    if let Some(group) = group {
        client.group_lock(source, group, false).await?;
    }
    for left in (0..TRIES).rev() {
        client.migrate_begin(source).await?;
        let size = client.getattr(source.fid(), Some(source)).await?.attr.size;
        copy(client, source, &[copied], size).await?;
        match client.migrate_end(ROOT_USER, source, copied.fid(), group).await {
            Err(Errno::EBUSY) if left > 0 => cut(client, copied, 0).await?,
            done => return done,
        }
    }
    Ok(())
}

/// Applies a change to the mirrors of a file.
///
/// # Errors
/// Errors of the client.
pub async fn change(client: &Client, fid: Fid, change: MirrorChange) -> Result<()> {
    let name = Bytes::from_static(mirror::XATTR.as_bytes());
    client.setxattr(ROOT_USER, fid, &name, &change.encode()?.into(), 0).await
}

/// Opens one mirror of a file.
///
/// # Errors
/// EINVAL if the file has no mirror with that id. Errors of the client.
pub async fn open_mirror(client: &Client, fid: Fid, id: u16, how: u32) -> Result<Arc<OpenFile>> {
    let file = client.open(ROOT_USER, fid, how | flags::DIRECT).await?;
    match client.use_mirror(ROOT_USER, &file, id).await {
        Ok(()) => Ok(file),
        Err(errno) => client.release(file).await.and(Err(errno)),
    }
}

/// Resyncs the stale mirrors `to`.
///
/// # Errors
/// EBUSY if other clients wrote during each try, or if another tool works on the file. EUCLEAN if
/// no mirror is in sync. EINVAL if a mirror in `to` does not exist. Errors of the client.
pub async fn resync(client: &Client, rt: &Rt, fid: Fid, to: &[u16]) -> Result<()> {
    for left in (0..TRIES).rev() {
        match resync_once(client, fid, to).await {
            Err(Errno::EBUSY) if left > 0 => rt.sleep(PAUSE).await,
            done => return done,
        }
    }
    Ok(())
}

async fn resync_once(client: &Client, fid: Fid, to: &[u16]) -> Result<()> {
    let size = async || client.getattr(fid, None).await.map(|found| found.attr.size);
    let before = layout(client, fid).await?;
    change(client, fid, MirrorChange::Resync { mirrors: to.to_vec(), end: size().await? }).await?;
    let begun = layout(client, fid).await?;
    if !begun.follows(&before) || begun.mirror_state() != Composite::SYNC_PENDING {
        return Err(Errno::EBUSY);
    }
    let from = begun.fresh_mirrors().first().ok_or(Errno::EBUSY)?.mirror_id();
    let size = size().await?;
    let source = open_mirror(client, fid, from, flags::RDONLY).await?;
    let mut targets = Vec::new();
    let mut done = Ok(());
    for id in to {
        match open_mirror(client, fid, *id, flags::RDWR).await {
            Ok(target) => targets.push(target),
            Err(errno) => done = Err(errno),
        }
    }
    if done.is_ok() {
        done = copy_mirror(client, &begun, &source, &targets, size).await;
    }
    for file in targets.into_iter().chain([source]) {
        done = done.and(client.release(file).await);
    }
    done?;
    let mtime = client.getattr(fid, None).await?.attr.mtime;
    change(client, fid, MirrorChange::Resynced { generation: begun.generation(), mirrors: to.to_vec(), mtime }).await
}

async fn copy_mirror(
    client: &Client,
    begun: &Layout,
    source: &OpenFile,
    targets: &[Arc<OpenFile>],
    size: u64,
) -> Result<()> {
    // The mirrors may be written as long as the layout is the one of the start of the resync.
    if layout(client, source.fid()).await?.generation() != begun.generation() {
        return Err(Errno::EBUSY);
    }
    let targets: Vec<&OpenFile> = targets.iter().map(|target| &**target).collect();
    for target in &targets {
        cut(client, target, 0).await?;
    }
    copy(client, source, &targets, size).await?;
    client.fsync(source, false).await
}
