//! Names in directories: checks whether the operations on them have a legal order.
//!
//! A listing counts as one lookup of each name, in any order: it need not be a snapshot of one
//! moment.

use std::collections::BTreeMap;

use sheen_wire::{Errno, Fid, mds::rename};

use super::{
    search::{Step, Verdict, search},
    span::Span,
};

/// Choices after which a search stops. Real histories need some hundreds. A history with hundreds
/// of concurrent operations could take for ever.
const CHOICES_MAX: usize = 100_000;

/// A name: number of the directory, number of the name.
pub type Name = (u8, u8);

/// A request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ask {
    /// Lookup of a name.
    Look(Name),
    /// Link count of a file.
    Links(Fid),
    /// open(O_CREAT). The flag says whether O_EXCL is set.
    Create(Name, bool),
    /// unlink.
    Unlink(Name),
    /// link of an existing file.
    Link(Fid, Name),
    /// renameat2.
    Rename(Name, Name, u32),
}

/// Reply to a successful request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    /// Nothing.
    Done,
    /// A file.
    File(Fid),
    /// A link count.
    Count(u32),
}

/// A request with its reply.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Its time.
    pub span: Span,
    /// Index of its client.
    pub client: usize,
    /// The request.
    pub ask: Ask,
    /// The reply. `None`: unknown.
    pub answer: Option<Result<Told, Errno>>,
}

/// The names with their files.
#[derive(Clone, Default, Hash, Debug)]
pub struct State {
    names: BTreeMap<Name, Fid>,
}

impl State {
    fn links(&self, fid: Fid) -> u32 {
        self.names.values().filter(|f| **f == fid).count() as u32
    }

    /// Executes the operation on this state. Returns whether its reply is correct.
    fn fits(&mut self, asked: &Asked) -> bool {
        let Some(answer) = asked.answer else {
            self.unknown(asked);
            return true;
        };
        let right = match asked.ask {
            Ask::Look(name) => self.names.get(&name).map(|f| Told::File(*f)).ok_or(Errno::ENOENT),
            Ask::Links(fid) => match self.links(fid) {
                0 => Err(Errno::ENOENT),
                n => Ok(Told::Count(n)),
            },
            Ask::Create(name, excl) => match (self.names.get(&name), answer) {
                (Some(_), _) if excl => Err(Errno::EEXIST),
                (Some(fid), _) => Ok(Told::File(*fid)),
                // The reply determines the FID of the new file. A file that already has a name
                // cannot be the new one.
                (None, Ok(Told::File(fid))) if self.links(fid) == 0 => {
                    self.names.insert(name, fid);
                    answer
                }
                (None, _) => return false,
            },
            Ask::Unlink(name) => self.names.remove(&name).map(|_| Told::Done).ok_or(Errno::ENOENT),
            Ask::Link(fid, name) => match (self.links(fid), self.names.contains_key(&name)) {
                // Both errors apply. POSIX does not fix which check comes first.
                (0, true) if answer == Err(Errno::EEXIST) => answer,
                (0, _) => Err(Errno::ENOENT),
                (_, true) => Err(Errno::EEXIST),
                _ => {
                    self.names.insert(name, fid);
                    Ok(Told::File(fid))
                }
            },
            Ask::Rename(from, to, flags) => self.rename(from, to, flags),
        };
        right == answer
    }

    fn rename(&mut self, from: Name, to: Name, flags: u32) -> Result<Told, Errno> {
        let source = *self.names.get(&from).ok_or(Errno::ENOENT)?;
        let target = self.names.get(&to).copied();
        if flags & rename::NOREPLACE != 0 && target.is_some() {
            return Err(Errno::EEXIST);
        }
        if flags & rename::EXCHANGE != 0 {
            self.names.insert(from, target.ok_or(Errno::ENOENT)?);
        } else if target != Some(source) {
            self.names.remove(&from);
        }
        self.names.insert(to, source);
        Ok(Told::Done)
    }

    /// Executes the operation without checking a reply.
    fn unknown(&mut self, asked: &Asked) {
        match asked.ask {
            Ask::Unlink(name) => drop(self.names.remove(&name)),
            Ask::Rename(from, to, flags) => drop(self.rename(from, to, flags)),
            Ask::Link(fid, name) if self.links(fid) > 0 => drop(self.names.entry(name).or_insert(fid)),
            // The new file's FID is unknown, but the file occupies the name.
            Ask::Create(name, _) => drop(self.names.entry(name).or_insert(Fid::new(u64::MAX, asked.span.from as u32))),
            _ => {}
        }
    }
}

impl Ask {
    fn looks(&self) -> bool {
        matches!(self, Ask::Look(_) | Ask::Links(_))
    }

    /// Returns whether the operation may have changed something, given its reply.
    fn changes(&self, answer: Option<Result<Told, Errno>>) -> bool {
        !self.looks() && !matches!(answer, Some(Err(_)))
    }
}

impl Step for Asked {
    type State = State;

    fn span(&self) -> Span {
        self.span
    }

    fn fits(&self, state: &mut State) -> bool {
        state.fits(self)
    }

    fn changes(&self) -> bool {
        self.ask.changes(self.answer)
    }

    fn is_certain(&self) -> bool {
        self.answer.is_some()
    }
}

/// Searches for a legal order. The directories are empty at first.
pub fn check(history: &[Asked]) -> Verdict {
    search(history.to_vec(), CHOICES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Name = (0, 1);
    const B: Name = (0, 2);

    fn fid(n: u32) -> Fid {
        Fid::new(1, n)
    }

    fn asked(from: u64, to: u64, ask: Ask, answer: Result<Told, Errno>) -> Asked {
        Asked { span: Span { from, to }, client: 0, ask, answer: Some(answer) }
    }

    fn file(n: u32) -> Result<Told, Errno> {
        Ok(Told::File(fid(n)))
    }

    fn legal(history: &[Asked]) -> bool {
        match check(history) {
            Verdict::Legal => true,
            Verdict::Illegal(_) => false,
            Verdict::Unknown => panic!("the history is short enough to be decided"),
        }
    }

    #[test]
    fn sequential_operations_have_one_legal_result() {
        let made = asked(1, 2, Ask::Create(A, true), file(1));
        assert!(legal(&[made, asked(3, 4, Ask::Look(A), file(1))]));
        assert!(!legal(&[made, asked(3, 4, Ask::Look(A), Err(Errno::ENOENT))]));
        assert!(!legal(&[made, asked(3, 4, Ask::Create(A, true), file(2))]), "created twice");
        assert!(legal(&[made, asked(3, 4, Ask::Create(A, false), file(1))]));
        let moved = asked(3, 4, Ask::Rename(A, B, 0), Ok(Told::Done));
        assert!(legal(&[made, moved, asked(5, 6, Ask::Look(B), file(1))]));
        assert!(!legal(&[made, moved, asked(5, 6, Ask::Look(A), file(1))]));
        let linked = asked(3, 4, Ask::Link(fid(1), B), file(1));
        assert!(legal(&[made, linked, asked(5, 6, Ask::Links(fid(1)), Ok(Told::Count(2)))]));
        assert!(legal(&[
            made,
            linked,
            asked(5, 6, Ask::Rename(A, B, 0), Ok(Told::Done)),
            asked(7, 8, Ask::Look(A), file(1))
        ]));
    }

    #[test]
    fn concurrent_operations_may_take_effect_in_any_order() {
        let made = asked(1, 9, Ask::Create(A, true), file(1));
        let other = asked(2, 8, Ask::Create(A, true), Err(Errno::EEXIST));
        assert!(legal(&[made, other]));
        assert!(legal(&[made, asked(3, 4, Ask::Look(A), Err(Errno::ENOENT)), asked(5, 6, Ask::Look(A), file(1))]));
        assert!(!legal(&[made, asked(3, 4, Ask::Look(A), file(1)), asked(5, 6, Ask::Look(A), Err(Errno::ENOENT))]));
        assert!(!legal(&[other]), "no client created it");
        // All clients see the exchange of two names in the same order.
        let both = [asked(1, 2, Ask::Create(A, true), file(1)), asked(3, 4, Ask::Create(B, true), file(2))];
        let swap = asked(5, 20, Ask::Rename(A, B, rename::EXCHANGE), Ok(Told::Done));
        let looks = |a, b| [asked(6, 7, Ask::Look(A), file(a)), asked(8, 9, Ask::Look(B), file(b))];
        let with = |a, b| [&both[..], &[swap], &looks(a, b)].concat();
        assert!(legal(&with(1, 2)) && legal(&with(2, 1)) && legal(&with(1, 1)));
        assert!(!legal(&with(2, 2)));
    }

    #[test]
    fn operation_without_a_reply_may_have_been_executed() {
        let made = asked(1, 2, Ask::Create(A, true), file(1));
        let unknown = Asked { answer: None, ..asked(3, Span::NEVER, Ask::Unlink(A), Ok(Told::Done)) };
        let there = |from, to| asked(from, to, Ask::Look(A), file(1));
        let gone = |from, to| asked(from, to, Ask::Look(A), Err(Errno::ENOENT));
        assert!(legal(&[made, unknown, there(5, 6)]) && legal(&[made, unknown, there(5, 6), gone(7, 8)]));
        assert!(!legal(&[made, unknown, gone(5, 6), there(7, 8)]));
    }
}
