//! Trees, walked by several threads at a time.
//!
//! A piece of work is a subtree, or some entries of a directory that is too large for one thread
//! while others have nothing to do. Threads take work from a common list and put there what they
//! find, as long as the list has room; beyond that each keeps a list of its own, of what its own
//! descent left behind. All of these are taken last in, first out, so that they stay short: a tree
//! is walked into the depth before it is walked into the breadth.
//!
//! Invariants: every entry is looked at once, after the directory that it lies in; the lines of an
//! entry come in one piece. One thread alone keeps to the order of names, each directory followed
//! by what lies in it; several keep to none.

use std::{
    ffi::{CStr, CString},
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};
use rustix::fs::{FileType, Mode, OFlags, RawDir};
use sheen_wire::{Errno, FileKind, entries};

use super::{
    entry::{Asking, Entry, Place, errno},
    facts::Facts,
    query::Query,
};

mod told;

/// Subtrees and batches that wait for a thread.
const WAITING_MAX: usize = 4096;
/// Entries of a directory that go to another thread together: enough that handing them over costs
/// little beside them.
const BATCH: usize = 128;
/// Bytes of a directory that are read at a time. As many entries as fit there have their attributes
/// fetched together.
const READ_BYTES: usize = 128 << 10;
/// Bytes of lines after which they are printed.
const LINES_BYTES: usize = 16 << 10;
/// How long lines wait for others, so that one who watches sees them come.
const LINES_WAIT: Duration = Duration::from_millis(100);
/// Pieces of output that wait to be printed.
const OUTPUT_MAX: usize = 64;

/// What comes of a walk.
#[derive(Debug)]
pub enum Output {
    /// Whole lines.
    Lines(Vec<u8>),
    /// What could not be looked at, and why.
    Failed(String, Errno),
}

/// Looks at everything below `roots` with so many threads, and gives what comes of it to `sink`
/// until that answers `false`.
pub fn walk(query: &Query, roots: Vec<CString>, threads: usize, sink: impl FnMut(Output) -> bool) {
    // The last is taken first.
    let root = |path| Work::Tree { path, kind: None, depth: 0 };
    let shared = Shared {
        state: Mutex::new(State { waiting: roots.into_iter().rev().map(root).collect(), busy: threads }),
        more: Condvar::new(),
        idle: AtomicUsize::new(0),
        stopped: AtomicBool::new(false),
    };
    let (to, from) = sync_channel(OUTPUT_MAX);
    thread::scope(|scope| {
        for _ in 0..threads {
            let worker = Worker::new(query, &shared, to.clone(), threads == 1);
            if let Err(e) = thread::Builder::new().spawn_scoped(scope, move || worker.run())
                && shared.leave()
            {
                let _ = to.try_send(Output::Failed(format!("lfs find: cannot start a thread: {e}"), Errno::from(e)));
            }
        }
        drop(to);
        print(from, sink);
        shared.stop();
    });
}

fn print(from: Receiver<Output>, mut sink: impl FnMut(Output) -> bool) {
    while let Ok(output) = from.recv() {
        if !sink(output) {
            return;
        }
    }
}

/// A piece of work.
enum Work {
    /// What a path leads to, and all that lies below.
    Tree { path: CString, kind: Option<FileKind>, depth: u32 },
    /// Entries of a directory that are no directories.
    Batch { dir: Arc<Dir>, entries: Vec<Seen>, depth: u32 },
    /// What is to be printed of an entry when its turn comes.
    Lines(Vec<u8>),
}

/// An entry as a directory tells of it.
type Seen = (CString, Option<FileKind>);

/// An open directory.
struct Dir {
    fd: OwnedFd,
    /// Its path, as it stands before the names in it.
    prefix: Vec<u8>,
}

/// What threads have in common.
struct Shared {
    state: Mutex<State>,
    more: Condvar,
    /// Threads that wait for work.
    idle: AtomicUsize,
    stopped: AtomicBool,
}

struct State {
    waiting: Vec<Work>,
    /// Threads that may still find work.
    busy: usize,
}

impl Shared {
    /// The next piece of work for a thread that has done its last one; none when no thread can find
    /// any more.
    fn next(&self) -> Option<Work> {
        let mut state = self.state.lock();
        state.busy -= 1;
        loop {
            if self.is_stopped() {
                return None;
            }
            if let Some(work) = state.waiting.pop() {
                state.busy += 1;
                return Some(work);
            }
            if state.busy == 0 {
                self.more.notify_all();
                return None;
            }
            self.idle.fetch_add(1, Ordering::Relaxed);
            self.more.wait(&mut state);
            self.idle.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Leaves work to others, if there is room.
    fn offer(&self, work: Work) -> Result<(), Work> {
        let mut state = self.state.lock();
        if state.waiting.len() >= WAITING_MAX {
            return Err(work);
        }
        state.waiting.push(work);
        drop(state);
        if self.idle.load(Ordering::Relaxed) > 0 {
            self.more.notify_one();
        }
        Ok(())
    }

    /// A thread that did not come to be; whether that leaves work to nobody.
    fn leave(&self) -> bool {
        let mut state = self.state.lock();
        state.busy -= 1;
        self.more.notify_all();
        state.busy == 0 && !state.waiting.is_empty()
    }

    fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        // With the lock, so that no thread goes to sleep on the old answer.
        let _state = self.state.lock();
        self.more.notify_all();
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
}

/// A thread.
struct Worker<'a> {
    query: &'a Query,
    shared: &'a Shared,
    to: SyncSender<Output>,
    asking: Asking,
    /// Whether it is the only one, which keeps the order of names.
    alone: bool,
    /// What the common list had no room for.
    own: Vec<Work>,
    /// Lines to be printed, and since when.
    lines: Vec<u8>,
    since: Instant,
    /// For values of extended attributes.
    values: Vec<u8>,
    /// For directories.
    read: Vec<u8>,
    /// For those that tell of their entries.
    room: Option<told::Room>,
    /// For a name.
    name: Vec<u8>,
}

impl<'a> Worker<'a> {
    fn new(query: &'a Query, shared: &'a Shared, to: SyncSender<Output>, alone: bool) -> Worker<'a> {
        Worker {
            query,
            shared,
            to,
            asking: Asking::new(query.wants_birth(), query.lazy).with_sizes(query.needs_sizes()),
            alone,
            own: Vec::new(),
            lines: Vec::new(),
            since: Instant::now(),
            values: Vec::new(),
            read: Vec::with_capacity(READ_BYTES),
            room: None,
            name: Vec::new(),
        }
    }

    fn run(mut self) {
        while let Some(work) = self.next() {
            match work {
                Work::Tree { path, kind, depth } => self.tree(&path, kind, depth),
                Work::Batch { dir, entries, depth } => self.batch(&dir, &entries, depth),
                Work::Lines(lines) => {
                    self.lines.extend(lines);
                    self.send_if_due();
                }
            }
        }
    }

    fn next(&mut self) -> Option<Work> {
        if self.shared.is_stopped() {
            self.own.clear();
        }
        self.own.pop().or_else(|| {
            self.send_lines();
            self.shared.next()
        })
    }

    /// Looks at what a path leads to, and at what lies in it.
    fn tree(&mut self, path: &CStr, kind: Option<FileKind>, depth: u32) {
        let kind = match kind {
            Some(kind) => Ok((kind, false)),
            None => kind_of(path, depth),
        };
        let (kind, follow) = match kind {
            Ok(known) => known,
            Err(e) => return self.failed(path, e, depth),
        };
        self.look(Place::path(path, Some(kind), follow), None, depth);
        if kind == FileKind::Dir && depth < self.query.max_depth {
            self.descend(path, follow, depth + 1);
        }
    }

    /// Reads a directory, whose entries are at `depth`.
    fn descend(&mut self, path: &CStr, follow: bool, depth: u32) {
        let link = if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | link;
        let dir = match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(fd) => Arc::new(Dir { fd, prefix: prefix(path.to_bytes()) }),
            Err(e) => return self.failed(path, errno(e), depth),
        };
        if self.descend_told(&dir, path, depth) {
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
                    ordered.extend(self.kept(&dir, name, kind, None, depth).map(|work| (name.to_owned(), work)));
                }
                Ok(entry) => self.found(&dir, entry.file_name(), kind(entry.file_type()), depth, &mut seen),
                Err(e) => {
                    self.failed(path, errno(e), depth);
                    break;
                }
            }
            if self.shared.is_stopped() {
                break;
            }
        }
        self.read = buffer;
        self.batch(&dir, &seen, depth);
        self.take_in_order(ordered);
    }

    /// What is left to do of a directory's entries, the first name first.
    fn take_in_order(&mut self, mut ordered: Vec<(CString, Work)>) {
        ordered.sort_unstable_by(|(a, _), (b, _)| b.cmp(a));
        self.own.extend(ordered.into_iter().map(|(_, work)| work));
    }

    /// What is left to do of an entry of a directory, for one thread alone. It is looked at now,
    /// since the client fetches attributes ahead of one who asks for them in the directory's own
    /// order, but printed later, in the order of names.
    fn kept(
        &mut self,
        dir: &Dir,
        name: &CStr,
        kind: Option<FileKind>,
        told: Option<&entries::Entry<'_>>,
        depth: u32,
    ) -> Option<Work> {
        if kind.is_none_or(|kind| kind == FileKind::Dir) {
            return Some(Work::Tree { path: dir.path(name), kind, depth });
        }
        let others = std::mem::take(&mut self.lines);
        self.examine(dir.place(name, kind), told, depth);
        let lines = std::mem::replace(&mut self.lines, others);
        (!lines.is_empty()).then_some(Work::Lines(lines))
    }

    /// An entry of a directory, for one thread of several: subtrees are left to whoever comes,
    /// other entries gather in `seen`.
    fn found(&mut self, dir: &Arc<Dir>, name: &CStr, kind: Option<FileKind>, depth: u32, seen: &mut Vec<Seen>) {
        if kind.is_none_or(|kind| kind == FileKind::Dir) {
            return self.leave_tree(dir, name, kind, depth);
        }
        let place = dir.place(name, kind);
        if self.query.is_free() {
            return self.look(place, None, depth);
        }
        if !self.query.is_worth_it(&mut Entry::new(place, self.asking, &mut self.values)) {
            return;
        }
        seen.push((name.to_owned(), kind));
        if seen.len() >= BATCH {
            let entries = std::mem::take(seen);
            // Left to others only while they wait, so batches are few, and with them open
            // directories.
            let idle = self.shared.idle.load(Ordering::Relaxed) > 0;
            let batch = Work::Batch { dir: dir.clone(), entries, depth };
            let mine = if idle { self.shared.offer(batch).err() } else { Some(batch) };
            if let Some(Work::Batch { dir, entries, depth }) = mine {
                self.batch(&dir, &entries, depth);
            }
        }
    }

    /// Leaves a subtree to whoever comes.
    fn leave_tree(&mut self, dir: &Dir, name: &CStr, kind: Option<FileKind>, depth: u32) {
        let tree = Work::Tree { path: dir.path(name), kind, depth };
        if let Err(tree) = self.shared.offer(tree) {
            self.own.push(tree);
        }
    }

    fn batch(&mut self, dir: &Dir, entries: &[Seen], depth: u32) {
        for (name, kind) in entries {
            if self.shared.is_stopped() {
                return;
            }
            self.look(dir.place(name, *kind), None, depth);
        }
    }

    /// Prints an entry if it is what is looked for.
    fn look(&mut self, place: Place<'_>, told: Option<&entries::Entry<'_>>, depth: u32) {
        self.examine(place, told, depth);
        self.send_if_due();
    }

    fn examine(&mut self, place: Place<'_>, told: Option<&entries::Entry<'_>>, depth: u32) {
        if depth < self.query.min_depth {
            return;
        }
        let mut entry = Entry::new(place, self.asking, &mut self.values).told(told);
        let looked = self.query.matches(&mut entry).and_then(|matches| {
            if matches && !is_skipped(&entry, self.query.skip) {
                self.query.format.write(&mut entry, &mut self.lines)?;
            }
            Ok(())
        });
        if let Err(e) = looked {
            let mut path = Vec::new();
            entry.write_path(&mut path);
            self.failed(&CString::new(path).unwrap_or_default(), e, depth);
        }
    }

    fn send_if_due(&mut self) {
        if self.lines.len() >= LINES_BYTES || (!self.lines.is_empty() && self.since.elapsed() >= LINES_WAIT) {
            self.send_lines();
        }
    }

    fn send_lines(&mut self) {
        self.since = Instant::now();
        if !self.lines.is_empty() {
            let lines = std::mem::take(&mut self.lines);
            self.send(Output::Lines(lines));
        }
    }

    /// What could not be looked at. What went away since its directory was read is no failure.
    fn failed(&mut self, path: &CStr, e: Errno, depth: u32) {
        let path = path.to_string_lossy();
        match (e, depth) {
            (e, 0) => self.send(Output::Failed(format!("lfs: failed for '{path}': {e}"), e)),
            // A directory that is removed and made again all the time is not the one that was read.
            (Errno::ENOENT | Errno::ESTALE, _) => {}
            (e, _) => self.send(Output::Failed(format!("lfs find: cannot look at '{path}': {e} ({})", e.0), e)),
        }
    }

    fn send(&mut self, output: Output) {
        if self.to.send(output).is_err() {
            self.shared.stop();
        }
    }
}

impl Dir {
    fn place<'a>(&'a self, name: &'a CStr, kind: Option<FileKind>) -> Place<'a> {
        Place { at: self.fd.as_fd(), name, prefix: &self.prefix, kind, follow: false }
    }

    fn path(&self, name: &CStr) -> CString {
        // Neither part has a NUL in it.
        CString::new([&self.prefix, name.to_bytes()].concat()).unwrap_or_default()
    }
}

/// A directory's path as it stands before the names in it.
fn prefix(path: &[u8]) -> Vec<u8> {
    let mut prefix = path.to_vec();
    if prefix.last() != Some(&b'/') {
        prefix.push(b'/');
    }
    prefix
}

/// What a path leads to, and whether a link was followed: an operand that leads to a directory
/// stands for it.
fn kind_of(path: &CStr, depth: u32) -> Result<(FileKind, bool), Errno> {
    let kind = |follow| {
        let mut values = Vec::new();
        Entry::new(Place::path(path, None, follow), Asking::new(false, false), &mut values).kind()
    };
    match (depth, kind(false)?) {
        (0, FileKind::Symlink) if kind(true) == Ok(FileKind::Dir) => Ok((FileKind::Dir, true)),
        (_, kind) => Ok((kind, false)),
    }
}

/// What a directory says of an entry's kind; not all file systems' do.
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

/// Whether an entry is among those of 100 that are left out: by its path, so that it is so again
/// the next time.
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

#[cfg(test)]
mod tests;
