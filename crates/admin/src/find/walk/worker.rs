//! A thread of a walk.

use std::{
    ffi::{CStr, CString, OsStr},
    os::unix::ffi::OsStrExt,
    path::PathBuf,
    sync::{Arc, mpsc::SyncSender},
    time::{Duration, Instant},
};

use rustix::fs::{FileType, Mode, OFlags, RawDir};
use sheen_wire::{Errno, FileKind, entries};

use super::{
    output::{Collect, Event},
    page::PageBuffer,
    queue::Queue,
    work::{Dir, ListedEntry, Work},
};
use crate::{
    Failure, Step,
    find::{
        entry::{Asking, Entry, EntryLocation},
        facts::Facts,
        needs::Needs,
        query::Query,
    },
    os_errno,
};

/// Entries of a batch: enough that handing it to another thread costs little in comparison.
const BATCH: usize = 128;
/// Bytes of a directory that are read at a time. The attributes of the entries that fit are fetched
/// together.
const READ_BYTES: usize = 128 << 10;
/// Items that are collected before they are sent, for example bytes of text.
const ITEMS: usize = 16 << 10;
/// Longest delay of collected items, so that users see results soon.
const ITEMS_WAIT: Duration = Duration::from_millis(100);

/// A thread of the walk.
pub struct Worker<'a, C: Collect> {
    pub query: &'a Query,
    collect: &'a C,
    pub needs: Needs,
    pub queue: &'a Queue<C::Item>,
    to: SyncSender<Event<C::Item>>,
    pub asking: Asking,
    /// Whether it is the only thread, which sends in the order of names.
    pub alone: bool,
    /// Work that the shared list had no room for.
    own: Vec<Work<C::Item>>,
    /// Collected items, and the time at which items were sent last.
    items: Vec<C::Item>,
    since: Instant,
    /// Buffer for values of extended attributes.
    pub values: Vec<u8>,
    /// Buffer for reading directories.
    read: Vec<u8>,
    /// Buffer for directories that return attributes of their entries.
    pub page: Option<PageBuffer>,
    /// Buffer for a name.
    pub name: Vec<u8>,
}

impl<'a, C: Collect> Worker<'a, C> {
    /// Creates a thread's state. `alone`: it is the only thread.
    pub fn new(
        query: &'a Query,
        collect: &'a C,
        queue: &'a Queue<C::Item>,
        to: SyncSender<Event<C::Item>>,
        alone: bool,
    ) -> Worker<'a, C> {
        let needs = query.needs() | collect.needs();
        Worker {
            query,
            collect,
            needs,
            queue,
            to,
            asking: Asking::new(needs.birth, query.lazy).with_sizes(needs.sizes),
            alone,
            own: Vec::new(),
            items: Vec::new(),
            since: Instant::now(),
            values: Vec::new(),
            read: Vec::with_capacity(READ_BYTES),
            page: None,
            name: Vec::new(),
        }
    }

    /// Works until no work is left.
    pub fn run(mut self) {
        while let Some(work) = self.next() {
            match work {
                Work::Tree { path, kind, depth } => self.tree(&path, kind, depth),
                Work::Batch { dir, entries, depth } => self.batch(&dir, &entries, depth),
                Work::Items(items) => {
                    self.items.extend(items);
                    self.send_if_due();
                }
            }
        }
    }

    fn next(&mut self) -> Option<Work<C::Item>> {
        if self.queue.is_stopped() {
            self.own.clear();
        }
        self.own.pop().or_else(|| {
            self.send_items();
            self.queue.next()
        })
    }

    /// Examines a path and everything below it.
    fn tree(&mut self, path: &CStr, kind: Option<FileKind>, depth: u32) {
        let kind = match kind {
            Some(kind) => Ok((kind, false)),
            None => kind_of(path, depth),
        };
        let (kind, follow) = match kind {
            Ok(known) => known,
            Err(e) => return self.failed(path, e, depth),
        };
        self.look(EntryLocation::path(path, Some(kind), follow), None, depth);
        if kind == FileKind::Dir && depth < self.query.max_depth {
            self.descend(path, follow, depth + 1);
        }
    }

    /// Reads a directory whose entries are at `depth`.
    fn descend(&mut self, path: &CStr, follow: bool, depth: u32) {
        let link = if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | link;
        let dir = match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(fd) => Arc::new(Dir::new(fd, path)),
            Err(e) => return self.failed(path, os_errno(e), depth),
        };
        if self.descend_listed(&dir, path, depth) {
            return;
        }
        let mut buffer = std::mem::take(&mut self.read);
        let mut entries = RawDir::new(&dir.fd, buffer.spare_capacity_mut());
        let (mut seen, mut ordered) = (Vec::new(), Vec::new());
        while let Some(entry) = entries.next() {
            match entry {
                Ok(entry) if matches!(entry.file_name().to_bytes(), b"." | b"..") => {}
                Ok(entry) if self.alone => {
                    let (name, kind) = (entry.file_name(), kind(entry.file_type()));
                    let work = self.deferred_work(&dir, name, kind, None, depth);
                    ordered.extend(work.map(|work| (name.to_owned(), work)));
                }
                Ok(entry) => self.found(&dir, entry.file_name(), kind(entry.file_type()), depth, &mut seen),
                Err(e) => {
                    self.failed(path, os_errno(e), depth);
                    break;
                }
            }
            if self.queue.is_stopped() {
                break;
            }
        }
        self.read = buffer;
        self.batch(&dir, &seen, depth);
        self.take_in_order(ordered);
    }

    /// Adds the work of a directory's entries, so that the first name is taken first.
    pub fn take_in_order(&mut self, mut ordered: Vec<(CString, Work<C::Item>)>) {
        ordered.sort_unstable_by(|(a, _), (b, _)| b.cmp(a));
        self.own.extend(ordered.into_iter().map(|(_, work)| work));
    }

    /// Returns the remaining work of a directory's entry, if this is the only thread. A directory
    /// is walked later. Any other entry is examined now, because the client's statahead follows the
    /// directory's own order. Its items are sent later, in the order of names.
    pub fn deferred_work(
        &mut self,
        dir: &Dir,
        name: &CStr,
        kind: Option<FileKind>,
        listed: Option<&entries::Entry<'_>>,
        depth: u32,
    ) -> Option<Work<C::Item>> {
        if kind.is_none_or(|kind| kind == FileKind::Dir) {
            return Some(Work::Tree { path: dir.path(name), kind, depth });
        }
        let others = std::mem::take(&mut self.items);
        self.examine(dir.entry(name, kind), listed, depth);
        let items = std::mem::replace(&mut self.items, others);
        (!items.is_empty()).then_some(Work::Items(items))
    }

    /// Handles an entry of a directory, if there are several threads. Subtrees are offered to all
    /// threads. Other entries are collected in `seen`.
    fn found(&mut self, dir: &Arc<Dir>, name: &CStr, kind: Option<FileKind>, depth: u32, seen: &mut Vec<ListedEntry>) {
        if kind.is_none_or(|kind| kind == FileKind::Dir) {
            return self.leave_tree(dir, name, kind, depth);
        }
        let location = dir.entry(name, kind);
        if self.needs.nothing() {
            return self.look(location, None, depth);
        }
        if !self.query.passes_free_tests(&mut Entry::new(location, self.asking, &mut self.values)) {
            return;
        }
        seen.push((name.to_owned(), kind));
        if seen.len() >= BATCH {
            let entries = std::mem::take(seen);
            // Batches are offered only while threads are idle. They are therefore few, and so are
            // the directories that they leave open.
            let batch = Work::Batch { dir: dir.clone(), entries, depth };
            let mine = if self.queue.has_idle_threads() { self.queue.offer(batch).err() } else { Some(batch) };
            if let Some(Work::Batch { dir, entries, depth }) = mine {
                self.batch(&dir, &entries, depth);
            }
        }
    }

    /// Offers a subtree to all threads, or adds it to this thread's own list.
    pub fn leave_tree(&mut self, dir: &Dir, name: &CStr, kind: Option<FileKind>, depth: u32) {
        let tree = Work::Tree { path: dir.path(name), kind, depth };
        if let Err(tree) = self.queue.offer(tree) {
            self.own.push(tree);
        }
    }

    fn batch(&mut self, dir: &Dir, entries: &[ListedEntry], depth: u32) {
        for (name, kind) in entries {
            if self.queue.is_stopped() {
                return;
            }
            self.look(dir.entry(name, *kind), None, depth);
        }
    }

    /// Sends the items of an entry if it matches.
    pub fn look(&mut self, location: EntryLocation<'_>, listed: Option<&entries::Entry<'_>>, depth: u32) {
        self.examine(location, listed, depth);
        self.send_if_due();
    }

    fn examine(&mut self, location: EntryLocation<'_>, listed: Option<&entries::Entry<'_>>, depth: u32) {
        if depth < self.query.min_depth {
            return;
        }
        let mut entry = Entry::new(location, self.asking, &mut self.values).listed(listed);
        let examined = self.query.matches(&mut entry).and_then(|matches| {
            if matches && !is_skipped(&entry, self.query.skip) {
                self.collect.add(&mut entry, &mut self.items)?;
            }
            Ok(())
        });
        if let Err(e) = examined {
            let mut path = Vec::new();
            entry.write_path(&mut path);
            self.failed(&CString::new(path).unwrap_or_default(), e, depth);
        }
    }

    fn send_if_due(&mut self) {
        if self.items.len() >= ITEMS || (!self.items.is_empty() && self.since.elapsed() >= ITEMS_WAIT) {
            self.send_items();
        }
    }

    fn send_items(&mut self) {
        self.since = Instant::now();
        if !self.items.is_empty() {
            let items = std::mem::take(&mut self.items);
            self.send(Event::Found(items));
        }
    }

    /// Reports a failure. An entry that was deleted after its directory was read is not a failure.
    pub fn failed(&mut self, path: &CStr, e: Errno, depth: u32) {
        let step = match (e, depth) {
            (_, 0) => Step::ExamineRoot,
            // ESTALE: the directory is deleted and created again all the time, and is no longer the
            // one that was read.
            (Errno::ENOENT | Errno::ESTALE, _) => return,
            _ => Step::ExamineEntry,
        };
        let path = PathBuf::from(OsStr::from_bytes(path.to_bytes()));
        self.send(Event::Failed(Failure { step, path, errno: e }));
    }

    fn send(&mut self, event: Event<C::Item>) {
        if self.to.send(event).is_err() {
            self.queue.stop();
        }
    }
}

/// Returns the file type of a path, and whether a link was followed. A root that links to a
/// directory is followed.
fn kind_of(path: &CStr, depth: u32) -> Result<(FileKind, bool), Errno> {
    let kind = |follow| {
        let mut values = Vec::new();
        Entry::new(EntryLocation::path(path, None, follow), Asking::new(false, false), &mut values).kind()
    };
    match (depth, kind(false)?) {
        (0, FileKind::Symlink) if kind(true) == Ok(FileKind::Dir) => Ok((FileKind::Dir, true)),
        (_, kind) => Ok((kind, false)),
    }
}

/// Converts the file type from a directory. Not all file systems return types.
fn kind(kind: FileType) -> Option<FileKind> {
    Some(match kind {
        FileType::RegularFile => FileKind::Regular,
        FileType::Directory => FileKind::Dir,
        FileType::Symlink => FileKind::Symlink,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        FileType::CharacterDevice => FileKind::Char,
        FileType::BlockDevice => FileKind::Block,
        FileType::Unknown => return None,
    })
}

/// Whether an entry is in the percentage that is skipped. The path alone decides, so the next
/// search skips the same entries.
fn is_skipped(entry: &impl Facts, skip: u64) -> bool {
    if skip == 0 {
        return false;
    }
    let mut path = Vec::new();
    entry.write_path(&mut path);
    // FNV-1a, whose lower bits depend on every byte.
    let hash =
        path.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, b| (hash ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3));
    (hash ^ (hash >> 32)) % 100 < skip
}
