//! Directories of a Sheen mount, which return attributes, sizes from the OSTs, and layouts of their
//! entries ([`sheen_wire::entries`]). A file therefore costs only a part of one system call and of
//! one request.
//!
//! If a directory cannot return them, it is read like any other. Properties that are left out are
//! requested like those of any other entry.

use std::ffi::{CStr, CString};

use rustix::ioctl::{Updater, ioctl};
use sheen_wire::{
    Errno, FileKind, Result,
    entries::{self, Ask, Page},
    ioctl::ENTRIES,
};

use super::{Dir, Work, Worker};
use crate::lfs::find::entry::{Entry, errno};

/// Buffer for a page.
pub type Room = Box<[u8; entries::PAGE_BYTES]>;

/// Returns an empty buffer.
pub fn room() -> Room {
    Box::new([0; entries::PAGE_BYTES])
}

/// Reads the page after a cookie.
fn read<'a>(dir: &Dir, cookie: u64, flags: u32, room: &'a mut Room) -> Result<Page<'a>> {
    let ask = Ask { cookie, flags, spare: 0 };
    room[..size_of::<Ask>()].copy_from_slice(ask.encode());
    // SAFETY: the ioctl number encodes that the argument is read and written, and its size, which
    // is that of a page.
    let call = unsafe { Updater::<{ ENTRIES }, [u8; entries::PAGE_BYTES]>::new(room) };
    // SAFETY: as above.
    unsafe { ioctl(&dir.fd, call) }.map_err(errno)?;
    Page::decode(&room[..]).ok_or(Errno::EPROTO)
}

impl Worker<'_> {
    /// Examines the entries of a directory, which are at `depth`, if the directory returns their
    /// attributes. Returns whether it did.
    ///
    /// If tests by the MDT's data narrow the search, the OSTs are asked only for pages with an
    /// entry that passes those tests.
    pub(super) fn descend_told(&mut self, dir: &Dir, path: &CStr, depth: u32) -> bool {
        let Some(flags) = self.query.wants() else { return false };
        let narrowed = flags & entries::SIZES != 0 && self.query.is_narrowed_by_mdt();
        let mut room = self.room.take().unwrap_or_else(room);
        let (mut cookie, mut ordered) = (0, Vec::new());
        // The next page is assumed to be like the last one.
        let mut sized = !narrowed;
        let told = loop {
            let asked = if sized { flags } else { flags & !entries::SIZES };
            let page = match read(dir, cookie, asked, &mut room) {
                Ok(page) => page,
                Err(_) if cookie == 0 => break false,
                Err(e) => {
                    self.failed(path, e, depth);
                    break true;
                }
            };
            let (next, eof) = (page.next, page.eof);
            let hopeful = !narrowed || page.clone().any(|told| self.passes_by_mdt(dir, &told, flags));
            if hopeful && !sized {
                sized = true;
                continue;
            }
            sized = hopeful;
            for told in page.filter(|told| hopeful || told.kind == FileKind::Dir) {
                self.take_told(dir, &told, depth, &mut ordered);
            }
            // A page whose cookie does not advance would be read forever.
            if eof || next <= cookie || self.shared.is_stopped() {
                break true;
            }
            cookie = next;
        };
        self.room = Some(room);
        self.take_in_order(ordered);
        told
    }

    /// Whether an entry may match, as far as the MDT's data shows.
    fn passes_by_mdt(&mut self, dir: &Dir, told: &entries::Entry<'_>, flags: u32) -> bool {
        let knows = told.stat.is_some() && (flags & entries::LAYOUTS == 0 || told.layout.is_some());
        let asking = self.asking.with_sizes(false);
        // These tests use neither the name nor a request.
        let mut entry = Entry::new(dir.place(c"", Some(told.kind)), asking, &mut self.values).told(Some(told));
        told.kind != FileKind::Dir && (!knows || self.query.passes_by_mdt(&mut entry))
    }

    fn take_told(&mut self, dir: &Dir, told: &entries::Entry<'_>, depth: u32, ordered: &mut Vec<(CString, Work)>) {
        let mut name = std::mem::take(&mut self.name);
        name.clear();
        name.extend_from_slice(told.name);
        name.push(0);
        // A name contains no NUL.
        if let Ok(name) = CStr::from_bytes_with_nul(&name) {
            match (told.kind, self.alone) {
                (kind, true) => {
                    let work = self.kept(dir, name, Some(kind), Some(told), depth);
                    ordered.extend(work.map(|work| (name.to_owned(), work)));
                }
                (FileKind::Dir, false) => self.leave_tree(dir, name, Some(FileKind::Dir), depth),
                (kind, false) => self.look(dir.place(name, Some(kind)), Some(told), depth),
            }
        }
        self.name = name;
    }
}
