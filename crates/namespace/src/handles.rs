//! Open files. They live in memory only: after a restart clients open them anew (`Reopen`).

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;
use sheen_wire::{self as wire, Errno, Fid};

use crate::ClientId;

/// One open file of one client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenFile {
    pub client: ClientId,
    pub fid: Fid,
    pub flags: u32,
}

/// Invariant: `by_client` and `opens` say the same as `files`.
#[derive(Debug)]
pub(crate) struct Handles {
    next: u64,
    per_client_max: usize,
    files: FxHashMap<u64, OpenFile>,
    by_client: FxHashMap<ClientId, BTreeSet<u64>>,
    /// How often a file is open.
    opens: FxHashMap<Fid, u32>,
}

impl Handles {
    /// `random`: where numbering starts, so that handles of an earlier life mean nothing in this one.
    pub(crate) fn new(random: u64, per_client_max: usize) -> Handles {
        Handles {
            next: random,
            per_client_max,
            files: FxHashMap::default(),
            by_client: FxHashMap::default(),
            opens: FxHashMap::default(),
        }
    }

    /// Whether the client may open one more file: ENFILE.
    pub(crate) fn check_room(&self, client: ClientId) -> wire::Result<()> {
        let open = self.by_client.get(&client).map_or(0, BTreeSet::len);
        if open < self.per_client_max { Ok(()) } else { Err(Errno::ENFILE) }
    }

    pub(crate) fn open(&mut self, client: ClientId, fid: Fid, flags: u32) -> u64 {
        loop {
            self.next = self.next.wrapping_add(1);
            // 0 is NO_HANDLE.
            if self.next != 0 && !self.files.contains_key(&self.next) {
                break;
            }
        }
        self.files.insert(self.next, OpenFile { client, fid, flags });
        self.by_client.entry(client).or_default().insert(self.next);
        *self.opens.entry(fid).or_insert(0) += 1;
        self.next
    }

    /// The client's open file `handle`, which must be of `fid`: else EBADF.
    pub(crate) fn get(&self, client: ClientId, fid: Fid, handle: u64) -> wire::Result<OpenFile> {
        match self.files.get(&handle) {
            Some(file) if file.client == client && file.fid == fid => Ok(*file),
            _ => Err(Errno::EBADF),
        }
    }

    /// Closes; answers whether the file is open no more.
    pub(crate) fn close(&mut self, handle: u64) -> bool {
        let Some(file) = self.files.remove(&handle) else { return false };
        if let Some(of_client) = self.by_client.get_mut(&file.client) {
            of_client.remove(&handle);
            if of_client.is_empty() {
                self.by_client.remove(&file.client);
            }
        }
        let Some(opens) = self.opens.get_mut(&file.fid) else { return false };
        *opens -= 1;
        let last = *opens == 0;
        if last {
            self.opens.remove(&file.fid);
        }
        last
    }

    pub(crate) fn is_open(&self, fid: Fid) -> bool {
        self.opens.contains_key(&fid)
    }

    /// Whether a client of which `of` holds has the file open. Looks at all open files.
    pub(crate) fn is_open_by(&self, fid: Fid, of: impl Fn(ClientId) -> bool) -> bool {
        // The order is not to be seen.
        self.is_open(fid) && self.files.values().any(|file| file.fid == fid && of(file.client))
    }

    /// Handles of a client with their files, in order of opening.
    pub(crate) fn of(&self, client: ClientId) -> Vec<(u64, Fid)> {
        let handles = self.by_client.get(&client).into_iter().flatten();
        handles.filter_map(|h| self.files.get(h).map(|f| (*h, f.fid))).collect()
    }
}
