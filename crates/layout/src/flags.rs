//! Flags of a component: Lustre's `LCME_FL_*`.

/// The component's mirror has missed writes to this component.
pub const STALE: u32 = 1;
/// Readers prefer the component's mirror.
pub const PREF_RD: u32 = 2;
/// Writers prefer the component's mirror.
pub const PREF_WR: u32 = 4;
/// The component's OSTs cannot be reached. Sheen does not set this flag.
pub const OFFLINE: u32 = 8;
/// The component has its objects, or its object on the MDT. Only servers set this flag.
pub const INIT: u32 = 0x10;
/// A resync skips the component's mirror.
pub const NOSYNC: u32 = 0x20;
/// The component is the space into which the one before it grows.
pub const EXTENSION: u32 = 0x40;
/// The component is the parity of others. Sheen does not set this flag.
pub const PARITY: u32 = 0x80;
/// Only in selections and flag changes: selects the components without the other flags, or clears
/// these flags.
pub const NEGATIVE: u32 = 0x8000_0000;

/// Flags that a user may request for a new component.
pub const ASKABLE: u32 = PREF_RD | PREF_WR | NOSYNC | EXTENSION;
/// Flags that a user may change on an existing component.
pub const SETTABLE: u32 = STALE | PREF_RD | PREF_WR | NOSYNC;
/// All flags that Lustre knows.
pub const KNOWN: u32 = STALE | PREF_RD | PREF_WR | OFFLINE | INIT | NOSYNC | EXTENSION | PARITY | NEGATIVE;
