//! What was asked and answered in a run, written down as it happens.

use super::{
    bytes::{Change, Changed, History, Seen},
    log::{Append, Log},
    names::{Ask, Asked, Told},
    span::Span,
    turns::Turn,
};
use sheen_wire::Errno;

/// An fsync, or a write with O_SYNC.
#[derive(Clone, Copy, Debug)]
pub struct Synced {
    /// When.
    pub span: Span,
    /// Whose.
    pub client: usize,
    /// Of which file; the log is number [`LOG`].
    pub file: usize,
    /// Whether it is a write.
    pub write: bool,
    /// Whether it promised anything.
    pub done: bool,
}

/// Errors that a client may tell a program which has been given up, or is cut off.
pub const TROUBLES: [Errno; 6] =
    [Errno::EBADF, Errno::EIO, Errno::ESTALE, Errno::ENOTCONN, Errno::ETIMEDOUT, Errno::ESHUTDOWN];

/// The log's number among the files.
pub const LOG: usize = usize::MAX;

/// A time in which a client may not have heard what others did, and after which what it had not
/// synced may be gone.
#[derive(Clone, Copy, Debug)]
pub struct Trouble {
    /// Whose.
    pub client: usize,
    /// Since when.
    pub from: u64,
    /// When it had heard from all servers again; [`Span::NEVER`] if it died.
    pub until: u64,
}

/// See the module.
#[derive(Default)]
pub struct Record {
    /// By file.
    pub files: Vec<History>,
    /// Promises.
    pub synced: Vec<Synced>,
    /// Of names.
    pub names: Vec<Asked>,
    /// The file to which all append.
    pub log: Log,
    /// The program lock.
    pub turns: Vec<Turn>,
    /// Sequences of the FIDs that clients give, by client.
    pub seqs: Vec<u64>,
    /// What befell clients.
    pub troubles: Vec<Trouble>,
    /// The first two files exchanged their bytes: whose doing, and when.
    pub swaps: Vec<(usize, Span)>,
}

impl Record {
    /// A change begins. Returns its number.
    pub fn change(&mut self, file: usize, client: usize, from: u64, change: Change) -> usize {
        let span = Span { from, to: Span::NEVER };
        self.files[file].changes.push(Changed { span, client, change, lost: None });
        self.files[file].changes.len() - 1
    }

    /// Writes to a file; to all, if they may exchange their bytes.
    pub fn writes(&self, file: usize, swaps: bool) -> usize {
        let files = self.files.iter().enumerate().filter(|(n, _)| swaps || *n == file);
        let changes = files.flat_map(|(_, history)| &history.changes);
        changes.filter(|c| matches!(c.change, Change::Write { .. })).count()
    }

    /// It was done. (Of one that failed nobody knows what it did: it stays unanswered.)
    pub fn changed(&mut self, file: usize, number: usize, to: u64) {
        self.files[file].changes[number].span.to = to;
    }

    /// An append begins. Returns its place in the log's list.
    pub fn append(&mut self, client: usize, from: u64, number: u32, len: usize) -> usize {
        let span = Span { from, to: Span::NEVER };
        self.log.appends.push(Append { span, client, number, len, lost: false });
        self.log.appends.len() - 1
    }

    /// An operation on names begins. Returns its number.
    pub fn ask(&mut self, client: usize, from: u64, ask: Ask) -> usize {
        self.names.push(Asked { span: Span { from, to: Span::NEVER }, client, ask, answer: None });
        self.names.len() - 1
    }

    /// It was answered.
    pub fn answered(&mut self, number: usize, to: u64, answer: Result<Told, Errno>) {
        let asked = &mut self.names[number];
        (asked.span.to, asked.answer) = (to, Some(answer));
    }

    /// Somebody saw a name, or did not find it.
    pub fn looked(&mut self, client: usize, span: Span, ask: Ask, answer: Result<Told, Errno>) {
        self.names.push(Asked { span, client, ask, answer: Some(answer) });
    }

    /// Somebody saw a part of a file.
    pub fn saw(&mut self, file: usize, seen: Seen) {
        self.files[file].seen.push(seen);
    }

    /// Whether the client's operations may fail at present.
    pub fn is_troubled(&self, client: usize, span: Span) -> bool {
        self.troubles.iter().any(|t| t.client == client && t.from < span.to && span.from < t.until)
    }

    /// Whether what befell the client explains the error.
    pub fn excuses(&self, client: usize, span: Span, errno: Errno) -> bool {
        let may = TROUBLES.contains(&errno) && self.is_troubled(client, span);
        // Later it is still told that files which were open then are not any more, and by a sync
        // what was lost.
        let told = [Errno::EIO, Errno::EBADF].contains(&errno);
        may || told && self.troubles.iter().any(|t| t.client == client)
    }
}
