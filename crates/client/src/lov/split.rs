//! Which bytes of a range go to which object, and which objects' bytes travel in one request.
//!
//! Striping deals a contiguous range of a file to objects so that each object's share is contiguous too: one [`Run`] an object,
//! however often the range wraps around the stripes. Runs of one OST share a request up to its size limit.
//!
//! Invariants: runs are non-empty and in the order in which the file meets them; the chunks of the range fill each run from its
//! start to its end; the pieces of all requests cover every run exactly once, in order.

use sheen_layout::{Chunk, Layout};
use sheen_wire::{
    Errno, Result,
    ost::{PARTS_MAX, Part},
};

/// An object's share of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// Which stripe of the layout.
    pub stripe: usize,
    /// First byte in the object.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// The runs of a range of a file.
#[derive(Debug)]
pub struct Split {
    offset: u64,
    len: u64,
    /// See [`Run`].
    pub runs: Vec<Run>,
}

/// A part of a run, as it lies in a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Index of the run.
    pub run: usize,
    /// Where in the run it begins.
    pub pos: u64,
    /// Bytes.
    pub len: u32,
}

/// What one request to one OST carries.
#[derive(Debug, Default)]
pub struct Rpc {
    /// Index of the OST.
    pub ost: u32,
    /// For the request.
    pub parts: Vec<Part>,
    /// Where each part comes from.
    pub pieces: Vec<Piece>,
    bytes: u64,
}

impl Split {
    /// Splits `[offset, offset + len)`, which must lie below the layout's largest file size.
    pub fn new(layout: &Layout, offset: u64, len: u64) -> Split {
        let mut runs: Vec<Run> = Vec::new();
        let mut next = 0;
        for chunk in layout.map(offset, len) {
            // The file meets the stripes in turn: after the last run comes a new one, or the first again.
            if next == runs.len() && runs.first().is_some_and(|r| r.stripe == chunk.stripe) {
                next = 0;
            }
            match runs.get_mut(next) {
                Some(run) => run.len += chunk.len,
                None => runs.push(Run { stripe: chunk.stripe, offset: chunk.object_offset, len: chunk.len }),
            }
            next += 1;
        }
        Split { offset, len, runs }
    }

    /// The chunks of the range in file order, each with the index of its run and where it begins in it.
    pub fn chunks<'a>(&'a self, layout: &'a Layout) -> impl Iterator<Item = (usize, u64, Chunk)> + 'a {
        let turns = self.runs.len().max(1);
        layout.map(self.offset, self.len).enumerate().filter_map(move |(i, chunk)| {
            let run = self.runs.get(i % turns)?;
            Some((i % turns, chunk.object_offset - run.offset, chunk))
        })
    }

    /// Packs the runs into requests: by OST, then in file order; none larger than `max_bytes(ost)`.
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

/// Groups stripes by the OST that holds them: OSTs in ascending order, each with the positions (in `stripes`) of its own.
///
/// # Errors
/// EIO: a stripe that the layout does not have.
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
