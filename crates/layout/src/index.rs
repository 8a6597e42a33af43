//! Index of a layout for mapping: the extents of its components and the arithmetic of RAID0.
//!
//! Invariants:
//!
//! * The extents are ascending and adjacent. There are none if the layout is not usable.
//! * A query allocates nothing; the index is allocated when a layout is created.

use std::ops::Range;

use sheen_wire::ost::OBJECT_SIZE_MAX;

use crate::{
    Component, Composite, Count, FILE_SIZE_MAX, STRIPE_SIZE_UNIT, STRIPES_MAX, Stripe, component::check_components,
};

/// Index of a layout for mapping.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Index {
    /// Extents of the non-empty components, ascending and adjacent. Empty if the layout
    /// is not usable.
    extents: Vec<Extent>,
    /// Objects of a composite layout. Those of a plain layout are in its component.
    stripes: Vec<Stripe>,
}

/// A non-empty component.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Extent {
    /// First byte.
    pub start: u64,
    /// Byte after the last.
    pub end: u64,
    /// Stripe size in units of 64 KiB.
    unit: Divisor,
    /// Number of objects; 0 before instantiation.
    count: Divisor,
    /// Position of the first object among all objects.
    pub first: usize,
    /// Position of the component among all components.
    pub component: usize,
    /// Whether the bytes are on the MDT.
    pub on_mdt: bool,
    /// Maximum size of a file that ends in this component, see [`file_size_max`].
    pub file_size_max: u64,
}

/// log2 of [`STRIPE_SIZE_UNIT`], of which all stripe sizes are multiples.
const UNIT_SHIFT: u32 = STRIPE_SIZE_UNIT.trailing_zeros();

/// Maximum number of extents that are counted linearly, which takes no branch that depends on the
/// offset. More extents are searched. Counting is twice as fast at random offsets with 3 to 6
/// extents.
pub(crate) const FEW: usize = 8;

/// Division by a multiplication.
///
/// With m = floor(2^63 / d) + 1 = (2^63 + e) / d, 0 < e <= d, the result is floor(n * m / 2^63) =
/// floor(n / d + n * e / (d * 2^63)). It equals floor(n / d) while n * e < 2^63. So the result is
/// exact for n < 2^47 and d <= 2^16. This covers offsets below 2^63 in units of 64 KiB, stripe
/// sizes in the same units, and numbers of stripes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Divisor {
    by: u64,
    magic: u64,
}

impl Divisor {
    fn new(by: u64) -> Divisor {
        debug_assert!(by <= 1 << 16);
        Divisor { by, magic: (1_u64 << 63) / by.max(1) + 1 }
    }

    /// Returns quotient and remainder.
    fn divide(self, n: u64) -> (u64, u64) {
        let quotient = ((u128::from(n) * u128::from(self.magic)) >> 63) as u64;
        (quotient, n - quotient * self.by)
    }
}

impl Index {
    /// Builds the index. `mirror`: the mirror to map through, if there are several.
    pub fn of(composite: Option<&Composite>, components: &[Component], mirror: Option<u16>) -> Index {
        let mut extents = Vec::new();
        let mut first = 0;
        let of_mirror = |c: &&Component| mirror.is_none_or(|id| c.mirror_id() == id);
        let several = composite.is_some_and(|c| c.mirror_count > 1) && mirror.is_none();
        let usable = !several && check_components(composite.is_some(), components.iter().filter(of_mirror)).is_ok();
        for (component, c) in components.iter().enumerate().filter(|(_, c)| of_mirror(c)) {
            let count = c.stripe_list().len();
            // A Data-on-MDT component has one stripe, so any stripe size will do.
            let unit = if c.is_on_mdt() { 1 } else { c.stripe_size >> UNIT_SHIFT };
            if usable && c.start < c.end {
                extents.push(Extent {
                    start: c.start,
                    end: c.end,
                    unit: Divisor::new(u64::from(unit)),
                    count: Divisor::new(count as u64),
                    first,
                    component,
                    on_mdt: c.is_on_mdt(),
                    file_size_max: file_size_max(c),
                });
            }
            first += count;
        }
        let mapped = components.iter().filter(of_mirror);
        let flat = composite.is_some().then(|| mapped.flat_map(|c| c.stripe_list().into_owned()).collect());
        Index { extents, stripes: flat.unwrap_or_default() }
    }

    /// Returns the objects of a composite layout.
    pub fn stripes(&self) -> &[Stripe] {
        &self.stripes
    }

    /// Returns the extents of all components.
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// Returns the extents from the one that contains `offset` on.
    pub fn from(&self, offset: u64) -> &[Extent] {
        let all = &self.extents[..];
        let before = match all.len() {
            0..=FEW => all.iter().filter(|e| e.end <= offset).count(),
            _ => all.partition_point(|e| e.end <= offset),
        };
        &all[before..]
    }

    /// Returns the extent that contains a stripe, and the stripe's index in the extent.
    pub fn of_stripe(&self, stripe: usize) -> Option<(&Extent, u64)> {
        let extent = self.extents.iter().find(|e| e.stripes().contains(&stripe))?;
        Some((extent, (stripe - extent.first) as u64))
    }
}

/// Returns the maximum size of a file that ends in this component, or the component's start, such
/// that no object exceeds [`OBJECT_SIZE_MAX`].
fn file_size_max(c: &Component) -> u64 {
    if c.is_on_mdt() || c.is_extension() {
        return c.end;
    }
    let count = match Count::from_raw(c.stripe_count) {
        _ if !c.stripes.is_empty() => c.stripes.len(),
        Some(Count::Stripes(n)) => usize::from(n),
        _ => STRIPES_MAX,
    };
    // The first object is the first to become full. The file ends with the truncated last unit of
    // that object.
    let unit = u64::from(c.stripe_size.max(1));
    let (rows, within) = (OBJECT_SIZE_MAX / unit, OBJECT_SIZE_MAX % unit);
    let size = u128::from(rows) * count as u128 * u128::from(unit) + u128::from(within);
    u64::try_from(size).unwrap_or(u64::MAX).clamp(c.start, c.end)
}

impl Extent {
    /// Whether the component has its objects.
    pub fn has_objects(&self) -> bool {
        self.count.by > 0
    }

    /// Whether the component has a single object.
    pub fn has_one_object(&self) -> bool {
        self.count.by == 1
    }

    fn stripes(&self) -> Range<usize> {
        self.first..self.first + self.count.by as usize
    }

    /// Returns the stripe size in bytes.
    fn stripe_size(&self) -> u64 {
        (self.unit.by << UNIT_SHIFT).max(1)
    }

    /// Returns the index of the stripe that contains the byte, and the byte's offset in its object.
    /// Only for extents with objects. `offset` is below 2^63.
    pub fn place(&self, offset: u64) -> (u64, u64) {
        let (unit, _) = self.unit.divide(offset >> UNIT_SHIFT);
        let (row, turn) = self.count.divide(unit);
        // Before this byte, the object has `unit - row` fewer stripe units than the file.
        (turn, offset - (((unit - row) * self.unit.by) << UNIT_SHIFT))
    }

    /// Returns the number of bytes from `offset`, which is below 2^63, to the end of its stripe
    /// unit.
    pub fn left_in_unit(&self, offset: u64) -> u64 {
        let (_, units) = self.unit.divide(offset >> UNIT_SHIFT);
        self.stripe_size() - ((units << UNIT_SHIFT) + offset % u64::from(STRIPE_SIZE_UNIT))
    }

    /// Returns the number of bytes of stripe `turn` before file offset `offset`.
    pub fn before(&self, offset: u64, turn: u64) -> u64 {
        let (unit, count) = (self.stripe_size(), self.count.by.max(1));
        let (units, within) = (offset / unit, offset % unit);
        let (rows, at) = (units / count, units % count);
        rows * unit
            + match turn.cmp(&at) {
                std::cmp::Ordering::Less => unit,
                std::cmp::Ordering::Equal => within,
                std::cmp::Ordering::Greater => 0,
            }
    }

    /// Returns the file offset of a byte of stripe `turn`, even outside the extent. At most
    /// [`FILE_SIZE_MAX`].
    pub fn after(&self, object_offset: u64, turn: u64) -> u64 {
        let unit = self.stripe_size();
        let (row, within) = (object_offset / unit, object_offset % unit);
        let units = u128::from(row) * u128::from(self.count.by) + u128::from(turn);
        let offset = units * u128::from(unit) + u128::from(within);
        u64::try_from(offset).unwrap_or(u64::MAX).min(FILE_SIZE_MAX)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn divisor_divides_exactly(d in 1..=1_u64 << 16, n in 0..1_u64 << 47, k in 0..1_u64 << 31, near in -2..=2_i64) {
            let divisor = Divisor::new(d);
            let multiple = (k * d).saturating_add_signed(near).min((1 << 47) - 1);
            for n in [n, multiple, (1 << 47) - 1] {
                prop_assert_eq!(divisor.divide(n), (n / d, n % d));
            }
        }
    }
}
