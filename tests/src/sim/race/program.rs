//! A program of a race. It runs random operations one after another and records their replies.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use fastrand::Rng;
use sheen_client::{Caller, Client, Invalidate, OpenFile, falloc};
use sheen_wire::{
    Bulk, Errno, Fid, Result,
    ldlm::{Flock, FlockKind, Mode},
    mds::{SetAttr, flags},
};

use super::{
    bytes::{FileChange, NUMBERS, Seen, fill, runs},
    fcntl_locks::Turn,
    kernel::Kernel,
    log::{Read, record},
    names::{Name, NameReply, NameRequest},
    record::{LOG, Synced, TROUBLES},
    span::Span,
    stage::{DIRS, NAMES, RENAMES, Stage, name},
};
use crate::sim::perform::entries;

const ROOT_USER: &Caller = &Caller::ROOT;
/// Bytes of a read of the log: more than the log ever has.
const LOG_MAX: usize = 1 << 20;
/// Operations that may fail with ENOSPC on a full disk. A truncate needs space if the component
/// that gets the new end has no objects yet.
const GROWS: [&str; 4] = ["Write", "Cut", "append", "counting"];

/// Flags with which files are opened.
const OPENS: [u32; 5] =
    [flags::RDWR, flags::RDWR, flags::RDWR | flags::DIRECT, flags::RDONLY, flags::RDWR | flags::DSYNC];

/// The last record number. Records of all programs have different numbers.
#[derive(Default)]
pub struct Numbers(AtomicU32);

/// A program of a race.
pub struct Program {
    stage: Arc<Stage>,
    numbers: Arc<Numbers>,
    client: usize,
    id: u64,
    rng: Rng,
    open: Vec<Option<Arc<OpenFile>>>,
    log: Option<Arc<OpenFile>>,
    known: Vec<Fid>,
}

impl Program {
    /// Creates program number `id` on a client's host.
    pub fn new(stage: &Arc<Stage>, numbers: &Arc<Numbers>, client: usize, id: u64, seed: u64) -> Program {
        let open = vec![None; stage.files.len()];
        let rng = Rng::with_seed(seed.wrapping_mul(1009).wrapping_add(id));
        let (stage, numbers) = (stage.clone(), numbers.clone());
        Program { stage, numbers, client, id, rng, open, log: None, known: Vec::new() }
    }

    /// Runs operations until none are left.
    pub async fn run(mut self) {
        while self.stage.take() {
            if self.rng.u32(0..3) == 0 {
                let pause = Duration::from_micros(self.rng.u64(0..3000));
                self.stage.client_hosts[self.client].rt.sleep(pause).await;
            }
            self.one().await;
        }
        for file in std::mem::take(&mut self.open).into_iter().chain([self.log.take()]).flatten() {
            let _ = self.mount().release(file).await;
        }
    }

    fn mount(&self) -> Arc<Client> {
        self.stage.client_hosts[self.client].client.clone()
    }

    fn kernel(&self) -> Option<&Arc<Kernel>> {
        self.stage.client_hosts[self.client].kernel.as_ref()
    }

    fn tick(&self) -> u64 {
        self.stage.clock.tick()
    }

    fn note(&self, what: impl FnOnce() -> String) {
        self.stage.world.note(&format!("client {} program {}: {}", self.client, self.id, what()));
    }

    /// Handles a failed operation: asserts that it was allowed to fail.
    fn failed(&self, what: &str, from: u64, errno: Errno) {
        let span = Span { from, to: self.tick() };
        self.note(|| format!("{what} failed: {errno}"));
        let excused = self.stage.record().excuses(self.client, span, errno) || self.stage.may_be_unreached(errno);
        // Dirty data has a grant, so no sync fails with ENOSPC.
        let plan = &self.stage.plan;
        // The mirror in which a hole is punched may have no objects yet.
        let grows = plan.has_mirrors() && what.starts_with("Hole") || GROWS.iter().any(|g| what.starts_with(g));
        let full = errno == Errno::ENOSPC && plan.tight.is_some() && grows;
        assert!(excused || full, "client {}: {what} at {span:?} failed with {errno}", self.client);
    }

    async fn one(&mut self) {
        let weights = self.stage.plan.weights;
        let mut at = self.rng.u32(0..weights.iter().sum());
        let kind = weights.iter().position(|w| at.checked_sub(*w).map(|rest| at = rest).is_none());
        match kind {
            Some(0) => self.bytes().await,
            Some(1) => self.names().await,
            Some(2) => self.append().await,
            _ => self.turn().await,
        }
    }
}

/// Operations on the data of files.
impl Program {
    async fn bytes(&mut self) {
        let file = self.rng.usize(0..self.stage.files.len());
        let open = match self.open[file].take() {
            Some(open) if self.rng.u32(0..10) > 0 => open,
            before => match self.reopen(file, before).await {
                Some(open) => open,
                None => return,
            },
        };
        self.open[file] = Some(open.clone());
        match self.rng.u32(0..100) {
            0..40 => self.write(file, &open).await,
            40..68 => self.read(file, &open).await,
            68..78 => self.size(file).await,
            78..86 => self.cut(file, &open).await,
            86..91 => self.hole(file, &open).await,
            _ => self.sync(file, &open).await,
        }
    }

    async fn reopen(&mut self, file: usize, before: Option<Arc<OpenFile>>) -> Option<Arc<OpenFile>> {
        let (mount, fid, from) = (self.mount(), self.stage.files[file], self.tick());
        if let Some(before) = before
            && let Err(errno) = mount.release(before).await
        {
            self.failed("close", from, errno);
        }
        let flags = OPENS[self.rng.usize(0..OPENS.len())];
        let opened = mount.open(ROOT_USER, fid, flags).await;
        if let (Ok(opened), Some(kernel)) = (&opened, self.kernel()) {
            kernel.opened(opened);
        }
        opened.inspect_err(|errno| self.failed("open", from, *errno)).ok()
    }

    fn offset(&mut self) -> u64 {
        let reach = self.stage.plan.reach;
        match self.rng.u32(0..10) {
            0 => 0,
            1..4 => self.rng.u64(0..reach.min(9000)),
            4..7 => self.rng.u64(0..=reach >> 12) << 12,
            _ => self.rng.u64(0..reach),
        }
    }

    fn len(&mut self) -> usize {
        match self.rng.u32(0..20) {
            0 => self.rng.usize(0..self.stage.plan.reach as usize),
            1..4 => 4096 << self.rng.u32(0..3),
            4..6 => 47_008 % self.stage.plan.reach as usize,
            _ => self.rng.usize(1..6000),
        }
    }

    /// Executes and records a change. Returns its time if it succeeded.
    async fn change(&self, file: usize, change: FileChange, done: impl Future<Output = Result<()>>) -> Option<Span> {
        self.note(|| format!("file {file}: {change:?}"));
        let from = self.tick();
        let number = self.stage.record().change(file, self.client, from, change);
        let (fid, (start, end)) = (self.stage.files[file], change.range());
        if let (Some(kernel), true) = (self.kernel(), is_write(&change)) {
            kernel.drop_pages(fid, start, end);
        }
        let done = done.await;
        if let Some(kernel) = self.kernel() {
            kernel.attr(fid);
            if !is_write(&change) {
                kernel.drop_pages(fid, start, end);
            }
        }
        match done {
            Ok(()) => {
                let to = self.tick();
                self.note(|| format!("file {file}: {change:?} done"));
                self.stage.record().changed(file, number, to);
                Some(Span { from, to })
            }
            Err(errno) => {
                self.failed(&format!("{change:?}"), from, errno);
                None
            }
        }
    }

    async fn write(&mut self, file: usize, open: &Arc<OpenFile>) {
        let number = 1 + self.stage.record().writes(file, self.stage.plan.swaps());
        if number > usize::from(NUMBERS) || !flags::writes(open.flags()) {
            return;
        }
        let (offset, len, number) = (self.offset(), self.len(), number as u8);
        let data = Bulk::from(bytes::Bytes::from(fill(number, offset, len)));
        let change = FileChange::Write { offset, len: len as u64, number };
        let (mount, from) = (self.mount(), self.tick());
        let done = async {
            let written = mount.write(open, offset, data).await;
            self.whole(written, len)
        };
        let done = self.change(file, change, done).await;
        if open.syncs() {
            // A successful O_SYNC write guarantees only its own bytes. But like an fsync, it
            // reports lost data.
            let span = done.unwrap_or(Span { from, to: self.tick() });
            let done = done.is_some();
            self.stage.record().synced.push(Synced { span, client: self.client, file, write: true, done });
        }
    }

    /// Converts a short write into an error. A write is short only if an OST is full or cannot be
    /// reached. Its effect is then unknown.
    fn whole(&self, written: Result<usize>, len: usize) -> Result<()> {
        match written? {
            n if n == len => Ok(()),
            n if self.stage.plan.tight.is_some() && n < len => Err(Errno::ENOSPC),
            n => {
                self.note(|| format!("{n} bytes of {len} were written"));
                Err(Errno::EIO)
            }
        }
    }

    async fn read(&mut self, file: usize, open: &Arc<OpenFile>) {
        let whole = self.rng.u32(0..8) == 0;
        let (offset, len) = if whole { (0, 2 * self.stage.plan.reach as usize) } else { (self.offset(), self.len()) };
        self.read_at(file, open, offset, len).await;
    }

    async fn read_at(&self, file: usize, open: &Arc<OpenFile>, offset: u64, len: usize) {
        self.note(|| format!("file {file}: read {len} at {offset}"));
        let from = self.tick();
        let mount = self.mount();
        // A read through the page cache is not atomic: its pages may come from different moments.
        let (read, one) = match self.kernel().filter(|_| open.cached()) {
            Some(kernel) => (kernel.read(&mount, open, offset, len).await, false),
            None => (mount.read_as(open, offset, len, false).await.map(|data| data.into_bytes().into()), true),
        };
        let span = Span { from, to: self.tick() };
        match read {
            Ok(data) => {
                let runs = runs(offset, std::iter::once(&data[..]));
                self.note(|| format!("file {file}: {} bytes: {runs:?}", data.len()));
                let size = (!data.is_empty()).then_some((offset + data.len() as u64, data.len() == len || !one));
                self.stage.record().saw(file, Seen { span, client: self.client, offset, runs, size });
            }
            Err(errno) => self.failed("read", from, errno),
        }
    }

    async fn size(&self, file: usize) {
        let from = self.tick();
        let (mount, fid) = (self.mount(), self.stage.files[file]);
        let size = match self.kernel() {
            Some(kernel) => kernel.size(&mount, fid).await,
            None => mount.getattr(fid, None).await.map(|attr| attr.attr.size),
        };
        let span = Span { from, to: self.tick() };
        match size {
            Ok(size) => {
                self.note(|| format!("file {file}: {size} bytes"));
                let size = Some((size, false));
                let seen = Seen { span, client: self.client, offset: 0, runs: Vec::new(), size };
                self.stage.record().saw(file, seen);
            }
            Err(errno) => self.failed("stat", from, errno),
        }
    }

    async fn cut(&mut self, file: usize, open: &Arc<OpenFile>) {
        let size = self.offset();
        let (mount, fid) = (self.mount(), self.stage.files[file]);
        let through = (self.rng.bool() && flags::writes(open.flags())).then(|| open.clone());
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        let done = async { mount.setattr(ROOT_USER, fid, set, through.as_deref()).await.map(drop) };
        self.change(file, FileChange::Cut { size }, done).await;
    }

    async fn hole(&mut self, file: usize, open: &Arc<OpenFile>) {
        if !flags::writes(open.flags()) {
            return;
        }
        let (offset, len) = (self.offset(), 1 + self.len() as u64);
        let mount = self.mount();
        let done = async { mount.fallocate(open, falloc::PUNCH_HOLE | falloc::KEEP_SIZE, offset, len).await };
        self.change(file, FileChange::Hole { offset, len }, done).await;
    }

    async fn sync(&self, file: usize, open: &Arc<OpenFile>) {
        let from = self.tick();
        let done = self.mount().fsync(open, false).await;
        let span = Span { from, to: self.tick() };
        self.stage.record().synced.push(Synced { span, client: self.client, file, write: false, done: done.is_ok() });
        if let Err(errno) = done {
            self.failed("fsync", from, errno);
        }
    }
}

fn is_write(change: &FileChange) -> bool {
    matches!(change, FileChange::Write { .. })
}

/// Operations on names.
impl Program {
    fn name(&mut self) -> Name {
        (self.rng.u8(0..DIRS), self.rng.u8(0..NAMES))
    }

    fn dir(&self, name: Name) -> Fid {
        self.stage.dirs[usize::from(name.0)]
    }

    async fn names(&mut self) {
        let (a, b) = (self.name(), self.name());
        let known = (!self.known.is_empty()).then(|| self.known[self.rng.usize(0..self.known.len())]);
        let ask = match self.rng.u32(0..100) {
            0..25 => NameRequest::Lookup(a),
            25..30 => return self.list(a.0).await,
            30..55 => NameRequest::Create(a, self.rng.bool()),
            55..70 => NameRequest::Unlink(a),
            70..90 => NameRequest::Rename(a, b, RENAMES[self.rng.usize(0..RENAMES.len())]),
            90..95 => known.map_or(NameRequest::Lookup(a), |fid| NameRequest::Link(fid, a)),
            _ => known.map_or(NameRequest::Lookup(a), NameRequest::Links),
        };
        self.ask(ask).await;
    }

    async fn ask(&mut self, ask: NameRequest) {
        self.note(|| format!("{ask:?}"));
        let from = self.tick();
        let number = self.stage.record().ask(self.client, from, ask);
        let (answer, file) = self.answer(ask).await;
        let to = self.tick();
        self.note(|| format!("{ask:?} answered {answer:?}"));
        match answer {
            Err(errno) if TROUBLES.contains(&errno) => self.failed(&format!("{ask:?}"), from, errno),
            _ => self.stage.record().answered(number, to, answer),
        }
        if let Ok(NameReply::File(fid)) = answer {
            self.known.push(fid);
            self.known.drain(..self.known.len().saturating_sub(8));
        }
        if let Some(file) = file
            && let Err(errno) = self.mount().release(file).await
        {
            self.failed("close", from, errno);
        }
    }

    async fn answer(&self, ask: NameRequest) -> (Result<NameReply>, Option<Arc<OpenFile>>) {
        let mount = self.mount();
        let file = |answer: Result<sheen_client::EntryAttr>| answer.map(|a| NameReply::File(a.attr.fid));
        let answer = match ask {
            NameRequest::Lookup(n) => file(mount.lookup(ROOT_USER, self.dir(n), &name(n.1)).await),
            // An orphan that is still open counts as deleted.
            NameRequest::Links(fid) => match mount.getattr(fid, None).await {
                Ok(attr) if attr.attr.nlink == 0 => Err(Errno::ENOENT),
                other => other.map(|a| NameReply::Count(a.attr.nlink)),
            },
            NameRequest::Create(n, excl) => {
                let flags = flags::CREAT | flags::RDWR | if excl { flags::EXCL } else { 0 };
                match mount.create(ROOT_USER, self.dir(n), &name(n.1), flags, 0o644, 0).await {
                    Ok((attr, open)) => return (Ok(NameReply::File(attr.attr.fid)), Some(open)),
                    Err(errno) => Err(errno),
                }
            }
            NameRequest::Unlink(n) => mount.unlink(ROOT_USER, self.dir(n), &name(n.1)).await.map(|()| NameReply::Done),
            NameRequest::Link(fid, n) => file(mount.link(ROOT_USER, fid, self.dir(n), &name(n.1)).await),
            NameRequest::Rename(a, b, how) => {
                let (from, to) = ((self.dir(a), name(a.1)), (self.dir(b), name(b.1)));
                mount.rename(ROOT_USER, from.0, &from.1, to.0, &to.1, how).await.map(|()| NameReply::Done)
            }
        };
        (answer, None)
    }

    async fn list(&mut self, dir: u8) {
        let (page, plus) = (self.rng.u32(100..2000), self.rng.bool());
        let from = self.tick();
        let found = entries(&self.mount(), self.stage.dirs[usize::from(dir)], page, plus).await;
        let span = Span { from, to: self.tick() };
        match found {
            Ok(found) => {
                let mut record = self.stage.record();
                for n in 0..NAMES {
                    let text = String::from_utf8_lossy(&name(n)).into_owned();
                    let reply = found.get(&text).map(|e| NameReply::File(e.0)).ok_or(Errno::ENOENT);
                    record.looked(self.client, span, NameRequest::Lookup((dir, n)), reply);
                }
            }
            Err(errno) => self.failed("readdir", from, errno),
        }
    }
}

/// Operations on the log and on the counter.
impl Program {
    async fn append(&mut self) {
        let mount = self.mount();
        let from = self.tick();
        let open = match self.log.take() {
            Some(open) => open,
            None => match mount.open(ROOT_USER, self.stage.log, flags::RDWR | flags::APPEND).await {
                Ok(open) => open,
                Err(errno) => return self.failed("open", from, errno),
            },
        };
        self.log = Some(open.clone());
        match self.rng.u32(0..10) {
            0..6 => self.append_one(&open).await,
            6..9 => self.read_log(&open).await,
            _ => self.sync_log(&open).await,
        }
    }

    async fn append_one(&mut self, open: &Arc<OpenFile>) {
        let number = self.numbers.0.fetch_add(1, Relaxed) + 1;
        let noise = if self.rng.u32(0..10) == 0 { self.rng.usize(0..70_000) } else { self.rng.usize(0..3000) };
        let bytes = record(number, noise);
        let len = bytes.len();
        self.note(|| format!("appends record {number} of {len} bytes"));
        let from = self.tick();
        let place = self.stage.record().append(self.client, from, number, len);
        let written = self.mount().write(open, 0, Bulk::from(bytes::Bytes::from(bytes))).await;
        match self.whole(written, len) {
            Ok(_) => {
                let to = self.tick();
                self.note(|| format!("record {number} is appended"));
                self.stage.record().log.appends[place].span.to = to;
            }
            Err(errno) => self.failed("append", from, errno),
        }
    }

    async fn read_log(&self, open: &Arc<OpenFile>) {
        let from = self.tick();
        let read = self.mount().read(open, 0, LOG_MAX).await;
        let span = Span { from, to: self.tick() };
        match read {
            Ok(data) => {
                self.note(|| format!("the log has {} bytes", data.len()));
                let read = Read { span, client: self.client, bytes: data.into_bytes().to_vec() };
                self.stage.record().log.reads.push(read);
            }
            Err(errno) => self.failed("read", from, errno),
        }
    }

    async fn sync_log(&self, open: &Arc<OpenFile>) {
        let from = self.tick();
        let done = self.mount().fsync(open, false).await;
        let span = Span { from, to: self.tick() };
        self.stage.record().synced.push(Synced {
            span,
            client: self.client,
            file: LOG,
            write: false,
            done: done.is_ok(),
        });
        if let Err(errno) = done {
            self.failed("fsync", from, errno);
        }
    }

    /// Takes the fcntl lock, reads the counter, increments it if the lock is exclusive, and
    /// releases the lock.
    async fn turn(&mut self) {
        let (mount, fid, from) = (self.mount(), self.stage.counter, self.tick());
        let shared = self.rng.u32(0..3) == 0;
        let wanted = if shared { Mode::Pr } else { Mode::Pw };
        let owner = self.id + 1;
        let flock = Flock { start: 0, end: u64::MAX, owner, pid: owner as u32, kind: FlockKind::Posix };
        if let Err(errno) = mount.lock(fid, flock, wanted, true, std::future::pending()).await {
            return self.failed("lock", from, errno);
        }
        let from = self.tick();
        let (client, span) = (self.client, Span { from, to: Span::NEVER });
        let place = {
            let mut record = self.stage.record();
            // `found` and `counted` are set once the counter has been read.
            record.turns.push(Turn { span, client, shared, lost: false, found: 0, counted: false });
            record.turns.len() - 1
        };
        self.note(|| format!("has the lock, shared: {shared}"));
        let counted = self.count(&mount, fid, shared, place).await;
        let to = self.tick();
        self.stage.record().turns[place].span.to = to;
        self.note(|| format!("releases the lock: {counted:?}"));
        if let Err(errno) = counted {
            self.failed("counting", from, errno);
        }
        if let Err(errno) = mount.lock(fid, flock, Mode::Nl, true, std::future::pending()).await {
            self.failed("unlock", from, errno);
        }
    }

    async fn count(&self, mount: &Client, fid: Fid, shared: bool, place: usize) -> Result<()> {
        let file = mount.open(ROOT_USER, fid, flags::RDWR).await?;
        let bytes = mount.read(&file, 0, 8).await?.into_bytes();
        let found = bytes.first_chunk::<8>().map_or(0, |b| u64::from_le_bytes(*b));
        self.stage.record().turns[place].found = found;
        if !shared {
            let next = bytes::Bytes::copy_from_slice(&(found + 1).to_le_bytes());
            mount.write(&file, 0, Bulk::from(next)).await?;
        }
        self.stage.record().turns[place].counted = true;
        mount.release(file).await
    }
}

/// Operations after the race.
impl Program {
    /// Reads all files, all names and the log.
    pub async fn look(mut self) {
        for file in 0..self.stage.files.len() {
            let open = self.mount().open(ROOT_USER, self.stage.files[file], flags::RDONLY).await;
            let open = open.expect("the race is over");
            self.size(file).await;
            self.read_at(file, &open, 0, 2 * self.stage.plan.reach as usize).await;
            self.mount().release(open).await.expect("the race is over");
        }
        for dir in 0..DIRS {
            self.list(dir).await;
            for n in 0..NAMES {
                self.ask(NameRequest::Lookup((dir, n))).await;
            }
        }
        let open = self.mount().open(ROOT_USER, self.stage.log, flags::RDONLY).await.expect("the race is over");
        self.read_log(&open).await;
        self.mount().release(open).await.expect("the race is over");
    }
}
