//! State that the open files of one inode share: above all, what is known of the inode's layout.

use std::sync::{
    Arc, OnceLock,
    atomic::{
        AtomicBool, AtomicU32, AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
};

use bytes::Bytes;
use parking_lot::RwLock;
use rustc_hash::FxHashSet;
use sheen_layout::Layout;
use sheen_wire::Fid;

use super::group_members::GroupMembers;
use crate::cache::{is_as_new, is_settled};

/// The client's knowledge of an inode's layout.
#[derive(Default)]
enum LayoutState {
    #[default]
    Unknown,
    /// A layout that writes no longer change.
    Settled(Arc<Layout>),
    /// A layout that is valid as long as a LAYOUT lock is held. [`Inode::outdate`] is called before
    /// the cancel of that lock is sent.
    Held(Arc<Layout>),
    /// An outdated layout: objects may have been added since.
    Past(Arc<Layout>),
}

/// State shared by the open files of one inode.
#[derive(Default)]
pub(crate) struct Inode {
    /// Encoded layout from the MDT's reply to the first open; decoded at the first read or write.
    pub(crate) sent: OnceLock<Bytes>,
    layout: RwLock<LayoutState>,
    /// Held during a layout intent, which requests objects.
    pub(crate) intents: tokio::sync::Mutex<()>,
    /// Whether the MDT was restarted since it sent the layout.
    unsure: AtomicBool,
    /// Number of calls of [`Inode::outdate`].
    changes: AtomicU64,
    /// Permission bits from the last reply.
    pub(crate) perm: AtomicU32,
    /// Whether this client removed the last name. The data of an orphan need not be flushed at
    /// close.
    pub(crate) orphan: AtomicBool,
    /// Whether the inode was written through an open file.
    pub(crate) written: AtomicBool,
    /// Held by an append.
    pub(crate) append: tokio::sync::Mutex<()>,
    /// Whether writes bypass the write-back cache, during a migration under a group lock. Sealing
    /// does not revoke group locks, so it would not flush cached writes.
    pub(crate) through: AtomicBool,
    /// The group whose locks this client's open files hold.
    pub(crate) groups: GroupMembers,
    /// Held shared by writes to single mirrors. A layout change holds it exclusively to wait for
    /// them, because this client's own locks do not stop them.
    pub(crate) repairs: tokio::sync::RwLock<()>,
}

impl Inode {
    /// Returns the layout if it is settled.
    pub(crate) fn settled(&self) -> Option<Arc<Layout>> {
        if let LayoutState::Settled(layout) = &*self.layout.read() { Some(layout.clone()) } else { None }
    }

    /// Returns the layout if it is valid under a LAYOUT lock. The caller must hold the lock from
    /// before this call.
    pub(crate) fn held(&self) -> Option<Arc<Layout>> {
        match &*self.layout.read() {
            LayoutState::Settled(layout) | LayoutState::Held(layout) => Some(layout.clone()),
            LayoutState::Unknown | LayoutState::Past(_) => None,
        }
    }

    /// Whether the layout of this generation is settled or valid under a LAYOUT lock.
    pub(crate) fn has(&self, generation: u32) -> bool {
        match &*self.layout.read() {
            LayoutState::Settled(layout) | LayoutState::Held(layout) => layout.generation() == generation,
            LayoutState::Unknown | LayoutState::Past(_) => false,
        }
    }

    /// Returns the last known layout, valid or not.
    pub(crate) fn last(&self) -> Option<Arc<Layout>> {
        match &*self.layout.read() {
            LayoutState::Settled(layout) | LayoutState::Held(layout) | LayoutState::Past(layout) => {
                Some(layout.clone())
            }
            LayoutState::Unknown => None,
        }
    }

    /// Stores a layout that is settled, or that was read under a LAYOUT lock in use. Ignores it if
    /// a newer one is known.
    pub(crate) fn learn(&self, layout: &Arc<Layout>) {
        let good = if is_settled(layout) { LayoutState::Settled } else { LayoutState::Held };
        self.replace(layout, good);
    }

    /// Stores a layout that may be outdated.
    pub(crate) fn learn_past(&self, layout: &Arc<Layout>) {
        self.replace(layout, LayoutState::Past);
    }

    fn replace(&self, layout: &Arc<Layout>, how: fn(Arc<Layout>) -> LayoutState) {
        let mut state = self.layout.write();
        let newer = match &*state {
            LayoutState::Unknown => true,
            LayoutState::Settled(known) | LayoutState::Held(known) | LayoutState::Past(known) => {
                is_as_new(layout, known)
            }
        };
        // After a restart of the MDT, `confirm` must first compare its layout with the known one.
        if newer && !self.unsure.load(Relaxed) {
            *state = how(layout.clone());
        }
    }

    /// Marks the layout as outdated: the LAYOUT lock is lost, or the layout is being edited.
    pub(crate) fn outdate(&self) {
        let mut state = self.layout.write();
        self.changes.fetch_add(1, Release);
        self.doubt(&mut state);
    }

    /// Marks the known layout as outdated, or that from the open.
    fn doubt(&self, state: &mut LayoutState) {
        let known = match &*state {
            LayoutState::Settled(layout) | LayoutState::Held(layout) => Some(layout.clone()),
            LayoutState::Unknown => self.first(),
            LayoutState::Past(_) => None,
        };
        if let Some(layout) = known {
            *state = LayoutState::Past(layout);
        }
    }

    /// Returns how often the layout may have changed. A caller that reads this before the layout
    /// lookup, and again later, misses no change: the counter is incremented before the layout is
    /// marked as outdated.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Acquire)
    }

    /// Whether the file was mirrored according to its last known layout.
    pub(crate) fn is_mirrored(&self) -> bool {
        self.known().is_some_and(|layout| layout.is_mirrored())
    }

    /// Returns the last known layout, or that from the open.
    pub(super) fn known(&self) -> Option<Arc<Layout>> {
        self.last().or_else(|| self.first())
    }

    /// Returns the layout from the open.
    fn first(&self) -> Option<Arc<Layout>> {
        Layout::decode(self.sent.get()?).ok().map(Arc::new)
    }

    /// Whether a file with this layout can be the same file.
    pub(super) fn is_with(&self, layout: Option<&Bytes>) -> bool {
        if layout.is_some() && self.sent.get() == layout && !self.unsure.load(Relaxed) {
            return true;
        }
        let Some(known) = self.known() else { return true };
        let layout = layout.and_then(|bytes| Layout::decode(bytes).ok());
        layout.is_some_and(|layout| self.can_be(&known, &layout))
    }

    /// Whether the file with the layout `known` can now have `layout`. Replies may arrive out of
    /// order, and the file may have been migrated, so a different generation is accepted. It is not
    /// after a restart of the MDT, which may have lost objects.
    pub(super) fn can_be(&self, known: &Layout, layout: &Layout) -> bool {
        let other = || goes_on(layout, known) || known.generation() != layout.generation();
        goes_on(known, layout) || !self.unsure.load(Relaxed) && other()
    }

    /// Whether the client must ask the restarted MDT to confirm the layout.
    pub(super) fn is_unsure(&self) -> bool {
        self.unsure.load(Relaxed)
    }

    /// Notes that the MDT was restarted: it must confirm the layout before the next use.
    pub(super) fn note_restart(&self) {
        self.unsure.store(true, Relaxed);
    }

    /// Compares the known layout with that of a restarted MDT. Accepts the new one if the known one
    /// can have become it. Otherwise returns the known one.
    pub(super) fn confirm(&self, layout: Option<&Bytes>) -> Option<Arc<Layout>> {
        let now = layout.and_then(|bytes| Layout::decode(bytes).ok());
        let known = self.known().filter(|known| !now.as_ref().is_some_and(|now| goes_on(known, now)));
        if known.is_none() {
            let mut state = self.layout.write();
            if !matches!(&*state, LayoutState::Settled(layout) if layout.is_plain()) {
                // As outdated, not as unknown: otherwise the older layout from the open would be
                // used.
                *state = now.map_or(LayoutState::Unknown, |now| LayoutState::Past(Arc::new(now)));
            }
            self.unsure.store(false, Relaxed);
        }
        known
    }

    /// Marks the layout as to be requested again, because the OSTs report its objects as sealed.
    pub(super) fn confirm_moved(&self) {
        self.distrust();
        self.unsure.store(false, Relaxed);
    }

    /// Marks the layout as to be requested again.
    pub(crate) fn distrust(&self) {
        self.doubt(&mut self.layout.write());
    }
}

/// Whether the layout `from` can have become `to`: objects were added, and none was removed, except
/// together with its mirror.
fn goes_on(from: &Layout, to: &Layout) -> bool {
    if to.is_plain() {
        return from == to;
    }
    let objects: FxHashSet<Fid> = to.all_objects().map(|s| s.object).collect();
    let is_there = |layout: &Layout| layout.stripes().iter().all(|s| objects.contains(&s.object));
    if from.is_mirrored() { from.mirrors().iter().any(|m| is_there(m)) } else { is_there(from) }
}

#[cfg(test)]
mod tests {
    use sheen_layout::{Asked, Defaults, Spec, Stripe, Template, TemplateComponent, resolve_asked};
    use sheen_wire::fid::ROOT;

    use super::*;

    /// Returns the layout of a file with one object, which differs in each generation.
    fn layout(generation: u32) -> Arc<Layout> {
        let stripes = vec![Stripe { object: Fid::new(7, 8 + generation), ost: 1 }];
        Arc::new(Layout::new(ROOT, 1 << 16, None, stripes).unwrap().adopted(ROOT, generation).unwrap())
    }

    fn opened_with(generation: u32) -> Inode {
        let inode = Inode::default();
        inode.sent.set(layout(generation).encode().into()).unwrap();
        inode
    }

    fn generation(layout: Option<Arc<Layout>>) -> Option<u32> {
        layout.map(|layout| layout.generation())
    }

    #[test]
    fn layout_from_open_is_ignored_after_newer_layout() {
        let inode = opened_with(1);
        assert_eq!((generation(inode.last()), generation(inode.known())), (None, Some(1)));
        inode.learn(&layout(2));
        assert_eq!(generation(inode.settled()), Some(2));
        // A late reply.
        inode.learn(&layout(1));
        assert_eq!(generation(inode.settled()), Some(2));
        for _ in 0..2 {
            inode.outdate();
            assert_eq!((generation(inode.settled()), generation(inode.known())), (None, Some(2)));
            inode.learn_past(&layout(1));
            assert_eq!(generation(inode.last()), Some(2));
        }
    }

    #[test]
    fn layout_from_open_is_ignored_after_restarted_mdt_sent_another() {
        let stripe = |object| vec![Stripe { object: Fid::new(7, object), ost: 1 }];
        let parts = [(0, 1 << 20), (1 << 20, u64::MAX)];
        let part = |(start, end)| TemplateComponent::striped(start, end, Spec::default());
        let asked = Asked::Composite(Template::new(parts.map(part).to_vec()));
        let wanted = resolve_asked(&asked, None, None, &Defaults::default(), 0);
        let before = wanted.layout(ROOT, vec![(0, stripe(1))]).unwrap();
        let mut after = before.clone();
        after.instantiate(vec![(1, stripe(2))]).unwrap();
        let inode = Inode::default();
        inode.sent.set(before.encode().into()).unwrap();
        inode.note_restart();
        assert!(inode.confirm(Some(&after.encode().into())).is_none(), "objects were added, none was removed");
        assert_eq!((generation(inode.last()), inode.is_unsure()), (Some(after.generation()), false));
        // Another restarted MDT must know the accepted layout, not the one from the open.
        inode.note_restart();
        let known = inode.confirm(Some(&before.encode().into()));
        assert_eq!(generation(known), Some(after.generation()), "objects were removed");
    }
}
