//! Layout parameters for a whole file, requested by a user or stored as a directory's default:
//! Lustre's `lov_user_md`.

use crate::{LayoutError, PER_OST_MAX, Pattern, Pool, STRIPE_SIZE_MAX, STRIPES_MAX, component::check_stripe_size};

/// A requested number of stripes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Count {
    /// This number of stripes, at least 1.
    Stripes(u16),
    /// One stripe on every OST (`-1`).
    All,
    /// This number of stripes on every OST, 2 to 32 (`-C -2` … `-C -32`).
    PerOst(u16),
}

impl Count {
    /// Decodes Lustre's 16-bit field: 0 is `None` (default), 0xffff all OSTs, 0xfffe … 0xffe0 2 to
    /// 32 stripes per OST.
    pub fn from_raw(raw: u16) -> Option<Count> {
        Some(match raw {
            0 => return None,
            u16::MAX => Count::All,
            _ if raw.wrapping_neg() <= PER_OST_MAX => Count::PerOst(raw.wrapping_neg()),
            n => Count::Stripes(n),
        })
    }

    /// Encodes Lustre's 16-bit field.
    pub fn to_raw(self) -> u16 {
        match self {
            Count::Stripes(n) => n,
            Count::All => u16::MAX,
            Count::PerOst(n) => n.wrapping_neg(),
        }
    }

    /// Returns the number as users write it: positive, -1, or -2 … -32.
    pub fn to_number(self) -> i32 {
        match self {
            Count::Stripes(n) => i32::from(n),
            Count::All => -1,
            Count::PerOst(n) => -i32::from(n),
        }
    }

    /// Parses a number written by a user. 0 is `None` (default). Refuses only numbers that the type
    /// cannot represent; [`Spec::check`] checks the rest.
    pub fn from_number(n: i64) -> Result<Option<Count>, LayoutError> {
        Ok(match n {
            0 => None,
            -1 => Some(Count::All),
            -32..=-2 => Some(Count::PerOst(n.unsigned_abs() as u16)),
            1..=2000 => Some(Count::Stripes(n as u16)),
            _ => return Err(LayoutError::StripeCount(n)),
        })
    }
}

/// Layout parameters requested by a user or stored as a directory's default. `None` means
/// unspecified.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Spec {
    /// Stripe size in bytes, a multiple of 64 KiB.
    pub stripe_size: Option<u32>,
    /// Number of stripes.
    pub count: Option<Count>,
    /// Whether one OST may hold several stripes.
    pub overstripe: bool,
    /// OST of the first stripe: a hint.
    pub start: Option<u32>,
    /// Exactly these OSTs, one per stripe, in this order. An OST that is repeated gets several
    /// stripes (overstriping).
    pub osts: Vec<u32>,
    /// Pool from which the OSTs are chosen.
    pub pool: Option<Pool>,
}

impl Spec {
    /// Whether nothing is specified. Setting such a default on a directory deletes its present
    /// default.
    pub fn is_default(&self) -> bool {
        self.stripe_size.is_none()
            && self.count.is_none()
            && self.start.is_none()
            && self.osts.is_empty()
            && self.pool.is_none()
    }

    /// Checks Lustre's limits that do not depend on the file system.
    pub fn check(&self) -> Result<(), LayoutError> {
        if let Some(size) = self.stripe_size {
            check_stripe_size(u64::from(size))?;
        }
        match self.count {
            Some(Count::Stripes(n)) if n == 0 || usize::from(n) > STRIPES_MAX => {
                return Err(LayoutError::StripeCount(i64::from(n)));
            }
            Some(Count::PerOst(n)) if !self.overstripe || !(2..=PER_OST_MAX).contains(&n) => {
                return Err(LayoutError::StripeCount(-i64::from(n)));
            }
            _ => {}
        }
        if self.osts.len() > STRIPES_MAX {
            return Err(LayoutError::StripeCount(self.osts.len() as i64));
        }
        if let (Some(count), false) = (self.count, self.osts.is_empty())
            && usize::try_from(count.to_number()) != Ok(self.osts.len())
        {
            return Err(LayoutError::CountOfList { count: i64::from(count.to_number()), listed: self.osts.len() });
        }
        Ok(())
    }

    /// Returns the value of the pattern field.
    pub fn pattern(&self) -> Pattern {
        if self.overstripe { Pattern::RAID0_OVERSTRIPED } else { Pattern::RAID0 }
    }
}

const _: () = assert!(STRIPES_MAX < u16::MAX as usize - PER_OST_MAX as usize, "counts and negative counts overlap");
const _: () = assert!(STRIPE_SIZE_MAX == 0xffff_0000);
