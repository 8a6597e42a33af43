//! Decoded layouts by file, of those that are settled ([`is_settled`]).
//!
//! A settled layout does not change by itself, and a FID is never used twice; so an entry is right
//! until it leaves to make room, or until the MDT is restarted: that may have forgotten a layout
//! which it had not committed, and give the file another one. Where its owner edits components,
//! gives it a mirror or moves it to other objects, this client hears of it if it has a lock on
//! LAYOUT; of the last from the OSTs at the latest, which know what was moved ([`crate::llite`]'s
//! `moved`) for many times as long as anything is kept here.
//!
//! A layout that will change when it is written somewhere, [`crate::file::Inode`] knows for open
//! files, under that lock.

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

/// Whether a layout stays as it is: it is not composite, or all of it has objects and it does not
/// end. What is mirrored does not.
pub fn is_settled(layout: &Layout) -> bool {
    layout.is_plain() || !layout.is_mirrored() && layout.end() == u64::MAX && layout.missing(0, u64::MAX).is_none()
}

/// Whether a layout is at least as new as another one of the same file. Generations count up, and
/// begin again some day.
pub fn is_as_new(layout: &Layout, than: &Layout) -> bool {
    layout.generation().wrapping_sub(than.generation()) <= u32::MAX / 2
}

/// Whether these bytes are a plain layout of the same generation as this plain layout: then they
/// are this one.
fn is_plain_generation(bytes: &Bytes, known: &Layout) -> bool {
    /// Where `lmm_layout_gen` lies in the v1 and v3 forms.
    const GENERATION: std::ops::Range<usize> = 30..32;
    let magic = |m: Magic| bytes.get(..4) == Some(&(m as u32).to_le_bytes());
    known.is_plain()
        && (magic(Magic::V1) || magic(Magic::V3))
        && bytes.get(GENERATION) == Some(&known.layout_gen().to_le_bytes())
}

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

    /// A file's layout, from memory or from what the MDT sent. It is kept if it is settled, so a
    /// lock on LAYOUT must have come with it.
    ///
    /// # Errors
    /// As [`Layouts::read`].
    pub fn decode(&self, fid: Fid, bytes: &Bytes) -> Result<Arc<Layout>> {
        let layout = self.read(fid, bytes)?;
        let mut kept = self.kept.lock();
        match is_settled(&layout) {
            true => drop(kept.put(fid, layout.clone())),
            false => drop(kept.pop(&fid)),
        }
        Ok(layout)
    }

    /// As [`Layouts::decode`], and nothing is kept; but an older one is not kept any longer.
    ///
    /// # Errors
    /// EIO: the bytes are no layout. EOPNOTSUPP: a layout that this version cannot follow.
    pub fn read(&self, fid: Fid, bytes: &Bytes) -> Result<Arc<Layout>> {
        let kept = self.get(fid);
        if let Some(layout) = kept.as_ref().filter(|layout| is_plain_generation(bytes, layout)) {
            return Ok(layout.clone());
        }
        let layout = Layout::decode(bytes).map_err(|e| {
            tracing::error!("the layout of {fid} cannot be read: {e}");
            Errno::EIO
        })?;
        layout.check_usable().map_err(|e| {
            tracing::warn!("the layout of {fid} cannot be used: {e}");
            Errno::EOPNOTSUPP
        })?;
        match kept {
            Some(kept) if is_as_new(&kept, &layout) => Ok(kept),
            Some(_) => {
                self.forget(fid);
                Ok(Arc::new(layout))
            }
            None => Ok(Arc::new(layout)),
        }
    }

    /// Forgets a file's layout: it may have been edited.
    pub fn forget(&self, fid: Fid) {
        self.kept.lock().pop(&fid);
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

#[cfg(test)]
mod tests {
    use sheen_layout::Stripe;

    use super::*;

    fn layout(fid: Fid, generation: u32) -> Layout {
        let stripes = vec![Stripe { object: Fid::new(7, 8 + generation), ost: 1 }];
        Layout::new(fid, 1 << 16, None, stripes).unwrap().adopted(fid, generation).unwrap()
    }

    #[test]
    fn what_is_kept_gives_way_to_what_is_heard_without_a_lock() {
        let (layouts, fid) = (Layouts::new(8), Fid::new(1, 2));
        let bytes = |generation| Bytes::from(layout(fid, generation).encode());
        layouts.decode(fid, &bytes(5)).unwrap();
        assert_eq!(layouts.read(fid, &bytes(4)).unwrap().generation(), 5, "a late answer says nothing");
        assert_eq!(layouts.get(fid).unwrap().generation(), 5);
        assert_eq!(layouts.read(fid, &bytes(6)).unwrap().generation(), 6);
        assert!(layouts.get(fid).is_none(), "the file has left its objects");
    }
}
