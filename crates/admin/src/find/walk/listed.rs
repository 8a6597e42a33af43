//! Directories of a Sheen mount, which return attributes, sizes from the OSTs, and layouts of their
//! entries ([`sheen_wire::entries`]). A file therefore costs only a part of one system call and of
//! one request.
//!
//! If a directory cannot return them, it is read like any other. Properties that are left out are
//! requested like those of any other entry.

use std::ffi::{CStr, CString};

use sheen_wire::{FileKind, entries};

use super::{
    output::Collect,
    page,
    work::{Dir, Work},
    worker::Worker,
};
use crate::find::entry::Entry;

/// Work of entries, by name.
type Ordered<T> = Vec<(CString, Work<T>)>;

impl<C: Collect> Worker<'_, C> {
    /// Examines the entries of a directory, which are at `depth`, if the directory returns their
    /// attributes. Returns whether it did.
    ///
    /// If tests by the MDT's data narrow the search, the OSTs are asked only for pages with an
    /// entry that passes those tests.
    pub fn descend_listed(&mut self, dir: &Dir, path: &CStr, depth: u32) -> bool {
        let Some(flags) = self.query.listing_flags(self.needs) else { return false };
        let narrowed = flags & entries::SIZES != 0 && self.query.is_narrowed_by_mdt();
        let mut buffer = self.page.take().unwrap_or_else(page::buffer);
        let (mut cookie, mut ordered) = (0, Vec::new());
        // The next page is assumed to be like the last one.
        let mut sized = !narrowed;
        let is_listed = loop {
            let asked = if sized { flags } else { flags & !entries::SIZES };
            let page = match page::read(dir, cookie, asked, &mut buffer) {
                Ok(page) => page,
                Err(_) if cookie == 0 => break false,
                Err(e) => {
                    self.failed(path, e, depth);
                    break true;
                }
            };
            let (next, eof) = (page.next, page.eof);
            let hopeful = !narrowed || page.clone().any(|listed| self.passes_by_mdt(dir, &listed, flags));
            if hopeful && !sized {
                sized = true;
                continue;
            }
            sized = hopeful;
            for listed in page.filter(|listed| hopeful || listed.kind == FileKind::Dir) {
                self.take_listed(dir, &listed, depth, &mut ordered);
            }
            // A page whose cookie does not advance would be read forever.
            if eof || next <= cookie || self.queue.is_stopped() {
                break true;
            }
            cookie = next;
        };
        self.page = Some(buffer);
        self.take_in_order(ordered);
        is_listed
    }

    /// Whether an entry may match, as far as the MDT's data shows.
    fn passes_by_mdt(&mut self, dir: &Dir, listed: &entries::Entry<'_>, flags: u32) -> bool {
        let knows = listed.stat.is_some() && (flags & entries::LAYOUTS == 0 || listed.layout.is_some());
        let asking = self.asking.with_sizes(false);
        // These tests use neither the name nor a request.
        let location = dir.entry(c"", Some(listed.kind));
        let mut entry = Entry::new(location, asking, &mut self.values).listed(Some(listed));
        listed.kind != FileKind::Dir && (!knows || self.query.passes_by_mdt(&mut entry))
    }

    fn take_listed(&mut self, dir: &Dir, listed: &entries::Entry<'_>, depth: u32, ordered: &mut Ordered<C::Item>) {
        let mut name = std::mem::take(&mut self.name);
        name.clear();
        name.extend_from_slice(listed.name);
        name.push(0);
        // A name contains no NUL.
        if let Ok(name) = CStr::from_bytes_with_nul(&name) {
            match (listed.kind, self.alone) {
                (kind, true) => {
                    let work = self.deferred_work(dir, name, Some(kind), Some(listed), depth);
                    ordered.extend(work.map(|work| (name.to_owned(), work)));
                }
                (FileKind::Dir, false) => self.leave_tree(dir, name, Some(FileKind::Dir), depth),
                (kind, false) => self.look(dir.entry(name, Some(kind)), Some(listed), depth),
            }
        }
        self.name = name;
    }
}
