//! The record of a run: a running hash of all events and, if configured, the last events as text.

use std::{
    collections::VecDeque,
    fmt::Debug,
    hash::{Hash, Hasher},
};

use rustc_hash::FxHasher;

use crate::Instant;

/// A recorded event. Connections, tasks and files are identified by their numbers.
#[derive(Debug, Hash)]
pub(crate) enum Note<'a> {
    Spawn { task: u64, host: u32, name: &'a str },
    Poll { task: u64, name: &'a str },
    End { task: u64, name: &'a str },
    Timer,
    Message { what: &'a str },
    Connect { conn: u64, from: u32, to: u32 },
    Established { conn: u64 },
    Refused { conn: u64 },
    Packet { conn: u64, to: u32, len: usize, digest: u64 },
    Fin { conn: u64, to: u32 },
    Lost { conn: u64 },
    Reset { conn: u64, end: usize, errno: i32 },
    Partition { a: u32, b: u32 },
    Heal { a: u32, b: u32 },
    Crash { host: u32, names_durable: usize, names_lost: usize },
    Torn { file: u64, survived: usize, lost: usize, torn: usize },
    Sync { host: u32, file: u64, ops: usize },
    SyncNames { host: u32, ops: usize },
}

pub(crate) struct Trace {
    hash: u64,
    lines: VecDeque<String>,
    lines_max: usize,
}

impl Trace {
    pub(crate) fn new(lines_max: usize) -> Trace {
        Trace { hash: 0, lines: VecDeque::new(), lines_max }
    }

    pub(crate) fn note(&mut self, at: Instant, note: &Note<'_>) {
        let mut hasher = FxHasher::default();
        (self.hash, at, note).hash(&mut hasher);
        self.hash = hasher.finish();
        if self.lines_max > 0 {
            if self.lines.len() == self.lines_max {
                self.lines.pop_front();
            }
            self.lines.push_back(format!("{at:?} {note:?}"));
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.iter().cloned().collect()
    }
}

/// Returns a hash of a packet's content, so that two runs whose packets differ in one byte have
/// different traces.
pub(crate) fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(bytes);
    hasher.finish()
}
