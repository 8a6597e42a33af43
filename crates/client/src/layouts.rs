//! Decoded layouts by file.
//!
//! A layout never changes once a file has one, and a FID is never used twice; so an entry is right until it leaves to make room, or
//! until the MDT is restarted: that may have forgotten a layout which it had not committed, and give the file another one.

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
use sheen_layout::Layout;
use sheen_wire::{Errno, Fid, Result};

/// The most recently used layouts.
pub struct Layouts {
    kept: Mutex<LruCache<Fid, Arc<Layout>, FxBuildHasher>>,
    cleared: AtomicU64,
}

impl Layouts {
    /// Keeps at most `max` (at least one).
    pub fn new(max: usize) -> Layouts {
        let max = NonZeroUsize::new(max).unwrap_or(NonZeroUsize::MIN);
        Layouts { kept: Mutex::new(LruCache::with_hasher(max, FxBuildHasher)), cleared: AtomicU64::new(0) }
    }

    /// A file's layout, if it is kept.
    pub fn get(&self, fid: Fid) -> Option<Arc<Layout>> {
        self.kept.lock().get(&fid).cloned()
    }

    /// A file's layout, from memory or from what the MDT sent.
    ///
    /// # Errors
    /// EIO: the bytes are no layout. EOPNOTSUPP: a layout that this version cannot follow.
    pub fn decode(&self, fid: Fid, bytes: &Bytes) -> Result<Arc<Layout>> {
        if let Some(layout) = self.get(fid) {
            return Ok(layout);
        }
        let layout = Layout::decode(bytes).map_err(|e| {
            tracing::error!("the layout of {fid} cannot be read: {e}");
            Errno::EIO
        })?;
        layout.check_usable().map_err(|e| {
            tracing::warn!("the layout of {fid} cannot be used: {e}");
            Errno::EOPNOTSUPP
        })?;
        let layout = Arc::new(layout);
        self.kept.lock().put(fid, layout.clone());
        Ok(layout)
    }

    /// Forgets all.
    pub fn clear(&self) {
        self.cleared.fetch_add(1, Relaxed);
        self.kept.lock().clear();
    }

    /// How often all was forgotten: what was looked up before the last time may be wrong.
    pub fn cleared(&self) -> u64 {
        self.cleared.load(Relaxed)
    }

    /// How many are kept.
    pub fn len(&self) -> usize {
        self.kept.lock().len()
    }
}
