//! Changes to the components of a file that exists: `lfs setstripe --component-add`,
//! `--component-del`, `--component-set`.
//!
//! Each makes a new layout of the next generation, or says why not; the one at hand is left as it
//! is. Lustre's rules:
//!
//! * Components are added at the end, where the last one ends, and deleted from the end: there is
//!   never a hole. A file whose last component is deleted has no layout any more, one whose
//!   components with objects are deleted loses their data.
//! * Neither is possible in a mirrored file (EBUSY), nor in a plain one.
//! * Of flags, a user sets and clears those that say how mirrors are used. The last mirror that is
//!   up to date cannot be declared stale (EUCLEAN).

use crate::{Component, Composite, Layout, LayoutError, Stripe, WantedComponent, codec, flags, instantiate::component};

/// Which components are meant, and what is to become of their flags: the value of `lustre.lov.del`
/// and `lustre.lov.set.flags`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    /// The component's id. When components are deleted: 0 for all with these flags.
    pub id: u32,
    /// Of [`flags`]. When components are deleted by id: 0.
    pub flags: u32,
    /// Components without these flags are meant; the flags are to be cleared.
    pub negative: bool,
}

impl Mark {
    /// Reads the value of `lustre.lov.del` (of which the first counts) or `lustre.lov.set.flags`;
    /// at least one.
    pub fn decode(bytes: &[u8]) -> Result<Vec<Mark>, LayoutError> {
        codec::decode_marks(bytes)
    }

    /// The value of a `setxattr`.
    pub fn encode(marks: &[Mark]) -> Vec<u8> {
        codec::encode_marks(marks)
    }

    /// Whether a component is meant by its id or else its flags.
    fn chooses(&self, c: &Component) -> bool {
        match (self.id, self.negative) {
            (0, false) => c.flags & self.flags != 0,
            (0, true) => c.flags & self.flags == 0,
            (id, _) => c.id == id,
        }
    }
}

impl Layout {
    /// The layout with these components behind its own, without objects. They come from
    /// [`crate::Template::check_added`] and [`crate::resolve_asked`].
    ///
    /// # Errors
    /// EINVAL: plain, or not beginning where the layout ends. EBUSY: mirrored. ERANGE: too large.
    pub fn with_components(&self, added: &[WantedComponent]) -> Result<Layout, LayoutError> {
        let mut composite = self.editable()?.clone();
        let mut components = self.components().to_vec();
        let mirror = components.last().map_or(0, |c| u32::from(c.mirror_id()));
        let mut expected = self.end();
        for wanted in added {
            if wanted.start != expected || expected == u64::MAX {
                return Err(LayoutError::Gap { start: wanted.start, expected });
            }
            expected = wanted.end;
            let id = composite.next_id(mirror, &components)?;
            components.push(component(id, self.fid(), wanted));
        }
        if added.is_empty() {
            Err(LayoutError::NoComponent)
        } else {
            Layout::assemble(Some(composite), components).checked()
        }
    }

    /// The layout without these components (`None` if nothing is left of it), and the objects that
    /// were theirs.
    ///
    /// # Errors
    /// EINVAL: plain, others follow them, there are none, or id and flags are both given (or
    /// neither). EBUSY: mirrored.
    pub fn without_components(&self, which: &Mark) -> Result<(Option<Layout>, Vec<Stripe>), LayoutError> {
        self.editable()?;
        if (which.id == 0) == (which.flags == 0) {
            return Err(LayoutError::NoComponent);
        }
        let components = self.components();
        let left = components.iter().rposition(|c| !which.chooses(c)).map_or(0, |i| i + 1);
        if components[..left].iter().any(|c| which.chooses(c)) {
            return Err(LayoutError::Hole);
        }
        let (kept, deleted) = components.split_at(left);
        if deleted.is_empty() {
            return Err(LayoutError::NoComponent);
        }
        let objects = deleted.iter().flat_map(Component::objects).copied().collect();
        let layout = if kept.is_empty() { None } else { Some(self.changed(kept.to_vec())?) };
        Ok((layout, objects))
    }

    /// The layout with flags set or cleared, each of the component with that id.
    ///
    /// # Errors
    /// EINVAL: plain, no such component, flags that are not a user's to set. EUCLEAN: the last
    /// mirror that is up to date would be stale.
    pub fn with_flags(&self, marks: &[Mark]) -> Result<Layout, LayoutError> {
        if self.is_plain() {
            return Err(LayoutError::NotComposite);
        }
        let mut components = self.components().to_vec();
        for mark in marks {
            if mark.flags == 0 || mark.flags & !flags::SETTABLE != 0 {
                return Err(LayoutError::ComponentFlags(mark.flags));
            }
            let c = components.iter_mut().find(|c| c.id == mark.id && mark.id != 0).ok_or(LayoutError::NoComponent)?;
            match mark.negative {
                true => c.flags &= !mark.flags,
                false => c.flags |= mark.flags,
            }
        }
        let makes_stale = marks.iter().any(|m| !m.negative && m.flags & flags::STALE != 0);
        if makes_stale && !self.mirror_ids().into_iter().any(|id| is_fresh(&components, id)) {
            return Err(LayoutError::LastFresh);
        }
        if marks.is_empty() {
            return Err(LayoutError::NoComponent);
        }
        let changed = self.changed(components)?;
        // Another mirror may be the one to write to now: writers have to ask.
        let chosen_anew = changed.is_mirrored() && marks.iter().any(|m| m.flags & flags::STALE != 0);
        Ok(if chosen_anew { changed.into_read_only() } else { changed })
    }

    /// The header of a layout whose components may be added and deleted.
    fn editable(&self) -> Result<&Composite, LayoutError> {
        match self.composite() {
            None => Err(LayoutError::NotComposite),
            Some(c) if c.mirror_count > 1 || c.flags & Composite::STATE != 0 => Err(LayoutError::Mirrored),
            Some(c) => Ok(c),
        }
    }
}

/// Whether a mirror has missed nothing.
fn is_fresh(components: &[Component], mirror: u16) -> bool {
    components.iter().filter(|c| c.mirror_id() == mirror).all(|c| c.flags & flags::STALE == 0)
}

#[cfg(test)]
mod tests;
