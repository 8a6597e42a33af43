//! Invalidation of caches outside the client, before a lock is cancelled or when it was lost.
//!
//! The client's own caches are emptied first, then those of the [`Invalidate`], then the lock is
//! cancelled. The kernel of a mount is one such cache. A program that uses the client as a library
//! may have another: pages and readahead of its own, under the same locks. So nothing in this trait
//! is about the kernel alone, except where a method says so.

use sheen_wire::Fid;

/// A consumer of revocations: a cache outside the client that stores the client's replies. The
/// kernel of a mount is one.
///
/// A reply that came with a [`Keep`](crate::Keep) may be cached until one of these methods
/// invalidates it. The client cancels the lock after the method has returned.
pub trait Invalidate: Send + Sync + 'static {
    /// Invalidates all names. Must not block.
    fn names(&self);

    /// Invalidates the attributes of a file. Must not block. Returns `false` if a reply with these
    /// attributes is still in transit to the kernel; the client then calls again until it has
    /// arrived.
    fn attr(&self, fid: Fid) -> bool;

    /// Invalidates all cached data of a file. May block. Runs on a thread for blocking work, and
    /// may be called again before it has returned.
    fn data(&self, fid: Fid);

    /// Invalidates the bytes in `[start, end)`, like [`Invalidate::data`]. An `end` of [`u64::MAX`]
    /// means the end of the file.
    fn part(&self, fid: Fid, start: u64, end: u64);

    /// Whether names may be cached at all: true only if [`Invalidate::names`] works.
    fn keeps_names(&self) -> bool;

    /// Whether the cache requests attributes before it uses a size that came with a name and that
    /// is marked as not cacheable. Such a cache also ignores the attributes in a lookup reply if
    /// [`Invalidate::attr`] was called after the lookup began. If true, lookups succeed although
    /// the OST that knows the size is disconnected.
    fn asks_for_sizes(&self) -> bool {
        false
    }
}
