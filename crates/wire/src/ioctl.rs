//! What programs ask of an open file of a mount by ioctl(2): group locks and advice, under Lustre's
//! numbers.
//!
//! The kernel copies the argument of a FUSE file system's ioctl as its number says: how large it
//! is, and whether it is read, written or both. So what Lustre passes by value is passed by a
//! pointer here ([`GROUP_LOCK`]), and what Lustre's number calls read-only is called read and
//! written ([`LADVISE`]); `docs/semantics.md` says so to users.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{Fid, entries};

/// There is no argument.
const NONE: u32 = 0;
/// The argument is read by the file system.
const IN: u32 = 1;
/// The argument is written.
const OUT: u32 = 2;
/// The argument is read and written.
const INOUT: u32 = 3;

const fn number(direction: u32, nr: u32, bytes: usize) -> u32 {
    direction << 30 | (bytes as u32) << 16 | (b'f' as u32) << 8 | nr
}

/// Takes a group lock: `LL_IOC_GROUP_LOCK`. The argument points to the group's id, a `u64`.
///
/// EINVAL: the id is 0, the file is in a group already, or it has no objects yet. EAGAIN: opened
/// with O_NONBLOCK, and others are in the way. EINTR: a signal came.
pub const GROUP_LOCK: u32 = number(IN, 158, size_of::<u64>());
/// Gives it back: `LL_IOC_GROUP_UNLOCK`. EINVAL: it has none, or that of another group.
pub const GROUP_UNLOCK: u32 = number(IN, 159, size_of::<u64>());
/// Makes an open file one mirror of its file: `LL_IOC_FLR_SET_MIRROR`. The argument points to the
/// mirror's id, a `u64`; 0 for the file again. It may be written while it is stale and the layout
/// stays as it is: else EBUSY.
///
/// EINVAL: there is no such mirror, or the file is open for reading alone without O_DIRECT. EPERM:
/// it is open for writing, and somebody else's.
pub const SET_MIRROR: u32 = number(IN, 237, size_of::<u64>());
/// Tells a file's data version, a [`DataVersion`], which is filled in: Lustre's
/// `LL_IOC_DATA_VERSION`.
///
/// EINVAL: a flag that there is not.
pub const DATA_VERSION: u32 = number(INOUT, 218, size_of::<DataVersion>());

/// Gives an open file without a layout one, as programs do that open it with
/// [`crate::mds::flags::LAYOUT_LATER`]: `LL_IOC_LOV_SETSTRIPE`. The argument points to a plain
/// layout, `lov_user_md_v1` or `_v3`, after which as many bytes are read as the larger one has.
///
/// EINVAL: it is none of those, or no file can have it. EEXIST: the file has a layout. EACCES: the
/// file is not open for writing, nor may the caller write to it.
pub const LOV_SETSTRIPE: u32 = number(IN, 154, LOV_V3_BYTES);
/// Tells an open file's layout in a plain form: `LL_IOC_LOV_GETSTRIPE`. Of a composite layout it is
/// the last component with objects, of an empty file the last one, as in Lustre. As much is written
/// as the layout has. ENODATA: it has none. ERANGE: it is too large for an ioctl.
pub const LOV_GETSTRIPE: u32 = number(OUT, 155, BYTES_MAX);
/// The magic numbers of `lov_user_md_v1` and `_v3`, and the bytes that these have without objects.
const LOV_MAGIC_V1: u32 = 0x0bd1_0bd0;
const LOV_MAGIC_V3: u32 = 0x0bd3_0bd0;
const LOV_V1_BYTES: usize = 32;
const LOV_V3_BYTES: usize = 48;
/// What a number of an ioctl can say.
const BYTES_MAX: usize = (1 << 14) - 1;

/// What a program passed with [`LOV_SETSTRIPE`]; `None` where that is no plain layout.
pub fn plain_layout(input: &[u8]) -> Option<&[u8]> {
    let magic = input.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))?;
    match magic {
        LOV_MAGIC_V1 => input.get(..LOV_V1_BYTES),
        LOV_MAGIC_V3 => input.get(..LOV_V3_BYTES),
        _ => None,
    }
}

/// Gives one piece of advice, a [`Ladvise`]: Lustre's `LL_IOC_LADVISE` without its header.
pub const LADVISE: u32 = number(INOUT, 250, size_of::<Ladvise>());

/// Entries of an open directory with attributes and layouts, a page at a time: [`entries`]. Sheen's
/// own. The argument points to [`entries::PAGE_BYTES`] bytes, which begin with an [`entries::Ask`],
/// and is answered with a page.
///
/// EACCES: the caller may not both list and search the directory. EOPNOTSUPP: it is one of
/// `.lustre`. EINVAL: see [`entries::Ask::decode`].
pub const ENTRIES: u32 = number(INOUT, 230, entries::PAGE_BYTES);
/// Begins to move an open file to other objects (`lfs migrate`): notes what state its objects are
/// in. Sheen's own.
pub const MIGRATE_BEGIN: u32 = number(NONE, 0xd0, 0);
/// Gives the file the objects of another one, to which its bytes were copied since; a
/// [`MigrateEnd`]. Sheen's own.
///
/// EBUSY: somebody wrote to the file since, or keeps a group lock; nothing is changed. EINVAL: it
/// was not begun, or the other file is not a nameless file of the caller's that is open on this
/// mount.
pub const MIGRATE_END: u32 = number(IN, 0xd1, size_of::<MigrateEnd>());

/// As lseek(2) with SEEK_DATA and SEEK_HOLE; a [`MigrateSeek`], which is filled in. Sheen's own:
/// lseek itself waits in the kernel for writes to the file, and those may wait for who asks. ENXIO:
/// there is no more data.
pub const MIGRATE_SEEK: u32 = number(INOUT, 0xd2, size_of::<MigrateSeek>());

/// Exchanges the layouts of the file and another one that is open on this mount; a [`FileId`]:
/// Lustre's `LL_IOC_LOV_SWAP_LAYOUTS`, which names the other by a descriptor. Sheen's own.
///
/// EINVAL: one is no regular file with a layout, or the other is not open on this mount. EACCES:
/// the caller may not write to both. EPERM: they are not of the same user and group. EOPNOTSUPP:
/// one is mirrored, or has data on the MDT. EBUSY: somebody keeps a group lock, or gives one of
/// them objects all the time; nothing is changed.
pub const SWAP_LAYOUTS: u32 = number(IN, 0xd3, size_of::<FileId>());

/// A file, by its FID.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FileId {
    /// Sequence.
    pub seq: u64,
    /// Id.
    pub oid: u32,
    /// Version.
    pub ver: u32,
}

impl FileId {
    /// As a program passed it; `None` where the length is not that of one.
    pub fn decode(bytes: &[u8]) -> Option<FileId> {
        FileId::read_from_bytes(bytes).ok()
    }
}

impl From<Fid> for FileId {
    fn from(Fid { seq, oid, ver }: Fid) -> FileId {
        FileId { seq, oid, ver }
    }
}

impl From<FileId> for Fid {
    fn from(FileId { seq, oid, ver }: FileId) -> Fid {
        Fid { seq, oid, ver }
    }
}

/// Where data or a hole is looked for, and found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct MigrateSeek {
    /// From here on; the answer.
    pub offset: u64,
    /// 0: data is looked for; 1: a hole.
    pub hole: u64,
}

impl MigrateSeek {
    /// As a program passed it; `None` where the length is not that of one.
    pub fn decode(bytes: &[u8]) -> Option<MigrateSeek> {
        MigrateSeek::read_from_bytes(bytes).ok()
    }

    /// As it is given back.
    pub fn encode(&self) -> &[u8] {
        self.as_bytes()
    }
}

/// What takes the place of a file's objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct MigrateEnd {
    /// The other file's FID: sequence.
    pub seq: u64,
    /// Its id.
    pub oid: u32,
    /// Its version.
    pub ver: u32,
    /// A group in which the caller has locked the file; 0: none.
    pub group: u64,
}

impl MigrateEnd {
    /// As a program passed it; `None` where the length is not that of one.
    pub fn decode(bytes: &[u8]) -> Option<MigrateEnd> {
        MigrateEnd::read_from_bytes(bytes).ok()
    }
}

/// A file's data version: Lustre's `struct ioc_data_version`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DataVersion {
    /// The answer: as long as it is the same, the file's bytes are. 0: nothing was written to it
    /// yet.
    pub version: u64,
    /// The answer: the generation of its layout.
    pub layout_version: u32,
    /// [`READ_FLUSH`], [`WRITE_FLUSH`], or none: what is kept to be written does not count yet.
    pub flags: u32,
}

impl DataVersion {
    /// As a program passed it; `None` where the length is not that of one.
    pub fn decode(bytes: &[u8]) -> Option<DataVersion> {
        DataVersion::read_from_bytes(bytes).ok()
    }

    /// As it is given back.
    pub fn encode(&self) -> &[u8] {
        self.as_bytes()
    }
}

/// What is kept to be written is written first: `LL_DV_RD_FLUSH`.
pub const READ_FLUSH: u32 = 1;
/// And what others have read is forgotten: `LL_DV_WR_FLUSH`. Here it need not be, for who keeps it
/// hears of changes.
pub const WRITE_FLUSH: u32 = 2;

/// A piece of advice: Lustre's `struct llapi_lu_ladvise`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Ladvise {
    /// What is advised: [`WILLREAD`] and so on.
    pub advice: u16,
    /// With [`LOCKAHEAD`]: [`MODE_READ`] or [`MODE_WRITE`].
    pub mode: u16,
    /// [`ASYNC`].
    pub flags: u32,
    /// First byte.
    pub start: u64,
    /// Last byte; `u64::MAX` for the end of all files.
    pub last: u64,
    /// With [`LOCKAHEAD`], filled in: [`SENT`] and so on.
    pub result: u32,
    /// Nothing yet.
    pub spare: u32,
}

impl Ladvise {
    /// As a program passed it; `None` where the length is not that of one.
    pub fn decode(bytes: &[u8]) -> Option<Ladvise> {
        Ladvise::read_from_bytes(bytes).ok()
    }

    /// As it is given back.
    pub fn encode(&self) -> &[u8] {
        self.as_bytes()
    }
}

/// The range will be read. Taken and ignored.
pub const WILLREAD: u16 = 1;
/// The range will not be used any more. Taken and ignored.
pub const DONTNEED: u16 = 2;
/// Locks for this open file shall not be expanded. Not supported: EOPNOTSUPP.
pub const LOCKNOEXPAND: u16 = 3;
/// Exactly this range is wanted locked, ahead of use.
pub const LOCKAHEAD: u16 = 4;

/// Lock for reading.
pub const MODE_READ: u16 = 1;
/// Lock for writing. The file must be open for writing (EBADF).
pub const MODE_WRITE: u16 = 2;

/// Nobody is waited for, and nobody is asked to give way.
pub const ASYNC: u32 = 1;

/// The servers were asked.
pub const SENT: u32 = 0;
/// A lock of a larger range was there.
pub const DIFFERENT: u32 = 1;
/// This very lock was there.
pub const SAME: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_lustres_but_for_the_way_of_the_argument() {
        assert_eq!((GROUP_LOCK, GROUP_UNLOCK), (0x4008_669e, 0x4008_669f));
        assert_eq!((LOV_SETSTRIPE, LOV_GETSTRIPE), (0x4030_669a, 0xbfff_669b));
        // _IOR('f', 218, struct ioc_data_version)
        assert_eq!((DATA_VERSION & !0xc000_0000, size_of::<DataVersion>()), (0x8010_66da & !0xc000_0000, 16));
        assert_eq!((LADVISE & !0xc000_0000, size_of::<Ladvise>()), (0x0020_66fa, 32));
    }

    #[test]
    fn layouts_are_as_long_as_their_kind_is() {
        let with = |magic: u32, len: usize| [&magic.to_le_bytes()[..], &[0; 44]].concat()[..len].to_vec();
        assert_eq!(plain_layout(&with(LOV_MAGIC_V1, 48)).map(<[u8]>::len), Some(32));
        assert_eq!(plain_layout(&with(LOV_MAGIC_V3, 48)).map(<[u8]>::len), Some(48));
        assert_eq!((plain_layout(&with(LOV_MAGIC_V3, 47)), plain_layout(&with(0x0bd6_0bd0, 48))), (None, None));
        assert_eq!(plain_layout(b"x"), None);
    }

    #[test]
    fn advice_lies_as_in_lustres_header() {
        let advice =
            Ladvise { advice: LOCKAHEAD, mode: MODE_WRITE, flags: ASYNC, start: 3, last: 4, result: SAME, spare: 0 };
        let words: Vec<u32> = advice.encode().chunks(4).map(|w| u32::from_ne_bytes(w.try_into().unwrap())).collect();
        let first = u32::from_ne_bytes([4, 0, 2, 0]);
        assert_eq!(words[..2], [first, 1]);
        assert_eq!(
            (&advice.encode()[8..16], &advice.encode()[16..24]),
            (&3u64.to_ne_bytes()[..], &4u64.to_ne_bytes()[..])
        );
        assert_eq!(words[6..], [2, 0]);
        assert_eq!(Ladvise::decode(advice.encode()), Some(advice));
        assert_eq!(Ladvise::decode(b"short"), None);
    }
}
