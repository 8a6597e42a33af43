//! Requests that programs make to an open file of a mount by ioctl(2): group locks, advice and
//! others, under Lustre's numbers.
//!
//! For a FUSE file system, the kernel copies the argument as the ioctl's number says: its size, and
//! whether it is read, written or both. Some numbers therefore differ from Lustre's. An argument
//! that Lustre's number calls read-only is called read and written ([`LADVISE`]). An argument that
//! is no pointer has a number without a size ([`GROUP_LOCK_BY_VALUE`]). `docs/api.md` has them for
//! users; `linux/lustre/lustre_ioctl.h` of the C library defines the same numbers.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{Errno, Fid, Result, entries};

/// No argument.
const NONE: u32 = 0;
/// The file system reads the argument.
const IN: u32 = 1;
/// The file system writes the argument.
const OUT: u32 = 2;
/// The file system reads and writes the argument.
const INOUT: u32 = 3;

const fn number(direction: u32, nr: u32, bytes: usize) -> u32 {
    direction << 30 | (bytes as u32) << 16 | (b'f' as u32) << 8 | nr
}

/// Returns the `int` with which a program's argument begins.
///
/// # Errors
/// EINVAL: the argument is shorter.
pub fn int(input: &[u8]) -> Result<u32> {
    input.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes)).ok_or(Errno::EINVAL)
}

/// Takes a group lock: `LL_IOC_GROUP_LOCK`. The argument points to the group's id, a `u64`.
///
/// EINVAL: the id is 0, the file is in a group already, or it has no objects yet. EAGAIN: opened
/// with O_NONBLOCK, and locks of others conflict. EINTR: a signal arrived.
pub const GROUP_LOCK: u32 = number(IN, 158, size_of::<u64>());
/// Releases the group lock: `LL_IOC_GROUP_UNLOCK`. EINVAL: the open file has none, or one of
/// another group.
pub const GROUP_UNLOCK: u32 = number(IN, 159, size_of::<u64>());
/// As [`GROUP_LOCK`], with the group's id in place of the pointer: so programs call
/// `LL_IOC_GROUP_LOCK`.
pub const GROUP_LOCK_BY_VALUE: u32 = number(NONE, 158, 0);
/// As [`GROUP_UNLOCK`], with the group's id in place of the pointer.
pub const GROUP_UNLOCK_BY_VALUE: u32 = number(NONE, 159, 0);
/// Restricts an open file to one mirror of its file: `LL_IOC_FLR_SET_MIRROR`. The argument points
/// to the mirror's id, a `u64`; 0 ends the restriction. The mirror may be written while it is stale
/// and the layout does not change: else EBUSY.
///
/// EINVAL: there is no such mirror, or the file is open for reading only, without O_DIRECT. EPERM:
/// it is open for writing, and another user's.
pub const SET_MIRROR: u32 = number(IN, 237, size_of::<u64>());
/// As [`SET_MIRROR`], with the mirror's id in place of the pointer: so programs call
/// `LL_IOC_FLR_SET_MIRROR`.
pub const SET_MIRROR_BY_VALUE: u32 = number(NONE, 177, 0);
/// Returns a file's data version in the [`DataVersion`] argument: Lustre's `LL_IOC_DATA_VERSION`.
///
/// EINVAL: an unknown flag.
pub const DATA_VERSION: u32 = number(INOUT, 218, size_of::<DataVersion>());

/// Gives a layout to an open file without one, such as a file opened with
/// [`crate::mds::flags::LAYOUT_LATER`]: `LL_IOC_LOV_SETSTRIPE`. The argument points to a plain
/// layout, `lov_user_md_v1` or `_v3`. As many bytes are read as the larger of the two has.
///
/// EINVAL: the argument is neither, or no file can have the layout. EEXIST: the file has a layout.
/// EACCES: the file is not open for writing, and the caller may not write it.
pub const LOV_SETSTRIPE: u32 = number(IN, 154, LOV_V3_BYTES);
/// Returns an open file's layout in a plain form: `LL_IOC_LOV_GETSTRIPE`. For a composite layout
/// this is the last component with objects, for an empty file the last component, as in Lustre. As
/// many bytes are written as the layout has. ENODATA: the file has none. ERANGE: the layout is too
/// large for an ioctl.
pub const LOV_GETSTRIPE: u32 = number(OUT, 155, BYTES_MAX);
/// As [`LOV_SETSTRIPE`], for a `lov_user_md_v1`: the number that Lustre calls
/// `LL_IOC_LOV_SETSTRIPE_NEW`. It fits FUSE as it is.
pub const LOV_SETSTRIPE_V1: u32 = number(INOUT, 154, LOV_V1_BYTES);
/// Magic numbers of `lov_user_md_v1` and `_v3`, and their bytes without objects.
const LOV_MAGIC_V1: u32 = 0x0bd1_0bd0;
const LOV_MAGIC_V3: u32 = 0x0bd3_0bd0;
const LOV_V1_BYTES: usize = 32;
const LOV_V3_BYTES: usize = 48;
/// Largest argument that an ioctl's number can express, in bytes.
const BYTES_MAX: usize = (1 << 14) - 1;

/// Returns the layout that a program passed with [`LOV_SETSTRIPE`]; `None` if it is not a plain
/// layout, or is longer than the input.
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

/// Gives advice with Lustre's header before it, a [`LadviseList`]: `LL_IOC_LADVISE`. The number has
/// room for one piece of advice. Of several pieces the first one alone is executed.
pub const LADVISE_LIST: u32 = number(INOUT, 250, size_of::<LadviseList>());

/// Stores the flags of an open file, a `u32`: `LL_IOC_GETFLAGS`. The flags are those that a program
/// set, and [`GROUP_LOCKED`].
pub const GET_FILE_FLAGS: u32 = number(OUT, 151, size_of::<u64>());
/// Sets flags of an open file; the argument points to a `u32`: `LL_IOC_SETFLAGS`. Flags have no
/// effect. EINVAL, as in Lustre: [`IGNORE_LOCK`] for a file without O_DIRECT.
pub const SET_FILE_FLAGS: u32 = number(IN, 152, size_of::<u64>());
/// Clears flags of an open file: `LL_IOC_CLRFLAGS`.
pub const CLEAR_FILE_FLAGS: u32 = number(IN, 153, size_of::<u64>());
/// Flag `LL_FILE_IGNORE_LOCK`: the program asks for no locks. Sheen takes them all the same.
pub const IGNORE_LOCK: u32 = 1;
/// Flag `LL_FILE_GROUP_LOCKED`: the open file has a group lock.
pub const GROUP_LOCKED: u32 = 2;

/// Does nothing, as there are no Kerberos tickets to drop: `LL_IOC_FLUSHCTX`.
pub const FLUSH_CONTEXT: u32 = number(NONE, 166, 0);
/// Returns the number of OSTs in the argument, an `i32` that is 0; or that of MDTs, if it is not 0:
/// `LL_IOC_GETOBDCOUNT`.
pub const TARGET_COUNT: u32 = number(INOUT, 168, size_of::<i32>());
/// Stores the FID, a [`FileId`]: `LL_IOC_PATH2FID`.
pub const PATH_TO_FID: u32 = number(OUT, 173, size_of::<FileId>());
/// Stores the index of the MDT that holds the file, an `i32`: `LL_IOC_GET_MDTIDX`.
pub const MDT_INDEX: u32 = number(OUT, 175, size_of::<i32>());

/// Returns the index of the MDT that holds a file as the result of ioctl(2): `LL_IOC_FID2MDTIDX`.
/// The argument is the file's FID, a [`FileId`]. EINVAL: no file can have it.
pub const FID_TO_MDT: u32 = number(INOUT, 248, size_of::<FileId>());

/// Stores a layout of a directory over MDTs, `lmv_user_md`, without its stripes:
/// `LL_IOC_LMV_GETSTRIPE`. The magic number in the argument names the layout: [`LMV_MAGIC_USER`] or
/// [`LMV_MAGIC_V1`].
///
/// EINVAL: another magic number. E2BIG: the directory has stripes; its attribute has them all.
pub const LMV_GETSTRIPE: u32 = number(INOUT, 241, LMV_BYTES);
/// Sets the default of a directory for its subdirectories, `lmv_user_md`:
/// `LL_IOC_LMV_SET_DEFAULT_STRIPE`. Errors as of setting the attribute.
pub const LMV_SET_DEFAULT: u32 = number(INOUT, 246, LMV_BYTES);
/// Magic number by which a program asks for the default: `LMV_USER_MAGIC`.
pub const LMV_MAGIC_USER: u32 = 0x0cd3_0cd0;
/// Magic number by which a program asks for the existing layout: `LMV_MAGIC_V1`.
pub const LMV_MAGIC_V1: u32 = 0x0cd2_0cd0;
const LMV_BYTES: usize = 48;

/// Returns whether the number belongs to a function of Lustre that Sheen does not have, or not by
/// ioctl(2): HSM, PCC, heat, leases and the like. The error is then EOPNOTSUPP. ENOTTY would mean
/// that the file is not on a Sheen mount.
pub fn is_of_missing_feature(cmd: u32) -> bool {
    matches!(
        ((cmd >> 8) as u8, cmd as u8),
        (b'f', 127 | 131 | 150..=178 | 211..=220 | 240..=254) | (b'i', 20..=23)
    )
}

/// Returns entries of an open directory with attributes and layouts, one page at a time:
/// [`entries`]. Sheen's own. The argument points to [`entries::PAGE_BYTES`] bytes that begin with
/// an [`entries::Ask`]; a page replaces them.
///
/// EACCES: the caller may not both list and search the directory. EOPNOTSUPP: it is a directory of
/// `.lustre`. EINVAL: see [`entries::Ask::decode`].
pub const ENTRIES: u32 = number(INOUT, 230, entries::PAGE_BYTES);
/// Begins a migration of an open file to other objects (`lfs migrate`): records the state of its
/// objects. Sheen's own.
pub const MIGRATE_BEGIN: u32 = number(NONE, 0xd0, 0);
/// Ends a migration: gives the file the objects of another one, to which its bytes were copied
/// since. The argument is a [`MigrateEnd`]. Sheen's own.
///
/// EBUSY: another program wrote to the file since, or holds a group lock; nothing is changed.
/// EINVAL: no migration was begun, or the other file is not an orphan of the caller that is open on
/// this mount.
pub const MIGRATE_END: u32 = number(IN, 0xd1, size_of::<MigrateEnd>());

/// As lseek(2) with SEEK_DATA and SEEK_HOLE; the result is written into the [`MigrateSeek`]
/// argument. Sheen's own: lseek itself waits in the kernel for writes to the file, and those may
/// wait for the caller. ENXIO: there is no more data.
pub const MIGRATE_SEEK: u32 = number(INOUT, 0xd2, size_of::<MigrateSeek>());

/// Exchanges the layouts of the file and another one that is open on this mount. The argument is a
/// [`FileId`]; Lustre's `LL_IOC_LOV_SWAP_LAYOUTS` names the other file by a descriptor. Sheen's
/// own.
///
/// EINVAL: one is not a regular file with a layout, or the other is not open on this mount. EACCES:
/// the caller may not write both. EPERM: their users or groups differ. EBUSY: a program holds a
/// group lock, or another client keeps giving one of them objects, or one is mirrored and one is
/// open elsewhere. After an error, nothing is changed.
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
    /// Encodes the file's identifier for the program.
    pub fn encode(&self) -> &[u8] {
        self.as_bytes()
    }

    /// Decodes a program's argument; `None` if the length is wrong.
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

/// Search for data or a hole: start and result.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct MigrateSeek {
    /// Start of the search; then the result.
    pub offset: u64,
    /// 0: search for data; 1: for a hole.
    pub hole: u64,
}

impl MigrateSeek {
    /// Decodes a program's argument; `None` if the length is wrong.
    pub fn decode(bytes: &[u8]) -> Option<MigrateSeek> {
        MigrateSeek::read_from_bytes(bytes).ok()
    }

    /// Encodes the result for the program.
    pub fn encode(&self) -> &[u8] {
        self.as_bytes()
    }
}

/// The file whose objects replace the present ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct MigrateEnd {
    /// Sequence of the other file's FID.
    pub seq: u64,
    /// Its object id.
    pub oid: u32,
    /// Its version.
    pub ver: u32,
    /// Group in which the caller has locked the file; 0: none.
    pub group: u64,
}

impl MigrateEnd {
    /// Decodes a program's argument; `None` if the length is wrong.
    pub fn decode(bytes: &[u8]) -> Option<MigrateEnd> {
        MigrateEnd::read_from_bytes(bytes).ok()
    }
}

/// A file's data version: Lustre's `struct ioc_data_version`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DataVersion {
    /// Result: as long as it is the same, the file's bytes are the same. 0: nothing was written to
    /// the file yet.
    pub version: u64,
    /// Result: the generation of the layout.
    pub layout_version: u32,
    /// [`READ_FLUSH`], [`WRITE_FLUSH`], or 0: dirty data of clients does not count yet.
    pub flags: u32,
}

impl DataVersion {
    /// Decodes a program's argument; `None` if the length is wrong.
    pub fn decode(bytes: &[u8]) -> Option<DataVersion> {
        DataVersion::read_from_bytes(bytes).ok()
    }

    /// Encodes the result for the program.
    pub fn encode(&self) -> &[u8] {
        self.as_bytes()
    }
}

/// Clients flush their dirty data first: `LL_DV_RD_FLUSH`.
pub const READ_FLUSH: u32 = 1;
/// Clients also drop their cached data: `LL_DV_WR_FLUSH`. Sheen does not need this, because clients
/// that cache data learn of changes.
pub const WRITE_FLUSH: u32 = 2;

/// A piece of advice: Lustre's `struct llapi_lu_ladvise`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Ladvise {
    /// Kind of advice: [`WILLREAD`] and so on.
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
    /// Reserved.
    pub spare: u32,
}

impl Ladvise {
    /// Decodes a program's argument; `None` if the length is wrong.
    pub fn decode(bytes: &[u8]) -> Option<Ladvise> {
        Ladvise::read_from_bytes(bytes).ok()
    }

    /// Encodes the result for the program.
    pub fn encode(&self) -> &[u8] {
        self.as_bytes()
    }

    /// Converts advice of a program to the form that the mount accepts. `flags`: further flags.
    /// Its `last` is an end as in Lustre's manual page or header (`docs/api.md`).
    ///
    /// # Errors
    /// EINVAL: an empty range, or unknown flags. EOPNOTSUPP: [`UNSET`].
    pub fn asked(&self, flags: u32) -> Result<Ladvise> {
        let flags = flags | self.flags;
        let last = last_byte(self.last).filter(|last| *last >= self.start).ok_or(Errno::EINVAL)?;
        if flags & !(ASYNC | UNSET) != 0 {
            return Err(Errno::EINVAL);
        }
        if flags & UNSET != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        Ok(Ladvise { flags, last, ..*self })
    }
}

/// Advice with a header: Lustre's `struct llapi_ladvise_hdr` with room for one piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct LadviseList {
    /// [`LADVISE_MAGIC`].
    pub magic: u32,
    /// Number of pieces.
    pub count: u32,
    /// [`ASYNC`] and [`UNSET`], for all pieces.
    pub flags: u64,
    /// Reserved.
    pub spare: [u64; 2],
    /// The first piece. Its `last` is an end that [`last_byte`] understands.
    pub first: Ladvise,
}

impl LadviseList {
    /// Decodes a program's argument; `None` if it is not a list with a piece of advice.
    pub fn decode(bytes: &[u8]) -> Option<LadviseList> {
        let list = LadviseList::read_from_bytes(bytes).ok()?;
        let flags = list.flags & !u64::from(ASYNC | UNSET) == 0;
        (list.magic == LADVISE_MAGIC && (1..=LADVISE_MAX).contains(&list.count) && flags).then_some(list)
    }

    /// Returns the first piece in the form of [`LADVISE`].
    ///
    /// # Errors
    /// EINVAL: an empty range, or unknown flags. EOPNOTSUPP: [`UNSET`].
    pub fn first(&self) -> Result<Ladvise> {
        self.first.asked(self.flags as u32)
    }

    /// Encodes the list with the result of the first piece for the program.
    pub fn encode(&self) -> &[u8] {
        self.as_bytes()
    }
}

/// Magic number of a [`LadviseList`]: `LADVISE_MAGIC`.
pub const LADVISE_MAGIC: u32 = 0x1adf_1ce0;
/// Largest number of pieces of advice in one call: `LAH_COUNT_MAX`.
pub const LADVISE_MAX: u32 = 1024;
/// Flag that withdraws advice: `LF_UNSET`. Not supported.
pub const UNSET: u32 = 2;
/// The end of a range counts as the byte after the last if it is a multiple of this.
const PAGE: u64 = 4096;

/// Returns the last byte of a range from the end that a program gave. The end is the byte after the
/// last, as in Lustre's manual page, or the last byte, as in its header and in MPI libraries. A
/// multiple of 4 KiB counts as the byte after the last. `None`: 0.
fn last_byte(end: u64) -> Option<u64> {
    match end {
        u64::MAX => Some(end),
        end if end.is_multiple_of(PAGE) => end.checked_sub(1),
        last => Some(last),
    }
}

/// The range will be read. Accepted and ignored.
pub const WILLREAD: u16 = 1;
/// The range will not be used any more. Accepted and ignored.
pub const DONTNEED: u16 = 2;
/// Locks for this open file must not be expanded. Not supported: EOPNOTSUPP.
pub const LOCKNOEXPAND: u16 = 3;
/// Requests a lock on exactly this range, ahead of use.
pub const LOCKAHEAD: u16 = 4;

/// Lock for reading.
pub const MODE_READ: u16 = 1;
/// Lock for writing. The file must be open for writing (EBADF).
pub const MODE_WRITE: u16 = 2;

/// The request waits for no client, and no client gets a blocking callback.
pub const ASYNC: u32 = 1;

/// The lock was requested from the servers.
pub const SENT: u32 = 0;
/// A lock on a larger range existed already.
pub const DIFFERENT: u32 = 1;
/// A lock on exactly this range existed already.
pub const SAME: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ioctl_numbers_match_lustres_except_the_direction() {
        assert_eq!((GROUP_LOCK, GROUP_UNLOCK), (0x4008_669e, 0x4008_669f));
        assert_eq!((LOV_SETSTRIPE, LOV_GETSTRIPE), (0x4030_669a, 0xbfff_669b));
        // _IOR('f', 218, struct ioc_data_version)
        assert_eq!((DATA_VERSION & !0xc000_0000, size_of::<DataVersion>()), (0x8010_66da & !0xc000_0000, 16));
        assert_eq!((LADVISE & !0xc000_0000, size_of::<Ladvise>()), (0x0020_66fa, 32));
        assert_eq!((LADVISE_LIST & !0xc000_0000, size_of::<LadviseList>()), (0x0040_66fa, 64));
    }

    #[test]
    fn ioctl_numbers_that_fuse_can_serve_are_lustres() {
        // _IOR('f', 151, long), _IOW('f', 152, long), _IOW('f', 153, long), _IOR('f', 175, int)
        assert_eq!((GET_FILE_FLAGS, SET_FILE_FLAGS, CLEAR_FILE_FLAGS), (0x8008_6697, 0x4008_6698, 0x4008_6699));
        assert_eq!((MDT_INDEX, LOV_SETSTRIPE_V1), (0x8004_66af, 0xc020_669a));
        // _IOWR('f', 248, struct lu_fid)
        assert_eq!(FID_TO_MDT, 0xc010_66f8);
        // _IOWR('f', 241, struct lmv_user_md), _IOWR('f', 246, struct lmv_user_md)
        assert_eq!((LMV_GETSTRIPE, LMV_SET_DEFAULT), (0xc030_66f1, 0xc030_66f6));
    }

    #[test]
    fn numbers_of_missing_features_differ_from_foreign_numbers() {
        // LL_IOC_HSM_STATE_SET, LL_IOC_GET_LEASE, LL_IOC_PCC_STATE; TCGETS, FS_IOC_FIEMAP
        assert!([0x4018_66d4, 0x0000_66f4, 0x9010_66fc].into_iter().all(is_of_missing_feature));
        assert!(![0x5401, 0xc020_660b].into_iter().any(is_of_missing_feature));
    }

    #[test]
    fn advice_accepts_the_last_byte_or_the_one_after_as_end() {
        let last = |start, last| Ladvise { start, last, ..Ladvise::default() }.asked(0).map(|a| a.last);
        assert_eq!(last(0, 1 << 20), Ok((1 << 20) - 1));
        assert_eq!(last(0, (1 << 20) - 1), Ok((1 << 20) - 1));
        assert_eq!(last(0, u64::MAX), Ok(u64::MAX));
        assert_eq!(last(4096, 4096), Err(Errno::EINVAL));
        assert_eq!(last(0, 0), Err(Errno::EINVAL));
    }

    #[test]
    fn advice_with_unknown_flags_is_refused() {
        let flags = |one, all| Ladvise { flags: one, last: 10, ..Ladvise::default() }.asked(all).map(|a| a.flags);
        assert_eq!((flags(0, 0), flags(ASYNC, 0), flags(0, ASYNC)), (Ok(0), Ok(ASYNC), Ok(ASYNC)));
        assert_eq!((flags(4, 0), flags(0, UNSET)), (Err(Errno::EINVAL), Err(Errno::EOPNOTSUPP)));
    }

    #[test]
    fn advice_list_needs_magic_count_and_known_flags() {
        let first = Ladvise { advice: WILLREAD, last: 10, ..Ladvise::default() };
        let good = LadviseList { magic: LADVISE_MAGIC, count: 3, flags: 1, first, ..LadviseList::default() };
        assert_eq!(LadviseList::decode(good.encode()).map(|list| list.first()), Some(first.asked(ASYNC)));
        for bad in [
            LadviseList { magic: 0, ..good },
            LadviseList { count: 0, ..good },
            LadviseList { count: LADVISE_MAX + 1, ..good },
            LadviseList { flags: 4, ..good },
        ] {
            assert_eq!(LadviseList::decode(bad.encode()), None, "{bad:?}");
        }
        assert_eq!(LadviseList::decode(first.encode()), None);
    }

    #[test]
    fn int_is_the_first_word_of_an_argument() {
        assert_eq!(int(&[7_u32.to_ne_bytes(), [1; 4]].concat()), Ok(7));
        assert_eq!(int(b"abc"), Err(Errno::EINVAL));
    }

    #[test]
    fn plain_layout_argument_is_cut_to_the_length_of_its_magic() {
        let with = |magic: u32, len: usize| [&magic.to_le_bytes()[..], &[0; 44]].concat()[..len].to_vec();
        assert_eq!(plain_layout(&with(LOV_MAGIC_V1, 48)).map(<[u8]>::len), Some(32));
        assert_eq!(plain_layout(&with(LOV_MAGIC_V3, 48)).map(<[u8]>::len), Some(48));
        assert_eq!((plain_layout(&with(LOV_MAGIC_V3, 47)), plain_layout(&with(0x0bd6_0bd0, 48))), (None, None));
        assert_eq!(plain_layout(b"x"), None);
    }

    #[test]
    fn ladvise_struct_has_lustres_byte_form() {
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
