//! Splits a range of a file into ranges of objects, and packs these into requests.
//!
//! Striping distributes a contiguous range of a file such that each object's share is contiguous,
//! too. So there is one [`Run`] per object, however often the range wraps around the stripes. Each
//! component of a layout has its own objects and starts a new distribution. Runs of one OST share a
//! request up to its size limit.
//!
//! Invariants:
//! * runs are not empty, and are ordered by their first byte in the file;
//! * the chunks of the range fill each run from its start to its end;
//! * the pieces of all requests cover every run exactly once, in order;
//! * a part of the range without objects is in no run.

use sheen_layout::{Chunk, Layout};
use sheen_wire::{
    Errno, Result,
    ost::{PARTS_MAX, Part},
};

/// The share of one object in a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// Index of the stripe in the layout.
    pub stripe: usize,
    /// First byte in the object.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

/// The runs of a range of a file.
#[derive(Debug)]
pub struct Split {
    /// First byte of the file.
    pub offset: u64,
    len: u64,
    /// See [`Run`].
    pub runs: Vec<Run>,
    /// Starts of the components after the first one in the range.
    deals: Vec<Deal>,
}

/// Start of a component, from which bytes go to the component's own objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Deal {
    /// First byte of the file.
    from: u64,
    /// Index of the component's first run.
    run: usize,
}

/// A part of a run in a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Index of the run.
    pub run: usize,
    /// Start in the run.
    pub pos: u64,
    /// Length in bytes.
    pub len: u32,
}

/// One request to one OST.
#[derive(Debug, Default)]
pub struct Rpc {
    /// Index of the OST.
    pub ost: u32,
    /// The parts for the request.
    pub parts: Vec<Part>,
    /// The piece of a run that each part is.
    pub pieces: Vec<Piece>,
    bytes: u64,
}

impl Split {
    /// Splits `[offset, offset + len)`, which must lie below the layout's largest file size.
    pub fn new(layout: &Layout, offset: u64, len: u64) -> Split {
        let mut runs: Vec<Run> = Vec::new();
        let mut deals = Vec::new();
        let (mut first, mut next) = (0, 0);
        let mut end = end_of_component(layout, offset);
        for chunk in layout.map(offset, len) {
            if chunk.file_offset >= end {
                end = end_of_component(layout, chunk.file_offset);
                (first, next) = (runs.len(), runs.len());
                deals.push(Deal { from: chunk.file_offset, run: first });
            }
            // The range visits the stripes in turn: after the last run comes a new one, or the
            // first one again.
            if next == runs.len() && runs.get(first).is_some_and(|r| r.stripe == chunk.stripe) {
                next = first;
            }
            match runs.get_mut(next) {
                Some(run) => run.len += chunk.len,
                None => runs.push(Run { stripe: chunk.stripe, offset: chunk.object_offset, len: chunk.len }),
            }
            next += 1;
        }
        Split { offset, len, runs, deals }
    }

    /// Returns the chunks of the range in file order, each with the index of its run and its start
    /// in the run.
    pub fn chunks<'a>(&'a self, layout: &'a Layout) -> impl Iterator<Item = (usize, u64, Chunk)> + 'a {
        let mut deals = self.deals.iter();
        let mut next = deals.next();
        let first_of = |deal: Option<&Deal>| deal.map_or(self.runs.len(), |deal| deal.run);
        let (mut first, mut turns, mut turn) = (0, first_of(next), 0);
        layout.map(self.offset, self.len).filter_map(move |chunk| {
            if let Some(deal) = next.filter(|deal| chunk.file_offset >= deal.from) {
                next = deals.next();
                (first, turns, turn) = (deal.run, first_of(next) - deal.run, 0);
            }
            let index = first + turn;
            turn = if turn + 1 < turns { turn + 1 } else { 0 };
            let run = self.runs.get(index)?;
            Some((index, chunk.object_offset - run.offset, chunk))
        })
    }

    /// Packs the runs into requests, ordered by OST and then by file offset. No request is larger
    /// than `max_bytes(ost)`.
    pub fn rpcs(&self, layout: &Layout, max_bytes: impl Fn(u32) -> u64) -> Result<Vec<Rpc>> {
        let mut rpcs: Vec<Rpc> = Vec::new();
        for (ost, runs) in by_ost(layout, self.runs.iter().map(|r| r.stripe))? {
            let max = max_bytes(ost).max(1);
            let mut rpc = Rpc { ost, ..Rpc::default() };
            for run in runs {
                let Run { stripe, offset, len } = self.runs[run];
                let object = layout.stripes().get(stripe).ok_or(Errno::EIO)?.object;
                let mut pos = 0;
                while pos < len {
                    if rpc.bytes == max || rpc.parts.len() == PARTS_MAX {
                        rpcs.push(std::mem::replace(&mut rpc, Rpc { ost, ..Rpc::default() }));
                    }
                    let take = (len - pos).min(max - rpc.bytes).min(u64::from(u32::MAX)) as u32;
                    rpc.parts.push(Part { object, offset: offset + pos, len: take });
                    rpc.pieces.push(Piece { run, pos, len: take });
                    rpc.bytes += u64::from(take);
                    pos += u64::from(take);
                }
            }
            rpcs.push(rpc);
        }
        Ok(rpcs)
    }
}

/// Returns the end of the component that contains the byte.
fn end_of_component(layout: &Layout, offset: u64) -> u64 {
    if layout.is_plain() {
        return u64::MAX;
    }
    let component = layout.components().iter().find(|c| c.start <= offset && offset < c.end);
    component.map_or(u64::MAX, |c| c.end)
}

/// Groups stripes by OST: OSTs in ascending order, each with the positions in `stripes` of its
/// stripes.
///
/// # Errors
/// EIO: the layout does not have the stripe.
pub fn by_ost(layout: &Layout, stripes: impl Iterator<Item = usize>) -> Result<Vec<(u32, Vec<usize>)>> {
    let ost_of = |stripe: usize| layout.stripes().get(stripe).map(|s| s.ost).ok_or(Errno::EIO);
    let mut order = stripes.enumerate().map(|(i, s)| Ok((ost_of(s)?, i))).collect::<Result<Vec<_>>>()?;
    order.sort_unstable();
    let mut groups: Vec<(u32, Vec<usize>)> = Vec::new();
    for (ost, position) in order {
        match groups.last_mut() {
            Some((last, positions)) if *last == ost => positions.push(position),
            _ => groups.push((ost, vec![position])),
        }
    }
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use sheen_layout::{Asked, Count, Defaults, Spec, Stripe, Template, TemplateComponent, resolve_asked};
    use sheen_wire::Fid;

    use super::*;

    const UNIT: u64 = 64 << 10;
    const FILE: Fid = Fid::new(0x2_0000_0401, 1);

    /// Creates a layout from components: end in units, stripe count, stripe size in units, and
    /// whether it has objects.
    fn layout(components: &[(u64, u16, u32, bool)]) -> Layout {
        let mut start = 0;
        let striped = |&(end, count, size, _): &(u64, u16, u32, bool)| {
            let spec =
                Spec { count: Some(Count::Stripes(count)), stripe_size: Some(size * UNIT as u32), ..Spec::default() };
            let end = end.saturating_mul(UNIT);
            TemplateComponent::striped(std::mem::replace(&mut start, end), end, spec)
        };
        let template = Template::new(components.iter().map(striped).collect());
        let wanted = resolve_asked(&Asked::Composite(template), None, None, &Defaults::default(), 0);
        let objects = |i: usize| {
            let object = |n| Stripe { object: Fid::new(10 + i as u64, n + 1), ost: n };
            (i, (0..u32::from(components[i].1)).map(object).collect())
        };
        let mut layout = wanted.layout(FILE, vec![objects(0)]).unwrap();
        let others: Vec<_> = (1..components.len()).filter(|i| components[*i].3).map(objects).collect();
        if !others.is_empty() {
            layout.instantiate(others).unwrap();
        }
        layout
    }

    #[test]
    fn split_assigns_every_chunk_to_one_whole_run_per_object() {
        let layouts = [
            layout(&[(3, 1, 1, true), (7, 2, 1, true), (u64::MAX, 4, 1, true)]),
            layout(&[(5, 3, 1, true), (12, 4, 2, true), (40, 2, 1, true), (u64::MAX, 3, 1, true)]),
            layout(&[(4, 2, 1, true), (9, 3, 1, false), (u64::MAX, 2, 1, true)]),
            layout(&[(4, 4, 1, true), (9, 3, 1, true), (u64::MAX, 2, 1, false)]),
        ];
        for layout in &layouts {
            for start in (0..20).map(|n| n * UNIT).flat_map(|at| [at, at + 1, at + UNIT - 1]) {
                for len in [1, 2, UNIT, 2 * UNIT + 5, 7 * UNIT, 16 * UNIT + 1, 60 * UNIT] {
                    check(layout, start, len);
                }
            }
        }
    }

    fn check(layout: &Layout, start: u64, len: u64) {
        let split = Split::new(layout, start, len);
        let mut filled = vec![0; split.runs.len()];
        let chunks: Vec<_> = split.chunks(layout).collect();
        assert_eq!(chunks.len(), layout.map(start, len).count());
        for ((run, pos, chunk), mapped) in chunks.into_iter().zip(layout.map(start, len)) {
            assert_eq!(chunk, mapped);
            assert_eq!((split.runs[run].stripe, filled[run]), (chunk.stripe, pos), "{start} {len}");
            assert_eq!(split.runs[run].offset + pos, chunk.object_offset);
            filled[run] += chunk.len;
        }
        let lens: Vec<u64> = split.runs.iter().map(|run| run.len).collect();
        assert_eq!(filled, lens);
        let mut stripes: Vec<usize> = split.runs.iter().map(|run| run.stripe).collect();
        stripes.sort_unstable();
        stripes.dedup();
        assert_eq!(stripes.len(), split.runs.len(), "one run an object");
    }
}
