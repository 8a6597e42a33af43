//! What [`crate::ioctl::ENTRIES`] asks of an open directory and is answered: entries with
//! attributes and layouts, packed into one page.
//!
//! A page is a [`Head`], then entries one after another: eight bytes that say how long its parts
//! are, [`Stat`] if it is there, the layout in Lustre's binary form, the name, and zeros up to a
//! multiple of eight. Numbers are in the host's own order: a page goes from a mount to a program on
//! the same host and nowhere else.
//!
//! Invariants: a page is never longer than it was asked to be; what does not fit is left to the
//! next one, and a layout that fits no page is left out, which shows. A reader takes any bytes:
//! what is no entry ends the page.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{Attr, Fid, FileKind, Time};

/// Bytes of a page: what an ioctl's number can say (14 bits), in whole words.
pub const PAGE_BYTES: usize = 16376;
/// Bytes before an entry's parts.
const ENTRY_HEAD_BYTES: usize = 8;

/// [`Ask::flags`]: size, space and times with what the OSTs say of the files.
pub const SIZES: u32 = 1;
/// [`Ask::flags`]: what the mount keeps of them will do, however old it is.
pub const LAZY: u32 = 2;
/// [`Ask::flags`]: layouts too.
pub const LAYOUTS: u32 = 4;

/// [`Head::flags`]: there is nothing behind the last entry.
const EOF: u32 = 1;
/// Parts of an entry: the attributes; they hold what the OSTs say; the layout, which may be none.
const STAT: u8 = 1;
const SIZED: u8 = 2;
const LAYOUT: u8 = 4;

/// What is asked: the first bytes of the argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Ask {
    /// Go on after this entry; 0: from the start.
    pub cookie: u64,
    /// [`SIZES`] and so on.
    pub flags: u32,
    /// Nothing yet; 0.
    pub spare: u32,
}

impl Ask {
    /// As a program passes it.
    pub fn encode(&self) -> &[u8] {
        self.as_bytes()
    }

    /// As a program passed it; `None` where it is too short or asks for what is not known.
    pub fn decode(bytes: &[u8]) -> Option<Ask> {
        let (ask, _) = Ask::read_from_prefix(bytes).ok()?;
        (ask.flags & !(SIZES | LAZY | LAYOUTS) == 0 && ask.spare == 0).then_some(ask)
    }
}

/// What a page begins with.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Head {
    /// Where to go on.
    next: u64,
    flags: u32,
    /// Entries.
    count: u32,
}

/// Attributes of an entry, as stat(2) shows them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Stat {
    seq: u64,
    oid: u32,
    ver: u32,
    /// Bytes.
    pub size: u64,
    /// Space in use, in units of 512 bytes.
    pub blocks: u64,
    /// Type and permissions.
    pub mode: u32,
    /// Names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last read, data changed, attributes changed, created: seconds since 1970.
    secs: [i64; 4],
    /// And nanoseconds.
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
    /// Which file.
    pub fn fid(&self) -> Fid {
        Fid { seq: self.seq, oid: self.oid, ver: self.ver }
    }

    fn time(&self, n: usize) -> Time {
        Time { sec: self.secs[n], nsec: self.nanos[n] }
    }

    /// Last read.
    pub fn atime(&self) -> Time {
        self.time(0)
    }

    /// Data changed.
    pub fn mtime(&self) -> Time {
        self.time(1)
    }

    /// Attributes changed.
    pub fn ctime(&self) -> Time {
        self.time(2)
    }

    /// Created.
    pub fn btime(&self) -> Time {
        self.time(3)
    }
}

/// An entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    /// Name.
    pub name: &'a [u8],
    /// Its type.
    pub kind: FileKind,
    /// Attributes, unless they could not be had.
    pub stat: Option<Stat>,
    /// They are complete: what OSTs have to say of it is in them.
    pub sized: bool,
    /// The layout, empty where there is none; `None`: not asked for, or too long for a page.
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
    /// A page of at most `room` bytes that goes on after `cookie`, until something is put in.
    /// `None`: too few for anything.
    pub fn new(room: usize, cookie: u64) -> Option<Packer> {
        let room = room.min(PAGE_BYTES);
        let bytes = vec![0; size_of::<Head>()];
        (room >= PAGE_BYTES / 2).then_some(Packer { bytes, room, head: (cookie, 0) })
    }

    /// Puts an entry in, whose cookie this is; whether there was room.
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
        // All lengths are below those of a page.
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

    /// The page. `eof`: there is nothing behind what was put in.
    pub fn finish(mut self, eof: bool) -> Vec<u8> {
        let (next, count) = self.head;
        let head = Head { next, flags: u32::from(eof) * EOF, count };
        self.bytes[..size_of::<Head>()].copy_from_slice(head.as_bytes());
        self.bytes
    }
}

/// A page, as it is read.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    /// Where to go on.
    pub next: u64,
    /// There is nothing behind it.
    pub eof: bool,
    left: u32,
    rest: &'a [u8],
}

impl<'a> Page<'a> {
    /// Reads a page's beginning; `None` where the bytes are none.
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
    fn a_page_is_full_and_the_next_goes_on() {
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
    fn a_layout_that_fits_no_page_is_left_out() {
        let mut packer = Packer::new(PAGE_BYTES, 0).unwrap();
        let large = vec![1; 20_000];
        let entry = Entry { name: b"f", kind: FileKind::Regular, stat: None, sized: false, layout: Some(&large) };
        assert!(packer.push(&entry, 1));
        let bytes = packer.finish(true);
        let mut page = Page::decode(&bytes).unwrap();
        assert!(page.eof && page.next().is_some_and(|e| e.name == b"f" && e.layout.is_none()) && page.next().is_none());
    }

    #[test]
    fn what_is_asked_is_understood_or_refused() {
        let ask = Ask { cookie: 7, flags: SIZES | LAYOUTS, spare: 0 };
        assert_eq!(Ask::decode(&[ask.as_bytes(), &[0; 100]].concat()), Some(ask));
        assert_eq!(Ask::decode(Ask { flags: 64, ..ask }.as_bytes()), None);
        assert_eq!(Ask::decode(b"short"), None);
        assert!(Packer::new(100, 0).is_none());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(mut bytes in proptest::collection::vec(any::<u8>(), 0..400), small in any::<bool>()) {
            if small && bytes.len() > 24 {
                // Lengths that lie inside of it.
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
