//! Flags of a component: Lustre's `LCME_FL_*`.

/// Its mirror has missed writes that lie in it.
pub const STALE: u32 = 1;
/// Its mirror is preferred by readers.
pub const PREF_RD: u32 = 2;
/// Its mirror is preferred by writers.
pub const PREF_WR: u32 = 4;
/// It has its objects (or its place in the MDT). Lustre's servers alone set it.
pub const INIT: u32 = 0x10;
/// Its mirror is left out when mirrors are brought up to date.
pub const NOSYNC: u32 = 0x20;
/// It is the space into which the component before it may grow.
pub const EXTENSION: u32 = 0x40;
/// Only where components are chosen or flags are changed: those that lack the other flags, or that
/// lose them.
pub const NEGATIVE: u32 = 0x8000_0000;

/// What a new component may be asked for with.
pub const ASKABLE: u32 = PREF_RD | PREF_WR | NOSYNC | EXTENSION;
/// What may be changed of a component that is there.
pub const SETTABLE: u32 = STALE | PREF_RD | PREF_WR | NOSYNC;
