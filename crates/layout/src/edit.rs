//! Changes to the components of a file that exists: `lfs setstripe --component-add`,
//! `--component-del`, `--component-set`.
//!
//! Each function returns a new layout of the next generation, or an error. The present layout is
//! not modified. Lustre's rules:
//!
//! * Components are added after the end of the last one, and deleted from the end, so there is
//!   never a hole. A file whose last remaining component is deleted has no layout any more.
//!   Deleting components with objects loses their data.
//! * Neither is possible in a mirrored file (EBUSY), nor in a plain one.
//! * Users may change only the flags that control the use of mirrors. The last up-to-date mirror
//!   cannot be made stale (EUCLEAN).

use crate::{Component, Composite, Layout, LayoutError, Stripe, WantedComponent, flags, instantiate::component};

/// Selection of components and the change of their flags: the value of `lustre.lov.del`
/// and `lustre.lov.set.flags`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    /// Id of the component. In a deletion, 0 selects all components with these flags.
    pub id: u32,
    /// Flags of [`flags`]. In a deletion by id: 0.
    pub flags: u32,
    /// Selects the components without these flags, or clears the flags.
    pub negative: bool,
}

impl Mark {
    /// Whether the mark selects a component, by its id or, if the id is 0, by its flags.
    fn selects(&self, c: &Component) -> bool {
        match (self.id, self.negative) {
            (0, false) => c.flags & self.flags != 0,
            (0, true) => c.flags & self.flags == 0,
            (id, _) => c.id == id,
        }
    }
}

impl Layout {
    /// Returns the layout with these components appended, without objects. The components come from
    /// [`crate::Template::check_added`] and [`crate::resolve_asked`].
    ///
    /// # Errors
    /// EINVAL if the layout is plain, or the components do not begin at its end. EBUSY if it is
    /// mirrored. ERANGE if it would be too large.
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

    /// Returns the layout without these components (`None` if no component remains), and their
    /// objects.
    ///
    /// # Errors
    /// EINVAL if the layout is plain, if other components follow, if none matches, or if not
    /// exactly one of id and flags is given. EBUSY if the layout is mirrored.
    pub fn without_components(&self, which: &Mark) -> Result<(Option<Layout>, Vec<Stripe>), LayoutError> {
        self.editable()?;
        if (which.id == 0) == (which.flags == 0) {
            return Err(LayoutError::NoComponent);
        }
        let components = self.components();
        let left = components.iter().rposition(|c| !which.selects(c)).map_or(0, |i| i + 1);
        if components[..left].iter().any(|c| which.selects(c)) {
            return Err(LayoutError::Hole);
        }
        let (remaining, deleted) = components.split_at(left);
        if deleted.is_empty() {
            return Err(LayoutError::NoComponent);
        }
        let objects = deleted.iter().flat_map(Component::objects).copied().collect();
        let layout = if remaining.is_empty() { None } else { Some(self.changed(remaining.to_vec())?) };
        Ok((layout, objects))
    }

    /// Returns the layout with flags set or cleared. Each mark applies to the component with its
    /// id.
    ///
    /// # Errors
    /// EINVAL if the layout is plain, there is no such component, or users cannot set these flags.
    /// EUCLEAN if no up-to-date mirror would be left.
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
        // Another mirror may now be the one to write to, so writers must request it again.
        let chosen_anew = changed.is_mirrored() && marks.iter().any(|m| m.flags & flags::STALE != 0);
        Ok(if chosen_anew { changed.into_read_only() } else { changed })
    }

    /// Returns the header of a layout whose components may be added and deleted.
    fn editable(&self) -> Result<&Composite, LayoutError> {
        match self.composite() {
            None => Err(LayoutError::NotComposite),
            Some(c) if c.mirror_count > 1 || c.flags & Composite::STATE != 0 => Err(LayoutError::Mirrored),
            Some(c) => Ok(c),
        }
    }
}

/// Whether no component of a mirror is stale.
fn is_fresh(components: &[Component], mirror: u16) -> bool {
    components.iter().filter(|c| c.mirror_id() == mirror).all(|c| c.flags & flags::STALE == 0)
}

#[cfg(test)]
mod tests;
