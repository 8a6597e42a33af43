//! Layouts of directories in Lustre's binary form: the MDTs that hold a directory's entries, and
//! the default for its subdirectories.
//!
//! | struct | Lustre's struct | stored as |
//! |---|---|---|
//! | [`LmvUser`] | `lmv_user_md_v1`: request, default, or reply | `trusted.dmv` (default) |
//! | [`LmvMds`] | `lmv_mds_md_v1`: existing stripes | `trusted.lmv` (striped directories only) |
//!
//! Invariants:
//!
//! * Malformed bytes from users and peers are refused with an [`LmvError`], never a panic.
//! * A decoded layout encodes to the same bytes, including fields that this version does not use.
//!
//! Little-endian. Sizes: [`LmvUser`] 48 bytes + 24 per stripe, [`LmvMds`] 56 bytes + 16 per stripe.
//!
//! [`LmvUser::decode`] checks only the form of the bytes. [`LmvUser::check`] checks whether the
//! values are valid on this file system.

use std::fmt;

use sheen_wire::{Errno, Fid};
use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, LE, Unaligned,
    byteorder::{I32, U32, U64},
};

/// Magic number of [`LmvMds`], and of a [`LmvUser`] that reports existing stripes
/// (LMV_MAGIC_V1).
pub const MAGIC_V1: u32 = 0x0CD2_0CD0;
/// Magic number of requests and defaults (LMV_USER_MAGIC).
pub const MAGIC_USER: u32 = 0x0CD3_0CD0;
/// Magic number of requests with a list of MDTs (LMV_USER_MAGIC_SPECIFIC).
pub const MAGIC_SPECIFIC: u32 = 0x0CD4_0CD0;
/// Magic number of a foreign directory (LMV_MAGIC_FOREIGN).
pub const MAGIC_FOREIGN: u32 = 0x0CD5_0CD0;

/// Maximum number of stripes of a directory (LMV_MAX_STRIPE_COUNT).
pub const DIR_STRIPES_MAX: u32 = 2000;
/// Maximum number of stripes of a directory on one MDT, with overstriping
/// (LMV_MAX_STRIPES_PER_MDT).
pub const STRIPES_PER_MDT_MAX: u32 = 5;

/// Value of [`LmvUser::max_inherit`]: subdirectories of any depth inherit the default.
pub const INHERIT_UNLIMITED: u8 = 0;
/// Maximum depth that can be requested.
pub const INHERIT_MAX: u8 = 250;
/// Value of [`LmvUser::max_inherit`]: not even the next level inherits the default.
pub const INHERIT_NONE: u8 = 255;
/// [`LmvUser::max_inherit`] of defaults with one stripe, if not specified: unlimited.
pub const INHERIT_PLAIN: u8 = INHERIT_UNLIMITED;
/// [`LmvUser::max_inherit`] of striped defaults, if not specified: two more levels.
pub const INHERIT_STRIPED: u8 = 3;
/// [`LmvUser::max_inherit`] of overstriped defaults, if not specified: one more level, because
/// every level multiplies the stripes.
pub const INHERIT_OVERSTRIPED: u8 = 2;
/// Value of [`LmvUser::max_inherit_rr`]: no level spreads its subdirectories round-robin.
pub const INHERIT_RR_NONE: u8 = 0;
/// Value of [`LmvUser::max_inherit_rr`]: every level spreads its subdirectories round-robin.
pub const INHERIT_RR_UNLIMITED: u8 = 255;
/// [`LmvUser::max_inherit_rr`] of a root directory, if not specified.
const INHERIT_RR_ROOT: u8 = 3;

/// Size of a [`LmvUser`] without stripes, in bytes.
pub const USER_BYTES: usize = size_of::<UserHead>();
/// Size of each stripe of a [`LmvUser`], in bytes.
pub const USER_STRIPE_BYTES: usize = size_of::<UserStripe>();
/// Size of a [`LmvMds`] without stripes, in bytes.
pub const MDS_BYTES: usize = size_of::<MdsHead>();
/// Size of each stripe of a [`LmvMds`], in bytes.
pub const MDS_STRIPE_BYTES: usize = size_of::<MdsStripe>();

const _: () = assert!(USER_BYTES == 48 && USER_STRIPE_BYTES == 24 && MDS_BYTES == 56 && MDS_STRIPE_BYTES == 16);

/// Value of `lum_stripe_offset` for any MDT (LMV_OFFSET_DEFAULT).
const OFFSET_ANY: u32 = u32::MAX;

/// Reason why a directory's layout was refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LmvError {
    /// The size does not match the header and its count.
    #[error("directory layout of {have} bytes, expected {need}")]
    Size {
        /// Bytes needed.
        need: usize,
        /// Bytes present.
        have: usize,
    },
    /// The bytes are not a directory layout.
    #[error("{0:#010x} is not a directory layout's magic number")]
    BadMagic(u32),
    /// The kind of directory is not supported.
    #[error("{0} directories are not supported by this version")]
    Unsupported(&'static str),
    /// The stripe count is too large, or a negative number without meaning.
    #[error("directory stripe count {0} is not in -5..={DIR_STRIPES_MAX}")]
    StripeCount(i32),
    /// The hash type is unknown.
    #[error("{0:#x} is not a directory hash type")]
    HashType(u32),
    /// The file system has no MDT with this index.
    #[error("there is no MDT with index {0}")]
    UnknownMdt(u32),
    /// A default contains a list of MDTs.
    #[error("a default cannot list MDTs")]
    ListInDefault,
    /// A pool is given, but pools of MDTs do not exist.
    #[error("there are no pools of MDTs")]
    Pool,
}

impl LmvError {
    /// Returns the errno that Lustre uses for this error.
    pub fn errno(&self) -> Errno {
        match self {
            LmvError::Unsupported(_) => Errno::EOPNOTSUPP,
            LmvError::UnknownMdt(_) => Errno::ENODEV,
            _ => Errno::EINVAL,
        }
    }
}

impl From<LmvError> for Errno {
    fn from(e: LmvError) -> Errno {
        e.errno()
    }
}

/// `lmv_hash_type`: the hash that distributes names over stripes, and flags of the directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HashType(pub u32);

impl HashType {
    /// The MDT chooses.
    pub const NONE: HashType = HashType(0);
    /// The default if not specified.
    pub const DEFAULT: HashType = HashType::FNV_1A_64;
    /// FNV-1a with 64 bits: a good hash, but not a cryptographic one.
    pub const FNV_1A_64: HashType = HashType(2);
    /// Flag: one MDT may hold several stripes.
    pub const OVERSTRIPED: u32 = 0x0100_0000;

    const MASK: u32 = 0xffff;
    const KNOWN_FLAGS: u32 = 0xbf00_0000;
    const NAMES: [&'static str; 5] = ["none", "all_char", "fnv_1a_64", "crush", "crush2"];
    /// Flags with the names that Lustre prints, in Lustre's order.
    const FLAGS: [(u32, &'static str); 5] = [
        (HashType::OVERSTRIPED, "overstriped"),
        (0x8000_0000, "migrating"),
        (0x2000_0000, "bad_type"),
        (0x1000_0000, "lost_lmv"),
        (0x0200_0000, "fixed"),
    ];

    /// Parses a hash type without flags, given by name or one digit: `crush`, `3`. `none`
    /// cannot be requested.
    pub fn parse(text: &str) -> Option<HashType> {
        let named = HashType::NAMES.iter().position(|name| *name == text);
        let index = named.or_else(|| text.parse().ok().filter(|_| text.len() == 1))?;
        (1..HashType::NAMES.len()).contains(&index).then_some(HashType(index as u32))
    }

    /// Whether a flag is set.
    pub fn has(self, flag: u32) -> bool {
        self.0 & flag != 0
    }

    /// Returns the type with a flag set.
    pub fn with(self, flag: u32) -> HashType {
        HashType(self.0 | flag)
    }

    /// Returns the type with the default hash, if it has none.
    pub fn or_default(self) -> HashType {
        if self.0 & HashType::MASK == 0 { HashType(self.0 | HashType::DEFAULT.0) } else { self }
    }

    /// Whether Lustre knows the hash and all flags.
    fn is_known(self) -> bool {
        (self.0 & HashType::MASK) < HashType::NAMES.len() as u32
            && self.0 & !(HashType::MASK | HashType::KNOWN_FLAGS) == 0
    }
}

impl fmt::Display for HashType {
    /// Formats as `fnv_1a_64,overstriped`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (hash, flags) = (self.0 & HashType::MASK, self.0 & !HashType::MASK);
        match HashType::NAMES.get(hash as usize) {
            Some(name) => f.write_str(name)?,
            None => write!(f, "{hash:#x}")?,
        }
        for (_, name) in HashType::FLAGS.iter().filter(|(flag, _)| self.has(*flag)) {
            write!(f, ",{name}")?;
        }
        match flags & !HashType::KNOWN_FLAGS {
            0 => Ok(()),
            unknown => write!(f, ",unknown_{unknown:04x}"),
        }
    }
}

/// `lmv_user_md_v1` without stripes.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct UserHead {
    magic: U32<LE>,
    stripe_count: I32<LE>,
    stripe_offset: U32<LE>,
    hash_type: U32<LE>,
    kind: U32<LE>,
    max_inherit: u8,
    max_inherit_rr: u8,
    rest: [u8; 10],
    pool: [u8; 16],
}

/// `lmv_user_mds_data`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct UserStripe {
    seq: U64<LE>,
    oid: U32<LE>,
    ver: U32<LE>,
    rest: U32<LE>,
    mdt: U32<LE>,
}

/// `lmv_mds_md_v1` without stripes.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct MdsHead {
    magic: U32<LE>,
    stripe_count: U32<LE>,
    master_mdt: U32<LE>,
    hash_type: U32<LE>,
    layout_version: U32<LE>,
    migrate_offset: U32<LE>,
    migrate_hash: U32<LE>,
    rest: [u8; 12],
    pool: [u8; 16],
}

/// `lu_fid`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct MdsStripe {
    seq: U64<LE>,
    oid: U32<LE>,
    ver: U32<LE>,
}

/// Reads the header and the stripes after it. The bytes must end with a whole stripe.
fn read<H, S>(bytes: &[u8]) -> Result<(H, Vec<S>), LmvError>
where
    H: FromBytes + KnownLayout + Immutable + Unaligned,
    S: FromBytes + KnownLayout + Immutable + Unaligned,
{
    let short = || LmvError::Size { need: size_of::<H>(), have: bytes.len() };
    let (head, rest) = H::read_from_prefix(bytes).map_err(|_| short())?;
    let count = rest.len() / size_of::<S>();
    if count > DIR_STRIPES_MAX as usize {
        return Err(LmvError::StripeCount(i32::try_from(count).unwrap_or(i32::MAX)));
    }
    let whole = size_of::<H>() + count * size_of::<S>();
    if whole != bytes.len() {
        return Err(LmvError::Size { need: whole, have: bytes.len() });
    }
    let stripes = rest.chunks_exact(size_of::<S>()).filter_map(|part| S::read_from_bytes(part).ok());
    Ok((head, stripes.collect()))
}

/// A stripe in the form for tools.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LmvStripe {
    /// Object that holds the stripe's entries. Zero in a request for an MDT.
    pub fid: Fid,
    /// Index of the MDT.
    pub mdt: u32,
    rest: u32,
}

impl LmvStripe {
    /// Creates a stripe.
    pub fn new(fid: Fid, mdt: u32) -> LmvStripe {
        LmvStripe { fid, mdt, rest: 0 }
    }
}

/// A request, a default, or a report of existing stripes (`lmv_user_md_v1`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LmvUser {
    /// [`MAGIC_USER`], [`MAGIC_SPECIFIC`] or [`MAGIC_V1`].
    pub magic: u32,
    /// Number of stripes. 0: not specified. -1 to -5: this number on each MDT.
    pub stripe_count: i32,
    /// First MDT. `None`: any; in a default: chosen by free space.
    pub mdt: Option<u32>,
    /// Hash and flags.
    pub hash: HashType,
    /// `lum_type`, not used.
    pub kind: u32,
    /// In a default, the number of levels that inherit it: [`INHERIT_UNLIMITED`], [`INHERIT_NONE`],
    /// or 1 for no further level.
    pub max_inherit: u8,
    /// In a default, the number of levels whose subdirectories are spread round-robin:
    /// [`INHERIT_RR_NONE`], [`INHERIT_RR_UNLIMITED`], or a number.
    pub max_inherit_rr: u8,
    /// Reserved.
    pub rest: [u8; 10],
    /// NUL-terminated name of an MDT pool. Must be empty: pools of MDTs do not exist.
    pub pool: [u8; 16],
    /// Requested MDTs or existing stripes. Empty with [`MAGIC_USER`].
    pub stripes: Vec<LmvStripe>,
}

impl LmvUser {
    /// Creates a request for this number of stripes on any MDT.
    pub fn new(stripe_count: i32) -> LmvUser {
        LmvUser {
            magic: MAGIC_USER,
            stripe_count,
            mdt: None,
            hash: HashType::NONE,
            kind: 0,
            max_inherit: INHERIT_PLAIN,
            max_inherit_rr: INHERIT_RR_NONE,
            rest: [0; 10],
            pool: [0; 16],
            stripes: Vec::new(),
        }
    }

    /// Creates the report for a directory that is not striped.
    pub fn plain(mdt: u32) -> LmvUser {
        LmvUser { magic: MAGIC_V1, mdt: Some(mdt), ..LmvUser::new(0) }
    }

    /// Returns the default of a root directory that has none set: subdirectories of one stripe,
    /// distributed over the MDTs by free space, and round-robin near the root.
    pub fn root_default() -> LmvUser {
        LmvUser { max_inherit_rr: INHERIT_RR_ROOT, ..LmvUser::new(1) }
    }

    /// Returns the request for exactly these MDTs, one per stripe.
    pub fn with_mdts(self, mdts: &[u32]) -> LmvUser {
        LmvUser {
            magic: MAGIC_SPECIFIC,
            stripe_count: i32::try_from(mdts.len()).unwrap_or(i32::MAX),
            mdt: mdts.first().copied(),
            stripes: mdts.iter().map(|mdt| LmvStripe::new(Fid::ZERO, *mdt)).collect(),
            ..self
        }
    }

    /// Decodes a request, a default or a report.
    ///
    /// # Errors
    /// EINVAL if malformed, EOPNOTSUPP for a foreign directory.
    pub fn decode(bytes: &[u8]) -> Result<LmvUser, LmvError> {
        match magic_of(bytes)? {
            MAGIC_USER | MAGIC_SPECIFIC | MAGIC_V1 => {}
            MAGIC_FOREIGN => return Err(LmvError::Unsupported("foreign")),
            other => return Err(LmvError::BadMagic(other)),
        }
        let (head, stripes) = read::<UserHead, UserStripe>(bytes)?;
        let (magic, count) = (head.magic.get(), head.stripe_count.get());
        if !(-(STRIPES_PER_MDT_MAX as i32)..=DIR_STRIPES_MAX as i32).contains(&count) {
            return Err(LmvError::StripeCount(count));
        }
        let listed = if magic == MAGIC_USER { 0 } else { usize::try_from(count).unwrap_or(0) };
        if stripes.len() != listed || (magic == MAGIC_SPECIFIC && listed == 0) {
            return Err(LmvError::Size { need: USER_BYTES + listed * USER_STRIPE_BYTES, have: bytes.len() });
        }
        let stripe = |s: &UserStripe| LmvStripe {
            fid: Fid { seq: s.seq.get(), oid: s.oid.get(), ver: s.ver.get() },
            mdt: s.mdt.get(),
            rest: s.rest.get(),
        };
        Ok(LmvUser {
            magic,
            stripe_count: count,
            mdt: Some(head.stripe_offset.get()).filter(|mdt| *mdt != OFFSET_ANY),
            hash: HashType(head.hash_type.get()),
            kind: head.kind.get(),
            max_inherit: head.max_inherit,
            max_inherit_rr: head.max_inherit_rr,
            rest: head.rest,
            pool: head.pool,
            stripes: stripes.iter().map(stripe).collect(),
        })
    }

    /// Encodes to Lustre's binary form.
    pub fn encode(&self) -> Vec<u8> {
        let head = UserHead {
            magic: U32::new(self.magic),
            stripe_count: I32::new(self.stripe_count),
            stripe_offset: U32::new(self.mdt.unwrap_or(OFFSET_ANY)),
            hash_type: U32::new(self.hash.0),
            kind: U32::new(self.kind),
            max_inherit: self.max_inherit,
            max_inherit_rr: self.max_inherit_rr,
            rest: self.rest,
            pool: self.pool,
        };
        let mut out = head.as_bytes().to_vec();
        for stripe in &self.stripes {
            let Fid { seq, oid, ver } = stripe.fid;
            let (seq, oid, ver) = (U64::new(seq), U32::new(oid), U32::new(ver));
            let stripe = UserStripe { seq, oid, ver, rest: U32::new(stripe.rest), mdt: U32::new(stripe.mdt) };
            out.extend_from_slice(stripe.as_bytes());
        }
        out
    }

    /// Checks that this can be requested in a file system with these MDTs.
    ///
    /// # Errors
    /// EINVAL for an unknown hash type or a pool, ENODEV for an unknown MDT.
    pub fn check(&self, mdts: &[u32]) -> Result<(), LmvError> {
        if !self.hash.is_known() {
            return Err(LmvError::HashType(self.hash.0));
        }
        if self.pool[0] != 0 {
            return Err(LmvError::Pool);
        }
        let mut wanted = self.mdt.into_iter().chain(self.stripes.iter().map(|s| s.mdt));
        match wanted.find(|mdt| !mdts.contains(mdt)) {
            Some(mdt) => Err(LmvError::UnknownMdt(mdt)),
            None => Ok(()),
        }
    }

    /// Checks that this can be a directory's default in a file system with these MDTs.
    ///
    /// # Errors
    /// As [`LmvUser::check`], and EINVAL for anything but [`MAGIC_USER`].
    pub fn check_default(&self, mdts: &[u32]) -> Result<(), LmvError> {
        match self.magic {
            MAGIC_USER => self.check(mdts),
            MAGIC_SPECIFIC => Err(LmvError::ListInDefault),
            other => Err(LmvError::BadMagic(other)),
        }
    }

    /// Whether setting this as a default deletes the present one, because it specifies nothing.
    pub fn deletes_default(&self) -> bool {
        self.stripe_count == 0 && self.mdt.is_none()
    }

    /// Returns the number of stripes that a directory with this layout gets on `mdts` MDTs; below 2
    /// the directory is not striped. Several stripes per MDT require [`HashType::OVERSTRIPED`] or a
    /// negative count, and are limited to [`STRIPES_PER_MDT_MAX`].
    pub fn stripes_on(&self, mdts: u32) -> u32 {
        let over = self.stripe_count < 0 || self.hash.has(HashType::OVERSTRIPED);
        let most = mdts.saturating_mul(if over { STRIPES_PER_MDT_MAX } else { 1 });
        let asked = match u32::try_from(self.stripe_count) {
            Ok(count) => count,
            Err(_) => mdts.saturating_mul(self.stripe_count.unsigned_abs()),
        };
        asked.min(most).min(DIR_STRIPES_MAX)
    }

    /// Returns this default as inherited `levels` further down, or `None` if that level does not
    /// inherit it.
    pub fn inherited(&self, levels: u32) -> Option<LmvUser> {
        let levels = u8::try_from(levels).unwrap_or(u8::MAX);
        let max_inherit = match self.max_inherit {
            depth if levels == 0 => depth,
            INHERIT_UNLIMITED => INHERIT_UNLIMITED,
            depth if depth <= INHERIT_MAX && depth > levels => depth - levels,
            _ => return None,
        };
        let max_inherit_rr = match self.max_inherit_rr {
            depth if depth > INHERIT_MAX => depth,
            depth => depth.saturating_sub(levels),
        };
        Some(LmvUser { max_inherit, max_inherit_rr, ..self.clone() })
    }
}

/// The existing stripes of a directory (`lmv_mds_md_v1`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LmvMds {
    /// Index of the MDT that holds the directory itself.
    pub master_mdt: u32,
    /// Hash and flags.
    pub hash: HashType,
    /// Version, raised by every change of the layout.
    pub layout_version: u32,
    /// During a migration: index of the first source stripe. The stripes from it on are the source.
    pub migrate_offset: u32,
    /// During a migration: hash of the source stripes.
    pub migrate_hash: HashType,
    rest: [u8; 12],
    pool: [u8; 16],
    /// Objects that hold the entries, indexed by the hash of the names.
    pub stripes: Vec<Fid>,
}

impl LmvMds {
    /// Creates the layout of a directory with these stripes.
    pub fn new(master_mdt: u32, hash: HashType, stripes: Vec<Fid>) -> LmvMds {
        LmvMds {
            master_mdt,
            hash,
            layout_version: 0,
            migrate_offset: 0,
            migrate_hash: HashType::NONE,
            rest: [0; 12],
            pool: [0; 16],
            stripes,
        }
    }

    /// Decodes a stored layout.
    ///
    /// # Errors
    /// EINVAL if malformed. EOPNOTSUPP for a foreign directory and for the attribute of a single
    /// stripe.
    pub fn decode(bytes: &[u8]) -> Result<LmvMds, LmvError> {
        match magic_of(bytes)? {
            MAGIC_V1 => {}
            MAGIC_SPECIFIC => return Err(LmvError::Unsupported("stripes of")),
            MAGIC_FOREIGN => return Err(LmvError::Unsupported("foreign")),
            other => return Err(LmvError::BadMagic(other)),
        }
        let (head, stripes) = read::<MdsHead, MdsStripe>(bytes)?;
        let count = head.stripe_count.get() as usize;
        if stripes.len() != count {
            let need = MDS_BYTES.saturating_add(count.saturating_mul(MDS_STRIPE_BYTES));
            return Err(LmvError::Size { need, have: bytes.len() });
        }
        Ok(LmvMds {
            master_mdt: head.master_mdt.get(),
            hash: HashType(head.hash_type.get()),
            layout_version: head.layout_version.get(),
            migrate_offset: head.migrate_offset.get(),
            migrate_hash: HashType(head.migrate_hash.get()),
            rest: head.rest,
            pool: head.pool,
            stripes: stripes.iter().map(|s| Fid { seq: s.seq.get(), oid: s.oid.get(), ver: s.ver.get() }).collect(),
        })
    }

    /// Encodes the layout for storage.
    pub fn encode(&self) -> Vec<u8> {
        let head = MdsHead {
            magic: U32::new(MAGIC_V1),
            stripe_count: U32::new(self.stripes.len() as u32),
            master_mdt: U32::new(self.master_mdt),
            hash_type: U32::new(self.hash.0),
            layout_version: U32::new(self.layout_version),
            migrate_offset: U32::new(self.migrate_offset),
            migrate_hash: U32::new(self.migrate_hash.0),
            rest: self.rest,
            pool: self.pool,
        };
        let mut out = head.as_bytes().to_vec();
        for Fid { seq, oid, ver } in &self.stripes {
            let stripe = MdsStripe { seq: U64::new(*seq), oid: U32::new(*oid), ver: U32::new(*ver) };
            out.extend_from_slice(stripe.as_bytes());
        }
        out
    }

    /// Converts to the form for tools. `mdt_of` returns the MDT of an object.
    pub fn to_user(&self, mdt_of: impl Fn(Fid) -> u32) -> LmvUser {
        let stripes: Vec<LmvStripe> = self.stripes.iter().map(|fid| LmvStripe::new(*fid, mdt_of(*fid))).collect();
        LmvUser {
            magic: MAGIC_V1,
            stripe_count: i32::try_from(stripes.len()).unwrap_or(i32::MAX),
            mdt: Some(self.master_mdt),
            hash: self.hash,
            stripes,
            ..LmvUser::new(0)
        }
    }
}

/// Reads the magic number.
///
/// # Errors
/// [`LmvError::Size`] if there are fewer than four bytes.
pub fn magic_of(bytes: &[u8]) -> Result<u32, LmvError> {
    let short = LmvError::Size { need: USER_BYTES, have: bytes.len() };
    bytes.first_chunk().map(|magic| u32::from_le_bytes(*magic)).ok_or(short)
}

#[cfg(test)]
mod tests;
