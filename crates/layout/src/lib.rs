//! Striping: layouts, their Lustre binary form, byte mapping, placement of objects on OSTs.
//!
//! How a file gets its layout, each step a pure function or a state machine without clock or randomness of its own:
//!
//! 1. [`Spec`]: what a user asked for, or what a directory passes on ([`spec`]);
//! 2. [`resolve::resolve`]: what was left open is filled from the directory, the root and the file system's defaults;
//! 3. [`Placer::place`]: an OST for each stripe ([`place`]);
//! 4. [`Layout::new`]: with an object for each stripe. Stored and exchanged in Lustre's own bytes ([`codec`]);
//! 5. [`Layout::map`]: which bytes of the file lie where ([`map`]).
//!
//! Invariants: bytes from users and peers are refused with a [`LayoutError`], never a panic; what was decoded encodes to the
//! same bytes (of composite layouts too, which this version reads but does not yet map).

pub mod codec;
mod error;
pub mod layout;
pub mod map;
pub mod place;
pub mod resolve;
pub mod spec;

pub use error::LayoutError;
pub use layout::{Component, Composite, Layout, Pattern, Pool, Stripe};
pub use map::{Chunk, Chunks};
pub use place::{Limits, Ost, Placer};
pub use resolve::{Defaults, Wanted, resolve};
pub use spec::{Count, Spec};

/// Most stripes of a file (of a component), as in Lustre: what fits a layout of 64 KiB beside its headers, rounded.
pub const STRIPES_MAX: usize = 2000;
/// A stripe size is a multiple of this many bytes: the largest page size of any client.
pub const STRIPE_SIZE_UNIT: u32 = 64 << 10;
/// Largest stripe size in bytes: below 4 GiB, a multiple of the unit.
pub const STRIPE_SIZE_MAX: u32 = u32::MAX - (STRIPE_SIZE_UNIT - 1);
/// Stripe size where nobody asked for one, in bytes (Lustre 2.17's default).
pub const STRIPE_SIZE_DEFAULT: u32 = 4 << 20;
/// Largest layout in bytes: an extended attribute's limit.
pub const LAYOUT_BYTES_MAX: usize = 65536;
/// Longest name of a pool.
pub const POOL_NAME_MAX: usize = 15;
/// Most stripes per OST that `-C -N` can ask for.
pub const PER_OST_MAX: u16 = 32;
