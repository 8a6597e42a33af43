//! Directories of a Sheen mount, which tell of their entries all that tests are likely to ask:
//! attributes, what the OSTs say of sizes, layouts ([`sheen_wire::entries`]). So a file costs a
//! part of one system call, and of one request, instead of some of each.
//!
//! Where that cannot be had the directory is read as any other; what it leaves open of an entry is
//! asked for as of any other.

use std::ffi::{CStr, CString};

use rustix::ioctl::{Updater, ioctl};
use sheen_wire::{
    Errno, FileKind, Result,
    entries::{self, Ask, Page},
    ioctl::ENTRIES,
};

use super::{Dir, Work, Worker};
use crate::lfs::find::entry::{Entry, errno};

/// A page and the room for it.
pub type Room = Box<[u8; entries::PAGE_BYTES]>;

/// Room for a page.
pub fn room() -> Room {
    Box::new([0; entries::PAGE_BYTES])
}

/// The page after a cookie.
fn read<'a>(dir: &Dir, cookie: u64, flags: u32, room: &'a mut Room) -> Result<Page<'a>> {
    let ask = Ask { cookie, flags, spare: 0 };
    room[..size_of::<Ask>()].copy_from_slice(ask.encode());
    // SAFETY: the number says that the argument points to so many bytes, read and written, as these
    // are.
    let call = unsafe { Updater::<{ ENTRIES }, [u8; entries::PAGE_BYTES]>::new(room) };
    // SAFETY: as above.
    unsafe { ioctl(&dir.fd, call) }.map_err(errno)?;
    Page::decode(&room[..]).ok_or(Errno::EPROTO)
}

impl Worker<'_> {
    /// Looks at the entries of a directory, which are at `depth`, if it tells of them; whether it
    /// did.
    ///
    /// Where other tests narrow the search OSTs are asked only for pages with an entry that passes
    /// those.
    pub(super) fn descend_told(&mut self, dir: &Dir, path: &CStr, depth: u32) -> bool {
        let Some(flags) = self.query.wants() else { return false };
        let narrowed = flags & entries::SIZES != 0 && self.query.is_narrowed_by_mdt();
        let mut room = self.room.take().unwrap_or_else(room);
        let (mut cookie, mut ordered) = (0, Vec::new());
        // The next page is taken to be as the last one was.
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
            // A page that goes nowhere would be read for ever.
            if eof || next <= cookie || self.shared.is_stopped() {
                break true;
            }
            cookie = next;
        };
        self.room = Some(room);
        self.take_in_order(ordered);
        told
    }

    /// Whether an entry may be looked for, as far as the MDT tells.
    fn passes_by_mdt(&mut self, dir: &Dir, told: &entries::Entry<'_>, flags: u32) -> bool {
        let knows = told.stat.is_some() && (flags & entries::LAYOUTS == 0 || told.layout.is_some());
        let asking = self.asking.with_sizes(false);
        // Its name is not tested, and there is nothing to be asked.
        let mut entry = Entry::new(dir.place(c"", Some(told.kind)), asking, &mut self.values).told(Some(told));
        told.kind != FileKind::Dir && (!knows || self.query.passes_by_mdt(&mut entry))
    }

    fn take_told(&mut self, dir: &Dir, told: &entries::Entry<'_>, depth: u32, ordered: &mut Vec<(CString, Work)>) {
        let mut name = std::mem::take(&mut self.name);
        name.clear();
        name.extend_from_slice(told.name);
        name.push(0);
        // No name has a NUL in it.
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
