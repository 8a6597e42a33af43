//! Layouts of directories, in Lustre's bytes: which MDTs hold a directory's entries, and what its
//! subdirectories get.
//!
//! | struct | Lustre's | kept as |
//! |---|---|---|
//! | [`LmvUser`] | `lmv_user_md_v1`: what is asked for, a directory's default, or the answer to a tool | `trusted.dmv`, the default |
//! | [`LmvMds`] | `lmv_mds_md_v1`: the stripes that there are | `trusted.lmv`, of striped directories alone |
//!
//! Invariants: bytes from users and peers are refused with an [`LmvError`], never a panic; what was
//! decoded encodes to the same bytes, what this version does not use included. Little-endian; 48
//! bytes + 24 a stripe, and 56 bytes + 16 a stripe.
//!
//! What [`LmvUser::decode`] accepts has a sound form; whether it makes sense on this file system is
//! [`LmvUser::check`]'s to say.

use std::fmt;

use sheen_wire::{Errno, Fid};
use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, LE, Unaligned,
    byteorder::{I32, U32, U64},
};

/// The magic number of [`LmvMds`], and of a [`LmvUser`] that answers what stripes there are
/// (LMV_MAGIC_V1).
pub const MAGIC_V1: u32 = 0x0CD2_0CD0;
/// The magic number of what is asked for, and of defaults (LMV_USER_MAGIC).
pub const MAGIC_USER: u32 = 0x0CD3_0CD0;
/// The same with a list of MDTs (LMV_USER_MAGIC_SPECIFIC).
pub const MAGIC_SPECIFIC: u32 = 0x0CD4_0CD0;
/// Another system's directory (LMV_MAGIC_FOREIGN).
pub const MAGIC_FOREIGN: u32 = 0x0CD5_0CD0;

/// Most stripes of a directory (LMV_MAX_STRIPE_COUNT).
pub const DIR_STRIPES_MAX: u32 = 2000;
/// Most stripes of a directory on one MDT, with overstriping (LMV_MAX_STRIPES_PER_MDT).
pub const STRIPES_PER_MDT_MAX: u32 = 5;

/// [`LmvUser::max_inherit`]: subdirectories of any depth inherit the default.
pub const INHERIT_UNLIMITED: u8 = 0;
/// Largest depth that can be asked for.
pub const INHERIT_MAX: u8 = 250;
/// [`LmvUser::max_inherit`]: not even the next level inherits it.
pub const INHERIT_NONE: u8 = 255;
/// What [`LmvUser::max_inherit`] is where nobody says: unlimited for defaults of one stripe, …
pub const INHERIT_PLAIN: u8 = INHERIT_UNLIMITED;
/// … two more levels for striped ones, …
pub const INHERIT_STRIPED: u8 = 3;
/// … one for overstriped ones: every level multiplies the stripes.
pub const INHERIT_OVERSTRIPED: u8 = 2;
/// [`LmvUser::max_inherit_rr`]: no level spreads its subdirectories round-robin.
pub const INHERIT_RR_NONE: u8 = 0;
/// [`LmvUser::max_inherit_rr`]: every level does.
pub const INHERIT_RR_UNLIMITED: u8 = 255;
/// What it is on a root directory where nobody says.
const INHERIT_RR_ROOT: u8 = 3;

/// Bytes of a [`LmvUser`] without stripes.
pub const USER_BYTES: usize = size_of::<UserHead>();
/// Bytes of each stripe of it.
pub const USER_STRIPE_BYTES: usize = size_of::<UserStripe>();
/// Bytes of a [`LmvMds`] without stripes.
pub const MDS_BYTES: usize = size_of::<MdsHead>();
/// Bytes of each stripe of it.
pub const MDS_STRIPE_BYTES: usize = size_of::<MdsStripe>();

const _: () = assert!(USER_BYTES == 48 && USER_STRIPE_BYTES == 24 && MDS_BYTES == 56 && MDS_STRIPE_BYTES == 16);

/// `lum_stripe_offset`: any MDT (LMV_OFFSET_DEFAULT).
const OFFSET_ANY: u32 = u32::MAX;

/// Why a directory's layout is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LmvError {
    /// Not as many bytes as the header and its count promise.
    #[error("a directory layout of {have} bytes needs {need}")]
    Size {
        /// Bytes needed.
        need: usize,
        /// Bytes there.
        have: usize,
    },
    /// Not a directory's layout.
    #[error("{0:#010x} is not a directory layout's magic number")]
    BadMagic(u32),
    /// A kind that this version cannot use.
    #[error("{0} directories are not supported by this version")]
    Unsupported(&'static str),
    /// Too many stripes, or a negative count without meaning.
    #[error("directory stripe count {0} is not in -5..={DIR_STRIPES_MAX}")]
    StripeCount(i32),
    /// A hash of names that nobody knows.
    #[error("{0:#x} is not a directory hash type")]
    HashType(u32),
    /// An MDT that the file system does not have.
    #[error("there is no MDT with index {0}")]
    UnknownMdt(u32),
    /// A list of MDTs where none can be.
    #[error("a default cannot list MDTs")]
    ListInDefault,
    /// A pool; MDTs have none.
    #[error("there are no pools of MDTs")]
    Pool,
}

impl LmvError {
    /// Lustre's errno for it.
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

/// `lmv_hash_type`: how names are spread over stripes, and flags of the directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HashType(pub u32);

impl HashType {
    /// The MDT chooses.
    pub const NONE: HashType = HashType(0);
    /// Where nobody says.
    pub const DEFAULT: HashType = HashType::FNV_1A_64;
    /// A good hash that is none of cryptography.
    pub const FNV_1A_64: HashType = HashType(2);
    /// Flag: several stripes may lie on one MDT.
    pub const OVERSTRIPED: u32 = 0x0100_0000;

    const MASK: u32 = 0xffff;
    const KNOWN_FLAGS: u32 = 0xbf00_0000;
    const NAMES: [&'static str; 5] = ["none", "all_char", "fnv_1a_64", "crush", "crush2"];
    /// As Lustre prints them, in its order.
    const FLAGS: [(u32, &'static str); 5] = [
        (HashType::OVERSTRIPED, "overstriped"),
        (0x8000_0000, "migrating"),
        (0x2000_0000, "bad_type"),
        (0x1000_0000, "lost_lmv"),
        (0x0200_0000, "fixed"),
    ];

    /// The hash without flags that a user names, or numbers by one digit: `crush`, `3`. `none`
    /// cannot be asked for.
    pub fn parse(text: &str) -> Option<HashType> {
        let named = HashType::NAMES.iter().position(|name| *name == text);
        let index = named.or_else(|| text.parse().ok().filter(|_| text.len() == 1))?;
        (1..HashType::NAMES.len()).contains(&index).then_some(HashType(index as u32))
    }

    /// Whether a flag is set.
    pub fn has(self, flag: u32) -> bool {
        self.0 & flag != 0
    }

    /// With a flag.
    pub fn with(self, flag: u32) -> HashType {
        HashType(self.0 | flag)
    }

    /// With a hash, if it names none yet.
    pub fn or_default(self) -> HashType {
        if self.0 & HashType::MASK == 0 { HashType(self.0 | HashType::DEFAULT.0) } else { self }
    }

    /// Whether each part of it is known to Lustre.
    fn is_known(self) -> bool {
        (self.0 & HashType::MASK) < HashType::NAMES.len() as u32
            && self.0 & !(HashType::MASK | HashType::KNOWN_FLAGS) == 0
    }
}

impl fmt::Display for HashType {
    /// `fnv_1a_64,overstriped`.
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

/// The head, and the stripes after it, of which there must be whole ones.
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

/// A stripe as tools see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LmvStripe {
    /// The object that holds the stripe's entries; zero where an MDT is asked for.
    pub fid: Fid,
    /// Index of its MDT.
    pub mdt: u32,
    rest: u32,
}

impl LmvStripe {
    /// A stripe.
    pub fn new(fid: Fid, mdt: u32) -> LmvStripe {
        LmvStripe { fid, mdt, rest: 0 }
    }
}

/// What is asked for, a default, or what there is (`lmv_user_md_v1`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LmvUser {
    /// [`MAGIC_USER`], [`MAGIC_SPECIFIC`] or [`MAGIC_V1`].
    pub magic: u32,
    /// Stripes; 0: none asked for; -1 to -5: so many on each MDT.
    pub stripe_count: i32,
    /// The first MDT; `None`: any (of a default: by space).
    pub mdt: Option<u32>,
    /// Hash and flags.
    pub hash: HashType,
    /// `lum_type`, of no use here.
    pub kind: u32,
    /// Of a default, to how many levels it is handed on: [`INHERIT_UNLIMITED`], 1 for no further
    /// one, [`INHERIT_NONE`].
    pub max_inherit: u8,
    /// Of a default, for how many levels subdirectories are spread round-robin:
    /// [`INHERIT_RR_NONE`], [`INHERIT_RR_UNLIMITED`].
    pub max_inherit_rr: u8,
    /// Of no use yet.
    pub rest: [u8; 10],
    /// A pool of MDTs, ended by NUL; there are none.
    pub pool: [u8; 16],
    /// The MDTs asked for, or the stripes that there are. None of [`MAGIC_USER`].
    pub stripes: Vec<LmvStripe>,
}

impl LmvUser {
    /// Asks for so many stripes on any MDT.
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

    /// What there is of a directory that is not striped.
    pub fn plain(mdt: u32) -> LmvUser {
        LmvUser { magic: MAGIC_V1, mdt: Some(mdt), ..LmvUser::new(0) }
    }

    /// The default of a root directory for which nobody has set one: subdirectories of one stripe,
    /// spread over the MDTs by space, round-robin near the root.
    pub fn root_default() -> LmvUser {
        LmvUser { max_inherit_rr: INHERIT_RR_ROOT, ..LmvUser::new(1) }
    }

    /// Asks for exactly these MDTs, one per stripe.
    pub fn with_mdts(self, mdts: &[u32]) -> LmvUser {
        LmvUser {
            magic: MAGIC_SPECIFIC,
            stripe_count: i32::try_from(mdts.len()).unwrap_or(i32::MAX),
            mdt: mdts.first().copied(),
            stripes: mdts.iter().map(|mdt| LmvStripe::new(Fid::ZERO, *mdt)).collect(),
            ..self
        }
    }

    /// Reads any of the three.
    ///
    /// # Errors
    /// EINVAL for what is malformed, EOPNOTSUPP for a foreign directory.
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

    /// Its bytes.
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

    /// Whether it can be asked for where there are these MDTs.
    ///
    /// # Errors
    /// EINVAL for an unknown hash type or a pool, ENODEV for an MDT that is not there.
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

    /// The same as a directory's default.
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

    /// Whether setting it as a default deletes the one that is there: it asks for nothing.
    pub fn deletes_default(&self) -> bool {
        self.stripe_count == 0 && self.mdt.is_none()
    }

    /// How many stripes a directory that asks for this gets on `mdts` MDTs; less than 2: it is not
    /// striped. More than one to an MDT takes [`HashType::OVERSTRIPED`] or a negative count, and at
    /// most [`STRIPES_PER_MDT_MAX`].
    pub fn stripes_on(&self, mdts: u32) -> u32 {
        let over = self.stripe_count < 0 || self.hash.has(HashType::OVERSTRIPED);
        let most = mdts.saturating_mul(if over { STRIPES_PER_MDT_MAX } else { 1 });
        let asked = match u32::try_from(self.stripe_count) {
            Ok(count) => count,
            Err(_) => mdts.saturating_mul(self.stripe_count.unsigned_abs()),
        };
        asked.min(most).min(DIR_STRIPES_MAX)
    }

    /// This default `levels` further down, if it gets there.
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

/// The stripes of a directory (`lmv_mds_md_v1`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LmvMds {
    /// Index of the MDT that holds the directory itself.
    pub master_mdt: u32,
    /// Hash and flags.
    pub hash: HashType,
    /// Rises with every change of the layout.
    pub layout_version: u32,
    /// While it migrates: stripes from this one on are those that it comes from.
    pub migrate_offset: u32,
    /// While it migrates: the hash of those.
    pub migrate_hash: HashType,
    rest: [u8; 12],
    pool: [u8; 16],
    /// The objects that hold the entries, by the hash of their names.
    pub stripes: Vec<Fid>,
}

impl LmvMds {
    /// A directory of these stripes.
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

    /// Reads a stored one.
    ///
    /// # Errors
    /// EINVAL for what is malformed, EOPNOTSUPP for what a foreign directory or a single stripe of
    /// one keeps.
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

    /// The bytes to store.
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

    /// As tools see it; `mdt_of` says where an object lies.
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

/// What the bytes begin with.
///
/// # Errors
/// [`LmvError::Size`] where there are less than four.
pub fn magic_of(bytes: &[u8]) -> Result<u32, LmvError> {
    let short = LmvError::Size { need: USER_BYTES, have: bytes.len() };
    bytes.first_chunk().map(|magic| u32::from_le_bytes(*magic)).ok_or(short)
}

#[cfg(test)]
mod tests;
