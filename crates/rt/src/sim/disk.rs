//! The directories of a simulated host: their present and their durable state.
//!
//! Changes of names go through a journal in their order, as in journalling file systems. A crash
//! preserves a prefix of the unsynced changes, whose length the seed chooses. Syncing a directory
//! makes all changes durable up to the directory's last one. The content of a file is separate (see
//! `file`): syncing a file does not make its name durable.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ffi::OsString,
    io,
    path::{Component, Path},
    sync::Arc,
};

use sheen_wire::{Errno, FileKind, StatFs, Time};

use super::{
    file::{File, Inode, Medium},
    host::Host,
    sparse::PAGE,
    trace::Note,
    world::State,
};
use crate::disk::{DirEntry, DirEntryKind, Metadata, OpenOptions};

const ROOT: u64 = 0;
/// Maximum number of unsynced changes of names. Beyond it, the oldest become durable without a
/// sync.
const JOURNAL_MAX: usize = 1 << 16;
/// Total number of inodes that statvfs reports.
const INODES: u64 = 1 << 32;

pub(crate) struct DiskState {
    device: u64,
    medium: Arc<Medium>,
    now: Tree,
    durable: Tree,
    journal: VecDeque<(u64, Change)>,
    made: u64,
    locked: BTreeSet<u64>,
}

type Entries = BTreeMap<OsString, Node>;

#[derive(Clone)]
struct Tree(BTreeMap<u64, Entries>);

#[derive(Clone)]
enum Node {
    File(Arc<Inode>),
    Dir(u64),
}

#[derive(Clone)]
enum Change {
    Put { at: Place, node: Node },
    Remove { at: Place },
    Move { from: Place, to: Place },
}

/// A name in a directory.
#[derive(Clone, PartialEq, Eq)]
struct Place {
    dir: u64,
    name: OsString,
}

impl Change {
    fn touches(&self, dir: u64) -> bool {
        match self {
            Change::Put { at, .. } | Change::Remove { at } => at.dir == dir,
            Change::Move { from, to } => from.dir == dir || to.dir == dir,
        }
    }
}

impl Tree {
    fn put(&mut self, at: &Place, node: Node) {
        if let Node::Dir(id) = node {
            self.0.entry(id).or_default();
        }
        if let Some(entries) = self.0.get_mut(&at.dir)
            && let Some(Node::Dir(replaced)) = entries.insert(at.name.clone(), node)
        {
            self.0.remove(&replaced);
        }
    }

    fn apply(&mut self, change: &Change) {
        match change {
            Change::Put { at, node } => self.put(at, node.clone()),
            Change::Remove { at } => {
                if let Some(Node::Dir(id)) = self.0.get_mut(&at.dir).and_then(|entries| entries.remove(&at.name)) {
                    self.0.remove(&id);
                }
            }
            Change::Move { from, to } => {
                if let Some(node) = self.0.get_mut(&from.dir).and_then(|entries| entries.remove(&from.name)) {
                    self.put(to, node);
                }
            }
        }
    }

    fn get(&self, at: &Place) -> Option<&Node> {
        self.0.get(&at.dir)?.get(&at.name)
    }
}

impl DiskState {
    pub(crate) fn new(host: u32, bytes: u64) -> DiskState {
        let empty = Tree(BTreeMap::from([(ROOT, Entries::new())]));
        DiskState {
            device: u64::from(host) + 1,
            medium: Arc::new(Medium::new(bytes)),
            now: empty.clone(),
            durable: empty,
            journal: VecDeque::new(),
            made: ROOT,
            locked: BTreeSet::new(),
        }
    }

    /// Returns the node at a path and its place. The root has no place: the place is then `None`.
    fn find(&self, path: &Path) -> io::Result<(Option<Place>, Option<Node>)> {
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
        let place = Place { dir, name: (*last).to_owned() };
        let node = self.now.get(&place).cloned();
        Ok((Some(place), node))
    }

    fn find_dir(&self, path: &Path) -> io::Result<u64> {
        match self.find(path)?.1 {
            Some(Node::Dir(id)) => Ok(id),
            Some(Node::File(_)) => Err(Errno::ENOTDIR.into()),
            None => Err(Errno::ENOENT.into()),
        }
    }

    fn find_file(&self, path: &Path) -> io::Result<(Place, Arc<Inode>)> {
        match self.find(path)? {
            (Some(place), Some(Node::File(inode))) => Ok((place, inode)),
            (_, Some(_)) => Err(Errno::EISDIR.into()),
            (_, None) => Err(Errno::ENOENT.into()),
        }
    }

    fn change(&mut self, change: Change) {
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
    fn commit(&mut self, op_end: u64, last: impl Fn(&Change) -> bool) -> usize {
        let n = self.journal.iter().rposition(|(number, change)| *number < op_end && last(change)).map_or(0, |i| i + 1);
        for (_, change) in self.journal.drain(..n) {
            self.durable.apply(&change);
        }
        n
    }

    fn open(&mut self, path: &Path, o: OpenOptions, now: Time) -> io::Result<Arc<Inode>> {
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
                self.change(Change::Put { at, node: Node::File(inode.clone()) });
                Ok(inode)
            }
            _ => Err(Errno::ENOENT.into()),
        }
    }

    fn create_dir_all(&mut self, path: &Path) -> io::Result<()> {
        let mut above = std::path::PathBuf::new();
        for component in path.components() {
            above.push(component);
            match self.find(&above)? {
                (_, Some(Node::Dir(_))) => {}
                (_, Some(Node::File(_))) => return Err(Errno::EEXIST.into()),
                (Some(at), None) => {
                    let id = self.new_id();
                    self.change(Change::Put { at, node: Node::Dir(id) });
                }
                (None, None) => {}
            }
        }
        Ok(())
    }

    fn remove_dir_all(&mut self, path: &Path) -> io::Result<()> {
        let id = self.find_dir(path)?;
        let names: Vec<OsString> =
            self.now.0.get(&id).map(|entries| entries.keys().cloned().collect()).unwrap_or_default();
        for name in names {
            let at = Place { dir: id, name };
            match self.now.get(&at) {
                Some(Node::Dir(_)) => self.remove_dir_all(&path.join(&at.name))?,
                _ => self.change(Change::Remove { at }),
            }
        }
        match self.find(path)?.0 {
            Some(at) => self.change(Change::Remove { at }),
            None => return Err(Errno::EBUSY.into()),
        }
        Ok(())
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
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
        self.change(Change::Move { from: source, to: target });
        Ok(())
    }

    fn write_atomic(&mut self, path: &Path, content: &[u8], now: Time) -> io::Result<()> {
        let at = match self.find(path)? {
            (_, Some(Node::Dir(_))) | (None, _) => return Err(Errno::EISDIR.into()),
            (Some(at), _) => at,
        };
        let inode = Arc::new(Inode::new(self.new_id(), self.medium.clone(), now));
        inode.fill(content, now);
        self.change(Change::Put { at, node: Node::File(inode) });
        self.commit(u64::MAX, |_| true);
        Ok(())
    }

    fn statvfs(&self) -> StatFs {
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

    fn files(&self) -> impl Iterator<Item = &Arc<Inode>> {
        self.now.0.values().flat_map(|entries| entries.values()).filter_map(|node| match node {
            Node::File(inode) => Some(inode),
            Node::Dir(_) => None,
        })
    }
}

impl State {
    /// Simulates a power failure of the host's disk: see the documentation of this module and of
    /// `file`.
    pub(crate) fn disk_crash(&mut self, host: u32) {
        let keep_max = self.host(host).disk.journal.len();
        let kept = self.rng.usize(0..=keep_max);
        let disk = &mut self.host(host).disk;
        for (_, change) in disk.journal.drain(..kept) {
            disk.durable.apply(&change);
        }
        disk.journal.clear();
        disk.now = disk.durable.clone();
        disk.locked.clear();
        let files: Vec<_> = disk.files().cloned().collect();
        self.note(Note::Crash { host, names_kept: kept, names_lost: keep_max - kept });
        for inode in files {
            let (kept, lost, torn) = inode.crash(&mut self.rng);
            self.note(Note::Torn { file: inode.id, kept, lost, torn });
        }
    }
}

impl Host {
    /// Waits for the duration of an fsync. Returns EIO if the host crashes meanwhile.
    pub(crate) async fn disk_works(&self) -> io::Result<()> {
        let delay = self.with(|s| Ok(s.sample(&s.config.fsync_delay.clone())))?;
        self.sleep(delay).await;
        Ok(())
    }
}

#[derive(Clone)]
pub(crate) struct Disk(pub(crate) Host);

impl Disk {
    fn with<R>(&self, f: impl FnOnce(&mut DiskState, Time) -> io::Result<R>) -> io::Result<R> {
        self.0.with(|s| {
            let now = s.wall();
            f(&mut s.host(self.0.id).disk, now)
        })
    }

    pub(crate) fn open(&self, path: &Path, o: OpenOptions) -> io::Result<File> {
        let inode = self.with(|d, now| d.open(path, o, now))?;
        Ok(File { host: self.0.clone(), inode, read: o.read, write: o.write })
    }

    pub(crate) fn open_dir(&self, path: &Path) -> io::Result<OpenDir> {
        let id = self.with(|d, _| d.find_dir(path))?;
        Ok(OpenDir { disk: self.clone(), id })
    }

    pub(crate) fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.with(|d, _| d.create_dir_all(path))
    }

    pub(crate) fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.with(|d, _| {
            let (at, _) = d.find_file(path)?;
            d.change(Change::Remove { at });
            Ok(())
        })
    }

    pub(crate) fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.with(|d, _| d.remove_dir_all(path))
    }

    pub(crate) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.with(|d, _| d.rename(from, to))
    }

    pub(crate) fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.with(|d, _| {
            let (_, inode) = d.find_file(from)?;
            let at = match d.find(to)? {
                (Some(at), None) => at,
                _ => return Err(Errno::EEXIST.into()),
            };
            d.change(Change::Put { at, node: Node::File(inode) });
            Ok(())
        })
    }

    pub(crate) fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.with(|d, _| {
            let id = d.find_dir(path)?;
            let entry = |(name, node): (&OsString, &Node)| DirEntry {
                name: name.clone(),
                kind: if matches!(node, Node::Dir(_)) { DirEntryKind::Dir } else { DirEntryKind::File },
            };
            Ok(d.now.0.get(&id).map(|entries| entries.iter().map(entry).collect()).unwrap_or_default())
        })
    }

    pub(crate) fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        self.with(|d, _| match d.find(path)?.1 {
            Some(Node::File(inode)) => Ok(inode.metadata()),
            Some(Node::Dir(_)) => {
                Ok(Metadata { len: PAGE as u64, blocks512: 8, mtime: Time::default(), kind: FileKind::Dir })
            }
            None => Err(Errno::ENOENT.into()),
        })
    }

    pub(crate) fn statvfs(&self, path: &Path) -> io::Result<StatFs> {
        self.metadata(path)?;
        self.with(|d, _| Ok(d.statvfs()))
    }

    pub(crate) fn device(&self, path: &Path) -> io::Result<u64> {
        self.metadata(path)?;
        self.with(|d, _| Ok(d.device))
    }

    pub(crate) fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.with(|d, _| Ok(d.find_file(path)?.1.read_all()))
    }

    pub(crate) fn write_atomic(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        self.with(|d, now| d.write_atomic(path, content, now))
    }

    pub(crate) async fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let (dir, end) = self.with(|d, _| Ok((d.find_dir(path)?, d.medium.ops_done())))?;
        self.0.disk_works().await?;
        self.0.with(|s| {
            let ops = s.host(self.0.id).disk.commit(end, |change| change.touches(dir));
            s.note(Note::SyncNames { host: self.0.id, ops });
            Ok(())
        })
    }

    pub(crate) async fn sync_fs(&self, path: &Path) -> io::Result<()> {
        self.metadata(path)?;
        let end = self.with(|d, _| Ok(d.medium.ops_done()))?;
        self.0.disk_works().await?;
        self.0.with(|s| {
            let disk = &mut s.host(self.0.id).disk;
            let files: usize = disk.files().map(|inode| inode.commit_before(end)).sum();
            let ops = files + disk.commit(end, |_| true);
            s.note(Note::SyncNames { host: self.0.id, ops });
            Ok(())
        })
    }

    pub(crate) fn try_lock(&self, path: &Path) -> io::Result<Lock> {
        let file = self.open(path, OpenOptions::CREATE)?;
        let inode = file.inode.id;
        self.with(|d, _| if d.locked.insert(inode) { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) })?;
        Ok(Lock { disk: self.clone(), inode })
    }
}

/// A directory opened by one life of the host.
#[derive(Clone)]
pub(crate) struct OpenDir {
    disk: Disk,
    id: u64,
}

impl OpenDir {
    pub(crate) fn statvfs(&self) -> io::Result<StatFs> {
        self.disk.with(|d, _| Ok(d.statvfs()))
    }

    pub(crate) async fn sync_fs(&self) -> io::Result<()> {
        self.disk.sync_fs(Path::new("/")).await
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.disk.with(|d, _| Ok(!d.now.0.contains_key(&self.id))).unwrap_or(false)
    }
}

/// A held lock. Released on drop or by a crash.
pub(crate) struct Lock {
    disk: Disk,
    inode: u64,
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = self.disk.with(|d, _| {
            d.locked.remove(&self.inode);
            Ok(())
        });
    }
}
