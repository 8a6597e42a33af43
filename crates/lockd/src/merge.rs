//! Merging of overlapping parts of one request into one lock: otherwise the locks of one request
//! would wait for each other.

use sheen_wire::ldlm::{Mode, Policy, Resource};

type Want = (Resource, Mode, Policy);

/// Returns the wants without overlaps, ordered by resource and start.
pub(crate) fn merged(wants: &[Want]) -> Vec<Want> {
    let mut sorted = wants.to_vec();
    sorted.sort_by_key(|(resource, _, policy)| (*resource, policy.range().0));
    sorted.dedup_by(|next, merged| {
        if next.0 != merged.0 || next.2.range().0 > merged.2.range().1 {
            return false;
        }
        merged.1 = stronger(merged.1, next.1);
        merged.2 = union(merged.2, next.2);
        true
    });
    sorted
}

/// Returns a mode that conflicts with all modes that `a` or `b` conflicts with.
fn stronger(a: Mode, b: Mode) -> Mode {
    if a.covers(b) {
        a
    } else if b.covers(a) {
        b
    } else {
        Mode::Ex
    }
}

/// Returns the smallest policy that contains both, which are of one resource.
fn union(a: Policy, b: Policy) -> Policy {
    match (a, b) {
        (Policy::Extent { start: a, end: b, gid }, Policy::Extent { start: c, end: d, .. }) => {
            Policy::Extent { start: a.min(c), end: b.max(d), gid }
        }
        (Policy::Bits { bits: a, try_bits: b }, Policy::Bits { bits: c, try_bits: d }) => {
            Policy::Bits { bits: a | c, try_bits: b | d }
        }
        (a, _) => a,
    }
}

#[cfg(test)]
mod tests {
    use sheen_wire::{Fid, ldlm::bits};

    use super::*;

    #[test]
    fn merged_joins_overlapping_extents() {
        let (a, b) = (Resource::extent(Fid::new(1, 1)), Resource::extent(Fid::new(1, 2)));
        let got = merged(&[
            (b, Mode::Pw, Policy::extent(5, 9)),
            (a, Mode::Pr, Policy::extent(50, 60)),
            (a, Mode::Pw, Policy::extent(10, 19)),
            (a, Mode::Pw, Policy::extent(0, 9)),
            (a, Mode::Pr, Policy::extent(15, 55)),
            (a, Mode::Pw, Policy::extent(61, u64::MAX)),
        ]);
        let expected = [
            (a, Mode::Pw, Policy::extent(0, 9)),
            (a, Mode::Pw, Policy::extent(10, 60)),
            (a, Mode::Pw, Policy::extent(61, u64::MAX)),
            (b, Mode::Pw, Policy::extent(5, 9)),
        ];
        assert_eq!(got, expected);
    }

    #[test]
    fn merged_joins_bits_of_one_inode() {
        let (a, b) = (Resource::bits(Fid::new(1, 1)), Resource::bits(Fid::new(1, 2)));
        let (lookup, update) = (Policy::bits(bits::LOOKUP), Policy::bits(bits::UPDATE));
        let got = merged(&[(a, Mode::Ex, lookup), (b, Mode::Ex, lookup), (a, Mode::Ex, update), (a, Mode::Ex, lookup)]);
        assert_eq!(got, [(a, Mode::Ex, Policy::bits(bits::LOOKUP | bits::UPDATE)), (b, Mode::Ex, lookup)]);
    }
}
