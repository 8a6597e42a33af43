//! Request and reply of [`crate::ioctl::ENTRIES`] on an open directory: entries with attributes and
//! layouts, packed into one page.
//!
//! A page is a [`Head`], followed by entries. Each entry has eight bytes with the lengths of its
//! parts, [`Stat`] if present, the layout in Lustre's binary form, the name, and zeros up to a
//! multiple of eight. Numbers are in the host's byte order, because a page goes only from a mount
//! to a program on the same host.
//!
//! Invariants:
//!
//! * A page is never longer than requested. Entries that do not fit are left to the next page.
//! * A layout that fits no page is left out, and the entry shows this.
//! * A reader accepts any bytes: an invalid entry ends the page.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{Attr, Fid, FileKind, Time};

/// Bytes of a page: the maximum that an ioctl's number can express (14 bits), in whole words.
pub const PAGE_BYTES: usize = 16376;
/// Bytes before an entry's parts.
const ENTRY_HEAD_BYTES: usize = 8;

/// [`Ask::flags`]: size, space and times include the values from the OSTs.
pub const SIZES: u32 = 1;
/// [`Ask::flags`]: attributes cached by the mount suffice, however old they are.
pub const LAZY: u32 = 2;
/// [`Ask::flags`]: include layouts.
pub const LAYOUTS: u32 = 4;

/// [`Head::flags`]: no entries follow the last one.
const EOF: u32 = 1;
/// Parts of an entry: attributes (`STAT`); they include the OSTs' values (`SIZED`); the layout,
/// which may be empty (`LAYOUT`).
const STAT: u8 = 1;
const SIZED: u8 = 2;
const LAYOUT: u8 = 4;

/// The request: the first bytes of the argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Ask {
    /// Continue after this entry; 0: from the start.
    pub cookie: u64,
    /// [`SIZES`] and so on.
    pub flags: u32,
    /// Reserved; 0.
    pub spare: u32,
}

impl Ask {
    /// Encodes the request.
    pub fn encode(&self) -> &[u8] {
        self.as_bytes()
    }

    /// Decodes a program's request; `None` if it is too short or has unknown flags.
    pub fn decode(bytes: &[u8]) -> Option<Ask> {
        let (ask, _) = Ask::read_from_prefix(bytes).ok()?;
        (ask.flags & !(SIZES | LAZY | LAYOUTS) == 0 && ask.spare == 0).then_some(ask)
    }
}

/// Header of a page.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Head {
    /// Cookie of the last entry, to continue after it.
    next: u64,
    flags: u32,
    /// Number of entries.
    count: u32,
}

/// Attributes of an entry, as stat(2) shows them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Stat {
    seq: u64,
    oid: u32,
    ver: u32,
    /// Size in bytes.
    pub size: u64,
    /// Space in use, in units of 512 bytes.
    pub blocks: u64,
    /// Type and permissions.
    pub mode: u32,
    /// Hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last access, data change, attribute change, and creation: seconds since 1970.
    secs: [i64; 4],
    /// Nanoseconds of these times.
    nanos: [u32; 4],
}

impl From<&Attr> for Stat {
    fn from(a: &Attr) -> Stat {
        let times = [a.atime, a.mtime, a.ctime, a.btime];
        let Fid { seq, oid, ver } = a.fid;
        let mode = a.kind.mode_bits() | a.perm;
        let (secs, nanos) = (times.map(|t| t.sec), times.map(|t| t.nsec));
        let Attr { size, blocks, nlink, uid, gid, .. } = *a;
        Stat { seq, oid, ver, size, blocks, mode, nlink, uid, gid, secs, nanos }
    }
}

impl Stat {
    /// Returns the file's FID.
    pub fn fid(&self) -> Fid {
        Fid { seq: self.seq, oid: self.oid, ver: self.ver }
    }

    fn time(&self, n: usize) -> Time {
        Time { sec: self.secs[n], nsec: self.nanos[n] }
    }

    /// Returns the time of the last access.
    pub fn atime(&self) -> Time {
        self.time(0)
    }

    /// Returns the time of the last data change.
    pub fn mtime(&self) -> Time {
        self.time(1)
    }

    /// Returns the time of the last attribute change.
    pub fn ctime(&self) -> Time {
        self.time(2)
    }

    /// Returns the time of creation.
    pub fn btime(&self) -> Time {
        self.time(3)
    }
}

/// An entry of a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    /// Name.
    pub name: &'a [u8],
    /// File type.
    pub kind: FileKind,
    /// Attributes; `None` if they could not be obtained.
    pub stat: Option<Stat>,
    /// The attributes are complete: they include the OSTs' values.
    pub sized: bool,
    /// The layout, empty if the file has none; `None`: not requested, or too long for a page.
    pub layout: Option<&'a [u8]>,
}

/// Packs a page.
#[derive(Debug)]
pub struct Packer {
    bytes: Vec<u8>,
    room: usize,
    head: (u64, u32),
}

impl Packer {
    /// Creates a page of at most `room` bytes. Without an entry, it continues after `cookie`.
    /// `None`: `room` is below half a page.
    pub fn new(room: usize, cookie: u64) -> Option<Packer> {
        let room = room.min(PAGE_BYTES);
        let bytes = vec![0; size_of::<Head>()];
        (room >= PAGE_BYTES / 2).then_some(Packer { bytes, room, head: (cookie, 0) })
    }

    /// Adds an entry with its cookie; returns whether there was room.
    pub fn push(&mut self, entry: &Entry<'_>, cookie: u64) -> bool {
        let base = ENTRY_HEAD_BYTES + entry.stat.map_or(0, |_| size_of::<Stat>()) + entry.name.len();
        let fits = |layout: &usize| base + layout <= self.room - size_of::<Head>();
        let layout = entry.layout.filter(|layout| fits(&layout.len()));
        let length = (base + layout.map_or(0, <[u8]>::len)).next_multiple_of(8);
        if self.bytes.len() + length > self.room {
            return false;
        }
        let has =
            u8::from(entry.stat.is_some()) * STAT + u8::from(entry.sized) * SIZED + u8::from(layout.is_some()) * LAYOUT;
        let end = self.bytes.len() + length;
        // All lengths are below that of a page.
        for part in [length, entry.name.len(), layout.map_or(0, <[u8]>::len)] {
            self.bytes.extend_from_slice(&(part as u16).to_ne_bytes());
        }
        self.bytes.extend_from_slice(&[entry.kind.dt() as u8, has]);
        self.bytes.extend_from_slice(entry.stat.as_ref().map_or(&[], IntoBytes::as_bytes));
        self.bytes.extend_from_slice(layout.unwrap_or_default());
        self.bytes.extend_from_slice(entry.name);
        self.bytes.resize(end, 0);
        self.head = (cookie, self.head.1 + 1);
        true
    }

    /// Returns the page. `eof`: no entries follow.
    pub fn finish(mut self, eof: bool) -> Vec<u8> {
        let (next, count) = self.head;
        let head = Head { next, flags: u32::from(eof) * EOF, count };
        self.bytes[..size_of::<Head>()].copy_from_slice(head.as_bytes());
        self.bytes
    }
}

/// A page being read.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    /// Cookie to continue after.
    pub next: u64,
    /// No entries follow.
    pub eof: bool,
    left: u32,
    rest: &'a [u8],
}

impl<'a> Page<'a> {
    /// Decodes the header of a page; `None` if the bytes are too few.
    pub fn decode(bytes: &'a [u8]) -> Option<Page<'a>> {
        let (head, rest) = Head::read_from_prefix(bytes).ok()?;
        Some(Page { next: head.next, eof: head.flags & EOF != 0, left: head.count, rest })
    }
}

impl<'a> Iterator for Page<'a> {
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Entry<'a>> {
        self.left = self.left.checked_sub(1)?;
        let number = |at: usize| Some(usize::from(u16::from_ne_bytes([*self.rest.get(at)?, *self.rest.get(at + 1)?])));
        let (length, name, layout) = (number(0)?, number(2)?, number(4)?);
        let (kind, has) = (*self.rest.get(6)?, *self.rest.get(7)?);
        let (entry, rest) = self.rest.split_at_checked(length)?;
        let parts = entry.get(ENTRY_HEAD_BYTES..)?;
        let (stat, parts) = match has & STAT {
            0 => (None, parts),
            _ => Stat::read_from_prefix(parts).ok().map(|(stat, parts)| (Some(stat), parts))?,
        };
        let (layout, parts) = parts.split_at_checked(layout)?;
        let name = parts.get(..name)?;
        self.rest = rest;
        Some(Entry {
            name,
            kind: FileKind::from_mode(u32::from(kind) << 12)?,
            stat,
            sized: has & SIZED != 0,
            layout: (has & LAYOUT != 0).then_some(layout),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn attr(oid: u32, kind: FileKind) -> Attr {
        let time = |sec| Time { sec, nsec: oid };
        Attr {
            fid: Fid::new(0x2_0000_0401, oid),
            kind,
            perm: 0o4755,
            nlink: 2,
            uid: 3,
            gid: 4,
            rdev: 0,
            size: 1 << 40,
            blocks: 9,
            atime: time(-1),
            mtime: time(2),
            ctime: time(3),
            btime: time(4),
            mtime_set: time(5),
        }
    }

    #[test]
    fn full_page_continues_on_the_next() {
        let all: Vec<(String, Attr)> = (0..500)
            .map(|n| (format!("name{n}"), attr(n, [FileKind::Regular, FileKind::Fifo][n as usize % 2])))
            .collect();
        let (mut from, mut read, mut pages) = (0, Vec::new(), 0);
        while from < all.len() {
            let mut packer = Packer::new(PAGE_BYTES, from as u64).unwrap();
            for (n, (name, attr)) in all.iter().enumerate().skip(from) {
                let layout = [7; 56];
                let layout = (n % 3 == 0).then_some(&layout[..n % 2 * 56]);
                let entry = Entry {
                    name: name.as_bytes(),
                    kind: attr.kind,
                    stat: Some(attr.into()),
                    sized: n % 5 == 0,
                    layout,
                };
                if !packer.push(&entry, n as u64 + 1) {
                    break;
                }
            }
            let bytes = packer.finish(false);
            assert!(bytes.len() <= PAGE_BYTES);
            let page = Page::decode(&bytes).unwrap();
            from = page.next as usize;
            read.extend(page.map(|e| {
                (String::from_utf8(e.name.to_vec()).unwrap(), e.stat.unwrap(), e.sized, e.layout.map(<[u8]>::len))
            }));
            pages += 1;
        }
        assert!((4..8).contains(&pages), "{pages} pages");
        assert_eq!(read.len(), all.len());
        for (n, ((name, stat, sized, layout), (of, attr))) in read.iter().zip(&all).enumerate() {
            assert_eq!((name, stat.fid(), stat.size, stat.blocks), (of, attr.fid, attr.size, attr.blocks));
            assert_eq!((stat.mode, stat.nlink), (attr.kind.mode_bits() | 0o4755, 2));
            let times = [stat.atime(), stat.mtime(), stat.ctime(), stat.btime()];
            assert_eq!(times, [attr.atime, attr.mtime, attr.ctime, attr.btime]);
            assert_eq!((*sized, *layout), (n % 5 == 0, (n % 3 == 0).then_some(n % 2 * 56)));
        }
    }

    #[test]
    fn packing_leaves_out_a_layout_larger_than_a_page() {
        let mut packer = Packer::new(PAGE_BYTES, 0).unwrap();
        let large = vec![1; 20_000];
        let entry = Entry { name: b"f", kind: FileKind::Regular, stat: None, sized: false, layout: Some(&large) };
        assert!(packer.push(&entry, 1));
        let bytes = packer.finish(true);
        let mut page = Page::decode(&bytes).unwrap();
        assert!(page.eof && page.next().is_some_and(|e| e.name == b"f" && e.layout.is_none()) && page.next().is_none());
    }

    #[test]
    fn entries_request_with_unknown_flags_is_refused() {
        let ask = Ask { cookie: 7, flags: SIZES | LAYOUTS, spare: 0 };
        assert_eq!(Ask::decode(&[ask.as_bytes(), &[0; 100]].concat()), Some(ask));
        assert_eq!(Ask::decode(Ask { flags: 64, ..ask }.as_bytes()), None);
        assert_eq!(Ask::decode(b"short"), None);
        assert!(Packer::new(100, 0).is_none());
    }

    proptest! {
        #[test]
        fn page_decode_of_arbitrary_bytes_never_panics(mut bytes in proptest::collection::vec(any::<u8>(), 0..400), small in any::<bool>()) {
            if small && bytes.len() > 24 {
                // Lengths within the bytes.
                (bytes[12..16]).fill(1);
                (bytes[17], bytes[19], bytes[21]) = (0, 0, 0);
            }
            if let Some(page) = Page::decode(&bytes) {
                for entry in page {
                    prop_assert!(entry.name.len() <= bytes.len());
                }
            }
        }
    }
}
