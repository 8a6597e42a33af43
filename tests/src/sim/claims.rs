//! Which operations may run at the same time without making each other's results a matter of
//! chance.
//!
//! The model knows one answer to each operation, so the test keeps operations apart that could see
//! each other half done (what happens when they meet is the subject of [`super::race`]). An
//! operation claims what it looks at and what it changes; it starts when its claims fit those of
//! the operations under way. What commutes (two creates in one directory, two writes to different
//! chunks of a file) shares a mode and runs together.

use std::collections::BTreeMap;

use sheen_wire::Fid;

/// Something that an operation looks at or changes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Key {
    /// Where directories lie in the tree.
    Tree,
    /// A file or directory.
    Inode(Fid),
    /// A name in a directory, whether it exists or not.
    Name(Fid, String),
    /// A chunk of a file's bytes.
    Chunk(Fid, u64),
    /// An open file, by its number.
    Handle(u64),
    /// How a file is striped, which changes nothing else.
    Layout(Fid),
}

/// How. Claims of one mode fit each other, of different modes they do not; `Alone` fits nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Changes it.
    Alone,
    /// Looks at it.
    Look,
    /// Uses or changes some of a directory's entries.
    Entries,
    /// Writes some of a file's chunks.
    Chunks,
}

/// What an operation claims.
pub type Wanted = Vec<(Key, Mode)>;

/// What the operations under way claim.
#[derive(Default, Debug)]
pub struct Claims(BTreeMap<Key, (Mode, u32)>);

/// Claims that were granted; to be given back.
#[derive(Debug)]
pub struct Granted(BTreeMap<Key, Mode>);

impl Granted {
    /// What is claimed.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.0.keys()
    }
}

impl Claims {
    /// Takes all of `wanted` if it fits. What is wanted in two modes is wanted alone.
    pub fn take(&mut self, wanted: Wanted) -> Option<Granted> {
        let mut merged = BTreeMap::new();
        for (key, mode) in wanted {
            let kept = merged.entry(key).or_insert(mode);
            if *kept != mode {
                *kept = Mode::Alone;
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

    /// Gives claims back.
    pub fn give_back(&mut self, granted: Granted) {
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
    fn only_what_commutes_runs_together() {
        let mut claims = Claims::default();
        let key = || Key::Tree;
        let a = claims.take(vec![(key(), Mode::Look)]).unwrap();
        let b = claims.take(vec![(key(), Mode::Look)]).unwrap();
        assert!(claims.take(vec![(key(), Mode::Entries)]).is_none());
        claims.give_back(a);
        assert!(claims.take(vec![(key(), Mode::Alone)]).is_none());
        claims.give_back(b);
        let alone = claims.take(vec![(key(), Mode::Look), (key(), Mode::Entries)]).unwrap();
        assert!(claims.take(vec![(key(), Mode::Look)]).is_none(), "both modes at once are as good as alone");
        claims.give_back(alone);
        assert!(claims.take(vec![(key(), Mode::Alone)]).is_some());
    }
}
