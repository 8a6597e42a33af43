//! Walks of directory trees by several threads.
//!
//! A piece of work is a subtree, or a batch of entries of a directory that is large while other
//! threads are idle. Threads take work from a shared list. They put new work there as long as the
//! list has room. Beyond that, each thread has a list of its own for the work that its own descent
//! leaves. All lists are last in, first out: the walk goes depth-first, so the lists stay short.
//!
//! Invariants:
//! * Every entry is examined once, after the directory that it lies in.
//! * The lines of an entry are printed in one piece.
//! * A single thread prints in the order of names, each directory followed by its contents. Several
//!   threads print in no order.

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

/// Most subtrees and batches that wait for a thread.
const WAITING_MAX: usize = 4096;
/// Entries of a batch: enough that handing it to another thread costs little in comparison.
const BATCH: usize = 128;
/// Bytes of a directory that are read at a time. The attributes of the entries that fit are fetched
/// together.
const READ_BYTES: usize = 128 << 10;
/// Bytes of lines that are collected before they are printed.
const LINES_BYTES: usize = 16 << 10;
/// Longest delay of collected lines, so that users see results soon.
const LINES_WAIT: Duration = Duration::from_millis(100);
/// Most pieces of output that wait to be printed.
const OUTPUT_MAX: usize = 64;

/// The output of a walk.
#[derive(Debug)]
pub enum Output {
    /// Whole lines.
    Lines(Vec<u8>),
    /// The message about an entry that could not be examined, and its errno.
    Failed(String, Errno),
}

/// Examines everything below `roots` with this many threads. Passes the output to `sink` until
/// `sink` returns false.
pub fn walk(query: &Query, roots: Vec<CString>, threads: usize, sink: impl FnMut(Output) -> bool) {
    // The list is last in, first out.
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
    /// A path and everything below it.
    Tree { path: CString, kind: Option<FileKind>, depth: u32 },
    /// Entries of a directory that are not directories.
    Batch { dir: Arc<Dir>, entries: Vec<Seen>, depth: u32 },
    /// Lines of an entry that are printed when its turn comes.
    Lines(Vec<u8>),
}

/// Name and file type of an entry, as its directory returned them.
type Seen = (CString, Option<FileKind>);

/// An open directory.
struct Dir {
    fd: OwnedFd,
    /// Its path with a slash at the end: the prefix of its entries' paths.
    prefix: Vec<u8>,
}

/// The state that the threads share.
struct Shared {
    state: Mutex<State>,
    more: Condvar,
    /// Number of threads that wait for work.
    idle: AtomicUsize,
    stopped: AtomicBool,
}

struct State {
    waiting: Vec<Work>,
    /// Number of threads that may still add work.
    busy: usize,
}

impl Shared {
    /// Returns the next piece of work for a thread that has finished its last one. `None`: the walk
    /// has stopped, or no thread can add work any more.
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

    /// Puts work on the shared list. Returns the work if the list is full.
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

    /// Counts out a thread that could not be started. Returns whether no thread is left for waiting
    /// work.
    fn leave(&self) -> bool {
        let mut state = self.state.lock();
        state.busy -= 1;
        self.more.notify_all();
        state.busy == 0 && !state.waiting.is_empty()
    }

    fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        // Takes the lock, so that no thread goes to sleep after it has read the old value.
        let _state = self.state.lock();
        self.more.notify_all();
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
}

/// A thread of the walk.
struct Worker<'a> {
    query: &'a Query,
    shared: &'a Shared,
    to: SyncSender<Output>,
    asking: Asking,
    /// Whether it is the only thread, which prints in the order of names.
    alone: bool,
    /// Work that the shared list had no room for.
    own: Vec<Work>,
    /// Collected lines, and the time at which lines were sent last.
    lines: Vec<u8>,
    since: Instant,
    /// Buffer for values of extended attributes.
    values: Vec<u8>,
    /// Buffer for reading directories.
    read: Vec<u8>,
    /// Buffer for directories that return attributes of their entries.
    room: Option<told::Room>,
    /// Buffer for a name.
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
        self.look(Place::path(path, Some(kind), follow), None, depth);
        if kind == FileKind::Dir && depth < self.query.max_depth {
            self.descend(path, follow, depth + 1);
        }
    }

    /// Reads a directory whose entries are at `depth`.
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

    /// Adds the work of a directory's entries, so that the first name is taken first.
    fn take_in_order(&mut self, mut ordered: Vec<(CString, Work)>) {
        ordered.sort_unstable_by(|(a, _), (b, _)| b.cmp(a));
        self.own.extend(ordered.into_iter().map(|(_, work)| work));
    }

    /// Returns the remaining work of a directory's entry, if this is the only thread. A directory
    /// is walked later. Any other entry is examined now, because the client's statahead follows the
    /// directory's own order. Its lines are printed later, in the order of names.
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

    /// Handles an entry of a directory, if there are several threads. Subtrees are offered to all
    /// threads. Other entries are collected in `seen`.
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
            // Batches are offered only while threads are idle. They are therefore few, and so are
            // the directories that they leave open.
            let idle = self.shared.idle.load(Ordering::Relaxed) > 0;
            let batch = Work::Batch { dir: dir.clone(), entries, depth };
            let mine = if idle { self.shared.offer(batch).err() } else { Some(batch) };
            if let Some(Work::Batch { dir, entries, depth }) = mine {
                self.batch(&dir, &entries, depth);
            }
        }
    }

    /// Offers a subtree to all threads, or adds it to this thread's own list.
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

    /// Prints an entry if it matches.
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

    /// Reports a failure. An entry that was deleted after its directory was read is not a failure.
    fn failed(&mut self, path: &CStr, e: Errno, depth: u32) {
        let path = path.to_string_lossy();
        match (e, depth) {
            (e, 0) => self.send(Output::Failed(format!("lfs: failed for '{path}': {e}"), e)),
            // ESTALE: the directory is deleted and created again all the time, and is no longer the
            // one that was read.
            (Errno::ENOENT | Errno::ESTALE, _) => {}
            (e, _) => self.send(Output::Failed(format!("lfs find: cannot access '{path}': {e} ({})", e.0), e)),
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
        // Neither part contains a NUL.
        CString::new([&self.prefix, name.to_bytes()].concat()).unwrap_or_default()
    }
}

/// Returns a directory's path with a slash at the end.
fn prefix(path: &[u8]) -> Vec<u8> {
    let mut prefix = path.to_vec();
    if prefix.last() != Some(&b'/') {
        prefix.push(b'/');
    }
    prefix
}

/// Returns the file type of a path, and whether a link was followed. An operand that links to a
/// directory is followed.
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

#[cfg(test)]
mod tests;
