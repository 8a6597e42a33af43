//! An open object's part in the accounting.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use sheen_rt::Metadata;

use crate::store::accounting::{Charge, bytes_of};

/// How often an object is counted again after its last change (`Files::recount_changed`).
pub(super) const RECOUNTS: u8 = 2;

/// An open object's part in the accounting.
#[derive(Default)]
pub(super) struct OpenCharge {
    pub(super) state: Mutex<State>,
    /// Whether nothing is to be read before a change.
    pub(super) is_known: AtomicBool,
    /// How often it is counted again.
    pub(super) recounts: AtomicU8,
    /// Its length, if it had no holes when it was last counted; else 0. Writes below take no space.
    dense: AtomicU64,
}

#[derive(Clone, Copy, Default)]
pub(super) enum State {
    /// It was opened for reading only, or it is not counted at all.
    #[default]
    Unknown,
    Known(Charge),
    /// It has left the cache, or its file is removed.
    Detached,
}

impl OpenCharge {
    /// Replaces the state. Returns the charge, if it was known.
    pub(super) fn replace(&self, state: State) -> Option<Charge> {
        self.is_known.store(false, Relaxed);
        self.dense.store(0, Relaxed);
        match std::mem::replace(&mut *self.state.lock(), state) {
            State::Known(charge) => Some(charge),
            State::Unknown | State::Detached => None,
        }
    }

    /// Calls `f` with the charge, if it is known.
    pub(super) fn with<T>(&self, f: impl FnOnce(&mut Charge) -> T) -> Option<T> {
        match &mut *self.state.lock() {
            State::Known(charge) => Some(f(charge)),
            State::Unknown | State::Detached => None,
        }
    }

    /// Records the attributes with which it is counted.
    pub(super) fn set_dense(&self, found: &Metadata) {
        self.dense.store(if bytes_of(found) >= found.len { found.len } else { 0 }, Relaxed);
    }

    /// Whether a write up to `end` took no space. A hole that is punched at the same moment is
    /// found when the object is counted again.
    pub(super) fn is_dense_to(&self, end: u64) -> bool {
        end <= self.dense.load(Relaxed)
    }

    /// Whether the object is to be counted again.
    pub(super) fn take_recount(&self) -> bool {
        self.recounts.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok()
    }
}
