//! Why a layout is refused.

use sheen_wire::Errno;

use crate::{EXTENSION_SIZE_MIN, MIRRORS_MAX, POOL_NAME_MAX, STRIPE_SIZE_UNIT, STRIPES_MAX};

/// Each carries an errno ([`LayoutError::errno`]) and says what would have been right.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LayoutError {
    /// Fewer bytes than the header or its counts promise.
    #[error("a layout of {have} bytes needs {need}")]
    Truncated {
        /// Bytes needed.
        need: usize,
        /// Bytes there.
        have: usize,
    },
    /// More bytes than an extended attribute may have.
    #[error("a layout of {0} bytes exceeds the limit of 65536")]
    TooLarge(usize),
    /// Not a layout.
    #[error("{0:#010x} is not a layout's magic number")]
    BadMagic(u32),
    /// A layout of a kind that this version cannot use.
    #[error("{0} layouts are not supported by this version")]
    Unsupported(&'static str),
    /// Fields that contradict each other.
    #[error("malformed layout: {0}")]
    Malformed(&'static str),
    /// Zero or no multiple of 64 KiB.
    #[error("stripe size {0} is not a multiple of {STRIPE_SIZE_UNIT} bytes")]
    StripeSize(u64),
    /// More than 2000, or a negative count without meaning.
    #[error(
        "stripe count {0} is not in 1..={STRIPES_MAX} (or -1 for all OSTs; with overstriping -1..=-32 that many per OST)"
    )]
    StripeCount(i64),
    /// An explicit list and a count that is not its length.
    #[error("stripe count {count} differs from the {listed} listed OSTs")]
    CountOfList {
        /// What `-c` says.
        count: i64,
        /// What `-o` lists.
        listed: usize,
    },
    /// Name of a pool that is empty, too long or has strange characters.
    #[error("'{0}' is not a pool name: 1 to {POOL_NAME_MAX} characters of letters, digits, '-', '_' and '.'")]
    PoolName(String),
    /// An OST that the file system does not have.
    #[error("there is no OST with index {0}")]
    UnknownOst(u32),
    /// An explicitly listed OST is switched off.
    #[error("OST {0} is inactive")]
    InactiveOst(u32),
    /// No OST is active and has space.
    #[error("no OST is active and has space")]
    NoSpace,
    /// A component that ends before it starts.
    #[error("a component cannot reach from {start} to {end}")]
    Extent {
        /// First byte.
        start: u64,
        /// Byte after the last.
        end: u64,
    },
    /// A component that overlaps the one before it or leaves a gap.
    #[error("a component starts at {start}: it must start at {expected}, where the one before it ends")]
    Gap {
        /// Where it starts.
        start: u64,
        /// Where it should; 0 for the first component of a mirror.
        expected: u64,
    },
    /// A component that begins or ends within a unit of 64 KiB.
    #[error("component boundary {0} is not a multiple of {STRIPE_SIZE_UNIT} bytes")]
    Boundary(u64),
    /// A component whose last row of stripes is cut.
    #[error("the component end {end} must be aligned by the stripe size {stripe_size}")]
    EndAlignment {
        /// Byte after the last.
        end: u64,
        /// Bytes.
        stripe_size: u32,
    },
    /// A component without bytes that cannot grow either.
    #[error("the zero length component at {0} must be followed by an extension")]
    ZeroLength(u64),
    /// Bytes by which a component grows that are too few, or no whole stripes.
    #[error(
        "extension size {0} must be a multiple of {STRIPE_SIZE_UNIT} and of the stripe size, from {EXTENSION_SIZE_MIN} up"
    )]
    ExtensionSize(u64),
    /// No mirror, or more than 16.
    #[error("{0} mirrors are not in 1..={MIRRORS_MAX}")]
    Mirrors(u16),
    /// Mirrors that were announced, and others that came.
    #[error("{said} mirrors were announced, but components for {found} are given")]
    MirrorsMissing {
        /// In the header.
        said: u16,
        /// Components that start at 0.
        found: usize,
    },
    /// Data on the MDT beyond the beginning of a file.
    #[error("'mdt' layout can be only the first one: a component at {0} needs OSTs")]
    MdtNotFirst(u64),
    /// An option of OSTs for a component that uses none.
    #[error("{0} cannot be specified with a Data-on-MDT component")]
    MdtOption(&'static str),
    /// Flags that are not a user's to set.
    #[error("component flags {0:#x} cannot be set")]
    ComponentFlags(u32),
    /// Components of a file that has none.
    #[error("a plain layout has no components to change")]
    NotComposite,
    /// No component has that id, or none those flags.
    #[error("no component matches")]
    NoComponent,
    /// A component that others follow cannot be deleted.
    #[error("components can be deleted from the end only: this would leave a hole")]
    Hole,
    /// Components of a mirrored file are not added or deleted one by one.
    #[error("a mirrored file's components cannot be added or deleted: extend or split the file instead")]
    Mirrored,
    /// What lies on the MDT stays with its file: it becomes no other file's mirror, and no file of
    /// its own.
    #[error("what begins on the MDT cannot become another file's")]
    MirrorOnMdt,
    /// An object on the MDT has its file's name, so there is one of them.
    #[error("only one mirror of a file can begin on the MDT")]
    SecondOnMdt,
    /// The last mirror that has all data cannot be declared stale.
    #[error("no other mirror would be left that is up to date")]
    LastFresh,
    /// A layout with one mirror.
    #[error("the file is not mirrored")]
    NotMirrored,
    /// No mirror has that id, or it is not fit for this.
    #[error("there is no mirror {0} to be used")]
    NoMirror(u16),
    /// The layout was changed, or the file written, since a resync began.
    #[error("the file was changed since generation {0} of its layout")]
    Outdated(u32),
    /// A component that has its objects already, or never has any.
    #[error("component {0:#x} takes no objects")]
    NotWanting(u32),
}

impl LayoutError {
    /// Lustre's errno for it.
    pub fn errno(&self) -> Errno {
        match self {
            LayoutError::TooLarge(_) => Errno::ERANGE,
            LayoutError::Unsupported(_) | LayoutError::MirrorOnMdt | LayoutError::SecondOnMdt => Errno::EOPNOTSUPP,
            LayoutError::InactiveOst(_) => EREMOTEIO,
            LayoutError::NoSpace => Errno::ENOSPC,
            LayoutError::Mirrored | LayoutError::Outdated(_) => Errno::EBUSY,
            LayoutError::LastFresh => Errno::EUCLEAN,
            _ => Errno::EINVAL,
        }
    }
}

/// Linux's EREMOTEIO: Lustre's answer to `-o` with an inactive OST.
const EREMOTEIO: Errno = Errno(121);

impl From<LayoutError> for Errno {
    fn from(e: LayoutError) -> Errno {
        e.errno()
    }
}
