//! Cache of decoded settled layouts ([`is_settled`]), by file.
//!
//! A settled layout does not change through writes, and a FID is never reused. So an entry is valid
//! until the LRU list drops it or the MDT is restarted. A restarted MDT may have lost an
//! uncommitted layout, and may give the file another one.
//!
//! Three administrative changes replace even a settled layout: editing components, adding a mirror,
//! and moving the file to other objects. A client with a LAYOUT lock learns of all three. Any
//! client learns of a move from the OSTs at the latest, because the old objects are sealed
//! ([`crate::llite`]'s `relayout`). The OSTs remember sealed objects for many times as long as this
//! cache keeps an entry.
//!
//! Layouts that a write may still change are not cached here. For open files,
//! [`crate::open::Inode`] stores them under a LAYOUT lock.

use std::{
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use lru::LruCache;
use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;
use sheen_layout::{Layout, codec::Magic};
use sheen_wire::{Errno, Fid, Result};

/// Whether no write can change the layout. True for a plain layout, and for a composite layout
/// without mirrors that covers the whole file and whose components all have objects.
pub fn is_settled(layout: &Layout) -> bool {
    layout.is_plain() || !layout.is_mirrored() && layout.end() == u64::MAX && layout.missing(0, u64::MAX).is_none()
}

/// Whether a layout is at least as new as another layout of the same file. Generations count up and
/// may wrap around.
pub fn is_as_new(layout: &Layout, than: &Layout) -> bool {
    layout.generation().wrapping_sub(than.generation()) <= u32::MAX / 2
}

/// Whether these bytes encode a plain layout of the same generation as `known`. Then both are the
/// same layout.
fn is_plain_generation(bytes: &Bytes, known: &Layout) -> bool {
    /// Offset of `lmm_layout_gen` in the v1 and v3 formats.
    const GENERATION: std::ops::Range<usize> = 30..32;
    let magic = |m: Magic| bytes.get(..4) == Some(&(m as u32).to_le_bytes());
    known.is_plain()
        && (magic(Magic::V1) || magic(Magic::V3))
        && bytes.get(GENERATION) == Some(&known.layout_gen().to_le_bytes())
}

/// The most recently used layouts.
pub struct Layouts {
    cached: Mutex<LruCache<Fid, Arc<Layout>, FxBuildHasher>>,
    cleared: AtomicU64,
}

impl Layouts {
    /// Creates a cache of at most `max` layouts (at least one).
    pub fn new(max: usize) -> Layouts {
        let max = NonZeroUsize::new(max).unwrap_or(NonZeroUsize::MIN);
        Layouts { cached: Mutex::new(LruCache::with_hasher(max, FxBuildHasher)), cleared: AtomicU64::new(0) }
    }

    /// Returns a file's cached layout.
    pub fn get(&self, fid: Fid) -> Option<Arc<Layout>> {
        self.cached.lock().get(&fid).cloned()
    }

    /// Returns a file's layout from the cache or decodes the MDT's reply. Caches the layout if it
    /// is settled, so a LAYOUT lock must have come with the reply.
    ///
    /// # Errors
    /// As [`Layouts::read`].
    pub fn decode(&self, fid: Fid, bytes: &Bytes) -> Result<Arc<Layout>> {
        let layout = self.read(fid, bytes)?;
        let mut cached = self.cached.lock();
        match is_settled(&layout) {
            true => drop(cached.put(fid, layout.clone())),
            false => drop(cached.pop(&fid)),
        }
        Ok(layout)
    }

    /// Decodes a layout like [`Layouts::decode`] without caching it. Drops an older cached layout.
    ///
    /// # Errors
    /// EIO: the bytes are no valid layout. EOPNOTSUPP: this version does not support the layout.
    pub fn read(&self, fid: Fid, bytes: &Bytes) -> Result<Arc<Layout>> {
        let cached = self.get(fid);
        if let Some(layout) = cached.as_ref().filter(|layout| is_plain_generation(bytes, layout)) {
            return Ok(layout.clone());
        }
        let layout = Layout::decode(bytes).map_err(|e| {
            tracing::error!("{fid}: cannot decode the layout: {e}");
            Errno::EIO
        })?;
        layout.check_usable().map_err(|e| {
            tracing::warn!("{fid}: unsupported layout: {e}");
            Errno::EOPNOTSUPP
        })?;
        match cached {
            Some(cached) if is_as_new(&cached, &layout) => Ok(cached),
            Some(_) => {
                self.forget(fid);
                Ok(Arc::new(layout))
            }
            None => Ok(Arc::new(layout)),
        }
    }

    /// Drops a file's layout, which may have been edited.
    pub fn forget(&self, fid: Fid) {
        self.cached.lock().pop(&fid);
    }

    /// Drops all layouts.
    pub fn clear(&self) {
        self.cleared.fetch_add(1, Relaxed);
        self.cached.lock().clear();
    }

    /// Returns how often the cache was cleared. A layout looked up before the last time may be
    /// wrong.
    pub fn cleared(&self) -> u64 {
        self.cleared.load(Relaxed)
    }

    /// Returns the number of cached layouts.
    pub fn len(&self) -> usize {
        self.cached.lock().len()
    }
}

#[cfg(test)]
mod tests {
    use sheen_layout::Stripe;

    use super::*;

    fn layout(fid: Fid, generation: u32) -> Layout {
        let stripes = vec![Stripe { object: Fid::new(7, 8 + generation), ost: 1 }];
        Layout::new(fid, 1 << 16, None, stripes).unwrap().adopted(fid, generation).unwrap()
    }

    #[test]
    fn cached_layout_is_dropped_when_newer_one_is_read() {
        let (layouts, fid) = (Layouts::new(8), Fid::new(1, 2));
        let bytes = |generation| Bytes::from(layout(fid, generation).encode());
        layouts.decode(fid, &bytes(5)).unwrap();
        assert_eq!(layouts.read(fid, &bytes(4)).unwrap().generation(), 5, "a late answer says nothing");
        assert_eq!(layouts.get(fid).unwrap().generation(), 5);
        assert_eq!(layouts.read(fid, &bytes(6)).unwrap().generation(), 6);
        assert!(layouts.get(fid).is_none(), "the file has left its objects");
    }
}
