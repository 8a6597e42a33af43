//! Mirrors: which of them a file's bytes are read from and written to, and how mirrors come and go.
//!
//! A mirror is *fresh* if none of its components is stale. A file that is only read has the state
//! [`Composite::READ_ONLY`] and may have many fresh mirrors, which hold the same bytes. Before it
//! is written one of them is chosen, the primary, and all others become stale
//! ([`Layout::with_stale_others`]): the state is [`Composite::WRITE_PENDING`], and everybody reads
//! and writes that mirror. Bringing the others up to date takes two steps: [`Layout::resync_begun`]
//! ([`Composite::SYNC_PENDING`]) makes every writer choose again and those that are copied to
//! stale, if they are not, and [`Layout::resynced`] makes the copies fresh, if the generation says
//! that nobody did.
//!
//! Of Lustre this differs in that a write makes whole mirrors stale, not only the components that
//! it touches.
//!
//! Invariants:
//! * a mirrored layout has at least one fresh mirror, and one alone where the state is
//!   [`Composite::WRITE_PENDING`]; nothing here makes another one;
//! * components keep the lower half of their id for life, the upper half is their mirror's: a
//!   mirror that is split off and merged in again gets another one.

use std::sync::Arc;

use sheen_wire::Fid;

use crate::{
    Component, Composite, Layout, LayoutError, MIRRORS_MAX, Stripe, flags,
    layout::{MIRROR_SHIFT, check_components},
};

/// Largest id of a mirror, as Lustre's.
const MIRROR_ID_MAX: u16 = 0x7fff;

/// The mirrors of a composite layout, each as one of its own; none where there is only one.
pub(crate) fn views(composite: Option<&Composite>, components: &[Component]) -> Vec<Arc<Layout>> {
    let Some(composite) = composite.filter(|c| c.mirror_count > 1) else { return Vec::new() };
    let ids = mirror_ids(components);
    if ids.len() > usize::from(MIRRORS_MAX) {
        return Vec::new();
    }
    let alone = Composite { mirror_count: 1, flags: 0, ..composite.clone() };
    let of = |id: u16| components.iter().filter(|c| c.mirror_id() == id).cloned().collect();
    ids.into_iter().map(|id| Arc::new(Layout::assemble(Some(alone.clone()), of(id)))).collect()
}

/// [`Layout::check_usable`] of all mirrors.
pub(crate) fn check(composite: Option<&Composite>, mirrors: &[Arc<Layout>]) -> Result<(), LayoutError> {
    let count = composite.map_or(1, |c| c.mirror_count);
    if count > 1 && mirrors.len() != usize::from(count) {
        return Err(LayoutError::Mirrors(count));
    }
    mirrors.iter().try_for_each(|m| check_components(true, m.components().iter()))
}

/// The mirror through which bytes are mapped where nobody says which: the fresh one that readers
/// prefer, or the first. None of those that cannot be used.
pub(crate) fn mapped(composite: Option<&Composite>, mirrors: &[Arc<Layout>]) -> Option<u16> {
    check(composite, mirrors).ok()?;
    let fresh = |m: &&Arc<Layout>| m.is_fresh();
    let preferred = mirrors.iter().filter(fresh).find(|m| m.is_preferred(flags::PREF_RD));
    let found = preferred.or_else(|| mirrors.iter().find(fresh)).or_else(|| mirrors.first());
    found.map(|m| m.mirror_id())
}

/// Ids of mirrors in order.
pub(crate) fn mirror_ids(components: &[Component]) -> Vec<u16> {
    let mut ids: Vec<u16> = components.iter().map(Component::mirror_id).collect();
    ids.dedup();
    ids
}

impl Layout {
    /// The mirrors of a mirrored layout, each as a layout of its own; none where there is only one.
    pub fn mirrors(&self) -> &[Arc<Layout>] {
        self.views()
    }

    /// Whether there are several mirrors.
    pub fn is_mirrored(&self) -> bool {
        !self.views().is_empty()
    }

    /// The id of the mirror that its first component is of; 0 where it was never mirrored.
    pub fn mirror_id(&self) -> u16 {
        self.components().first().map_or(0, Component::mirror_id)
    }

    /// Whether nothing of it is stale.
    pub fn is_fresh(&self) -> bool {
        self.components().iter().all(|c| c.flags & flags::STALE == 0)
    }

    /// Whether one of its components has one of these flags.
    pub fn is_preferred(&self, by: u32) -> bool {
        self.components().iter().any(|c| c.flags & by != 0)
    }

    /// The mirrors that may be read, those that readers prefer first.
    pub fn fresh_mirrors(&self) -> Vec<&Arc<Layout>> {
        let mut fresh: Vec<&Arc<Layout>> = self.views().iter().filter(|m| m.is_fresh()).collect();
        fresh.sort_by_key(|m| !m.is_preferred(flags::PREF_RD));
        fresh
    }

    /// Ids of the stale mirrors that are to be brought up to date: those that are not left out of
    /// it ([`flags::NOSYNC`]).
    pub fn stale_mirrors(&self) -> Vec<u16> {
        let stale = |m: &&Arc<Layout>| !m.is_fresh() && !m.is_preferred(flags::NOSYNC);
        self.views().iter().filter(stale).map(|m| m.mirror_id()).collect()
    }

    /// The state of the mirrors: [`Composite::READ_ONLY`] and so on; 0 where there is one.
    pub fn mirror_state(&self) -> u16 {
        self.composite().filter(|_| self.is_mirrored()).map_or(0, |c| c.flags & Composite::STATE)
    }

    /// Whether what is written through [`Layout::map`] is what everybody reads: always where there
    /// is one mirror, else once the others are stale.
    pub fn takes_writes(&self) -> bool {
        !self.is_mirrored() || self.mirror_state() == Composite::WRITE_PENDING
    }

    /// Whether a writer of `[offset, offset + len)` must ask the MDT first: for objects, or to have
    /// other mirrors declared stale.
    pub fn needs_intent(&self, offset: u64, len: u64) -> bool {
        !self.takes_writes() || self.missing(offset, len).is_some()
    }

    /// The mirror to write to: of those that are fresh and whose OSTs are up the one that writers
    /// prefer, or the first. If none is up, likewise of the fresh ones. `None`: not mirrored.
    pub fn primary(&self, is_up: impl Fn(u32) -> bool) -> Option<u16> {
        let fresh = || self.views().iter().filter(|m| m.is_fresh());
        let up = |m: &&Arc<Layout>| m.stripes().iter().all(|s| is_up(s.ost));
        let best = |mirrors: Vec<&Arc<Layout>>| {
            let preferred = mirrors.iter().find(|m| m.is_preferred(flags::PREF_WR));
            preferred.or(mirrors.first()).map(|m| m.mirror_id())
        };
        best(fresh().filter(up).collect()).or_else(|| best(fresh().collect()))
    }

    /// The layout in which this mirror alone is fresh, for writing to it. This one, if it is so
    /// already.
    ///
    /// # Errors
    /// EINVAL: no such mirror, or a stale one.
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

    /// The same with a mirror's components replaced by what became of [`Layout::mirror`].
    ///
    /// # Errors
    /// EINVAL: no such mirror. ERANGE: too large.
    pub fn with_mirror(&self, changed: &Layout) -> Result<Layout, LayoutError> {
        let id = changed.mirror_id();
        self.view(id)?;
        let mut composite = self.composite().ok_or(LayoutError::NotComposite)?.clone();
        composite.layout_gen = changed.generation();
        let of = |id: u16| if changed.mirror_id() == id { Some(changed.components()) } else { None };
        let kept = |id: u16| self.components().iter().filter(move |c| c.mirror_id() == id).cloned();
        let components = self.mirror_ids().into_iter().flat_map(|id| match of(id) {
            Some(new) => new.to_vec(),
            None => kept(id).collect(),
        });
        Layout::assemble(Some(composite), components.collect()).checked()
    }

    /// The layout with another one's components as one more mirror, which is stale. What of one
    /// that was made for this file lies on the MDT has a name there that the file has not used:
    /// that of the new generation.
    ///
    /// # Errors
    /// EINVAL: the other one has several mirrors, or there would be more than 16. ERANGE: too
    /// large. EOPNOTSUPP: the other one begins on the MDT, where an object has the name of its
    /// file, and is another file's; or a mirror begins there already.
    pub fn with_merged(&self, other: &Layout) -> Result<Layout, LayoutError> {
        if other.is_mirrored() {
            return Err(LayoutError::Mirrored);
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

    /// The layout without a mirror, and the mirror as the layout of `file`.
    ///
    /// # Errors
    /// EINVAL: not mirrored, no such mirror. EUCLEAN: no fresh mirror would be left. EOPNOTSUPP: it
    /// begins on the MDT, and would be another file's.
    pub fn split(&self, id: u16, file: Fid) -> Result<(Layout, Layout), LayoutError> {
        let gone = self.view(id)?;
        if gone.mdt_end() > 0 && file != self.fid() {
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
        let split = gone.components().iter().map(own).collect();
        Ok((Layout::assemble(Some(composite), rest), Layout::assemble(Some(alone), split)))
    }

    /// The layout of the next generation while these mirrors are brought up to date: they are stale
    /// until they are, and who writes has to ask first, which makes another generation.
    ///
    /// # Errors
    /// EINVAL: not mirrored, no such mirror. EUCLEAN: no fresh mirror would be left.
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

    /// The same with the generation after that of `before`, however many changes of it this is made
    /// of: who knows both then knows whether there was another change between them.
    pub fn as_one_change_of(&self, before: &Layout) -> Layout {
        let next = |c: Composite| Composite { layout_gen: before.next_generation(), ..c };
        Layout::assemble(self.composite().cloned().map(next), self.components().to_vec())
    }

    /// Whether there was one change since `before`.
    pub fn follows(&self, before: &Layout) -> bool {
        self.generation() == before.next_generation()
    }

    /// Whether what was done to a file by the layout `before` may have gone to a mirror that counts
    /// no more, this one being the file's now.
    pub fn overtakes(&self, before: &Layout) -> bool {
        // Without mirrors, objects may come, and those that there are stay; one that lost its
        // mirrors may have the generation of before.
        let (was, is) = (before.is_mirrored(), self.is_mirrored());
        was != is || is && self.generation() != before.generation()
    }

    fn next_generation(&self) -> u32 {
        let mut next = Composite { layout_gen: self.generation(), flags: 0, mirror_count: 1, rest: [0; 14] };
        next.raise();
        next.layout_gen
    }

    /// The layout in which these mirrors are fresh, which were brought up to date since the
    /// generation `ticket`.
    ///
    /// # Errors
    /// EBUSY: it is of another generation: somebody wrote, or changed the layout. EINVAL: not
    /// mirrored, no such mirror.
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

    /// All objects of all mirrors, also those on the MDT: what goes when the file does.
    pub fn all_objects(&self) -> impl Iterator<Item = Stripe> {
        self.components().iter().flat_map(|c| c.stripe_list().into_owned())
    }

    /// A mirror that must be there.
    fn view(&self, id: u16) -> Result<&Arc<Layout>, LayoutError> {
        if !self.is_mirrored() {
            return Err(LayoutError::NotMirrored);
        }
        self.views().iter().find(|m| m.mirror_id() == id).ok_or(LayoutError::NoMirror(id))
    }

    /// The next generation, in another state.
    fn in_state(&self, state: u16, components: Vec<Component>) -> Result<Layout, LayoutError> {
        let mut composite = self.composite().ok_or(LayoutError::NotComposite)?.clone();
        composite.raise();
        composite.flags = composite.flags & !Composite::STATE | state;
        Layout::assemble(Some(composite), components).checked()
    }

    /// The same with its mirrors in the state in which writers have to ask.
    pub(crate) fn into_read_only(self) -> Layout {
        let read_only = |c: Composite| Composite { flags: c.flags & !Composite::STATE | Composite::READ_ONLY, ..c };
        Layout::assemble(self.composite().cloned().map(read_only), self.components().to_vec())
    }

    /// Its components as they are in a mirrored layout: where they are of none they become those of
    /// mirror `id`.
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

/// The bits of a component's id that are its own.
const LOW: u32 = (1 << MIRROR_SHIFT) - 1;

#[cfg(test)]
mod tests;
