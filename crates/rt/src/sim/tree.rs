//! The directories on a simulated disk: their present and their durable state.
//!
//! Changes of names go through a journal in their order, as in journalling file systems. A crash
//! preserves a prefix of the unsynced changes, whose length the seed chooses. Syncing a directory
//! makes all changes durable up to the directory's last one. The content of a file is separate (see
//! `inode`): syncing a file does not make its name durable.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ffi::OsString,
    io,
    path::{Component, Path},
    sync::Arc,
};

use sheen_wire::{Errno, FileKind, StatFs, Time};

use super::{
    inode::{Inode, Medium},
    sparse::PAGE,
};
use crate::metadata::{DirEntry, DirEntryKind, Metadata, OpenOptions};

const ROOT: u64 = 0;
/// Maximum number of unsynced changes of names. Beyond it, the oldest become durable without a
/// sync.
const JOURNAL_MAX: usize = 1 << 16;
/// Total number of inodes that statvfs reports.
const INODES: u64 = 1 << 32;

pub(crate) struct DiskState {
    device: u64,
    /// Number of times that the disk was mounted anew.
    mounts: u64,
    medium: Arc<Medium>,
    now: Tree,
    durable: Tree,
    journal: VecDeque<(u64, NameChange)>,
    made: u64,
    locked: BTreeSet<u64>,
}

type Entries = BTreeMap<OsString, Node>;

#[derive(Clone)]
struct Tree(BTreeMap<u64, Entries>);

/// The file or directory that a name refers to.
#[derive(Clone)]
pub(crate) enum Node {
    File(Arc<Inode>),
    Dir(u64),
}

/// A change of names.
#[derive(Clone)]
pub(crate) enum NameChange {
    Put { at: EntryPath, node: Node },
    Remove { at: EntryPath },
    Move { from: EntryPath, to: EntryPath },
}

/// A name in a directory.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct EntryPath {
    dir: u64,
    name: OsString,
}

impl NameChange {
    pub(crate) fn touches(&self, dir: u64) -> bool {
        match self {
            NameChange::Put { at, .. } | NameChange::Remove { at } => at.dir == dir,
            NameChange::Move { from, to } => from.dir == dir || to.dir == dir,
        }
    }
}

impl Tree {
    fn put(&mut self, at: &EntryPath, node: Node) {
        if let Node::Dir(id) = node {
            self.0.entry(id).or_default();
        }
        if let Some(entries) = self.0.get_mut(&at.dir)
            && let Some(Node::Dir(replaced)) = entries.insert(at.name.clone(), node)
        {
            self.0.remove(&replaced);
        }
    }

    fn apply(&mut self, change: &NameChange) {
        match change {
            NameChange::Put { at, node } => self.put(at, node.clone()),
            NameChange::Remove { at } => {
                if let Some(Node::Dir(id)) = self.0.get_mut(&at.dir).and_then(|entries| entries.remove(&at.name)) {
                    self.0.remove(&id);
                }
            }
            NameChange::Move { from, to } => {
                if let Some(node) = self.0.get_mut(&from.dir).and_then(|entries| entries.remove(&from.name)) {
                    self.put(to, node);
                }
            }
        }
    }

    fn get(&self, at: &EntryPath) -> Option<&Node> {
        self.0.get(&at.dir)?.get(&at.name)
    }
}

impl DiskState {
    pub(crate) fn new(host: u32, bytes: u64) -> DiskState {
        let empty = Tree(BTreeMap::from([(ROOT, Entries::new())]));
        DiskState {
            device: u64::from(host) + 1,
            mounts: 0,
            medium: Arc::new(Medium::new(bytes)),
            now: empty.clone(),
            durable: empty,
            journal: VecDeque::new(),
            made: ROOT,
            locked: BTreeSet::new(),
        }
    }

    /// Returns the node at a path and its place. The root has no place: the place is then `None`.
    fn find(&self, path: &Path) -> io::Result<(Option<EntryPath>, Option<Node>)> {
        let mut names: Vec<&std::ffi::OsStr> = Vec::new();
        for component in path.components() {
            match component {
                Component::Normal(name) => names.push(name),
                Component::ParentDir => drop(names.pop()),
                Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
            }
        }
        let Some((last, above)) = names.split_last() else { return Ok((None, Some(Node::Dir(ROOT)))) };
        let mut dir = ROOT;
        for name in above {
            match self.now.0.get(&dir).and_then(|entries| entries.get(*name)) {
                Some(Node::Dir(id)) => dir = *id,
                Some(Node::File(_)) => return Err(Errno::ENOTDIR.into()),
                None => return Err(Errno::ENOENT.into()),
            }
        }
        let place = EntryPath { dir, name: (*last).to_owned() };
        let node = self.now.get(&place).cloned();
        Ok((Some(place), node))
    }

    pub(crate) fn find_dir(&self, path: &Path) -> io::Result<u64> {
        match self.find(path)?.1 {
            Some(Node::Dir(id)) => Ok(id),
            Some(Node::File(_)) => Err(Errno::ENOTDIR.into()),
            None => Err(Errno::ENOENT.into()),
        }
    }

    fn find_file(&self, path: &Path) -> io::Result<(EntryPath, Arc<Inode>)> {
        match self.find(path)? {
            (Some(place), Some(Node::File(inode))) => Ok((place, inode)),
            (_, Some(_)) => Err(Errno::EISDIR.into()),
            (_, None) => Err(Errno::ENOENT.into()),
        }
    }

    fn change(&mut self, change: NameChange) {
        self.now.apply(&change);
        self.journal.push_back((self.medium.next_op(), change));
        if self.journal.len() > JOURNAL_MAX
            && let Some((_, oldest)) = self.journal.pop_front()
        {
            self.durable.apply(&oldest);
        }
    }

    fn new_id(&mut self) -> u64 {
        self.made += 1;
        self.made
    }

    /// Makes changes of names durable, up to the last change before operation `op_end` for which
    /// `last` holds. Returns the number of these changes.
    pub(crate) fn commit(&mut self, op_end: u64, last: impl Fn(&NameChange) -> bool) -> usize {
        let n = self.journal.iter().rposition(|(number, change)| *number < op_end && last(change)).map_or(0, |i| i + 1);
        for (_, change) in self.journal.drain(..n) {
            self.durable.apply(&change);
        }
        n
    }

    pub(crate) fn open(&mut self, path: &Path, o: OpenOptions, now: Time) -> io::Result<Arc<Inode>> {
        let needs_write = o.create || o.create_new || o.truncate || !o.read;
        if needs_write && !o.write {
            return Err(Errno::EINVAL.into());
        }
        match self.find(path)? {
            (_, Some(_)) if o.create_new => Err(Errno::EEXIST.into()),
            (_, Some(Node::Dir(_))) => Err(Errno::EISDIR.into()),
            (_, Some(Node::File(inode))) => {
                if o.truncate {
                    inode.set_len(0, now);
                }
                Ok(inode)
            }
            (Some(at), None) if o.create || o.create_new => {
                let inode = Arc::new(Inode::new(self.new_id(), self.medium.clone(), now));
                self.change(NameChange::Put { at, node: Node::File(inode.clone()) });
                Ok(inode)
            }
            _ => Err(Errno::ENOENT.into()),
        }
    }

    pub(crate) fn create_dir_all(&mut self, path: &Path) -> io::Result<()> {
        let mut above = std::path::PathBuf::new();
        for component in path.components() {
            above.push(component);
            match self.find(&above)? {
                (_, Some(Node::Dir(_))) => {}
                (_, Some(Node::File(_))) => return Err(Errno::EEXIST.into()),
                (Some(at), None) => {
                    let id = self.new_id();
                    self.change(NameChange::Put { at, node: Node::Dir(id) });
                }
                (None, None) => {}
            }
        }
        Ok(())
    }

    pub(crate) fn remove_file(&mut self, path: &Path) -> io::Result<()> {
        let (at, _) = self.find_file(path)?;
        self.change(NameChange::Remove { at });
        Ok(())
    }

    pub(crate) fn remove_dir_all(&mut self, path: &Path) -> io::Result<()> {
        let id = self.find_dir(path)?;
        let names: Vec<OsString> =
            self.now.0.get(&id).map(|entries| entries.keys().cloned().collect()).unwrap_or_default();
        for name in names {
            let at = EntryPath { dir: id, name };
            match self.now.get(&at) {
                Some(Node::Dir(_)) => self.remove_dir_all(&path.join(&at.name))?,
                _ => self.change(NameChange::Remove { at }),
            }
        }
        match self.find(path)?.0 {
            Some(at) => self.change(NameChange::Remove { at }),
            None => return Err(Errno::EBUSY.into()),
        }
        Ok(())
    }

    pub(crate) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let (Some(source), Some(node)) = self.find(from)? else { return Err(Errno::ENOENT.into()) };
        let (Some(target), replaced) = self.find(to)? else { return Err(Errno::EBUSY.into()) };
        if source == target {
            return Ok(());
        }
        match (&node, &replaced) {
            (Node::File(_), Some(Node::Dir(_))) => return Err(Errno::EISDIR.into()),
            (Node::Dir(_), Some(Node::File(_))) => return Err(Errno::ENOTDIR.into()),
            (Node::Dir(_), Some(Node::Dir(id))) if self.now.0.get(id).is_some_and(|e| !e.is_empty()) => {
                return Err(Errno::ENOTEMPTY.into());
            }
            (Node::Dir(_), _) if to.starts_with(from) => return Err(Errno::EINVAL.into()),
            _ => {}
        }
        self.change(NameChange::Move { from: source, to: target });
        Ok(())
    }

    pub(crate) fn hard_link(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let (_, inode) = self.find_file(from)?;
        let at = match self.find(to)? {
            (Some(at), None) => at,
            _ => return Err(Errno::EEXIST.into()),
        };
        self.change(NameChange::Put { at, node: Node::File(inode) });
        Ok(())
    }

    pub(crate) fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let id = self.find_dir(path)?;
        let entry = |(name, node): (&OsString, &Node)| DirEntry {
            name: name.clone(),
            kind: if matches!(node, Node::Dir(_)) { DirEntryKind::Dir } else { DirEntryKind::File },
        };
        Ok(self.now.0.get(&id).map(|entries| entries.iter().map(entry).collect()).unwrap_or_default())
    }

    pub(crate) fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        match self.find(path)?.1 {
            Some(Node::File(inode)) => Ok(inode.metadata()),
            Some(Node::Dir(_)) => {
                Ok(Metadata { len: PAGE as u64, blocks512: 8, mtime: Time::default(), kind: FileKind::Dir })
            }
            None => Err(Errno::ENOENT.into()),
        }
    }

    pub(crate) fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        Ok(self.find_file(path)?.1.read_all())
    }

    pub(crate) fn write_atomic(&mut self, path: &Path, content: &[u8], now: Time) -> io::Result<()> {
        let at = match self.find(path)? {
            (_, Some(Node::Dir(_))) | (None, _) => return Err(Errno::EISDIR.into()),
            (Some(at), _) => at,
        };
        let inode = Arc::new(Inode::new(self.new_id(), self.medium.clone(), now));
        inode.fill(content, now);
        self.change(NameChange::Put { at, node: Node::File(inode) });
        self.commit(u64::MAX, |_| true);
        Ok(())
    }

    pub(crate) fn statvfs(&self) -> StatFs {
        let free = self.medium.pages_free();
        StatFs {
            bsize: PAGE as u32,
            blocks: self.medium.pages_max,
            bfree: free,
            bavail: free,
            files: INODES,
            ffree: INODES.saturating_sub(self.files().count() as u64),
            state: 0,
        }
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = &Arc<Inode>> {
        self.now.0.values().flat_map(|entries| entries.values()).filter_map(|node| match node {
            Node::File(inode) => Some(inode),
            Node::Dir(_) => None,
        })
    }

    /// Returns whether a directory was removed.
    pub(crate) fn is_removed(&self, dir: u64) -> bool {
        !self.now.0.contains_key(&dir)
    }

    /// Returns the device number of the disk (`st_dev`).
    pub(crate) fn device(&self) -> u64 {
        self.device
    }

    /// Returns the number of times that the disk was mounted anew.
    pub(crate) fn mounts(&self) -> u64 {
        self.mounts
    }

    /// Counts a new mount.
    pub(crate) fn remounted(&mut self) {
        self.mounts += 1;
    }

    /// Returns a bound: all operations done so far have smaller numbers.
    pub(crate) fn ops_done(&self) -> u64 {
        self.medium.ops_done()
    }

    /// Locks a file. Returns false if it is locked already.
    pub(crate) fn lock(&mut self, inode: u64) -> bool {
        self.locked.insert(inode)
    }

    /// Releases the lock of a file.
    pub(crate) fn unlock(&mut self, inode: u64) {
        self.locked.remove(&inode);
    }

    /// Returns the number of changes of names that a crash may lose.
    pub(crate) fn unsynced_names(&self) -> usize {
        self.journal.len()
    }

    /// Simulates a power failure that the first `survived` unsynced changes of names survive.
    /// Returns the files that still have a name.
    pub(crate) fn crash(&mut self, survived: usize) -> Vec<Arc<Inode>> {
        for (_, change) in self.journal.drain(..survived) {
            self.durable.apply(&change);
        }
        self.journal.clear();
        self.now = self.durable.clone();
        self.locked.clear();
        self.files().cloned().collect()
    }
}
