//! Why a layout is refused.

use sheen_wire::Errno;

use crate::{POOL_NAME_MAX, STRIPE_SIZE_UNIT, STRIPES_MAX};

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
}

impl LayoutError {
    /// Lustre's errno for it.
    pub fn errno(&self) -> Errno {
        match self {
            LayoutError::TooLarge(_) => Errno::ERANGE,
            LayoutError::Unsupported(_) => Errno::EOPNOTSUPP,
            LayoutError::InactiveOst(_) => EREMOTEIO,
            LayoutError::NoSpace => Errno::ENOSPC,
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
