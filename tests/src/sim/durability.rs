//! Durability: which bytes and names a crash must not destroy, and which states it may leave
//! behind.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use sheen_wire::{Fid, mds::flags};

use super::{
    model::{Inode, Model},
    op::Op,
};

/// All durability guarantees given so far.
#[derive(Default)]
pub struct Durability {
    files: BTreeMap<Fid, Bytewise>,
    /// Names that are durable and that no operation has changed since.
    names: BTreeMap<(Fid, String), Fid>,
    /// All inodes that ever existed.
    known: BTreeSet<Fid>,
}

/// Contents that a regular file may have after a crash.
#[derive(Clone, Default)]
struct Bytewise {
    /// Data at the last sync. Empty if it was never synced.
    synced: Vec<u8>,
    /// Whether the file had a layout at that time.
    layout: bool,
    /// Changes since the last sync. Each may have reached the disks fully, partly or not at all.
    later: Vec<ContentChange>,
    /// Clients that have written since the last sync. Each may still have the data in its cache,
    /// where an fsync of another client does not reach it.
    writers: BTreeSet<usize>,
    /// A write has an unknown offset, so any content is possible.
    anything: bool,
}

#[derive(Clone)]
enum ContentChange {
    Write(u64, Bytes),
    Size(u64),
    Hole(u64, u64),
}

impl Durability {
    /// Records that everything is durable and no operation is running.
    pub fn all_synced(&mut self, model: &Model) {
        for (&fid, inode) in &model.inodes {
            self.sync(fid, inode);
        }
        self.names = model.names().map(|(dir, name, fid)| ((dir, name.clone()), fid)).collect();
    }

    fn sync(&mut self, fid: Fid, inode: &Inode) {
        self.known.insert(fid);
        let Some(bytes) = inode.bytes() else { return };
        let synced = Bytewise { synced: bytes.clone(), layout: inode.striping.is_some(), ..Bytewise::default() };
        self.files.insert(fid, synced);
    }

    /// Records the start of an operation: after a crash, the names that it touches may be in the
    /// old or the new state.
    pub fn begins(&mut self, op: &Op) {
        for (dir, name) in op.names_changed() {
            self.names.remove(&(dir, name.to_owned()));
        }
    }

    /// Records the end of an operation. Called before the model executes it.
    pub fn ends(&mut self, client: usize, op: &Op, model: &Model) {
        let Some(handle) = op.handle().and_then(|h| model.handles.get(&h)) else { return };
        if let Op::Write { offset, .. } = op {
            let file = self.files.entry(handle.fid).or_default();
            let end = model.inode(handle.fid).ok().and_then(Inode::bytes).map_or(0, |b| b.len() as u64);
            let appends = handle.flags & flags::APPEND != 0;
            file.writers.insert(client);
            file.later.push(ContentChange::Write(if appends { end } else { *offset }, op.data()));
        }
    }

    /// Records the success of an operation. Called after the model has executed it.
    pub fn done(&mut self, client: usize, op: &Op, model: &Model) {
        let open = op.handle().and_then(|h| model.handles.get(&h)).map(|h| h.fid);
        let named = |dir: &Fid, name: &str| model.find(*dir, name).ok().flatten();
        match op {
            Op::Create { dir, name, flags, .. } if flags & flags::TRUNC != 0 => {
                self.change(named(dir, name), ContentChange::Size(0))
            }
            Op::Open { fid, flags } if flags & flags::TRUNC != 0 => self.change(Some(*fid), ContentChange::Size(0)),
            Op::Truncate { fid, size, .. } => self.change(Some(*fid), ContentChange::Size(*size)),
            Op::Punch { offset, len, .. } => self.change(open, ContentChange::Hole(*offset, *len)),
            // After a crash, an fsync reports what its own client lost, not what other clients
            // lost. See `scenario::lost_bytes`.
            Op::Fsync { .. } => {
                let Some((fid, inode)) = open.and_then(|f| Some((f, model.inode(f).ok()?))) else { return };
                if self.files.get(&fid).is_none_or(|file| file.writers.iter().all(|writer| *writer == client)) {
                    self.sync(fid, inode);
                }
                let names = model.names().filter(|(_, _, f)| *f == fid);
                self.names.extend(names.map(|(dir, name, fid)| ((dir, name.clone()), fid)));
            }
            _ => {}
        }
        for (dir, name) in op.names_changed() {
            self.known.extend(named(&dir, name));
        }
    }

    fn change(&mut self, fid: Option<Fid>, change: ContentChange) {
        if let Some(fid) = fid {
            self.files.entry(fid).or_default().later.push(change);
        }
    }

    /// Records an operation with an unknown outcome: its data may be present. `seen`: the file that
    /// the operation changed. It may differ from the model's file of that name if the crash undid a
    /// rename.
    pub fn doubtful(&mut self, op: &Op, model: &Model, seen: Option<Fid>) {
        if let Some(fid) = op.handle().and_then(|h| model.handles.get(&h)).map(|h| h.fid) {
            self.files.entry(fid).or_default().anything = true;
        }
        match op {
            Op::Truncate { fid, .. } | Op::Open { fid, .. } => self.files.entry(*fid).or_default().anything = true,
            Op::Create { dir, name, .. } => {
                let fid = model.find(*dir, name).ok().flatten();
                fid.into_iter().chain(seen).for_each(|f| self.files.entry(f).or_default().anything = true);
            }
            _ => {}
        }
    }

    /// Asserts that every durable name exists, and that every inode found was created by an
    /// operation.
    ///
    /// # Panics
    /// If that is not so.
    pub fn check_names(&self, found: &Model, doubtful: &[Op]) {
        for ((dir, name), fid) in &self.names {
            assert!(found.inodes.contains_key(dir), "the directory {dir} of the synced {name} {fid} is missing");
            assert_eq!(found.find(*dir, name), Ok(Some(*fid)), "{name} in {dir} was synced");
        }
        let in_doubt: BTreeSet<(Fid, &str)> = doubtful.iter().flat_map(Op::names_changed).collect();
        for (dir, name, fid) in found.names() {
            assert!(
                self.known.contains(&fid) || in_doubt.contains(&(dir, name.as_str())),
                "{name} in {dir} is {fid}, which no operation created"
            );
        }
    }

    /// Asserts that a file contains all durable bytes, and no bytes that were not written to it.
    ///
    /// # Panics
    /// If that is not so.
    pub fn check_bytes(&self, fid: Fid, inode: &Inode, found: &[u8]) {
        let unknown = Bytewise::default();
        let file = self.files.get(&fid).unwrap_or(&unknown);
        if file.anything {
            return;
        }
        if inode.striping.is_none() && !file.layout {
            return assert!(found.is_empty(), "{fid} has bytes and no layout");
        }
        file.check(fid, found);
    }
}

impl Bytewise {
    fn check(&self, fid: Fid, found: &[u8]) {
        let (mut least, mut most) = (self.synced.len() as u64, self.synced.len() as u64);
        for change in &self.later {
            match change {
                ContentChange::Size(size) => {
                    // A truncate may reach the disk of one stripe but not the disk of the stripe
                    // that was to hold the new end. The bytes that are on disk then determine the
                    // size, which may be smaller than the requested one.
                    let rest = &self.synced[..least.min(*size) as usize];
                    least = rest.iter().rposition(|b| *b != 0).map_or(0, |last| last as u64 + 1);
                    most = most.max(*size);
                }
                ContentChange::Write(offset, data) => most = most.max(offset + data.len() as u64),
                ContentChange::Hole(..) => {}
            }
        }
        let len = found.len() as u64;
        assert!((least..=most).contains(&len), "{fid} has {len} bytes, not {least} to {most}");
        for (at, byte) in found.iter().enumerate() {
            let at = at as u64;
            let from = |change: &ContentChange| match change {
                ContentChange::Write(offset, data) => {
                    at.checked_sub(*offset).and_then(|i| data.get(i as usize)) == Some(byte)
                }
                ContentChange::Size(size) => *byte == 0 && at >= *size,
                ContentChange::Hole(offset, len) => *byte == 0 && (*offset..offset + len).contains(&at),
            };
            let synced = self.synced.get(at as usize).copied().unwrap_or(0);
            assert!(
                synced == *byte || self.later.iter().any(from),
                "byte {at} of {fid} is {byte}, which no operation wrote there"
            );
        }
    }
}
