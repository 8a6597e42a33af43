//! A layout as a C program holds it: components, of which one is current. Getters and setters apply
//! to the current component.
//!
//! Numbers are those of the interface: [`DEFAULT`] for a value that is not set, [`WIDE`] for all
//! OSTs.
//!
//! Invariants:
//! * There is at least one component, and `current` is one of them.
//! * Setters accept only what can be encoded ([`crate::xattr`]).
//! * Whether the components fit together is checked when a layout is used ([`crate::sanity`]): they
//!   can be built in any order.

use sheen_layout::{
    PER_OST_MAX, POOL_NAME_MAX, SEL_UNIT, STRIPE_SIZE_MAX, STRIPE_SIZE_UNIT, STRIPES_MAX, codec::COMPONENTS_MAX, flags,
};
use sheen_wire::{Errno, Result};

mod mirrors;

/// An invalid number.
pub const INVALID: u64 = 0x1000_0000_0000_0001;
/// Left to the file system.
pub const DEFAULT: u64 = INVALID + 1;
/// One stripe on every OST. The numbers after it, up to [`WIDE_MAX`], mean two on every OST, three,
/// and so on.
pub const WIDE: u64 = INVALID + 2;
/// As many stripes on every OST as a request may contain.
pub const WIDE_MAX: u64 = WIDE + PER_OST_MAX as u64 - 1;
/// One above the largest index of an OST.
pub const OST_INDEX_MAX: u64 = 0xffff_ffff;
/// An entry in a list of OSTs that is not set.
pub const OST_UNSET: u32 = u32::MAX;

/// Round robin.
pub const RAID0: u64 = 0;
/// Data on the MDT.
pub const MDT: u64 = 2;
/// Several stripes per OST.
pub const OVERSTRIPING: u64 = 4;

/// End of a component without an end.
pub const EOF: u64 = u64::MAX;
const MIRROR_ID_MASK: u32 = 0x7fff_0000;
const MIRROR_ID_SHIFT: u32 = 16;

/// One component, or the whole of a plain layout.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Component {
    /// [`DEFAULT`], [`RAID0`], [`MDT`], [`OVERSTRIPING`], or the bits of a pattern that cannot be
    /// set.
    pub pattern: u64,
    /// Bytes, or [`DEFAULT`]. Of an [`flags::EXTENSION`]: how much the component before it grows at
    /// a time.
    pub stripe_size: u64,
    /// A number, [`DEFAULT`], or [`WIDE`] and above.
    pub stripe_count: u64,
    /// First OST, or [`DEFAULT`].
    pub start_ost: u64,
    /// OSTs of its objects, or the requested ones. [`OST_UNSET`] where none is set.
    pub osts: Vec<u32>,
    /// Whether exactly these OSTs are requested.
    pub specific: bool,
    /// At most 15 bytes; empty if there is no pool.
    pub pool: Vec<u8>,
    /// First byte.
    pub start: u64,
    /// Byte after the last, or [`EOF`].
    pub end: u64,
    /// Unique in a file; 0 before it is assigned. The upper half is the id of the mirror.
    pub id: u32,
    /// Bits of [`flags`].
    pub flags: u32,
    /// `lcme_timestamp`, passed on unchanged.
    pub timestamp: u64,
}

impl Default for Component {
    fn default() -> Component {
        Component {
            pattern: DEFAULT,
            stripe_size: DEFAULT,
            stripe_count: DEFAULT,
            start_ost: DEFAULT,
            osts: Vec::new(),
            specific: false,
            pool: Vec::new(),
            start: 0,
            end: EOF,
            id: 0,
            flags: 0,
            timestamp: 0,
        }
    }
}

impl Component {
    /// Returns whether it is extension space of the component before it.
    pub fn is_extension(&self) -> bool {
        self.flags & flags::EXTENSION != 0
    }

    /// Returns the id of its mirror; 0 in a file without mirrors.
    pub fn mirror_id(&self) -> u32 {
        (self.id & MIRROR_ID_MASK) >> MIRROR_ID_SHIFT
    }

    /// Sets the stripe size. EINVAL: neither [`DEFAULT`] nor a multiple of 64 KiB below 4 GiB, or
    /// it is extension space.
    pub fn set_stripe_size(&mut self, bytes: u64) -> Result<()> {
        let fits = bytes == DEFAULT || (bytes <= u64::from(STRIPE_SIZE_MAX) && is_whole_stripe(bytes));
        if self.is_extension() || !fits {
            return Err(Errno::EINVAL);
        }
        self.stripe_size = bytes;
        Ok(())
    }

    /// Sets the extension size. EINVAL: not a multiple of 64 KiB below 4 TiB, or it is no extension
    /// space.
    pub fn set_extension_size(&mut self, bytes: u64) -> Result<()> {
        if !self.is_extension() || !is_whole_stripe(bytes) || bytes / SEL_UNIT > u64::from(u32::MAX) {
            return Err(Errno::EINVAL);
        }
        self.stripe_size = bytes;
        Ok(())
    }

    /// Sets the stripe count. EINVAL: see [`is_stripe_count`].
    pub fn set_stripe_count(&mut self, count: u64) -> Result<()> {
        if !is_stripe_count(count) {
            return Err(Errno::EINVAL);
        }
        self.stripe_count = count;
        Ok(())
    }

    /// Sets the pattern. EOPNOTSUPP: a request cannot contain it.
    pub fn set_pattern(&mut self, pattern: u64) -> Result<()> {
        if !matches!(pattern, DEFAULT | RAID0 | MDT | OVERSTRIPING) {
            return Err(Errno::EOPNOTSUPP);
        }
        self.pattern = pattern;
        Ok(())
    }

    /// Sets the OST of a stripe. If only stripe 0 has an OST, the stripes start there. An OST of
    /// any other stripe makes the OSTs a complete list. [`DEFAULT`] for stripe 0 clears them.
    ///
    /// EINVAL: a stripe past the 2,000th, an index above the largest, or [`DEFAULT`] for another
    /// stripe than 0.
    pub fn set_ost(&mut self, stripe: usize, ost: u64) -> Result<()> {
        if ost == DEFAULT && stripe == 0 {
            self.reset_osts();
            return Ok(());
        }
        let index = u32::try_from(ost).ok().filter(|index| *index != OST_UNSET).ok_or(Errno::EINVAL)?;
        if stripe >= STRIPES_MAX {
            return Err(Errno::EINVAL);
        }
        if self.osts.len() <= stripe {
            self.osts.resize(stripe + 1, OST_UNSET);
        }
        self.osts[stripe] = index;
        if stripe == 0 {
            self.start_ost = ost;
        } else {
            self.specific = true;
        }
        Ok(())
    }

    /// Returns the OST of a stripe. EINVAL: there is no such stripe, or no OST is set for it.
    pub fn ost(&self, stripe: u64) -> Result<u64> {
        let ost = usize::try_from(stripe).ok().and_then(|stripe| self.osts.get(stripe));
        ost.filter(|ost| **ost != OST_UNSET).map(|ost| u64::from(*ost)).ok_or(Errno::EINVAL)
    }

    /// Leaves all OSTs to the file system.
    pub fn reset_osts(&mut self) {
        self.osts.clear();
        self.start_ost = DEFAULT;
        self.specific = false;
    }

    /// Sets the pool from `pool` or `fsname.pool`; empty: none. EINVAL: longer than 15 bytes, or
    /// with characters other than letters, digits, `-` and `_`.
    pub fn set_pool(&mut self, name: &[u8]) -> Result<()> {
        let name = name.iter().position(|b| *b == b'.').map_or(name, |dot| &name[dot + 1..]);
        let sign = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
        if name.len() > POOL_NAME_MAX || !name.iter().all(sign) {
            return Err(Errno::EINVAL);
        }
        self.pool = name.to_vec();
        Ok(())
    }
}

fn is_whole_stripe(bytes: u64) -> bool {
    bytes != 0 && bytes.is_multiple_of(u64::from(STRIPE_SIZE_UNIT))
}

/// Returns whether a request may contain this count: 1 to 2,000, [`DEFAULT`], or from [`WIDE`] to
/// [`WIDE_MAX`].
pub fn is_stripe_count(count: u64) -> bool {
    matches!(count, DEFAULT | WIDE..=WIDE_MAX) || (1..=STRIPES_MAX as u64).contains(&count)
}

/// The `struct llapi_layout` of C.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Whether it is composite, even if it has only one component.
    pub composite: bool,
    /// Generation of the file's layout.
    pub generation: u32,
    /// State of the mirrors (`LCM_FL_…`).
    pub flags: u16,
    /// At least 1.
    pub mirror_count: u16,
    components: Vec<Component>,
    current: usize,
}

impl Default for Layout {
    /// Plain, without settings.
    fn default() -> Layout {
        Layout::plain(Component::default())
    }
}

/// A position among the components.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Move {
    /// The first component.
    First,
    /// The last component.
    Last,
    /// The component after the current one.
    Next,
    /// The component before the current one.
    Previous,
}

impl Layout {
    /// Creates a plain layout.
    pub fn plain(component: Component) -> Layout {
        let components = vec![component];
        Layout { composite: false, generation: 0, flags: 0, mirror_count: 1, components, current: 0 }
    }

    /// Creates a composite layout, whose first component is current. EINVAL: there is no component.
    pub fn composite(components: Vec<Component>) -> Result<Layout> {
        if components.is_empty() {
            return Err(Errno::EINVAL);
        }
        Ok(Layout { composite: true, components, ..Layout::default() })
    }

    /// Returns all components, in order.
    pub fn components(&self) -> &[Component] {
        &self.components
    }

    /// Returns all components as mutable, in order.
    pub fn components_mut(&mut self) -> &mut [Component] {
        &mut self.components
    }

    /// Returns the current component.
    pub fn current(&self) -> &Component {
        // `current` is always a valid index.
        &self.components[self.current]
    }

    /// Returns the current component as mutable.
    pub fn current_mut(&mut self) -> &mut Component {
        &mut self.components[self.current]
    }

    /// Goes to another component. Returns false if there is none; the errno for C is then ENOENT.
    pub fn go(&mut self, to: Move) -> bool {
        let last = self.components.len() - 1;
        let at = match to {
            Move::First => Some(0),
            Move::Last => Some(last),
            Move::Next => self.current.checked_add(1).filter(|at| *at <= last),
            Move::Previous => self.current.checked_sub(1),
        };
        self.current = at.unwrap_or(self.current);
        at.is_some()
    }

    /// Goes to the component with this id. EINVAL: the layout is plain. ENOENT: there is none.
    pub fn go_to(&mut self, id: u32) -> Result<()> {
        if !self.composite {
            return Err(Errno::EINVAL);
        }
        self.current = self.components.iter().position(|c| c.id == id).ok_or(Errno::ENOENT)?;
        Ok(())
    }

    /// Goes to the last component that has its objects, if there is one.
    pub fn go_to_last_init(&mut self) {
        let last = self.components.iter().rposition(|c| c.flags & flags::INIT != 0);
        self.current = last.filter(|_| self.composite).unwrap_or(self.current);
    }

    /// Sets start and end of the current component, which makes the layout composite. EINVAL: it
    /// ends before it starts, or does not start at the end of the component before it in the same
    /// mirror.
    pub fn set_extent(&mut self, start: u64, end: u64) -> Result<()> {
        let before = self.current.checked_sub(1).map(|at| &self.components[at]);
        let fits = start == 0 || before.is_none_or(|before| before.end == start);
        if start > end || !fits {
            return Err(Errno::EINVAL);
        }
        self.composite = true;
        let current = self.current_mut();
        (current.start, current.end) = (start, end);
        Ok(())
    }

    /// Appends a component without an end that starts where the last one ends. It has the stripe
    /// size, count and pool of the last one, and becomes current. EINVAL: the last one has no end.
    /// E2BIG: there are too many to encode.
    pub fn add(&mut self) -> Result<()> {
        let last = self.components.last().ok_or(Errno::EINVAL)?;
        if last.end == EOF {
            return Err(Errno::EINVAL);
        }
        let added = Component {
            // The size of an extension is no stripe size.
            stripe_size: if last.is_extension() { DEFAULT } else { last.stripe_size },
            stripe_count: last.stripe_count,
            pool: last.pool.clone(),
            start: last.end,
            ..Component::default()
        };
        self.push(added)
    }

    /// Appends the first component of another mirror, which becomes current. E2BIG: there are too
    /// many to encode.
    pub fn add_first_of_mirror(&mut self) -> Result<()> {
        self.push(Component::default())
    }

    fn push(&mut self, component: Component) -> Result<()> {
        if self.components.len() >= COMPONENTS_MAX {
            return Err(Errno::E2BIG);
        }
        self.components.push(component);
        self.composite = true;
        self.current = self.components.len() - 1;
        Ok(())
    }

    /// Removes the current component, which must be the last one: otherwise a gap would remain.
    /// EINVAL: it is not the last one, or it is the only one.
    pub fn remove(&mut self) -> Result<()> {
        if !self.composite || self.components.len() == 1 || self.current + 1 != self.components.len() {
            return Err(Errno::EINVAL);
        }
        self.components.pop();
        self.current -= 1;
        Ok(())
    }

    /// Appends the components of another layout. EINVAL: one of the two layouts is plain. E2BIG:
    /// there are too many to encode.
    pub fn merge(&mut self, other: &Layout) -> Result<()> {
        if !self.composite || !other.composite {
            return Err(Errno::EINVAL);
        }
        if self.components.len() + other.components.len() > COMPONENTS_MAX {
            return Err(Errno::E2BIG);
        }
        self.components.extend_from_slice(&other.components);
        self.current = self.components.len() - 1;
        Ok(())
    }

    /// Returns a request for a file like this one: without the ids, objects and states that only an
    /// existing file has.
    pub fn as_request(&self) -> Layout {
        let mut asked = self.clone();
        asked.generation = 0;
        asked.flags = 0;
        for c in &mut asked.components {
            c.id = 0;
            c.flags &= !(flags::INIT | flags::STALE | flags::OFFLINE);
        }
        asked
    }
}

#[cfg(test)]
mod tests;
