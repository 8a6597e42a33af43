//! Claims: which operations may run at the same time and still have predictable results.
//!
//! The model knows one result of each operation. So the test keeps operations apart that could see
//! each other's intermediate states. ([`super::race`] tests what happens when they run together.)
//! An operation claims what it reads and what it changes. It starts when its claims are compatible
//! with those of the running operations. Operations that commute share a mode and run together: two
//! creates in one directory, or two writes to different chunks of a file.

use std::collections::BTreeMap;

use sheen_wire::Fid;

/// A part of the file system that an operation reads or changes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Key {
    /// The positions of all directories in the tree.
    Tree,
    /// A file or directory.
    Inode(Fid),
    /// A name in a directory, whether it exists or not.
    Name(Fid, String),
    /// A chunk of a file's data.
    Chunk(Fid, u64),
    /// An open file, by its number.
    Handle(u64),
    /// A file's layout, which affects no other result.
    Layout(Fid),
}

/// Mode of a claim. Claims of the same mode are compatible, claims of different modes are not.
/// `Alone` is compatible with nothing, not even with `Alone`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Changes the key.
    Alone,
    /// Reads the key.
    Look,
    /// Uses or changes some of a directory's entries.
    Entries,
    /// Writes some of a file's chunks.
    Chunks,
}

/// Claims that an operation needs.
pub type Wanted = Vec<(Key, Mode)>;

/// Claims of all running operations.
#[derive(Default, Debug)]
pub struct Claims(BTreeMap<Key, (Mode, u32)>);

/// Granted claims of one operation. The caller returns them with [`Claims::release`].
#[derive(Debug)]
pub struct Granted(BTreeMap<Key, Mode>);

impl Granted {
    /// Returns the claimed keys.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.0.keys()
    }
}

impl Claims {
    /// Grants all of `wanted` if they are compatible with the granted claims. A key that is wanted
    /// in two modes is claimed as `Alone`.
    pub fn take(&mut self, wanted: Wanted) -> Option<Granted> {
        let mut merged = BTreeMap::new();
        for (key, mode) in wanted {
            let claimed = merged.entry(key).or_insert(mode);
            if *claimed != mode {
                *claimed = Mode::Alone;
            }
        }
        let fits = |(key, mode): (&Key, &Mode)| match self.0.get(key) {
            Some((held, _)) => held == mode && *mode != Mode::Alone,
            None => true,
        };
        if !merged.iter().all(fits) {
            return None;
        }
        for (key, mode) in &merged {
            self.0.entry(key.clone()).or_insert((*mode, 0)).1 += 1;
        }
        Some(Granted(merged))
    }

    /// Releases granted claims.
    pub fn release(&mut self, granted: Granted) {
        for key in granted.0.into_keys() {
            if let Some((_, holders)) = self.0.get_mut(&key) {
                *holders -= 1;
                if *holders == 0 {
                    self.0.remove(&key);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_compatible_claims_are_granted_together() {
        let mut claims = Claims::default();
        let key = || Key::Tree;
        let a = claims.take(vec![(key(), Mode::Look)]).unwrap();
        let b = claims.take(vec![(key(), Mode::Look)]).unwrap();
        assert!(claims.take(vec![(key(), Mode::Entries)]).is_none());
        claims.release(a);
        assert!(claims.take(vec![(key(), Mode::Alone)]).is_none());
        claims.release(b);
        let alone = claims.take(vec![(key(), Mode::Look), (key(), Mode::Entries)]).unwrap();
        assert!(claims.take(vec![(key(), Mode::Look)]).is_none(), "both modes together mean Alone");
        claims.release(alone);
        assert!(claims.take(vec![(key(), Mode::Alone)]).is_some());
    }
}
