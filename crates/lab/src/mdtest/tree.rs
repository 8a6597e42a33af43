//! The tree of a task's directories, and the names of its items.
//!
//! Directory 0 is the root of the tree. Directory `d` contains the directories `d·b+1 … d·b+b` for
//! `b` branches, down to the depth. Item `i` is in directory `i / items_per_dir`.

use serde::{Deserialize, Serialize};

/// Shape of a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Tree {
    branches: u64,
    depth: u32,
    /// Number of directories.
    dirs: u64,
    /// Number of lowest directories.
    leaves: u64,
}

impl Tree {
    /// Returns a tree; `None` if it has too many directories to count.
    pub fn new(branches: u64, depth: u32) -> Option<Tree> {
        let leaves = branches.checked_pow(depth)?;
        let levels = (0..=depth).map(|level| branches.checked_pow(level));
        let dirs = levels.sum::<Option<u64>>()?;
        Some(Tree { branches, depth, dirs, leaves })
    }

    /// Returns the number of directories.
    pub fn dirs(&self) -> u64 {
        self.dirs
    }

    /// Returns the number of lowest directories.
    pub fn leaves(&self) -> u64 {
        self.leaves
    }

    /// Returns the number of the first lowest directory.
    pub fn first_leaf(&self) -> u64 {
        self.dirs - self.leaves
    }

    /// Appends the path of a directory, `BASE.0/BASE.1/…`.
    pub fn push_dir(&self, path: &mut String, base: &str, dir: u64) {
        use std::fmt::Write;
        if dir > 0 {
            self.push_dir(path, base, (dir - 1) / self.branches);
            path.push('/');
        }
        // Writing to a string cannot fail.
        let _ = write!(path, "{base}.{dir}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_numbered_level_by_level() {
        let tree = Tree::new(2, 2).unwrap();
        assert_eq!((tree.dirs(), tree.leaves(), tree.first_leaf()), (7, 4, 3));
        let path = |dir| {
            let mut path = String::from("/");
            tree.push_dir(&mut path, "t", dir);
            path
        };
        assert_eq!([path(0), path(2), path(5)], ["/t.0", "/t.0/t.2", "/t.0/t.2/t.5"]);
        let chain = Tree::new(1, 3).unwrap();
        assert_eq!((chain.dirs(), chain.leaves()), (4, 1));
        assert_eq!(Tree::new(1_000_000, 64), None);
    }
}
