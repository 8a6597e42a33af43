//! Striping: layouts, their Lustre binary form, byte mapping, placement of objects on OSTs.
//!
//! How a file gets its layout, each step a pure function or a state machine without clock or
//! randomness of its own:
//!
//! 1. [`Asked`]: what a user asked for, or what a directory passes on: a [`Spec`] for the whole
//!    file ([`spec`]) or a [`Template`] of components ([`template`]);
//! 2. [`resolve_asked`]: what was left open is filled from the directory, the root and the file
//!    system's defaults ([`wanted`]);
//! 3. [`Placer::place`]: an OST for each stripe of what gets objects at once,
//!    [`WantedLayout::first`] ([`place`]);
//! 4. [`WantedLayout::layout`]: with an object for each stripe. Stored and exchanged in Lustre's
//!    own bytes ([`codec`]);
//! 5. [`Layout::map`]: which bytes of the file lie where ([`map`]);
//! 6. [`Layout::missing`], [`Layout::wanting`], [`Layout::instantiate`]: a component gets its
//!    objects when it is first written into ([`instantiate`]), after [`Layout::grow`] if it grows
//!    by itself ([`grow`]); components are added and deleted, their flags changed ([`edit`]);
//! 7. mirrors are chosen, become stale and fresh again, come and go (`mirror`: [`Layout::mirrors`]
//!    and what follows it).
//!
//! Invariants: bytes from users and peers are refused with a [`LayoutError`], never a panic; what
//! was decoded encodes to the same bytes.

mod adopt;
pub mod codec;
pub mod edit;
mod error;
pub mod flags;
pub mod grow;
pub mod instantiate;
pub mod layout;
pub mod lmv;
pub mod map;
mod mirror;
pub mod place;
mod progressive;
pub mod resolve;
pub mod spec;
pub mod template;
pub mod wanted;

pub use edit::Mark;
pub use error::LayoutError;
pub use layout::{Component, Composite, Layout, Pattern, Pool, Stripe};
pub use map::{Chunk, Chunks, FILE_SIZE_MAX, Place};
pub use place::{Limits, Ost, Placer, room_each};
pub use resolve::{Defaults, Wanted, resolve};
pub use spec::{Count, Spec};
pub use template::{Asked, Template, TemplateComponent};
pub use wanted::{Holds, WantedComponent, WantedLayout, resolve_asked};

/// Most stripes of a file (of a component), as in Lustre: what fits a layout of 64 KiB beside its
/// headers, rounded.
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
/// Most mirrors of a file.
pub const MIRRORS_MAX: u16 = 16;
/// An extension size travels in units of so many bytes.
pub const SEL_UNIT: u64 = 1024;
/// Smallest extension size in bytes: a growing file costs a request to the MDT each time.
pub const EXTENSION_SIZE_MIN: u64 = 64 << 20;
/// Largest extension size in bytes: what its field holds.
pub const EXTENSION_SIZE_MAX: u64 = (u32::MAX as u64) * SEL_UNIT;
/// Bytes of a file that lie on the MDT at most, where nobody set another limit (Lustre's
/// `dom_stripesize`).
pub const MDT_BYTES_DEFAULT: u64 = 1 << 20;
/// [`Stripe::ost`] of the one stripe of a component on the MDT: beyond every index of an OST. Its
/// object is the file's FID with a version above 0, held by the MDT's data service, which is asked
/// as an OST is.
pub const MDT_OST: u32 = 1 << 31;
/// Bytes of a component in a layout beside its objects, at most.
pub(crate) const COMP_BYTES_MAX: usize = codec::COMP_ENTRY_BYTES + codec::V3_BYTES;
