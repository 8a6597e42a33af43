//! `.lustre/fid/<FID>`: access to every file by its FID, as in Lustre.
//!
//! Two virtual directories that no MDT has and no listing shows: `.lustre` in the root, and `fid`
//! in it. Access by FID bypasses the permissions of the directories on a file's path, so only the
//! superuser may search them.

use std::sync::Arc;

use bytes::Bytes;
use sheen_wire::{Attr, Errno, Fid, FileKind, Result, Time, fid::ROOT};

use crate::{Caller, Client, DirItem, DirPage, EntryAttr, OpenDir, OpenFile};

/// FIDs of the two directories, as in Lustre.
const DOT_LUSTRE: Fid = Fid::new(0x2_0000_0002, 1);
const BY_FID: Fid = Fid::new(0x2_0000_0002, 2);
/// W_OK: denied there even to the superuser.
const WRITE: u32 = 2;

impl Client {
    /// Returns the attributes of a virtual directory; `None` for any other file.
    pub(crate) fn virtual_attr(&self, fid: Fid) -> Option<EntryAttr> {
        if fid.seq != DOT_LUSTRE.seq || (fid != DOT_LUSTRE && fid != BY_FID) {
            return None;
        }
        let nlink = if fid == DOT_LUSTRE { 3 } else { 2 };
        let attr = Attr { nlink, ..Attr::new(fid, FileKind::Dir, 0o100, Time::default()) };
        Some(attr.into())
    }

    /// Answers a lookup in a virtual directory, or of one; `None` for any other lookup.
    pub(crate) async fn virtual_lookup(&self, who: &Caller, parent: Fid, name: &Bytes) -> Option<Result<EntryAttr>> {
        if parent == ROOT && self.root() == ROOT {
            return if &name[..] == b".lustre" { self.virtual_attr(DOT_LUSTRE).map(Ok) } else { None };
        }
        let this = self.virtual_attr(parent)?;
        if who.cred.uid != 0 {
            return Some(Err(Errno::EACCES));
        }
        Some(match &name[..] {
            b"." => Ok(this),
            b".." if parent == BY_FID => self.virtual_attr(DOT_LUSTRE).ok_or(Errno::ENOENT),
            b".." => self.getattr_of(ROOT, None).await,
            b"fid" if parent == DOT_LUSTRE => self.virtual_attr(BY_FID).ok_or(Errno::ENOENT),
            name if parent == BY_FID => match std::str::from_utf8(name).ok().and_then(|n| n.parse().ok()) {
                Some(fid) if self.virtual_attr(fid).is_none() => self.getattr_of(fid, None).await,
                _ => Err(Errno::ENOENT),
            },
            _ => Err(Errno::ENOENT),
        })
    }

    /// Checks access(2) to a virtual directory.
    pub(crate) fn virtual_access(&self, who: &Caller, mask: u32) -> Result<()> {
        match (who.cred.uid, mask) {
            (_, 0) => Ok(()),
            (0, mask) if mask & WRITE == 0 => Ok(()),
            _ => Err(Errno::EACCES),
        }
    }

    /// Returns EPERM for a virtual directory: nothing can be created, changed or removed there.
    pub(crate) fn check_not_virtual(&self, fid: Fid) -> Result<()> {
        if self.virtual_attr(fid).is_some() { Err(Errno::EPERM) } else { Ok(()) }
    }

    /// Opens a virtual directory; `None` for any other file.
    pub(crate) fn virtual_opendir(&self, who: &Caller, fid: Fid) -> Result<Option<Arc<OpenDir>>> {
        let Some(attr) = self.virtual_attr(fid) else { return Ok(None) };
        if who.cred.uid != 0 {
            return Err(Errno::EACCES);
        }
        Ok(Some(OpenDir::new(OpenFile::detached(&attr.attr))))
    }

    /// Returns the entries of a virtual directory: `.` and `..`. `None` for any other directory.
    pub(crate) fn virtual_readdir(&self, fid: Fid, cookie: u64) -> Option<DirPage> {
        self.virtual_attr(fid)?;
        let above = if fid == BY_FID { DOT_LUSTRE } else { ROOT };
        let dot = |name: &'static [u8], fid, cookie| {
            let name = Bytes::from_static(name);
            DirItem { name, fid, kind: FileKind::Dir, cookie, attr: None }
        };
        let entries = [dot(b".", fid, 1), dot(b"..", above, 2)];
        Some(DirPage { entries: entries.into_iter().filter(|e| e.cookie > cookie).collect(), eof: true })
    }
}
