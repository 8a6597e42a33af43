//! The layouts among which the adviser chooses.
//!
//! Invariant: the mirrors of a candidate fit on different OSTs, if there are as many OSTs.

use sheen_layout::STRIPES_MAX;

use crate::predict::{load::Workload, shape::Shape};

const MIB: u64 = 1 << 20;
/// Unit of stripe sizes in bytes.
const STRIPE_UNIT: u64 = 64 << 10;
/// Largest stripe that is tried, in bytes.
const STRIPE_SIZE_MAX: u64 = 64 * MIB;
/// Stripes on each OST that are tried for a file of several nodes.
const OVERSTRIPED: [u32; 5] = [2, 4, 8, 16, 32];

/// Properties that all candidates have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Common {
    /// Number of mirrors, at least 1.
    pub mirrors: u16,
    /// The pool of OSTs; `None`: all OSTs.
    pub pool: Option<String>,
}

impl Common {
    /// Neither mirrors nor a pool.
    pub const NONE: Common = Common { mirrors: 1, pool: None };
}

/// Returns the layouts for a job on this many OSTs: those with fewer stripes first, and of several
/// stripe sizes the preferred one first. `mirrors`: number of mirrors, at least 1. Overstriped
/// mirrors would share OSTs, so there are none.
pub fn candidates(workload: &Workload, osts: u32, mirrors: u16) -> Vec<Shape> {
    let osts = (osts / u32::from(mirrors.max(1))).max(1);
    let on_osts = std::iter::successors(Some(1_u32), |n| n.checked_mul(2)).take_while(|n| *n < osts).chain([osts]);
    // A file of one task gains nothing from several stripes on an OST but its limit for an object.
    let most = if workload.files { 4 } else { 32 };
    let over = OVERSTRIPED.iter().filter(|k| **k <= most && mirrors <= 1).map(|k| k.saturating_mul(osts));
    let counts: Vec<u32> = on_osts.chain(over).filter(|n| *n as usize <= STRIPES_MAX).collect();
    let of_record = workload.transfer.clamp(STRIPE_UNIT, STRIPE_SIZE_MAX).next_multiple_of(STRIPE_UNIT);
    // The preferred size comes first. If nodes write in turn, it is that of a record, so that each
    // record has an object of its own. Records that fit no stripe cross the border of any.
    let in_turn = !workload.files && workload.nodes > 1 && workload.block == workload.transfer;
    let fits = workload.transfer.is_multiple_of(STRIPE_UNIT) || STRIPE_UNIT.is_multiple_of(workload.transfer);
    let preferred = if in_turn && fits { of_record } else { of_record.max(MIB) };
    let mut sizes = vec![preferred];
    for size in [MIB, 4 * MIB, of_record] {
        if !sizes.contains(&size) {
            sizes.push(size);
        }
    }
    let of_count = |stripes: u32| {
        let sizes = if stripes == 1 { &sizes[..1] } else { &sizes[..] };
        let shape = move |&stripe_size| Shape { stripes, osts: stripes.min(osts), stripe_size, all_osts: None };
        sizes.iter().map(shape).collect::<Vec<_>>()
    };
    counts.into_iter().flat_map(of_count).collect()
}

/// Returns the arguments of `lfs setstripe` for a layout.
pub fn words(shape: &Shape, common: &Common) -> Vec<String> {
    let mirrors = (common.mirrors > 1).then(|| format!("-N{}", common.mirrors));
    let pool = common.pool.iter().flat_map(|pool| ["-p".to_owned(), pool.clone()]);
    let count = if shape.stripes > shape.osts { "-C" } else { "-c" };
    let size = match shape.stripe_size {
        size if size.is_multiple_of(MIB) => format!("{}M", size / MIB),
        size => format!("{}K", size / 1024),
    };
    let striping = [count.to_owned(), shape.stripes.to_string(), "-S".into(), size];
    mirrors.into_iter().chain(striping).chain(pool).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(shape: &Shape) -> Vec<String> {
        words(shape, &Common::NONE)
    }

    #[test]
    fn candidates_are_striped_and_overstriped() {
        let job = Workload { tasks: 4, nodes: 4, transfer: 16 * MIB, block: 16 * MIB, size: 16 * MIB, files: false };
        let all = candidates(&job, 6, 1);
        let counts: Vec<u32> = all.iter().map(|shape| shape.stripes).collect();
        let mut once = counts.clone();
        once.dedup();
        assert_eq!(once, [1, 2, 4, 6, 12, 24, 48, 96, 192]);
        assert_eq!(counts.len(), 1 + 8 * 3, "each with three stripe sizes");
        assert_eq!(plain(&all[0]), ["-c", "1", "-S", "16M"]);
        let files = candidates(&Workload { files: true, ..job }, 6, 1);
        assert_eq!(files.last().map(|shape| shape.stripes), Some(24));
        let in_turn = Workload { transfer: 65_536, block: 65_536, ..job };
        assert_eq!(candidates(&in_turn, 1, 1)[0].stripe_size, STRIPE_UNIT);
        let divides = candidates(&Workload { transfer: 16_384, block: 16_384, ..job }, 1, 1);
        assert_eq!(divides[0].stripe_size, STRIPE_UNIT);
        let unaligned = candidates(&Workload { transfer: 47_008, block: 47_008, ..job }, 1, 1);
        assert_eq!(unaligned[0].stripe_size, MIB);
        let small = candidates(&Workload { transfer: 47_008, ..job }, 1, 1);
        assert_eq!(small[0].stripe_size, MIB);
        assert_eq!(plain(&small[1]), ["-C", "2", "-S", "1M"]);
        assert_eq!(plain(small.last().unwrap()), ["-C", "32", "-S", "64K"]);
    }

    #[test]
    fn mirrors_of_candidates_are_on_different_osts() {
        let job = Workload { tasks: 4, nodes: 4, transfer: MIB, block: MIB, size: 64 * MIB, files: false };
        let counts = |osts, mirrors| {
            let mut counts: Vec<u32> = candidates(&job, osts, mirrors).iter().map(|shape| shape.stripes).collect();
            counts.dedup();
            counts
        };
        assert_eq!((counts(8, 2), counts(7, 3), counts(2, 3)), (vec![1, 2, 4], vec![1, 2], vec![1]));
        let shape = Shape { stripes: 2, osts: 2, stripe_size: MIB, all_osts: None };
        let common = Common { mirrors: 2, pool: Some("flash".into()) };
        assert_eq!(words(&shape, &common).join(" "), "-N2 -c 2 -S 1M -p flash");
    }
}
