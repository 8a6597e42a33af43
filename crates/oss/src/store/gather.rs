//! Buffers for reads: pooled and page-aligned. They are passed on as `Bytes`, and return to the
//! pool when the last of these is dropped.
//!
//! All bytes that a request reads are placed end to end in as few buffers as possible. So a reply
//! is a short list of large pieces, however many parts the request has.

use std::io;

use sheen_rt::{
    File,
    buf::{Buffer, BufferPool},
};
use sheen_wire::Bulk;

/// Size of a large buffer: the usual size of an RPC. Larger reads take several buffers.
const LARGE_BYTES: usize = 1 << 20;
/// Large buffers in the pool: 64 MiB.
const LARGE_POOLED: usize = 64;
/// Size of a small buffer, for requests that fit: a reply that is held for long should not pin a
/// large buffer.
const SMALL_BYTES: usize = 64 << 10;
/// Small buffers in the pool: 16 MiB.
const SMALL_POOLED: usize = 256;

/// The pools of buffers.
pub struct Pools {
    large: BufferPool,
    small: BufferPool,
}

impl Pools {
    /// Empty pools.
    pub fn new() -> Pools {
        Pools { large: BufferPool::new(LARGE_BYTES, LARGE_POOLED), small: BufferPool::new(SMALL_BYTES, SMALL_POOLED) }
    }
}

/// The bulk of a reply while it is being read.
pub struct Gather<'a> {
    pools: &'a Pools,
    /// Bytes that the request may still read.
    wanted: usize,
    /// The buffer that is being filled, and the number of bytes in it.
    open: Option<(Buffer, usize)>,
    bulk: Bulk,
}

impl<'a> Gather<'a> {
    /// Starts a request that reads at most `wanted` bytes.
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
                break; // end of file: a regular file reads short nowhere else
            }
        }
        self.wanted = self.wanted.saturating_sub(len);
        Ok(got)
    }

    /// Skips `len` bytes that do not exist. Returns 0, the number of bytes read.
    pub fn skip(&mut self, len: usize) -> usize {
        self.wanted = self.wanted.saturating_sub(len);
        0
    }

    /// Returns a buffer with space for at least one byte, and its number of filled bytes.
    fn room(&mut self) -> &mut (Buffer, usize) {
        if let Some((buffer, filled)) = self.open.take_if(|(buffer, filled)| *filled == buffer.len()) {
            self.bulk.push(buffer.freeze(0..filled));
        }
        let pool = if self.wanted <= SMALL_BYTES { &self.pools.small } else { &self.pools.large };
        self.open.get_or_insert_with(|| (pool.get(), 0))
    }

    /// Returns all bytes read.
    pub fn finish(mut self) -> Bulk {
        if let Some((buffer, filled)) = self.open {
            self.bulk.push(buffer.freeze(0..filled));
        }
        self.bulk
    }
}
