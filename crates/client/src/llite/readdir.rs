//! Reading directories.
//!
//! An open directory remembers nothing: every call goes on at the cookie that it is given, so seekdir(3) works and the entries are
//! those of now. With attributes, one request per OST asks for the objects of all files of a page.

use std::sync::Arc;

use bytes::Bytes;
use sheen_layout::Layout;
use sheen_wire::{
    Attr, Errno, Fid, FileKind, Result,
    mds::{DirEntry, Reply, Request},
};

use crate::{Caller, Client, DirItem, DirPage, EntryAttr, OpenDir, stats::Op};

/// Most bytes of entries that are asked for at a time.
const PAGE_BYTES_MAX: u32 = 1 << 20;
/// Cookies of the two entries that the client adds.
const DOT: u64 = 1;
const DOT_DOT: u64 = 2;

impl Client {
    /// Entries after `cookie` (0: from the start), about as many as fill `max_bytes`. `plus` asks for their attributes too.
    ///
    /// # Errors
    /// What the MDT answers. An entry whose attributes cannot be had comes without them.
    pub async fn readdir(&self, dir: &OpenDir, cookie: u64, max_bytes: u32, plus: bool) -> Result<DirPage> {
        let _timer = self.stats.time(Op::Readdir);
        if let Some(page) = self.virtual_readdir(dir.fid(), cookie) {
            return Ok(page);
        }
        let fid = dir.fid();
        let mut page = DirPage::default();
        if cookie < DOT {
            page.entries.push(dot(b".", fid, DOT));
        }
        if cookie < DOT_DOT {
            page.entries.push(dot(b"..", self.parent_of(fid).await, DOT_DOT));
        }
        let cookie = if cookie <= DOT_DOT { 0 } else { cookie };
        let max_bytes = max_bytes.min(PAGE_BYTES_MAX);
        let reply = self.mdc.call(Request::ReadDir { fid, cookie, max_bytes, attrs: plus }).await?;
        let Reply::Entries { entries, eof } = reply else { return Err(Errno::EPROTO) };
        page.eof = eof;
        if plus {
            self.add_with_attrs(entries, &mut page.entries).await;
        } else {
            page.entries.extend(entries.into_iter().map(|e| item(e, None)));
        }
        Ok(page)
    }

    /// The directory above; a directory that was removed lies in none and names itself.
    async fn parent_of(&self, fid: Fid) -> Fid {
        let request = Request::Lookup { cred: Caller::ROOT.cred, parent: fid, name: Bytes::from_static(b"..") };
        match self.mdc.call(request).await {
            Ok(Reply::Entry(entry)) => entry.attr.fid,
            _ => fid,
        }
    }

    async fn add_with_attrs(&self, mut entries: Vec<DirEntry>, items: &mut Vec<DirItem>) {
        let mut attrs: Vec<Option<Attr>> = Vec::with_capacity(entries.len());
        let mut layouts: Vec<(usize, Arc<Layout>)> = Vec::new();
        for (i, found) in entries.iter_mut().enumerate() {
            let entry = found.entry.take();
            attrs.push(entry.as_ref().map(|e| e.attr));
            let Some(entry) = entry else { continue };
            match self.layout_of(&entry.attr, entry.layout.as_ref()) {
                Ok(Some(layout)) => layouts.push((i, layout)),
                Ok(None) => {}
                Err(_) => attrs[i] = None,
            }
        }
        let mut files: Vec<(Attr, &Layout)> =
            layouts.iter().filter_map(|(i, layout)| Some((attrs[*i]?, layout.as_ref()))).collect();
        let results = self.lov.glimpse_files(&mut files).await;
        for (((attr, _), result), (i, _)) in files.iter().zip(results).zip(&layouts) {
            attrs[*i] = result.ok().map(|()| *attr);
        }
        items.extend(entries.into_iter().zip(attrs).map(|(entry, attr)| item(entry, attr.map(EntryAttr::from))));
    }
}

fn dot(name: &'static [u8], fid: Fid, cookie: u64) -> DirItem {
    DirItem { name: Bytes::from_static(name), fid, kind: FileKind::Dir, cookie, attr: None }
}

fn item(entry: DirEntry, attr: Option<EntryAttr>) -> DirItem {
    DirItem { name: entry.name, fid: entry.fid, kind: entry.kind, cookie: entry.cookie, attr }
}
