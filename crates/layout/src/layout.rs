//! A file's layout: which objects hold its bytes.
//!
//! A plain layout is one [`Component`] that covers the whole file. A composite one is several behind a header ([`Composite`]);
//! this version keeps and shows those but maps no bytes through them ([`Layout::check_usable`]).

use std::{collections::BTreeSet, fmt};

use sheen_wire::Fid;

use crate::{LayoutError, POOL_NAME_MAX, STRIPE_SIZE_UNIT, STRIPES_MAX};

/// How a component's stripes hold its bytes, as Lustre's `lmm_pattern` bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pattern(pub u32);

impl Pattern {
    /// Round robin over the stripes.
    pub const RAID0: Pattern = Pattern(1);
    /// Data in the inode.
    pub const MDT: Pattern = Pattern(0x100);
    /// More than one stripe on an OST.
    pub const OVERSTRIPING: Pattern = Pattern(0x200);
    /// Data of another system.
    pub const FOREIGN: Pattern = Pattern(0x400);
    /// Round robin, several stripes an OST.
    pub const RAID0_OVERSTRIPED: Pattern = Pattern(Pattern::RAID0.0 | Pattern::OVERSTRIPING.0);

    /// Whether all bits of `other` are set.
    pub fn has(self, other: Pattern) -> bool {
        self.0 & other.0 == other.0
    }
}

impl fmt::Display for Pattern {
    /// As lfs prints it: `raid0`, `raid0,overstriped`, `mdt`; nothing for no pattern; hex for what has no name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Pattern(0) => "",
            Pattern::RAID0 => "raid0",
            Pattern::RAID0_OVERSTRIPED => "raid0,overstriped",
            Pattern::MDT => "mdt",
            Pattern::FOREIGN => "foreign",
            Pattern(bits) => return write!(f, "{bits:#x}"),
        })
    }
}

/// Name of a pool of OSTs: 1 to 15 characters.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Pool(String);

impl Pool {
    /// Checks length and characters.
    pub fn new(name: &str) -> Result<Pool, LayoutError> {
        let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.len() > POOL_NAME_MAX || !name.chars().all(fine) {
            return Err(LayoutError::PoolName(name.to_owned()));
        }
        Ok(Pool(name.to_owned()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One stripe: an object on an OST.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stripe {
    /// The object.
    pub object: Fid,
    /// Index of the OST that holds it.
    pub ost: u32,
}

/// A range of a file and the objects that hold it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Component {
    /// Lustre's `lcme_id`; 0 in a plain layout.
    pub id: u32,
    /// Lustre's `LCME_FL_*`; 0 in a plain layout.
    pub flags: u32,
    /// First byte, 0 in a plain layout.
    pub start: u64,
    /// Byte after the last; `u64::MAX` for no end.
    pub end: u64,
    /// `lcme_layout_gen`.
    pub entry_gen: u32,
    /// Where the entry says that its part lies in the encoded layout. Rewritten by encoding.
    pub offset: u32,
    /// Bytes of an entry (timestamp and reserved) that are kept as they came.
    pub entry_rest: [u8; 12],
    /// How the objects hold the bytes.
    pub pattern: Pattern,
    /// The file, as `lmm_oi` has it.
    pub fid: Fid,
    /// Bytes of a stripe before the next object's turn.
    pub stripe_size: u32,
    /// As stored: the number of stripes once there are objects; before that also 0 (default) and negative values.
    pub stripe_count: u16,
    /// `lmm_layout_gen`; before there are objects, `lmm_stripe_offset` (0xffff: any).
    pub layout_gen: u16,
    /// Pool from which OSTs were taken. A layout with a pool is of Lustre's v3 form, else v1.
    pub pool: Option<Pool>,
    /// The objects; empty where not yet allotted.
    pub stripes: Vec<Stripe>,
}

/// What a composite layout has beyond its components: fields of `lov_comp_md_v1`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Composite {
    /// `lcm_layout_gen`.
    pub layout_gen: u32,
    /// `lcm_flags`.
    pub flags: u16,
    /// Mirrors, from 1.
    pub mirror_count: u16,
    /// Reserved bytes kept as they came.
    pub rest: [u8; 14],
}

/// Which objects hold a file's bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Present in a composite layout.
    pub(crate) composite: Option<Composite>,
    /// One in a plain layout.
    pub(crate) components: Vec<Component>,
}

impl Layout {
    /// A plain layout of 1 to 2000 stripes. The overstriping flag is set where an OST occurs more than once, as in Lustre.
    pub fn new(fid: Fid, stripe_size: u32, pool: Option<Pool>, stripes: Vec<Stripe>) -> Result<Layout, LayoutError> {
        check_stripe_size(u64::from(stripe_size))?;
        if stripes.is_empty() || stripes.len() > STRIPES_MAX {
            return Err(LayoutError::StripeCount(stripes.len() as i64));
        }
        let osts: BTreeSet<u32> = stripes.iter().map(|s| s.ost).collect();
        let pattern = if osts.len() < stripes.len() { Pattern::RAID0_OVERSTRIPED } else { Pattern::RAID0 };
        let component = Component {
            pattern,
            fid,
            stripe_size,
            stripe_count: stripes.len() as u16,
            layout_gen: 0,
            pool,
            stripes,
            ..Component::whole_file()
        };
        Ok(Layout { composite: None, components: vec![component] })
    }

    /// The sole component of a plain layout; the first of a composite one.
    fn first(&self) -> &Component {
        // Every constructor puts at least one component in.
        &self.components[0]
    }

    /// Whether this version can read and write a file of this layout: plain, RAID0, with its objects.
    pub fn check_usable(&self) -> Result<(), LayoutError> {
        let c = self.first();
        if self.composite.is_some() {
            return Err(LayoutError::Unsupported("composite"));
        }
        if !matches!(c.pattern, Pattern::RAID0 | Pattern::RAID0_OVERSTRIPED) {
            return Err(LayoutError::Unsupported("other than raid0"));
        }
        if c.stripes.is_empty() {
            return Err(LayoutError::Malformed("it has no objects"));
        }
        check_stripe_size(u64::from(c.stripe_size))
    }

    /// The header of a composite layout.
    pub fn composite(&self) -> Option<&Composite> {
        self.composite.as_ref()
    }

    /// All components; at least one, exactly one in a plain layout.
    pub fn components(&self) -> &[Component] {
        &self.components
    }

    /// Bytes of a stripe before the next object's turn.
    pub fn stripe_size(&self) -> u32 {
        self.first().stripe_size
    }

    /// Number of stripes.
    pub fn stripe_count(&self) -> usize {
        self.first().stripes.len()
    }

    /// RAID0, possibly overstriped.
    pub fn pattern(&self) -> Pattern {
        self.first().pattern
    }

    /// Raised when the file's objects change.
    pub fn layout_gen(&self) -> u16 {
        self.first().layout_gen
    }

    /// Pool from which OSTs were taken.
    pub fn pool(&self) -> Option<&Pool> {
        self.first().pool.as_ref()
    }

    /// The file's FID as the layout has it (`lmm_oi`).
    pub fn fid(&self) -> Fid {
        self.first().fid
    }

    /// The objects, in stripe order.
    pub fn stripes(&self) -> &[Stripe] {
        &self.first().stripes
    }
}

impl Component {
    /// An empty component that covers the whole file.
    pub(crate) fn whole_file() -> Component {
        Component {
            id: 0,
            flags: 0,
            start: 0,
            end: u64::MAX,
            entry_gen: 0,
            offset: 0,
            entry_rest: [0; 12],
            pattern: Pattern::RAID0,
            fid: Fid::ZERO,
            stripe_size: 0,
            stripe_count: 0,
            layout_gen: 0,
            pool: None,
            stripes: Vec::new(),
        }
    }
}

/// A positive multiple of 64 KiB below 4 GiB.
pub(crate) fn check_stripe_size(bytes: u64) -> Result<(), LayoutError> {
    if bytes == 0 || bytes > u64::from(u32::MAX) || !bytes.is_multiple_of(u64::from(STRIPE_SIZE_UNIT)) {
        return Err(LayoutError::StripeSize(bytes));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stripes(osts: &[u32]) -> Vec<Stripe> {
        osts.iter().enumerate().map(|(i, ost)| Stripe { object: Fid::new(7, i as u32 + 1), ost: *ost }).collect()
    }

    #[test]
    fn overstriped_exactly_when_an_ost_repeats() {
        let pattern =
            |osts: &[u32]| Layout::new(Fid::new(1, 1), 65536, None, stripes(osts)).unwrap().pattern().to_string();
        assert_eq!(pattern(&[3, 0, 1]), "raid0");
        assert_eq!(pattern(&[0, 1, 0]), "raid0,overstriped");
    }

    #[test]
    fn limits_are_lustres() {
        let with = |n: usize, size| Layout::new(Fid::new(1, 1), size, None, stripes(&vec![0; n]));
        assert!(with(2000, 65536).is_ok());
        assert_eq!(with(2001, 65536), Err(LayoutError::StripeCount(2001)));
        assert_eq!(with(0, 65536), Err(LayoutError::StripeCount(0)));
        assert_eq!(with(1, 65537), Err(LayoutError::StripeSize(65537)));
        assert_eq!(with(1, 0), Err(LayoutError::StripeSize(0)));
        assert!(with(1, crate::STRIPE_SIZE_MAX).is_ok());
        assert!(Pool::new("fifteen-chars__").is_ok() && Pool::new("sixteen-chars___").is_err());
        assert!(Pool::new("bad pool").is_err() && Pool::new("").is_err());
    }
}
