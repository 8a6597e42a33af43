//! Flags of a component: Lustre's `LCME_FL_*`.

/// The component's mirror has missed writes to this component.
pub const STALE: u32 = 1;
/// Readers prefer the component's mirror.
pub const PREF_RD: u32 = 2;
/// Writers prefer the component's mirror.
pub const PREF_WR: u32 = 4;
/// The component has its objects, or its object on the MDT. Only servers set this flag.
pub const INIT: u32 = 0x10;
/// A resync skips the component's mirror.
pub const NOSYNC: u32 = 0x20;
/// The component is the space into which the one before it grows.
pub const EXTENSION: u32 = 0x40;
/// Only in selections and flag changes: selects the components without the other flags, or clears
/// these flags.
pub const NEGATIVE: u32 = 0x8000_0000;

/// Flags that a user may request for a new component.
pub const ASKABLE: u32 = PREF_RD | PREF_WR | NOSYNC | EXTENSION;
/// Flags that a user may change on an existing component.
pub const SETTABLE: u32 = STALE | PREF_RD | PREF_WR | NOSYNC;
