//! The record of a run: all requests and replies, written while the race runs.

use super::{
    bytes::{Changed, FileChange, History, Seen},
    fcntl_locks::Turn,
    log::{Append, Log},
    names::{NameOp, NameReply, NameRequest},
    span::Span,
};
use sheen_wire::Errno;

/// An fsync, or a write with O_SYNC.
#[derive(Clone, Copy, Debug)]
pub struct Synced {
    /// Its time.
    pub span: Span,
    /// Index of its client.
    pub client: usize,
    /// Number of the file. The log has number [`LOG`].
    pub file: usize,
    /// Whether it is a write.
    pub write: bool,
    /// Whether it succeeded.
    pub done: bool,
}

/// Errors that a client may return to programs if it was evicted or is disconnected.
pub const TROUBLES: [Errno; 6] =
    [Errno::EBADF, Errno::EIO, Errno::ESTALE, Errno::ENOTCONN, Errno::ETIMEDOUT, Errno::ESHUTDOWN];

/// Number of the log among the files.
pub const LOG: usize = usize::MAX;

/// A period in which a client may have had outdated data. Data that the client wrote before its end
/// and did not sync may be lost.
#[derive(Clone, Copy, Debug)]
pub struct Trouble {
    /// Index of the client.
    pub client: usize,
    /// Start of the period.
    pub from: u64,
    /// The time at which the client had reached all servers again; [`Span::NEVER`] if it died.
    pub until: u64,
}

/// The record of a run.
#[derive(Default)]
pub struct Record {
    /// Operations on data, by file.
    pub files: Vec<History>,
    /// All syncs.
    pub synced: Vec<Synced>,
    /// Operations on names.
    pub names: Vec<NameOp>,
    /// The file to which all programs append.
    pub log: Log,
    /// The periods in which programs held the fcntl lock.
    pub turns: Vec<Turn>,
    /// FID sequences of the clients, by client.
    pub seqs: Vec<u64>,
    /// Deaths and disconnections of clients.
    pub troubles: Vec<Trouble>,
    /// Swaps of the first two files: client and time.
    pub swaps: Vec<(usize, Span)>,
}

impl Record {
    /// Records the start of a change. Returns its number.
    pub fn change(&mut self, file: usize, client: usize, from: u64, change: FileChange) -> usize {
        let span = Span { from, to: Span::NEVER };
        self.files[file].changes.push(Changed { span, client, change, lost: None });
        self.files[file].changes.len() - 1
    }

    /// Returns the number of writes to a file. With `swaps`, of writes to all files, because their
    /// data may be exchanged.
    pub fn writes(&self, file: usize, swaps: bool) -> usize {
        let files = self.files.iter().enumerate().filter(|(n, _)| swaps || *n == file);
        let changes = files.flat_map(|(_, history)| &history.changes);
        changes.filter(|c| matches!(c.change, FileChange::Write { .. })).count()
    }

    /// Records the success of a change. (A failed change has an unknown effect, so its end stays
    /// open.)
    pub fn changed(&mut self, file: usize, number: usize, to: u64) {
        self.files[file].changes[number].span.to = to;
    }

    /// Records the start of an append. Returns its place in the log's list.
    pub fn append(&mut self, client: usize, from: u64, number: u32, len: usize) -> usize {
        let span = Span { from, to: Span::NEVER };
        self.log.appends.push(Append { span, client, number, len, lost: false });
        self.log.appends.len() - 1
    }

    /// Records the start of an operation on names. Returns its number.
    pub fn ask(&mut self, client: usize, from: u64, ask: NameRequest) -> usize {
        self.names.push(NameOp { span: Span { from, to: Span::NEVER }, client, ask, answer: None });
        self.names.len() - 1
    }

    /// Records the reply to an operation on names.
    pub fn answered(&mut self, number: usize, to: u64, answer: Result<NameReply, Errno>) {
        let asked = &mut self.names[number];
        (asked.span.to, asked.answer) = (to, Some(answer));
    }

    /// Records a lookup that found a name, or did not.
    pub fn looked(&mut self, client: usize, span: Span, ask: NameRequest, answer: Result<NameReply, Errno>) {
        self.names.push(NameOp { span, client, ask, answer: Some(answer) });
    }

    /// Records a read or a stat of a file.
    pub fn saw(&mut self, file: usize, seen: Seen) {
        self.files[file].seen.push(seen);
    }

    /// Returns whether the client's operations may fail during `span`.
    pub fn is_troubled(&self, client: usize, span: Span) -> bool {
        self.troubles.iter().any(|t| t.client == client && t.from < span.to && span.from < t.until)
    }

    /// Returns whether the client's trouble explains the error.
    pub fn excuses(&self, client: usize, span: Span, errno: Errno) -> bool {
        let may = TROUBLES.contains(&errno) && self.is_troubled(client, span);
        // After its trouble, a client still reports EBADF for files that were open during it, and a
        // sync reports EIO for lost data.
        let is_reported = [Errno::EIO, Errno::EBADF].contains(&errno);
        may || is_reported && self.troubles.iter().any(|t| t.client == client)
    }
}
