//! Mirrors: the choice of the mirror for reads and writes, and adding and removing mirrors.
//!
//! A mirror is *fresh* if none of its components is stale. A file that is only read has the state
//! [`Composite::READ_ONLY`] and may have several fresh mirrors, which hold the same bytes. Before a
//! write, one of them is chosen as primary, and all others become stale
//! ([`Layout::with_stale_others`]). The state is then [`Composite::WRITE_PENDING`], and all clients
//! read and write this mirror.
//!
//! A resync takes two steps:
//!
//! 1. [`Layout::resync_begun`] ([`Composite::SYNC_PENDING`]) makes every writer request a primary
//!    again, and marks the mirrors to be copied to as stale.
//! 2. [`Layout::resynced`] makes the copies fresh, if the generation shows that there was no write
//!    meanwhile.
//!
//! Differs from Lustre: a write makes whole mirrors stale, not only the components that
//! it touches.
//!
//! Invariants:
//!
//! * A mirrored layout has at least one fresh mirror, and exactly one in the state
//!   [`Composite::WRITE_PENDING`]. No function here breaks this.
//! * The lower half of a component's id never changes. The upper half is the id of its mirror: a
//!   mirror that is split off and merged again gets another one.

use std::sync::Arc;

use sheen_wire::Fid;

use crate::{
    Component, Composite, Layout, LayoutError, MIRRORS_MAX, Stripe,
    component::{MIRROR_SHIFT, mirror_ids},
    flags,
};

/// Maximum mirror id, as in Lustre.
const MIRROR_ID_MAX: u16 = 0x7fff;

impl Layout {
    /// Returns the mirrors of a mirrored layout, each as a layout of its own. Empty if there is
    /// only one.
    pub fn mirrors(&self) -> &[Arc<Layout>] {
        self.views()
    }

    /// Whether the layout has several mirrors.
    pub fn is_mirrored(&self) -> bool {
        !self.views().is_empty()
    }

    /// Returns the mirror id of the first component; 0 if the file was never mirrored.
    pub fn mirror_id(&self) -> u16 {
        self.components().first().map_or(0, Component::mirror_id)
    }

    /// Whether no component is stale.
    pub fn is_fresh(&self) -> bool {
        self.components().iter().all(|c| c.flags & flags::STALE == 0)
    }

    /// Whether any component has any of these flags.
    pub fn is_preferred(&self, by: u32) -> bool {
        self.components().iter().any(|c| c.flags & by != 0)
    }

    /// Returns the mirrors that may be read, those that readers prefer first.
    pub fn fresh_mirrors(&self) -> Vec<&Arc<Layout>> {
        let mut fresh: Vec<&Arc<Layout>> = self.views().iter().filter(|m| m.is_fresh()).collect();
        fresh.sort_by_key(|m| !m.is_preferred(flags::PREF_RD));
        fresh
    }

    /// Returns the ids of the stale mirrors that a resync should update: those
    /// without [`flags::NOSYNC`].
    pub fn stale_mirrors(&self) -> Vec<u16> {
        let stale = |m: &&Arc<Layout>| !m.is_fresh() && !m.is_preferred(flags::NOSYNC);
        self.views().iter().filter(stale).map(|m| m.mirror_id()).collect()
    }

    /// Returns the state of the mirrors: [`Composite::READ_ONLY`] etc., or 0 if there is only one
    /// mirror.
    pub fn mirror_state(&self) -> u16 {
        self.composite().filter(|_| self.is_mirrored()).map_or(0, |c| c.flags & Composite::STATE)
    }

    /// Whether the mirror mapped by [`Layout::map`] may be written: always with one mirror,
    /// otherwise once the other mirrors are stale.
    pub fn takes_writes(&self) -> bool {
        !self.is_mirrored() || self.mirror_state() == Composite::WRITE_PENDING
    }

    /// Whether a writer of `[offset, offset + len)` must first send an intent to the MDT, to get
    /// objects or to make other mirrors stale.
    pub fn needs_intent(&self, offset: u64, len: u64) -> bool {
        !self.takes_writes() || self.missing(offset, len).is_some()
    }

    /// Returns the mirror to write to: among the fresh mirrors whose OSTs are all up, the one that
    /// writers prefer, or the first. If no mirror is fully up, the choice is among all fresh ones.
    /// `None` if not mirrored.
    pub fn primary(&self, is_up: impl Fn(u32) -> bool) -> Option<u16> {
        let fresh = || self.views().iter().filter(|m| m.is_fresh());
        let up = |m: &&Arc<Layout>| m.stripes().iter().all(|s| is_up(s.ost));
        let best = |mirrors: Vec<&Arc<Layout>>| {
            let preferred = mirrors.iter().find(|m| m.is_preferred(flags::PREF_WR));
            preferred.or(mirrors.first()).map(|m| m.mirror_id())
        };
        best(fresh().filter(up).collect()).or_else(|| best(fresh().collect()))
    }

    /// Returns the layout in which only this mirror is fresh, for writing to it. Returns this
    /// layout unchanged if that is already so.
    ///
    /// # Errors
    /// EINVAL if the mirror does not exist or is stale.
    pub fn with_stale_others(&self, primary: u16) -> Result<Layout, LayoutError> {
        if !self.view(primary)?.is_fresh() {
            return Err(LayoutError::NoMirror(primary));
        }
        let mut components = self.components().to_vec();
        for c in components.iter_mut().filter(|c| c.mirror_id() != primary) {
            c.flags |= flags::STALE;
        }
        if components == self.components() && self.mirror_state() == Composite::WRITE_PENDING {
            return Ok(self.clone());
        }
        self.in_state(Composite::WRITE_PENDING, components)
    }

    /// Returns the layout with one mirror's components replaced by those of `changed`, which is a
    /// modified [`Layout::mirror`].
    ///
    /// # Errors
    /// EINVAL if there is no such mirror. ERANGE if the layout would be too large.
    pub fn with_mirror(&self, changed: &Layout) -> Result<Layout, LayoutError> {
        let id = changed.mirror_id();
        self.view(id)?;
        let mut composite = self.composite().ok_or(LayoutError::NotComposite)?.clone();
        composite.layout_gen = changed.generation();
        let of = |id: u16| if changed.mirror_id() == id { Some(changed.components()) } else { None };
        let components_of = |id: u16| self.components().iter().filter(move |c| c.mirror_id() == id).cloned();
        let components = self.mirror_ids().into_iter().flat_map(|id| match of(id) {
            Some(new) => new.to_vec(),
            None => components_of(id).collect(),
        });
        Layout::assemble(Some(composite), components.collect()).checked()
    }

    /// Returns the layout with another layout's components as an additional mirror, which is stale.
    /// If the other layout was created for this file and has a Data-on-MDT component, the object
    /// gets the version of the new generation, which the file has not used yet.
    ///
    /// # Errors
    /// * EINVAL: there would be more than 16 mirrors.
    /// * EBUSY: the other layout has several mirrors.
    /// * ERANGE: the layout would be too large.
    /// * EOPNOTSUPP: the other layout has a Data-on-MDT component, whose object is named after its
    ///   file, and belongs to another file; or this layout already has such a component.
    pub fn with_merged(&self, other: &Layout) -> Result<Layout, LayoutError> {
        if other.is_mirrored() {
            return Err(LayoutError::MergesMirrored);
        }
        let file = self.fid();
        if other.part_on_mdt().is_some() {
            if other.fid() != file {
                return Err(LayoutError::MirrorOnMdt);
            }
            if self.part_on_mdt().is_some() {
                return Err(LayoutError::SecondOnMdt);
            }
        }
        let mut components: Vec<Component> =
            self.as_mirror(1).into_iter().map(|c| Component { fid: file, ..c }).collect();
        let ids = mirror_ids(&components);
        if ids.len() >= usize::from(MIRRORS_MAX) {
            return Err(LayoutError::Mirrors(ids.len() as u16 + 1));
        }
        let last = ids.iter().copied().max().unwrap_or(0);
        let mut free = (last + 1..=MIRROR_ID_MAX).chain(1..last);
        let id = free.find(|id| !ids.contains(id)).ok_or(LayoutError::Mirrors(MIRROR_ID_MAX))?;
        let plain = Composite { layout_gen: self.generation(), flags: 0, mirror_count: 1, rest: [0; 14] };
        let mut composite = self.composite().cloned().unwrap_or(plain);
        composite.raise();
        components.extend(other.as_mirror(id).into_iter().map(|c| Component {
            id: (u32::from(id) << MIRROR_SHIFT) | (c.id & LOW),
            flags: c.flags | flags::STALE,
            fid: file,
            entry_gen: if c.is_on_mdt() { composite.layout_gen } else { c.entry_gen },
            ..c
        }));
        composite.mirror_count = ids.len() as u16 + 1;
        if composite.flags & Composite::STATE == 0 {
            composite.flags |= Composite::READ_ONLY;
        }
        Layout::assemble(Some(composite), components).checked()
    }

    /// Returns the layout without one mirror, and that mirror as the layout of `file`.
    ///
    /// # Errors
    /// EINVAL if not mirrored or there is no such mirror. EUCLEAN if no fresh mirror would be left.
    /// EOPNOTSUPP if the mirror has a Data-on-MDT component and `file` is another file.
    pub fn split(&self, id: u16, file: Fid) -> Result<(Layout, Layout), LayoutError> {
        let removed = self.view(id)?;
        if removed.mdt_end() > 0 && file != self.fid() {
            return Err(LayoutError::MirrorOnMdt);
        }
        let rest: Vec<Component> = self.components().iter().filter(|c| c.mirror_id() != id).cloned().collect();
        if !self.views().iter().any(|m| m.mirror_id() != id && m.is_fresh()) {
            return Err(LayoutError::LastFresh);
        }
        let mut composite = self.composite().ok_or(LayoutError::NotComposite)?.clone();
        composite.raise();
        composite.mirror_count -= 1;
        if composite.mirror_count == 1 {
            composite.flags &= !Composite::STATE;
        }
        let alone = Composite { layout_gen: 1, flags: 0, mirror_count: 1, ..composite.clone() };
        let own = |c: &Component| Component { flags: c.flags & !flags::STALE, fid: file, ..c.clone() };
        let split = removed.components().iter().map(own).collect();
        Ok((Layout::assemble(Some(composite), rest), Layout::assemble(Some(alone), split)))
    }

    /// Returns the layout of the next generation for a resync of these mirrors. They are stale
    /// until the resync ends. Writers must send an intent first, which changes the generation.
    ///
    /// # Errors
    /// EINVAL if not mirrored or there is no such mirror. EUCLEAN if no fresh mirror would be left.
    pub fn resync_begun(&self, ids: &[u16]) -> Result<Layout, LayoutError> {
        if !self.is_mirrored() {
            return Err(LayoutError::NotMirrored);
        }
        for id in ids {
            self.view(*id)?;
        }
        if !self.fresh_mirrors().iter().any(|m| !ids.contains(&m.mirror_id())) {
            return Err(LayoutError::LastFresh);
        }
        let mut components = self.components().to_vec();
        for c in components.iter_mut().filter(|c| ids.contains(&c.mirror_id())) {
            c.flags |= flags::STALE;
        }
        self.in_state(Composite::SYNC_PENDING, components)
    }

    /// Returns the layout with the generation that follows `before`'s, even if several changes led
    /// to it. A caller that knows both generations can then tell whether there was another change
    /// between them.
    pub fn as_one_change_of(&self, before: &Layout) -> Layout {
        let next = |c: Composite| Composite { layout_gen: before.next_generation(), ..c };
        Layout::assemble(self.composite().cloned().map(next), self.components().to_vec())
    }

    /// Whether exactly one change was made since `before`.
    pub fn follows(&self, before: &Layout) -> bool {
        self.generation() == before.next_generation()
    }

    /// Whether an operation that used the layout `before` may have reached a mirror that is now
    /// stale or removed. `self` is the file's present layout.
    pub fn overtakes(&self, before: &Layout) -> bool {
        // Without mirrors, objects may be added, but present ones stay. A layout that lost its
        // mirrors may have the same generation as `before`.
        let (was, is) = (before.is_mirrored(), self.is_mirrored());
        was != is || is && self.generation() != before.generation()
    }

    fn next_generation(&self) -> u32 {
        let mut next = Composite { layout_gen: self.generation(), flags: 0, mirror_count: 1, rest: [0; 14] };
        next.raise();
        next.layout_gen
    }

    /// Returns the layout in which these mirrors are fresh, after a resync that began with the
    /// generation `ticket`.
    ///
    /// # Errors
    /// EBUSY if the generation differs from `ticket`, because there was a write or a layout change.
    /// EINVAL if not mirrored or there is no such mirror.
    pub fn resynced(&self, ticket: u32, ids: &[u16]) -> Result<Layout, LayoutError> {
        for id in ids {
            self.view(*id)?;
        }
        if self.generation() != ticket || self.mirror_state() != Composite::SYNC_PENDING {
            return Err(LayoutError::Outdated(ticket));
        }
        let mut components = self.components().to_vec();
        for c in components.iter_mut().filter(|c| ids.contains(&c.mirror_id())) {
            c.flags &= !flags::STALE;
        }
        self.in_state(Composite::READ_ONLY, components)
    }

    /// Returns all objects of all mirrors, including those on the MDT. They are deleted with the
    /// file.
    pub fn all_objects(&self) -> impl Iterator<Item = Stripe> {
        self.components().iter().flat_map(|c| c.stripe_list().into_owned())
    }

    /// Returns the number of the mirror in [`Layout::mirrors`] that has an object of an OST, and
    /// the object's number among the mirror's [`Layout::stripes`].
    pub fn find_object(&self, ost: u32, object: Fid) -> Option<(usize, usize)> {
        let stripe = |m: &Arc<Layout>| m.stripes().iter().position(|s| (s.ost, s.object) == (ost, object));
        self.views().iter().enumerate().find_map(|(mirror, m)| Some((mirror, stripe(m)?)))
    }

    /// Returns a mirror, or an error if it does not exist.
    fn view(&self, id: u16) -> Result<&Arc<Layout>, LayoutError> {
        if !self.is_mirrored() {
            return Err(LayoutError::NotMirrored);
        }
        self.views().iter().find(|m| m.mirror_id() == id).ok_or(LayoutError::NoMirror(id))
    }

    /// Returns the layout of the next generation in another state.
    fn in_state(&self, state: u16, components: Vec<Component>) -> Result<Layout, LayoutError> {
        let mut composite = self.composite().ok_or(LayoutError::NotComposite)?.clone();
        composite.raise();
        composite.flags = composite.flags & !Composite::STATE | state;
        Layout::assemble(Some(composite), components).checked()
    }

    /// Returns the layout in the state in which writers must send an intent.
    pub(crate) fn into_read_only(self) -> Layout {
        let read_only = |c: Composite| Composite { flags: c.flags & !Composite::STATE | Composite::READ_ONLY, ..c };
        Layout::assemble(self.composite().cloned().map(read_only), self.components().to_vec())
    }

    /// Returns the components as part of a mirrored layout. Components without a mirror become
    /// those of mirror `id`.
    fn as_mirror(&self, id: u16) -> Vec<Component> {
        let own = |(at, c): (usize, &Component)| {
            let low = if c.id & LOW == 0 { at as u32 + 1 } else { c.id & LOW };
            let mirror = if c.mirror_id() == 0 { id } else { c.mirror_id() };
            let init = if c.is_instantiated() { flags::INIT } else { 0 };
            Component { id: (u32::from(mirror) << MIRROR_SHIFT) | low, flags: c.flags | init, ..c.clone() }
        };
        self.components().iter().enumerate().map(own).collect()
    }
}

/// Mask of the bits of a component's id below the mirror id.
const LOW: u32 = (1 << MIRROR_SHIFT) - 1;

#[cfg(test)]
mod tests;
