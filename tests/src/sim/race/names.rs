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
pub enum NameRequest {
    /// Lookup of a name.
    Lookup(Name),
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
pub enum NameReply {
    /// Nothing.
    Done,
    /// A file.
    File(Fid),
    /// A link count.
    Count(u32),
}

/// A request with its reply.
#[derive(Clone, Copy, Debug)]
pub struct NameOp {
    /// Its time.
    pub span: Span,
    /// Index of its client.
    pub client: usize,
    /// The request.
    pub ask: NameRequest,
    /// The reply. `None`: unknown.
    pub answer: Option<Result<NameReply, Errno>>,
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
    fn fits(&mut self, asked: &NameOp) -> bool {
        let Some(answer) = asked.answer else {
            self.unknown(asked);
            return true;
        };
        let right = match asked.ask {
            NameRequest::Lookup(name) => self.names.get(&name).map(|f| NameReply::File(*f)).ok_or(Errno::ENOENT),
            NameRequest::Links(fid) => match self.links(fid) {
                0 => Err(Errno::ENOENT),
                n => Ok(NameReply::Count(n)),
            },
            NameRequest::Create(name, excl) => match (self.names.get(&name), answer) {
                (Some(_), _) if excl => Err(Errno::EEXIST),
                (Some(fid), _) => Ok(NameReply::File(*fid)),
                // The reply determines the FID of the new file. A file that already has a name
                // cannot be the new one.
                (None, Ok(NameReply::File(fid))) if self.links(fid) == 0 => {
                    self.names.insert(name, fid);
                    answer
                }
                (None, _) => return false,
            },
            NameRequest::Unlink(name) => self.names.remove(&name).map(|_| NameReply::Done).ok_or(Errno::ENOENT),
            NameRequest::Link(fid, name) => match (self.links(fid), self.names.contains_key(&name)) {
                // Both errors apply. POSIX does not fix which check comes first.
                (0, true) if answer == Err(Errno::EEXIST) => answer,
                (0, _) => Err(Errno::ENOENT),
                (_, true) => Err(Errno::EEXIST),
                _ => {
                    self.names.insert(name, fid);
                    Ok(NameReply::File(fid))
                }
            },
            NameRequest::Rename(from, to, flags) => self.rename(from, to, flags),
        };
        right == answer
    }

    fn rename(&mut self, from: Name, to: Name, flags: u32) -> Result<NameReply, Errno> {
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
        Ok(NameReply::Done)
    }

    /// Executes the operation without checking a reply.
    fn unknown(&mut self, asked: &NameOp) {
        match asked.ask {
            NameRequest::Unlink(name) => drop(self.names.remove(&name)),
            NameRequest::Rename(from, to, flags) => drop(self.rename(from, to, flags)),
            NameRequest::Link(fid, name) if self.links(fid) > 0 => {
                self.names.entry(name).or_insert(fid);
            }
            // The new file's FID is unknown, but the file occupies the name.
            NameRequest::Create(name, _) => {
                self.names.entry(name).or_insert(Fid::new(u64::MAX, asked.span.from as u32));
            }
            _ => {}
        }
    }
}

impl NameRequest {
    fn looks(&self) -> bool {
        matches!(self, NameRequest::Lookup(_) | NameRequest::Links(_))
    }

    /// Returns whether the operation may have changed something, given its reply.
    fn changes(&self, answer: Option<Result<NameReply, Errno>>) -> bool {
        !self.looks() && !matches!(answer, Some(Err(_)))
    }
}

impl Step for NameOp {
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
pub fn check(history: &[NameOp]) -> Verdict {
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

    fn asked(from: u64, to: u64, ask: NameRequest, answer: Result<NameReply, Errno>) -> NameOp {
        NameOp { span: Span { from, to }, client: 0, ask, answer: Some(answer) }
    }

    fn file(n: u32) -> Result<NameReply, Errno> {
        Ok(NameReply::File(fid(n)))
    }

    fn legal(history: &[NameOp]) -> bool {
        match check(history) {
            Verdict::Legal => true,
            Verdict::Illegal(_) => false,
            Verdict::Unknown => panic!("the history is short enough to be decided"),
        }
    }

    #[test]
    fn sequential_operations_have_one_legal_result() {
        let made = asked(1, 2, NameRequest::Create(A, true), file(1));
        assert!(legal(&[made, asked(3, 4, NameRequest::Lookup(A), file(1))]));
        assert!(!legal(&[made, asked(3, 4, NameRequest::Lookup(A), Err(Errno::ENOENT))]));
        assert!(!legal(&[made, asked(3, 4, NameRequest::Create(A, true), file(2))]), "created twice");
        assert!(legal(&[made, asked(3, 4, NameRequest::Create(A, false), file(1))]));
        let moved = asked(3, 4, NameRequest::Rename(A, B, 0), Ok(NameReply::Done));
        assert!(legal(&[made, moved, asked(5, 6, NameRequest::Lookup(B), file(1))]));
        assert!(!legal(&[made, moved, asked(5, 6, NameRequest::Lookup(A), file(1))]));
        let linked = asked(3, 4, NameRequest::Link(fid(1), B), file(1));
        assert!(legal(&[made, linked, asked(5, 6, NameRequest::Links(fid(1)), Ok(NameReply::Count(2)))]));
        assert!(legal(&[
            made,
            linked,
            asked(5, 6, NameRequest::Rename(A, B, 0), Ok(NameReply::Done)),
            asked(7, 8, NameRequest::Lookup(A), file(1))
        ]));
    }

    #[test]
    fn concurrent_operations_may_take_effect_in_any_order() {
        let made = asked(1, 9, NameRequest::Create(A, true), file(1));
        let other = asked(2, 8, NameRequest::Create(A, true), Err(Errno::EEXIST));
        assert!(legal(&[made, other]));
        assert!(legal(&[
            made,
            asked(3, 4, NameRequest::Lookup(A), Err(Errno::ENOENT)),
            asked(5, 6, NameRequest::Lookup(A), file(1))
        ]));
        assert!(!legal(&[
            made,
            asked(3, 4, NameRequest::Lookup(A), file(1)),
            asked(5, 6, NameRequest::Lookup(A), Err(Errno::ENOENT))
        ]));
        assert!(!legal(&[other]), "no client created it");
        // All clients see the exchange of two names in the same order.
        let both =
            [asked(1, 2, NameRequest::Create(A, true), file(1)), asked(3, 4, NameRequest::Create(B, true), file(2))];
        let swap = asked(5, 20, NameRequest::Rename(A, B, rename::EXCHANGE), Ok(NameReply::Done));
        let looks = |a, b| [asked(6, 7, NameRequest::Lookup(A), file(a)), asked(8, 9, NameRequest::Lookup(B), file(b))];
        let with = |a, b| [&both[..], &[swap], &looks(a, b)].concat();
        assert!(legal(&with(1, 2)) && legal(&with(2, 1)) && legal(&with(1, 1)));
        assert!(!legal(&with(2, 2)));
    }

    #[test]
    fn operation_without_a_reply_may_have_been_executed() {
        let made = asked(1, 2, NameRequest::Create(A, true), file(1));
        let unknown = NameOp { answer: None, ..asked(3, Span::NEVER, NameRequest::Unlink(A), Ok(NameReply::Done)) };
        let there = |from, to| asked(from, to, NameRequest::Lookup(A), file(1));
        let absent = |from, to| asked(from, to, NameRequest::Lookup(A), Err(Errno::ENOENT));
        assert!(legal(&[made, unknown, there(5, 6)]) && legal(&[made, unknown, there(5, 6), absent(7, 8)]));
        assert!(!legal(&[made, unknown, absent(5, 6), there(7, 8)]));
    }
}
