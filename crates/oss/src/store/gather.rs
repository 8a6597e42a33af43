//! Buffers for reads: pooled, page-aligned, handed on as `Bytes` and back in the pool when the last
//! of these is dropped.
//!
//! What a request reads is laid down end to end in as few buffers as hold it, so that a reply is a
//! short list of large pieces whatever the number of parts.

use std::io;

use sheen_rt::{
    File,
    buf::{Buffer, BufferPool},
};
use sheen_wire::Bulk;

/// Large buffers: the usual size of an RPC. Larger reads take several.
const LARGE_BYTES: usize = 1 << 20;
/// Large buffers kept: 64 MiB.
const LARGE_KEPT: usize = 64;
/// Small buffers, for requests that fit: a reply that is kept for long should not pin a large one.
const SMALL_BYTES: usize = 64 << 10;
/// Small buffers kept: 16 MiB.
const SMALL_KEPT: usize = 256;

/// Where buffers come from.
pub struct Pools {
    large: BufferPool,
    small: BufferPool,
}

impl Pools {
    /// Empty pools.
    pub fn new() -> Pools {
        Pools { large: BufferPool::new(LARGE_BYTES, LARGE_KEPT), small: BufferPool::new(SMALL_BYTES, SMALL_KEPT) }
    }
}

/// A reply's bulk while it is being read together.
pub struct Gather<'a> {
    pools: &'a Pools,
    /// Bytes that the request may still want.
    wanted: usize,
    /// The buffer being filled, and how far.
    open: Option<(Buffer, usize)>,
    bulk: Bulk,
}

impl<'a> Gather<'a> {
    /// For a request that reads at most `wanted` bytes.
    pub fn new(pools: &'a Pools, wanted: usize) -> Gather<'a> {
        Gather { pools, wanted, open: None, bulk: Bulk::new() }
    }

    /// Reads up to `len` bytes of `file` from `offset` on; fewer where it ends.
    pub fn read(&mut self, file: &File, offset: u64, len: usize) -> io::Result<usize> {
        let mut got = 0;
        while got < len {
            let (buffer, filled) = self.room();
            let take = (len - got).min(buffer.len() - *filled);
            let n = file.read_at(offset + got as u64, &mut buffer[*filled..*filled + take])?;
            *filled += n;
            got += n;
            if n < take {
                break; // the end: a regular file reads short nowhere else
            }
        }
        self.wanted = self.wanted.saturating_sub(len);
        Ok(got)
    }

    /// Gives up `len` bytes that were wanted and are not there: reads none.
    pub fn skip(&mut self, len: usize) -> usize {
        self.wanted = self.wanted.saturating_sub(len);
        0
    }

    /// A buffer with room for at least a byte.
    fn room(&mut self) -> &mut (Buffer, usize) {
        if let Some((buffer, filled)) = self.open.take_if(|(buffer, filled)| *filled == buffer.len()) {
            self.bulk.push(buffer.freeze(0..filled));
        }
        let pool = if self.wanted <= SMALL_BYTES { &self.pools.small } else { &self.pools.large };
        self.open.get_or_insert_with(|| (pool.get(), 0))
    }

    /// What was read.
    pub fn finish(mut self) -> Bulk {
        if let Some((buffer, filled)) = self.open {
            self.bulk.push(buffer.freeze(0..filled));
        }
        self.bulk
    }
}
