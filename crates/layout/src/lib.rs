//! Striping: layouts, their Lustre binary form, byte mapping, placement of objects on OSTs.
//!
//! How a file gets its layout. Each step is a pure function or a state machine, without a clock or
//! randomness of its own:
//!
//! 1. [`Asked`]: the layout that a user requests, or a directory's default layout. It is a [`Spec`]
//!    for the whole file ([`spec`]) or a [`Template`] of components ([`template`]).
//! 2. [`resolve_asked`]: fills unspecified values from the directory, the root and the file
//!    system's defaults ([`resolved_layout`]).
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

pub mod codec;
mod component;
pub mod edit;
mod error;
pub mod flags;
pub mod grow;
mod index;
pub mod instantiate;
pub mod layout;
mod limits;
pub mod lmv;
pub mod map;
mod mirror;
pub mod place;
mod progressive;
mod reassign;
pub mod resolve;
pub mod resolved_layout;
pub mod spec;
pub mod template;

pub use component::{ANY_OST, Component, Composite, Pattern, Pool, Stripe};
pub use edit::Mark;
pub use error::LayoutError;
pub use layout::Layout;
pub use limits::{
    EXTENSION_SIZE_MAX, EXTENSION_SIZE_MIN, FILE_SIZE_MAX, LAYOUT_BYTES_MAX, MDT_BYTES_DEFAULT, MDT_OST, MIRRORS_MAX,
    PER_OST_MAX, POOL_NAME_MAX, SEL_UNIT, STRIPE_SIZE_DEFAULT, STRIPE_SIZE_MAX, STRIPE_SIZE_UNIT, STRIPES_MAX,
};
pub use map::{ByteLocation, Chunk, Chunks};
pub use place::{Limits, Ost, Placer, room_each};
pub use progressive::{PROGRESSIVE_ON_MDT, PROGRESSIVE_ONE_STRIPE, PROGRESSIVE_OPTIONS};
pub use resolve::{Defaults, Wanted, resolve};
pub use resolved_layout::{Holds, WantedComponent, WantedLayout, resolve_asked};
pub use spec::{Count, Spec};
pub use template::{Asked, Template, TemplateComponent};
