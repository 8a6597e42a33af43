//! Mirrors of a layout that are up to date. As in the file system, a mirror is up to date if none
//! of its components is stale.

use sheen_layout::flags;

use super::{Component, Layout};

impl Layout {
    /// Returns the ids of the mirrors, in order.
    pub fn mirror_ids(&self) -> Vec<u32> {
        let mut ids: Vec<u32> = self.components().iter().map(Component::mirror_id).collect();
        ids.dedup();
        ids
    }

    fn of_mirror(&self, id: u32) -> impl Iterator<Item = &Component> {
        self.components().iter().filter(move |c| c.mirror_id() == id)
    }

    fn is_fresh(&self, id: u32) -> bool {
        self.of_mirror(id).all(|c| c.flags & flags::STALE == 0)
    }

    /// Returns a mirror that is up to date and has the bytes from `start`, and the end of the bytes
    /// that it has (at most `end`). Chooses the mirror with most of these bytes; among equal ones a
    /// preferred one.
    pub fn find_mirror(&self, start: u64, end: u64) -> Option<(u32, u64)> {
        let covered = |id: u32| {
            self.of_mirror(id)
                .fold(start, |at, c| if c.start <= at && at < c.end { c.end.min(end.max(start)) } else { at })
        };
        let preferred = |id: u32| self.of_mirror(id).any(|c| c.flags & (flags::PREF_RD | flags::PREF_WR) != 0);
        let fresh = self.mirror_ids().into_iter().filter(|id| self.is_fresh(*id));
        // Of equal mirrors the first one.
        let best = fresh.rev().max_by_key(|id| (covered(*id), preferred(*id)));
        best.map(|id| (id, covered(id))).filter(|(_, to)| *to > start)
    }

    /// Returns the components of the stale mirrors among `ids`. If `ids` is empty: of all stale
    /// mirrors that are not marked [`flags::NOSYNC`].
    pub fn stale_components(&self, ids: &[u16]) -> Vec<&Component> {
        let named = |id: u32| ids.iter().any(|named| u32::from(*named) == id);
        let wanted = |id: u32| match ids {
            [] => self.of_mirror(id).all(|c| c.flags & flags::NOSYNC == 0),
            _ => named(id),
        };
        self.components().iter().filter(|c| wanted(c.mirror_id()) && !self.is_fresh(c.mirror_id())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{super::EOF, *};

    const M: u64 = 1 << 20;

    fn c(mirror: u32, start: u64, end: u64, flags: u32) -> Component {
        Component { id: (mirror << 16) | ((start / M) as u32 + 1), start, end, flags, ..Component::default() }
    }

    #[test]
    fn find_mirror_returns_the_fresh_mirror_with_most_bytes() {
        let layout = |flags: [u32; 4]| {
            let [a, b, d, e] = flags;
            Layout::composite(vec![c(1, 0, M, a), c(1, M, EOF, b), c(2, 0, 4 * M, d), c(2, 4 * M, EOF, e)]).unwrap()
        };
        assert_eq!(layout([0; 4]).find_mirror(0, EOF), Some((1, EOF)));
        assert_eq!(layout([0, 0, flags::PREF_RD, 0]).find_mirror(0, 3 * M), Some((2, 3 * M)));
        assert_eq!(layout([0, flags::STALE, 0, 0]).find_mirror(0, M), Some((2, M)), "one is stale as a whole");
        assert_eq!(layout([flags::STALE, 0, 0, flags::STALE]).find_mirror(0, M), None);
        let short = Layout::composite(vec![c(1, 0, M, 0), c(2, 0, 4 * M, 0)]).unwrap();
        assert_eq!((short.find_mirror(0, EOF), short.find_mirror(4 * M, EOF)), (Some((2, 4 * M)), None));
    }

    #[test]
    fn stale_components_lists_all_components_of_stale_mirrors() {
        let layout = Layout::composite(vec![
            c(1, 0, EOF, 0),
            c(2, 0, M, flags::STALE),
            c(2, M, EOF, 0),
            c(3, 0, EOF, flags::STALE | flags::NOSYNC),
        ])
        .unwrap();
        let ids = |named: &[u16]| layout.stale_components(named).iter().map(|c| c.mirror_id()).collect::<Vec<_>>();
        assert_eq!((ids(&[]), ids(&[3]), ids(&[1])), (vec![2, 2], vec![3], vec![]));
    }
}
