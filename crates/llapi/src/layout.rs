//! A layout as a C program holds it: components, and which of them the getters and setters speak
//! of.
//!
//! Numbers are those of the interface: [`DEFAULT`] for what is left open, [`WIDE`] for all OSTs.
//! Invariants: there is at least one component, and `current` is one of them; setters take only
//! what can be encoded ([`crate::lum`]); whether components fit together is asked when a layout is
//! used ([`crate::sanity`]), so that they can be built in any order.

use sheen_layout::{PER_OST_MAX, POOL_NAME_MAX, STRIPE_SIZE_MAX, STRIPE_SIZE_UNIT, STRIPES_MAX};
use sheen_wire::{Errno, Result};

mod mirrors;

/// No number of anything.
pub const INVALID: u64 = 0x1000_0000_0000_0001;
/// Left to the file system.
pub const DEFAULT: u64 = INVALID + 1;
/// A stripe on every OST; the numbers after it up to [`WIDE_MAX`]: two on every OST, three, and so
/// on.
pub const WIDE: u64 = INVALID + 2;
/// As many on every OST as can be asked for.
pub const WIDE_MAX: u64 = WIDE + PER_OST_MAX as u64 - 1;
/// One above the largest index of an OST.
pub const OST_INDEX_MAX: u64 = 0xffff_ffff;
/// A place in a list of OSTs that was not filled.
pub const OST_UNSET: u32 = u32::MAX;

/// Round robin.
pub const RAID0: u64 = 0;
/// Data in the inode.
pub const MDT: u64 = 2;
/// Several stripes an OST.
pub const OVERSTRIPING: u64 = 4;

/// End of a component that has none.
pub const EOF: u64 = u64::MAX;
/// Most mirrors of a file, as in Lustre.
pub const MIRRORS_MAX: u16 = 16;
/// Extension sizes are counted in these many bytes where they are stored.
pub const EXTENSION_UNIT: u64 = 1024;

/// Flags of components.
pub mod flag {
    /// Its data is outdated.
    pub const STALE: u32 = 1;
    /// Of several mirrors this is the one to read or write.
    pub const PREFER: u32 = 6;
    /// Its OSTs cannot be reached.
    pub const OFFLINE: u32 = 8;
    /// It has objects.
    pub const INIT: u32 = 0x10;
    /// Not to be synchronised with other mirrors.
    pub const NOSYNC: u32 = 0x20;
    /// Space that the component before it may grow into.
    pub const EXTENSION: u32 = 0x40;
    /// All that there are, and the mark of their negation.
    pub const KNOWN: u32 = STALE | PREFER | OFFLINE | INIT | NOSYNC | EXTENSION | PARITY | NEGATED;
    /// Codes of erasure coding.
    const PARITY: u32 = 0x80;
    /// In a request: those that do not have the other flags.
    pub const NEGATED: u32 = 0x8000_0000;
}

const MIRROR_ID_MASK: u32 = 0x7fff_0000;
const MIRROR_ID_SHIFT: u32 = 16;

/// One component; the whole layout if that is plain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Component {
    /// [`DEFAULT`], [`RAID0`], [`MDT`], [`OVERSTRIPING`], or the bits of one that cannot be set.
    pub pattern: u64,
    /// Bytes, or [`DEFAULT`]. Of an [`flag::EXTENSION`] how much the one before it grows at a time.
    pub stripe_size: u64,
    /// Number, [`DEFAULT`], or from [`WIDE`].
    pub stripe_count: u64,
    /// First OST, or [`DEFAULT`].
    pub start_ost: u64,
    /// OSTs of its objects, or those asked for; [`OST_UNSET`] in between.
    pub osts: Vec<u32>,
    /// Whether exactly these OSTs are asked for.
    pub specific: bool,
    /// At most 15 bytes; empty: none.
    pub pool: Vec<u8>,
    /// First byte.
    pub start: u64,
    /// Byte after the last, or [`EOF`].
    pub end: u64,
    /// Unique in a file; 0 before it has one. The upper half is the mirror's.
    pub id: u32,
    /// Of [`flag`].
    pub flags: u32,
    /// When a mirror was set aside; kept as it is.
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
    /// Whether it is space for the one before it.
    pub fn is_extension(&self) -> bool {
        self.flags & flag::EXTENSION != 0
    }

    /// The mirror that it belongs to, 0 where there is but one.
    pub fn mirror_id(&self) -> u32 {
        (self.id & MIRROR_ID_MASK) >> MIRROR_ID_SHIFT
    }

    /// EINVAL: not [`DEFAULT`], and not a multiple of 64 KiB below 4 GiB; or it is an extension.
    pub fn set_stripe_size(&mut self, bytes: u64) -> Result<()> {
        let fits = bytes == DEFAULT || (bytes <= u64::from(STRIPE_SIZE_MAX) && is_whole_stripe(bytes));
        if self.is_extension() || !fits {
            return Err(Errno::EINVAL);
        }
        self.stripe_size = bytes;
        Ok(())
    }

    /// EINVAL: it is no extension, or the size is not a multiple of 64 KiB below 4 TiB.
    pub fn set_extension_size(&mut self, bytes: u64) -> Result<()> {
        if !self.is_extension() || !is_whole_stripe(bytes) || bytes / EXTENSION_UNIT > u64::from(u32::MAX) {
            return Err(Errno::EINVAL);
        }
        self.stripe_size = bytes;
        Ok(())
    }

    /// EINVAL: see [`is_stripe_count`].
    pub fn set_stripe_count(&mut self, count: u64) -> Result<()> {
        if !is_stripe_count(count) {
            return Err(Errno::EINVAL);
        }
        self.stripe_count = count;
        Ok(())
    }

    /// EOPNOTSUPP: none that can be asked for.
    pub fn set_pattern(&mut self, pattern: u64) -> Result<()> {
        if !matches!(pattern, DEFAULT | RAID0 | MDT | OVERSTRIPING) {
            return Err(Errno::EOPNOTSUPP);
        }
        self.pattern = pattern;
        Ok(())
    }

    /// The first OST alone is where to begin; any other makes a list of them all. [`DEFAULT`] as
    /// the first forgets them.
    ///
    /// EINVAL: a stripe past the 2,000th, an index past the largest, or [`DEFAULT`] elsewhere than
    /// at first.
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

    /// EINVAL: there is no such stripe, or none was chosen for it yet.
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

    /// Takes `pool` or `fsname.pool`; empty: none. EINVAL: longer than 15 bytes, or of other signs
    /// than letters, digits, `-` and `_`.
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

/// Whether so many stripes can be asked for: 1 to 2,000, [`DEFAULT`], or from [`WIDE`].
pub fn is_stripe_count(count: u64) -> bool {
    matches!(count, DEFAULT | WIDE..=WIDE_MAX) || (1..=STRIPES_MAX as u64).contains(&count)
}

/// What a `struct llapi_layout` is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Whether it has components by name, be it but one.
    pub composite: bool,
    /// Generation of the file's layout.
    pub generation: u32,
    /// State of the mirrors (`LCM_FL_…`).
    pub flags: u16,
    /// From 1.
    pub mirror_count: u16,
    components: Vec<Component>,
    current: usize,
}

impl Default for Layout {
    /// Plain, with nothing asked for.
    fn default() -> Layout {
        Layout::plain(Component::default())
    }
}

/// Where to go among the components.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Move {
    /// To the first.
    First,
    /// To the last.
    Last,
    /// To the one after this.
    Next,
    /// To the one before this.
    Previous,
}

impl Layout {
    /// Of one component.
    pub fn plain(component: Component) -> Layout {
        let components = vec![component];
        Layout { composite: false, generation: 0, flags: 0, mirror_count: 1, components, current: 0 }
    }

    /// Of these, the first being the current one. EINVAL: there is none.
    pub fn composite(components: Vec<Component>) -> Result<Layout> {
        if components.is_empty() {
            return Err(Errno::EINVAL);
        }
        Ok(Layout { composite: true, components, ..Layout::default() })
    }

    /// All of them, in order.
    pub fn components(&self) -> &[Component] {
        &self.components
    }

    /// All of them, in order, to be changed.
    pub fn components_mut(&mut self) -> &mut [Component] {
        &mut self.components
    }

    /// The one that is spoken of.
    pub fn current(&self) -> &Component {
        // `current` is always one of them.
        &self.components[self.current]
    }

    /// The one that is spoken of, to be changed.
    pub fn current_mut(&mut self) -> &mut Component {
        &mut self.components[self.current]
    }

    /// Whether there was one there. ENOENT is the reason if not.
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

    /// Goes to the one of that id. EINVAL: the layout is plain. ENOENT: there is none.
    pub fn go_to(&mut self, id: u32) -> Result<()> {
        if !self.composite {
            return Err(Errno::EINVAL);
        }
        self.current = self.components.iter().position(|c| c.id == id).ok_or(Errno::ENOENT)?;
        Ok(())
    }

    /// Goes to the last one that has its objects, if one has.
    pub fn go_to_last_init(&mut self) {
        let last = self.components.iter().rposition(|c| c.flags & flag::INIT != 0);
        self.current = last.filter(|_| self.composite).unwrap_or(self.current);
    }

    /// Sets where the current one begins and ends, which makes the layout composite. EINVAL: it
    /// ends before it begins, or begins elsewhere than where the one before it, of the same mirror,
    /// ends.
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

    /// Appends a component that goes on where the last one ends, to the end of all files, with its
    /// stripes' size, number and pool; it is the current one then. EINVAL: the last one has no end.
    /// E2BIG: there are too many to encode.
    pub fn add(&mut self) -> Result<()> {
        let last = self.components.last().ok_or(Errno::EINVAL)?;
        if last.end == EOF {
            return Err(Errno::EINVAL);
        }
        let added = Component {
            // What an extension has for a stripe size is none.
            stripe_size: if last.is_extension() { DEFAULT } else { last.stripe_size },
            stripe_count: last.stripe_count,
            pool: last.pool.clone(),
            start: last.end,
            ..Component::default()
        };
        self.push(added)
    }

    /// Appends the first component of another mirror; it is the current one then. E2BIG: there are
    /// too many to encode.
    pub fn add_first_of_mirror(&mut self) -> Result<()> {
        self.push(Component::default())
    }

    fn push(&mut self, component: Component) -> Result<()> {
        if self.components.len() >= crate::lum::COMPONENTS_MAX {
            return Err(Errno::E2BIG);
        }
        self.components.push(component);
        self.composite = true;
        self.current = self.components.len() - 1;
        Ok(())
    }

    /// Takes the current one out, which must be the last (else there would be a gap). EINVAL: it is
    /// not, or the only one.
    pub fn remove(&mut self) -> Result<()> {
        if !self.composite || self.components.len() == 1 || self.current + 1 != self.components.len() {
            return Err(Errno::EINVAL);
        }
        self.components.pop();
        self.current -= 1;
        Ok(())
    }

    /// Appends another's components. EINVAL: one of them is plain. E2BIG: there are too many to
    /// encode.
    pub fn merge(&mut self, other: &Layout) -> Result<()> {
        if !self.composite || !other.composite {
            return Err(Errno::EINVAL);
        }
        if self.components.len() + other.components.len() > crate::lum::COMPONENTS_MAX {
            return Err(Errno::E2BIG);
        }
        self.components.extend_from_slice(&other.components);
        self.current = self.components.len() - 1;
        Ok(())
    }

    /// What to ask for to get a file like this one: without what only a file has (ids, objects,
    /// what became of them).
    pub fn as_request(&self) -> Layout {
        let mut asked = self.clone();
        asked.generation = 0;
        asked.flags = 0;
        for c in &mut asked.components {
            c.id = 0;
            c.flags &= !(flag::INIT | flag::STALE | flag::OFFLINE);
        }
        asked
    }
}

#[cfg(test)]
mod tests;
