//! Errors of refused layouts.

use sheen_wire::Errno;

use crate::{EXTENSION_SIZE_MIN, MIRRORS_MAX, POOL_NAME_MAX, STRIPE_SIZE_UNIT, STRIPES_MAX};

/// Reason why a layout was refused. Each variant has an errno ([`LayoutError::errno`]); its message
/// says what would be valid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LayoutError {
    /// The layout has fewer bytes than its header or its counts require.
    #[error("truncated layout: {have} bytes, expected {need}")]
    Truncated {
        /// Bytes needed.
        need: usize,
        /// Bytes present.
        have: usize,
    },
    /// The layout exceeds the size limit of an extended attribute.
    #[error("a layout of {0} bytes exceeds the limit of 65536")]
    TooLarge(usize),
    /// The generation does not fit into the 16 bits that a plain layout has for it.
    #[error("layout generation {0} exceeds {max}, the limit of a plain layout", max = u16::MAX)]
    Generation(u32),
    /// The bytes are not a layout.
    #[error("{0:#010x} is not a layout's magic number")]
    BadMagic(u32),
    /// The kind of layout is not supported.
    #[error("{0} layouts are not supported by this version")]
    Unsupported(&'static str),
    /// Fields of the layout contradict each other.
    #[error("malformed layout: {0}")]
    Malformed(&'static str),
    /// The stripe size is zero, not a multiple of 64 KiB, or too large.
    #[error("stripe size {0} is not a multiple of {STRIPE_SIZE_UNIT} bytes")]
    StripeSize(u64),
    /// The stripe count exceeds 2000, or is a negative number without meaning.
    #[error(
        "stripe count {0} is not in 1..={STRIPES_MAX} (or -1 for all OSTs; with overstriping -2..=-32 for 2 to 32 stripes per OST)"
    )]
    StripeCount(i64),
    /// The stripe count is not the number of listed OSTs.
    #[error("stripe count {count} differs from the number of listed OSTs, {listed}")]
    CountOfList {
        /// The count given by `-c`.
        count: i64,
        /// The number of OSTs given by `-o`.
        listed: usize,
    },
    /// The pool name is empty, too long or has invalid characters.
    #[error("invalid pool name '{0}': expected 1 to {POOL_NAME_MAX} letters, digits, '-', '_' or '.'")]
    PoolName(String),
    /// The file system has no OST with this index.
    #[error("there is no OST with index {0}")]
    UnknownOst(u32),
    /// An explicitly listed OST is inactive.
    #[error("OST {0} is inactive")]
    InactiveOst(u32),
    /// No active OST has free space.
    #[error("no active OST has free space")]
    NoSpace,
    /// The component ends before it starts, or is empty where it must not be.
    #[error("invalid component extent: start {start}, end {end}")]
    Extent {
        /// First byte.
        start: u64,
        /// Byte after the last.
        end: u64,
    },
    /// The component overlaps the one before it or leaves a gap.
    #[error("component start {start} leaves a gap or overlaps: expected {expected}")]
    Gap {
        /// Start of the component.
        start: u64,
        /// Expected start; 0 for the first component of a mirror.
        expected: u64,
    },
    /// The component does not begin and end at a multiple of 64 KiB.
    #[error("component boundary {0} is not a multiple of {STRIPE_SIZE_UNIT} bytes")]
    Boundary(u64),
    /// The component's end is not a multiple of its stripe size.
    #[error("the component end {end} must be aligned by the stripe size {stripe_size}")]
    EndAlignment {
        /// Byte after the last.
        end: u64,
        /// Stripe size, in bytes.
        stripe_size: u32,
    },
    /// The component is empty, and no extension follows into which it could grow.
    #[error("the zero length component at {0} must be followed by an extension")]
    ZeroLength(u64),
    /// The extension size is too small, too large or not a multiple of the stripe size.
    #[error(
        "extension size {0} must be a multiple of {STRIPE_SIZE_UNIT} and of the stripe size, from {EXTENSION_SIZE_MIN} up"
    )]
    ExtensionSize(u64),
    /// The number of mirrors is 0 or exceeds 16.
    #[error("{0} mirrors are not in 1..={MIRRORS_MAX}")]
    Mirrors(u16),
    /// The header's number of mirrors differs from the mirrors in the components.
    #[error("the header says {said} mirrors, but the components form {found}")]
    MirrorsMissing {
        /// Number of mirrors in the header.
        said: u16,
        /// Number of components that start at 0.
        found: usize,
    },
    /// A Data-on-MDT component does not start at 0.
    #[error("'mdt' layout can be only the first one: a component at {0} needs OSTs")]
    MdtNotFirst(u64),
    /// An option for OSTs is given for a Data-on-MDT component.
    #[error("{0} cannot be specified with a Data-on-MDT component")]
    MdtOption(&'static str),
    /// Users cannot set these flags.
    #[error("component flags {0:#x} cannot be set")]
    ComponentFlags(u32),
    /// Components cannot be changed in a plain layout.
    #[error("a plain layout has no components to change")]
    NotComposite,
    /// No component has this id or these flags.
    #[error("no component matches")]
    NoComponent,
    /// A component that is followed by another one cannot be deleted.
    #[error("components can be deleted from the end only: this would leave a hole")]
    Hole,
    /// Components of a mirrored file cannot be added or deleted one by one.
    #[error("a mirrored file's components cannot be added or deleted: extend or split the file instead")]
    Mirrored,
    /// A layout with several mirrors cannot become one mirror of a file.
    #[error("a mirrored file cannot become a mirror of another file: split it first")]
    MergesMirrored,
    /// A mirror with a Data-on-MDT component cannot become another file's mirror, nor a file of
    /// its own, because its data stays with its file.
    #[error("a mirror with a Data-on-MDT component cannot move to another file")]
    MirrorOnMdt,
    /// Only one mirror can have a Data-on-MDT component, because its object is named after the
    /// file.
    #[error("only one mirror of a file can have a Data-on-MDT component")]
    SecondOnMdt,
    /// The last up-to-date mirror cannot be made stale or removed.
    #[error("no up-to-date mirror would be left")]
    LastFresh,
    /// The layout has only one mirror.
    #[error("the file is not mirrored")]
    NotMirrored,
    /// The mirror does not exist, or is stale.
    #[error("mirror {0} does not exist or is stale")]
    NoMirror(u16),
    /// The layout was changed or the file written since the resync began.
    #[error("the file or its layout was changed since layout generation {0}")]
    Outdated(u32),
    /// The component already has objects, or never gets any.
    #[error("component {0:#x} already has objects or never gets any")]
    NotWanting(u32),
}

impl LayoutError {
    /// Returns the errno that Lustre uses for this error.
    pub fn errno(&self) -> Errno {
        match self {
            LayoutError::TooLarge(_) | LayoutError::Generation(_) => Errno::ERANGE,
            LayoutError::Unsupported(_) | LayoutError::MirrorOnMdt | LayoutError::SecondOnMdt => Errno::EOPNOTSUPP,
            LayoutError::InactiveOst(_) => EREMOTEIO,
            LayoutError::NoSpace => Errno::ENOSPC,
            LayoutError::Mirrored | LayoutError::MergesMirrored | LayoutError::Outdated(_) => Errno::EBUSY,
            LayoutError::LastFresh => Errno::EUCLEAN,
            _ => Errno::EINVAL,
        }
    }
}

/// Linux's EREMOTEIO, which Lustre returns for `-o` with an inactive OST.
const EREMOTEIO: Errno = Errno(121);

impl From<LayoutError> for Errno {
    fn from(e: LayoutError) -> Errno {
        e.errno()
    }
}
