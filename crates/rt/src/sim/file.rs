//! Files that are open on a simulated host.

use std::{
    io::{self, IoSliceMut},
    sync::Arc,
};

use bytes::Bytes;
use sheen_wire::{
    Errno, Time,
    ost::{Allocate, Seek},
};

use super::{
    host::Host,
    inode::{Inode, Op},
    trace::Note,
};
use crate::metadata::Metadata;

/// Largest offset, as on Linux.
const OFFSET_MAX: u64 = i64::MAX as u64;

/// A file opened by one life of its host.
#[derive(Clone)]
pub(crate) struct File {
    pub(crate) host: Host,
    pub(crate) inode: Arc<Inode>,
    pub(crate) read: bool,
    pub(crate) write: bool,
}

impl File {
    fn check(&self, may: bool) -> io::Result<Time> {
        let now = self.host.with(|s| Ok(s.wall()))?;
        if may { Ok(now) } else { Err(Errno::EBADF.into()) }
    }

    fn act(&self, op: Op) -> io::Result<()> {
        let now = self.check(self.write)?;
        self.inode.act(op, now);
        Ok(())
    }

    pub(crate) fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.check(self.read)?;
        Ok(self.inode.read(offset, bufs))
    }

    pub(crate) fn write_all_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.write(offset, Bytes::copy_from_slice(buf))
    }

    pub(crate) fn write_all_vectored_at(&self, mut offset: u64, bufs: &[Bytes]) -> io::Result<()> {
        for buf in bufs {
            self.write(offset, buf.clone())?;
            offset += buf.len() as u64;
        }
        Ok(())
    }

    pub(crate) fn append(&self, buf: &[u8]) -> io::Result<()> {
        self.write_all_at(self.inode.metadata().len, buf)
    }

    fn write(&self, offset: u64, data: Bytes) -> io::Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        let len = data.len() as u64;
        within(offset, len)?;
        if !self.inode.has_room(offset, len) {
            return Err(Errno::ENOSPC.into());
        }
        self.act(Op::Write(offset, data))
    }

    pub(crate) fn set_len(&self, len: u64) -> io::Result<()> {
        within(len, 0)?;
        self.act(Op::SetLen(len))
    }

    /// Changes the allocation of a range. Reserving takes space here only at the start of a file: a
    /// later write elsewhere may still return ENOSPC.
    pub(crate) fn allocate(&self, mode: Allocate, offset: u64, len: u64) -> io::Result<()> {
        within(offset, len)?;
        if len == 0 {
            return Err(Errno::EINVAL.into());
        }
        if matches!(mode, Allocate::Reserve { .. }) && !self.inode.has_room(offset, len) {
            return Err(Errno::ENOSPC.into());
        }
        self.act(Op::Allocate(mode, offset, len))
    }

    pub(crate) fn seek(&self, what: Seek, offset: u64) -> io::Result<Option<u64>> {
        self.check(true)?;
        Ok(self.inode.seek(what, offset))
    }

    pub(crate) fn metadata(&self) -> io::Result<Metadata> {
        self.check(true)?;
        Ok(self.inode.metadata())
    }

    pub(crate) fn set_mtime(&self, mtime: Time) -> io::Result<()> {
        self.check(true)?;
        self.inode.set_mtime(mtime);
        Ok(())
    }

    pub(crate) fn attr(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.check(true)?;
        Ok(self.inode.attr(name))
    }

    pub(crate) fn set_attr(&self, name: &str, value: &[u8]) -> io::Result<()> {
        self.check(true)?;
        self.inode.set_attr(name, Some(value));
        Ok(())
    }

    pub(crate) fn remove_attr(&self, name: &str) -> io::Result<()> {
        self.check(true)?;
        self.inode.set_attr(name, None);
        Ok(())
    }

    pub(crate) async fn sync_data(&self) -> io::Result<()> {
        // Writes issued during the sync are not part of it.
        let end = self.inode.ops_done();
        self.host.fsync_delay_elapsed().await?;
        self.commit(end)
    }

    pub(crate) fn sync_data_blocking(&self) -> io::Result<()> {
        self.commit(self.inode.ops_done())
    }

    fn commit(&self, end: u64) -> io::Result<()> {
        self.host.with(|s| {
            let ops = self.inode.commit_before(end);
            s.note(Note::Sync { host: self.host.id, file: self.inode.id, ops });
            Ok(())
        })
    }
}

fn within(offset: u64, len: u64) -> io::Result<()> {
    if offset.checked_add(len).is_some_and(|end| end <= OFFSET_MAX) { Ok(()) } else { Err(Errno::EFBIG.into()) }
}
