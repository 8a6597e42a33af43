//! Striping: layouts, their Lustre binary form, byte mapping, placement of objects on OSTs.
//!
//! How a file gets its layout. Each step is a pure function or a state machine, without a clock or
//! randomness of its own:
//!
//! 1. [`Asked`]: the layout that a user requests, or a directory's default layout. It is a [`Spec`]
//!    for the whole file ([`spec`]) or a [`Template`] of components ([`template`]).
//! 2. [`resolve_asked`]: fills unspecified values from the directory, the root and the file
//!    system's defaults ([`wanted`]).
//! 3. [`Placer::place`]: chooses an OST for each stripe that gets an object at once,
//!    [`WantedLayout::first`] ([`place`]).
//! 4. [`WantedLayout::layout`]: the layout with an object for each of these stripes. Layouts are
//!    stored and exchanged in Lustre's binary form ([`codec`]).
//! 5. [`Layout::map`]: maps byte ranges of the file to objects ([`map`]).
//! 6. [`Layout::missing`], [`Layout::wanting`], [`Layout::instantiate`]: a component gets its
//!    objects at the first write into it ([`instantiate`]). A self-extending component first grows
//!    by [`Layout::grow`] ([`grow`]). Components are added and deleted and their flags changed
//!    ([`edit`]).
//! 7. Mirrors are chosen, become stale, are resynced, added and removed (`mirror`:
//!    [`Layout::mirrors`] and the methods after it).
//!
//! Invariants:
//!
//! * Malformed bytes from users and peers are refused with a [`LayoutError`], never a panic.
//! * A decoded layout encodes to the same bytes.

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

/// Maximum number of stripes of a file or component, as in Lustre: the number of objects that fit
/// into a layout of 64 KiB beside its headers, rounded.
pub const STRIPES_MAX: usize = 2000;
/// A stripe size is a multiple of this many bytes: the largest page size of any client.
pub const STRIPE_SIZE_UNIT: u32 = 64 << 10;
/// Largest stripe size in bytes: below 4 GiB, a multiple of the unit.
pub const STRIPE_SIZE_MAX: u32 = u32::MAX - (STRIPE_SIZE_UNIT - 1);
/// Default stripe size, in bytes (Lustre 2.17's default).
pub const STRIPE_SIZE_DEFAULT: u32 = 4 << 20;
/// Maximum size of a layout, in bytes: the limit of an extended attribute.
pub const LAYOUT_BYTES_MAX: usize = 65536;
/// Maximum length of a pool name, in bytes.
pub const POOL_NAME_MAX: usize = 15;
/// Maximum number of stripes per OST that `-C -N` can request.
pub const PER_OST_MAX: u16 = 32;
/// Maximum number of mirrors of a file.
pub const MIRRORS_MAX: u16 = 16;
/// Unit of an extension size in the binary form, in bytes.
pub const SEL_UNIT: u64 = 1024;
/// Minimum extension size, in bytes. Each extension of a growing file costs a request to the MDT.
pub const EXTENSION_SIZE_MIN: u64 = 64 << 20;
/// Maximum extension size, in bytes: the limit of its field.
pub const EXTENSION_SIZE_MAX: u64 = (u32::MAX as u64) * SEL_UNIT;
/// Default limit of the bytes of a file on the MDT (Lustre's
/// `dom_stripesize`).
pub const MDT_BYTES_DEFAULT: u64 = 1 << 20;
/// Value of [`Stripe::ost`] for the single stripe of a Data-on-MDT component: larger than every OST
/// index. The object's FID is the file's FID with a version above 0. The MDT's data service holds
/// the object and accepts the same requests as an OST.
pub const MDT_OST: u32 = 1 << 31;
/// Maximum size of a component in a layout without its objects, in bytes.
pub(crate) const COMP_BYTES_MAX: usize = codec::COMP_ENTRY_BYTES + codec::V3_BYTES;
