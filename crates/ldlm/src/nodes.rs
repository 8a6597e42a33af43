//! The sets of locks: interval trees for ranges, rings for bits.
//!
//! A lock is in one set at a time. So the links of all sets are in one array beside the locks: node
//! n belongs to the lock at place n. A set is a [`Root`]. Neither insertion nor removal allocates
//! memory.
//!
//! **Trees** are AVL trees ordered by (start, place). Each node knows the largest end and the
//! smallest rank in its subtree. The trees are balanced, because clients choose the keys and must
//! not control the depth. The rank is a number set by the owner: searches return only nodes with
//! ranks below a limit. Granted locks have rank 0, or 1 after their blocking callback, so that
//! those still to be called are found quickly. Waiting locks have their position in the queue as
//! rank, so that those before a request are found.
//!
//! **Rings** keep the order of insertion, ignore ranges, and are searched from end to end.

use std::ops::ControlFlow;

use crate::slab::NIL;

/// A lock's links; one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Node {
    start: u64,
    end: u64,
    /// Largest `end` in this node's subtree.
    end_max: u64,
    rank: u64,
    /// Smallest `rank` in this node's subtree.
    rank_min: u64,
    /// Left child; in a ring the previous lock.
    left: u32,
    /// Right child; in a ring the next lock.
    right: u32,
    height: u8,
}

const EMPTY: Node =
    Node { start: 0, end: 0, end_max: 0, rank: 0, rank_min: u64::MAX, left: NIL, right: NIL, height: 0 };

/// A set of locks.
#[derive(Clone, Copy, Debug)]
pub struct Root {
    top: u32,
    len: u32,
}

impl Root {
    pub const EMPTY: Root = Root { top: NIL, len: 0 };

    pub fn len(&self) -> usize {
        self.len as usize
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns any lock in the set, or [`NIL`].
    pub fn any(&self) -> u32 {
        self.top
    }
}

/// The links of all locks, by place.
#[derive(Debug, Default)]
pub struct Nodes(Vec<Node>);

impl Nodes {
    fn make(&mut self, n: u32, node: Node) {
        let n = n as usize;
        if n >= self.0.len() {
            self.0.resize(n + 1, EMPTY);
        }
        self.0[n] = node;
    }

    fn at(&self, n: u32) -> &Node {
        &self.0[n as usize]
    }

    fn mut_at(&mut self, n: u32) -> &mut Node {
        &mut self.0[n as usize]
    }
}

/// Trees.
impl Nodes {
    /// Puts lock `n` into the tree; it must be in no set.
    pub fn tree_insert(&mut self, root: &mut Root, n: u32, (start, end): (u64, u64), rank: u64) {
        self.make(n, Node { start, end, end_max: end, rank, rank_min: rank, left: NIL, right: NIL, height: 1 });
        root.top = self.insert_below(root.top, n).0;
        root.len += 1;
    }

    /// Takes lock `n`, which must be in it, out of the tree.
    pub fn tree_remove(&mut self, root: &mut Root, n: u32) {
        root.top = self.remove_below(root.top, n).0;
        root.len -= 1;
    }

    /// Sets the rank of lock `n`, which must be in the tree.
    pub fn tree_rank(&mut self, root: &Root, n: u32, rank: u64) {
        self.mut_at(n).rank = rank;
        self.update_path(root.top, n);
    }

    /// Calls `f` for each lock in the tree with a rank below `limit` that overlaps `range`, in
    /// order, until `f` breaks.
    pub fn overlapping(
        &self,
        root: &Root,
        range: (u64, u64),
        limit: u64,
        f: &mut impl FnMut(u32) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        self.overlapping_below(root.top, range, limit, f)
    }

    /// Returns the smallest start after `after` in the tree.
    pub fn next_start(&self, root: &Root, after: u64) -> Option<u64> {
        let (mut n, mut found) = (root.top, None);
        while n != NIL {
            let node = self.at(n);
            if node.start > after {
                found = Some(node.start);
                n = node.left;
            } else {
                n = node.right;
            }
        }
        found
    }

    /// Returns the largest end of all locks that start before `before`.
    pub fn last_end(&self, root: &Root, before: u64) -> Option<u64> {
        let (mut n, mut found) = (root.top, None);
        while n != NIL {
            let node = self.at(n);
            if node.start < before {
                let left = if node.left == NIL { 0 } else { self.at(node.left).end_max };
                found = found.max(Some(node.end.max(left)));
                n = node.right;
            } else {
                n = node.left;
            }
        }
        found
    }

    /// Returns a lock that contains `start..=end`, or [`NIL`].
    pub fn containing(&self, root: &Root, (start, end): (u64, u64)) -> u32 {
        let mut n = root.top;
        while n != NIL {
            let node = self.at(n);
            if node.start > start {
                n = node.left;
            } else if node.end >= end {
                return n;
            } else if node.left != NIL && self.at(node.left).end_max >= end {
                // All nodes on the left start early enough; the one with the largest end matches.
                n = node.left;
            } else {
                n = node.right;
            }
        }
        NIL
    }

    fn overlapping_below(
        &self,
        n: u32,
        range: (u64, u64),
        limit: u64,
        f: &mut impl FnMut(u32) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if n == NIL {
            return ControlFlow::Continue(());
        }
        let node = self.at(n);
        if node.end_max < range.0 || node.rank_min >= limit {
            return ControlFlow::Continue(());
        }
        self.overlapping_below(node.left, range, limit, f)?;
        if node.start > range.1 {
            return ControlFlow::Continue(());
        }
        if node.end >= range.0 && node.rank < limit {
            f(n)?;
        }
        self.overlapping_below(node.right, range, limit, f)
    }

    fn before(&self, a: u32, b: u32) -> bool {
        (self.at(a).start, a) < (self.at(b).start, b)
    }

    /// Inserts lock `n` into a subtree. Returns the new top, and whether the subtree is higher.
    /// Without a rotation only nodes on the path are read: in a large tree each other node costs a
    /// cache miss.
    fn insert_below(&mut self, top: u32, n: u32) -> (u32, bool) {
        if top == NIL {
            return (n, true);
        }
        let (end, rank) = (self.at(n).end, self.at(n).rank);
        let left = self.before(n, top);
        let node = self.mut_at(top);
        node.end_max = node.end_max.max(end);
        node.rank_min = node.rank_min.min(rank);
        let (height, child) = (node.height, if left { node.left } else { node.right });
        let (below, grew) = self.insert_below(child, n);
        self.set_child(top, left, below);
        if !grew {
            return (top, false);
        }
        let top = self.balance(top);
        (top, self.at(top).height > height)
    }

    /// Removes lock `n` from a subtree. Returns the new top, and whether the subtree is lower.
    fn remove_below(&mut self, top: u32, n: u32) -> (u32, bool) {
        if top == NIL {
            return (NIL, false);
        }
        let Node { left, right, height, .. } = *self.at(top);
        if top == n {
            if left == NIL || right == NIL {
                return (if left == NIL { right } else { left }, true);
            }
            let (right, first, _) = self.take_first(right);
            let node = self.mut_at(first);
            (node.left, node.right) = (left, right);
            let top = self.balance(first);
            return (top, self.at(top).height < height);
        }
        let go_left = self.before(n, top);
        let (below, shrank) = self.remove_below(if go_left { left } else { right }, n);
        self.set_child(top, go_left, below);
        self.after_removal(top, n, shrank)
    }

    /// Removes the first lock of a subtree. Returns the new top, that lock, and whether the subtree
    /// is lower.
    fn take_first(&mut self, top: u32) -> (u32, u32, bool) {
        let Node { left, right, .. } = *self.at(top);
        if left == NIL {
            return (right, top, true);
        }
        let (left, first, shrank) = self.take_first(left);
        self.set_child(top, true, left);
        let (top, shrank) = self.after_removal(top, first, shrank);
        (top, first, shrank)
    }

    /// Updates `top` after lock `n` was removed below it, on a side that is lower now if `shrank`.
    /// Returns the same as [`Nodes::remove_below`].
    fn after_removal(&mut self, top: u32, n: u32, shrank: bool) -> (u32, bool) {
        let (node, removed) = (self.at(top), self.at(n));
        let end_stale = removed.end == node.end_max && node.end != node.end_max;
        let rank_stale = removed.rank == node.rank_min && node.rank != node.rank_min;
        let height = node.height;
        if !shrank && !end_stale && !rank_stale {
            return (top, false);
        }
        let top = self.balance(top);
        (top, self.at(top).height < height)
    }

    fn set_child(&mut self, top: u32, left: bool, child: u32) {
        let node = self.mut_at(top);
        if left { node.left = child } else { node.right = child }
    }

    fn update_path(&mut self, top: u32, n: u32) {
        if top == NIL {
            return;
        }
        if top != n {
            let next = if self.before(n, top) { self.at(top).left } else { self.at(top).right };
            self.update_path(next, n);
        }
        self.update(top);
    }

    /// Recomputes `end_max`, `rank_min` and `height` of a node from its children.
    fn update(&mut self, n: u32) {
        let Node { end, rank, left, right, .. } = *self.at(n);
        let (mut end_max, mut rank_min, mut height) = (end, rank, 0);
        for child in [left, right] {
            if child != NIL {
                let child = self.at(child);
                end_max = end_max.max(child.end_max);
                rank_min = rank_min.min(child.rank_min);
                height = height.max(child.height);
            }
        }
        let node = self.mut_at(n);
        (node.end_max, node.rank_min, node.height) = (end_max, rank_min, height + 1);
    }

    fn height(&self, n: u32) -> i32 {
        if n == NIL { 0 } else { i32::from(self.at(n).height) }
    }

    /// Updates `n`, and rotates if one side of `n` is two levels higher than the other. Returns the
    /// new top.
    fn balance(&mut self, n: u32) -> u32 {
        let Node { left, right, .. } = *self.at(n);
        let lean = self.height(left) - self.height(right);
        if lean > 1 {
            if self.height(self.at(left).left) < self.height(self.at(left).right) {
                self.mut_at(n).left = self.rotate_left(left);
            }
            return self.rotate_right(n);
        }
        if lean < -1 {
            if self.height(self.at(right).right) < self.height(self.at(right).left) {
                self.mut_at(n).right = self.rotate_right(right);
            }
            return self.rotate_left(n);
        }
        self.update(n);
        n
    }

    fn rotate_right(&mut self, n: u32) -> u32 {
        let up = self.at(n).left;
        self.mut_at(n).left = self.at(up).right;
        self.update(n);
        self.mut_at(up).right = n;
        self.update(up);
        up
    }

    fn rotate_left(&mut self, n: u32) -> u32 {
        let up = self.at(n).right;
        self.mut_at(n).right = self.at(up).left;
        self.update(n);
        self.mut_at(up).left = n;
        self.update(up);
        up
    }
}

/// Rings.
impl Nodes {
    /// Appends lock `n`, which must be in no set, to the ring.
    pub fn ring_push(&mut self, root: &mut Root, n: u32) {
        if root.top == NIL {
            self.make(n, Node { left: n, right: n, ..EMPTY });
            root.top = n;
        } else {
            let (first, last) = (root.top, self.at(root.top).left);
            self.make(n, Node { left: last, right: first, ..EMPTY });
            self.mut_at(last).right = n;
            self.mut_at(first).left = n;
        }
        root.len += 1;
    }

    /// Takes lock `n`, which must be in it, out of the ring.
    pub fn ring_remove(&mut self, root: &mut Root, n: u32) {
        let Node { left, right, .. } = *self.at(n);
        self.mut_at(left).right = right;
        self.mut_at(right).left = left;
        if root.top == n {
            root.top = if right == n { NIL } else { right };
        }
        root.len -= 1;
    }

    /// Returns the locks in the ring, oldest first.
    pub fn ring(&self, root: &Root) -> impl Iterator<Item = u32> + '_ {
        let mut next = root.top;
        (0..root.len).map(move |_| {
            let n = next;
            next = self.at(n).right;
            n
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    impl Nodes {
        /// Asserts that heights differ by at most one, and that nodes know the values of their
        /// subtrees. Returns the locks in order.
        fn check(&self, n: u32, out: &mut Vec<u32>) -> (i32, u64, u64) {
            if n == NIL {
                return (0, 0, u64::MAX);
            }
            let node = *self.at(n);
            let left = self.check(node.left, out);
            out.push(n);
            let right = self.check(node.right, out);
            assert!((left.0 - right.0).abs() <= 1);
            let truth =
                (left.0.max(right.0) + 1, left.1.max(right.1).max(node.end), left.2.min(right.2).min(node.rank));
            assert_eq!(truth, (i32::from(node.height), node.end_max, node.rank_min));
            truth
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u64, u64, u64),
        Remove(usize),
        Rank(usize, u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (0u64..60, 0u64..20, 0u64..4).prop_map(|(s, l, r)| Step::Insert(s, s + l, r)),
            2 => any::<usize>().prop_map(Step::Remove),
            1 => (any::<usize>(), 0u64..4).prop_map(|(n, r)| Step::Rank(n, r)),
        ]
    }

    proptest! {
        #[test]
        fn interval_tree_searches_match_a_linear_search(steps in prop::collection::vec(step(), 1..150), s in 0u64..70, l in 0u64..20, limit in 0u64..5) {
            let (mut nodes, mut root) = (Nodes::default(), Root::EMPTY);
            let mut model: Vec<(u64, u32, u64, u64)> = Vec::new(); // start, place, end, rank
            let mut place = 0;
            for step in steps {
                match step {
                    Step::Insert(start, end, rank) => {
                        nodes.tree_insert(&mut root, place, (start, end), rank);
                        model.push((start, place, end, rank));
                        place += 1;
                    }
                    Step::Remove(n) if !model.is_empty() => {
                        let removed = model.swap_remove(n % model.len());
                        nodes.tree_remove(&mut root, removed.1);
                    }
                    Step::Rank(n, rank) if !model.is_empty() => {
                        let n = n % model.len();
                        model[n].3 = rank;
                        nodes.tree_rank(&root, model[n].1, rank);
                    }
                    Step::Remove(_) | Step::Rank(..) => {}
                }
                let mut order = Vec::new();
                nodes.check(root.top, &mut order);
                model.sort_unstable();
                prop_assert_eq!(order, model.iter().map(|m| m.1).collect::<Vec<_>>());
                prop_assert_eq!(root.len(), model.len());
            }
            let e = s + l;
            let mut found = Vec::new();
            let _ = nodes.overlapping(&root, (s, e), limit, &mut |n| { found.push(n); ControlFlow::Continue(()) });
            let touches = |m: &&(u64, u32, u64, u64)| m.0 <= e && m.2 >= s && m.3 < limit;
            prop_assert_eq!(found, model.iter().filter(touches).map(|m| m.1).collect::<Vec<_>>());
            prop_assert_eq!(nodes.next_start(&root, s), model.iter().map(|m| m.0).filter(|x| *x > s).min());
            prop_assert_eq!(nodes.last_end(&root, s), model.iter().filter(|m| m.0 < s).map(|m| m.2).max());
            let holder = nodes.containing(&root, (s, e));
            match model.iter().find(|m| m.1 == holder) {
                Some(m) => prop_assert!(m.0 <= s && m.2 >= e),
                None => prop_assert!(!model.iter().any(|m| m.0 <= s && m.2 >= e)),
            }
        }
    }

    #[test]
    fn rings_iterate_in_insertion_order() {
        let (mut nodes, mut root) = (Nodes::default(), Root::EMPTY);
        for n in [4, 2, 7] {
            nodes.ring_push(&mut root, n);
        }
        assert_eq!(nodes.ring(&root).collect::<Vec<_>>(), [4, 2, 7]);
        nodes.ring_remove(&mut root, 4);
        nodes.ring_push(&mut root, 4);
        assert_eq!(nodes.ring(&root).collect::<Vec<_>>(), [2, 7, 4]);
        for n in [7, 4, 2] {
            nodes.ring_remove(&mut root, n);
        }
        assert!(root.is_empty() && root.any() == NIL && nodes.ring(&root).next().is_none());
    }
}
