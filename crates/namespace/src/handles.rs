//! Open files. They exist in memory only: after a restart clients open them again (`Reopen`).

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;
use sheen_wire::{
    self as wire, Errno, Fid,
    mds::{Opener, flags},
};

use crate::access::{READ, WRITE};

/// Id of a client's export, valid while the connection lasts. Open files belong to it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClientId(pub u64);

/// One open file of one client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenFile {
    pub client: ClientId,
    pub fid: Fid,
    pub flags: u32,
    pub opener: Opener,
    /// The changelog has a record of the open, or of another one that is still open, of the same
    /// user with the same flags.
    pub is_recorded: bool,
}

impl OpenFile {
    /// Opens that have this in common have one record in the changelog.
    fn recorded_as(&self) -> (Fid, Opener, u32) {
        (self.fid, self.opener, self.flags)
    }
}

/// Invariant: `by_client`, `opens`, `running` and `recorded` agree with `files`.
#[derive(Debug)]
pub(crate) struct Handles {
    next: u64,
    per_client_max: usize,
    files: FxHashMap<u64, OpenFile>,
    by_client: FxHashMap<ClientId, BTreeSet<u64>>,
    /// Handles of clients that are opening all their files again, from before they began.
    before: FxHashMap<ClientId, BTreeSet<u64>>,
    opens: FxHashMap<Fid, Opens>,
    /// Number of `files` that are open for execution.
    running: usize,
    /// Numbers of `files` that the changelog has recorded. Empty while it does not record opens.
    recorded: FxHashMap<(Fid, Opener, u32), u32>,
}

/// Opens of a file by one client: in total, for reading or execution, for writing, for execution.
#[derive(Clone, Copy, Debug)]
struct Count {
    client: ClientId,
    opens: u32,
    reads: u32,
    writes: u32,
    runs: u32,
}

/// Whether an open with these flags gives the bytes.
fn reads(flags: u32) -> bool {
    flags::reads(flags) || flags & flags::EXEC != 0
}

impl Count {
    fn none(client: ClientId) -> Count {
        Count { client, opens: 0, reads: 0, writes: 0, runs: 0 }
    }

    fn add(&mut self, flags: u32) {
        self.opens += 1;
        self.reads += u32::from(reads(flags));
        self.writes += u32::from(flags::writes(flags));
        self.runs += u32::from(flags & flags::EXEC != 0);
    }

    fn remove(&mut self, flags: u32) {
        self.opens -= 1;
        self.reads -= u32::from(reads(flags));
        self.writes -= u32::from(flags::writes(flags));
        self.runs -= u32::from(flags & flags::EXEC != 0);
    }
}

/// Opens of a file by client. One client alone needs no further allocation; most files have only
/// one.
#[derive(Debug)]
struct Opens {
    first: Count,
    others: Vec<Count>,
}

impl Opens {
    fn counts(&self) -> impl Iterator<Item = &Count> {
        std::iter::once(&self.first).chain(&self.others)
    }

    fn of(&mut self, client: ClientId) -> Option<&mut Count> {
        std::iter::once(&mut self.first).chain(&mut self.others).find(|count| count.client == client)
    }

    fn add(&mut self, client: ClientId, flags: u32) {
        match self.of(client) {
            Some(count) => count.add(flags),
            None => {
                let mut count = Count::none(client);
                count.add(flags);
                self.others.push(count);
            }
        }
    }

    /// Removes an open; returns whether none is left.
    fn remove(&mut self, client: ClientId, flags: u32) -> bool {
        if let Some(count) = self.of(client) {
            count.remove(flags);
        }
        self.others.retain(|count| count.opens > 0);
        if self.first.opens > 0 {
            return false;
        }
        match self.others.pop() {
            Some(other) => self.first = other,
            None => return true,
        }
        false
    }
}

impl Handles {
    /// `random`: start of the handle numbers, so that handles from before a restart are unknown.
    pub(crate) fn new(random: u64, per_client_max: usize) -> Handles {
        Handles {
            next: random,
            per_client_max,
            files: FxHashMap::default(),
            by_client: FxHashMap::default(),
            before: FxHashMap::default(),
            opens: FxHashMap::default(),
            running: 0,
            recorded: FxHashMap::default(),
        }
    }

    /// Checks whether the client may open one more file: else ENFILE.
    pub(crate) fn check_room(&self, client: ClientId) -> wire::Result<()> {
        let count = |of: &FxHashMap<ClientId, BTreeSet<u64>>| of.get(&client).map_or(0, BTreeSet::len);
        let open = count(&self.by_client).saturating_sub(count(&self.before));
        if open < self.per_client_max { Ok(()) } else { Err(Errno::ENFILE) }
    }

    /// Opens a file of which the user is not known.
    pub(crate) fn open(&mut self, client: ClientId, fid: Fid, flags: u32) -> u64 {
        self.open_as(client, fid, flags, Opener::UNKNOWN)
    }

    /// Opens a file for a user.
    pub(crate) fn open_as(&mut self, client: ClientId, fid: Fid, flags: u32, opener: Opener) -> u64 {
        loop {
            self.next = self.next.wrapping_add(1);
            // 0 is NO_HANDLE.
            if self.next != 0 && !self.files.contains_key(&self.next) {
                break;
            }
        }
        self.files.insert(self.next, OpenFile { client, fid, flags, opener, is_recorded: false });
        self.by_client.entry(client).or_default().insert(self.next);
        let none = || Opens { first: Count::none(client), others: Vec::new() };
        self.opens.entry(fid).or_insert_with(none).add(client, flags);
        self.running += usize::from(flags & flags::EXEC != 0);
        self.next
    }

    /// Returns the client's open file `handle`, which must be of `fid`: else EBADF.
    pub(crate) fn get(&self, client: ClientId, fid: Fid, handle: u64) -> wire::Result<OpenFile> {
        match self.files.get(&handle) {
            Some(file) if file.client == client && file.fid == fid => Ok(*file),
            _ => Err(Errno::EBADF),
        }
    }

    /// Counts an open as recorded in the changelog. Returns whether the user has no other such open
    /// of the file with these flags.
    pub(crate) fn count_recorded(&mut self, handle: u64) -> bool {
        let Some(file) = self.files.get_mut(&handle).filter(|file| !file.is_recorded) else { return false };
        file.is_recorded = true;
        let count = self.recorded.entry(file.recorded_as()).or_default();
        *count += 1;
        *count == 1
    }

    /// Whether an open that the changelog has recorded is the last one of its user with its flags.
    pub(crate) fn is_last_recorded(&self, file: &OpenFile) -> bool {
        file.is_recorded && self.recorded.get(&file.recorded_as()) == Some(&1)
    }

    fn uncount_recorded(&mut self, file: &OpenFile) {
        if !file.is_recorded {
            return;
        }
        if let Some(count) = self.recorded.get_mut(&file.recorded_as()) {
            *count -= 1;
            if *count == 0 {
                self.recorded.remove(&file.recorded_as());
            }
        }
    }

    /// Returns the rights by a client's open files of a FID: bits of [`READ`] and [`WRITE`].
    pub(crate) fn rights(&self, client: ClientId, fid: Fid) -> u32 {
        let count = self.opens.get(&fid).and_then(|opens| opens.counts().find(|count| count.client == client));
        let Some(count) = count else { return 0 };
        let writes = if count.writes > 0 { WRITE } else { 0 };
        writes | if count.reads > 0 { READ } else { 0 }
    }

    /// Closes a handle; returns whether the file is no longer open.
    pub(crate) fn close(&mut self, handle: u64) -> bool {
        let Some(file) = self.files.remove(&handle) else { return false };
        self.uncount_recorded(&file);
        if let Some(of_client) = self.by_client.get_mut(&file.client) {
            of_client.remove(&handle);
            if of_client.is_empty() {
                self.by_client.remove(&file.client);
                self.before.remove(&file.client);
            }
        }
        let Some(opens) = self.opens.get_mut(&file.fid) else { return false };
        let last = opens.remove(file.client, file.flags);
        self.running -= usize::from(file.flags & flags::EXEC != 0);
        if last {
            self.opens.remove(&file.fid);
        }
        last
    }

    pub(crate) fn has_running(&self) -> bool {
        self.running > 0
    }

    pub(crate) fn is_open(&self, fid: Fid) -> bool {
        self.opens.contains_key(&fid)
    }

    /// Whether a client for which `of` returns true has the file open.
    pub(crate) fn is_open_by(&self, fid: Fid, of: impl Fn(ClientId) -> bool) -> bool {
        self.opens.get(&fid).is_some_and(|opens| opens.counts().any(|count| of(count.client)))
    }

    /// Whether a client other than these two has the file open, or `once` has it open more than
    /// once.
    pub(crate) fn is_open_elsewhere(&self, fid: Fid, once: ClientId, internal: ClientId) -> bool {
        let counts = |count: &Count| count.client != internal && (count.client != once || count.opens > 1);
        self.opens.get(&fid).is_some_and(|opens| opens.counts().any(counts))
    }

    /// Whether a client other than this one has the file open for writing.
    pub(crate) fn is_written_by_another(&self, fid: Fid, client: ClientId) -> bool {
        let counts = |count: &Count| count.client != client && count.writes > 0;
        self.opens.get(&fid).is_some_and(|opens| opens.counts().any(counts))
    }

    /// Whether a client, other than the one given, has the file open for execution.
    pub(crate) fn is_executed_by_another(&self, fid: Fid, client: Option<ClientId>) -> bool {
        let counts = |count: &Count| Some(count.client) != client && count.runs > 0;
        // Called for each file of a listing, so the usual case must be fast.
        self.running > 0 && self.opens.get(&fid).is_some_and(|opens| opens.counts().any(counts))
    }

    /// Begins to open all files of a client anew.
    pub(crate) fn begin_anew(&mut self, client: ClientId) {
        if let Some(handles) = self.by_client.get(&client) {
            self.before.insert(client, handles.clone());
        }
    }

    /// Returns the handles of before [`Handles::begin_anew`], with their files.
    pub(crate) fn end_anew(&mut self, client: ClientId) -> Vec<(u64, Fid)> {
        let handles = self.before.remove(&client).unwrap_or_default();
        handles.into_iter().filter_map(|h| self.files.get(&h).map(|f| (h, f.fid))).collect()
    }

    /// Returns the handles of a client with their files, in order of opening.
    pub(crate) fn of(&self, client: ClientId) -> Vec<(u64, Fid)> {
        let handles = self.by_client.get(&client).into_iter().flatten();
        handles.filter_map(|h| self.files.get(h).map(|f| (*h, f.fid))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_stays_open_until_every_client_closes_it() {
        let mut handles = Handles::new(7, 100);
        let (f, g) = (Fid::new(1, 1), Fid::new(1, 2));
        let by = |handles: &Handles, fid| [1, 2, 3].map(|n| handles.is_open_by(fid, |c| c == ClientId(n)));
        let opens = [1, 2, 3, 1, 2].map(|n| handles.open(ClientId(n), f, 0));
        let other = handles.open(ClientId(3), g, 0);
        assert_eq!((by(&handles, f), by(&handles, g)), ([true; 3], [false, false, true]));
        assert!(!handles.close(opens[0]) && by(&handles, f)[0], "it has it open once more");
        assert!(!handles.close(opens[3]));
        assert_eq!(by(&handles, f), [false, true, true]);
        assert!(!handles.close(opens[2]) && !handles.close(opens[4]) && !handles.close(opens[4]));
        assert_eq!(by(&handles, f), [false, true, false]);
        assert!(
            !handles.is_open_elsewhere(f, ClientId(2), ClientId(0))
                && handles.is_open_elsewhere(f, ClientId(3), ClientId(0))
        );
        assert!(!handles.is_open_elsewhere(f, ClientId(3), ClientId(2)));
        let again = handles.open(ClientId(2), f, 0);
        assert!(handles.is_open_elsewhere(f, ClientId(2), ClientId(0)) && !handles.close(again));
        assert!(handles.close(opens[1]) && !handles.is_open(f) && handles.close(other));
        assert_eq!((by(&handles, f), by(&handles, g)), ([false; 3], [false; 3]));
    }

    #[test]
    fn recorded_opens_are_counted_by_user_and_flags() {
        let mut handles = Handles::new(7, 100);
        let (f, me) = (Fid::new(1, 1), ClientId(1));
        let opener = |uid| Opener { uid, gid: 5 };
        let mut open = |uid, flags| {
            let handle = handles.open_as(me, f, flags, opener(uid));
            (handle, handles.count_recorded(handle))
        };
        let opens = [open(1, flags::RDONLY), open(1, flags::RDONLY), open(1, flags::RDWR), open(2, flags::RDONLY)];
        assert_eq!(opens.map(|(_, is_first)| is_first), [true, false, true, true]);
        let plain = handles.open_as(me, f, flags::RDONLY, opener(1));
        let is_last = |handles: &Handles, handle| handles.is_last_recorded(&handles.get(me, f, handle).unwrap());
        assert!(!is_last(&handles, opens[0].0) && is_last(&handles, opens[2].0) && !is_last(&handles, plain));
        assert!(!handles.count_recorded(opens[0].0), "it is counted");
        handles.close(plain);
        assert!(!is_last(&handles, opens[0].0), "an open that is not recorded does not count");
        handles.close(opens[0].0);
        assert!(is_last(&handles, opens[1].0));
        for (handle, _) in &opens[1..] {
            handles.close(*handle);
        }
        assert!(handles.recorded.is_empty());
    }

    #[test]
    fn exec_and_write_opens_are_counted_until_close() {
        let mut handles = Handles::new(7, 100);
        let (f, me, other) = (Fid::new(1, 1), ClientId(1), ClientId(2));
        let plain = handles.open(me, f, flags::RDONLY);
        let runs = [handles.open(me, f, flags::EXEC), handles.open(me, f, flags::EXEC)];
        let writes = handles.open(other, f, flags::RDWR);
        assert!(
            handles.is_executed_by_another(f, None)
                && handles.is_executed_by_another(f, Some(other))
                && !handles.is_executed_by_another(f, Some(me))
        );
        assert!(handles.is_written_by_another(f, me) && !handles.is_written_by_another(f, other));
        assert!(!handles.close(runs[0]) && handles.is_executed_by_another(f, None), "once more");
        assert!(!handles.close(runs[1]) && !handles.is_executed_by_another(f, None));
        assert!(!handles.close(writes) && !handles.is_written_by_another(f, me));
        assert!(handles.close(plain) && handles.running == 0);
    }
}
