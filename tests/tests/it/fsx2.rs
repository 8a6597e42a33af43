//! Random operations through two mounts, each checked against a model.
//!
//! * One file, also while it is migrated from layout to layout. The operations are reads, writes,
//!   truncates, mappings, holes and appends, with and without `O_DIRECT`. Each goes through one of
//!   two mounts. The model is a vector of bytes.
//! * A tree. The operations are creates, removals, renames, links, modes and listings. The model is
//!   a directory on a local file system, where each operation is repeated.
//!
//! The operations are the same in each run. With `SHEEN_SOAK` there are more of them, from a random
//! seed, which is printed. `SHEEN_FSX_OPS` sets the number of operations, `SHEEN_FSX_SEED` the
//! seed.

use std::{
    collections::VecDeque,
    fmt,
    fs::{self, File, OpenOptions},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use fastrand::Rng;
use rustix::{
    fs::{AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, RenameFlags},
    io::Errno,
};
use sheen_tests::{
    can_mount,
    mounts::TwoMounts,
    posix::Map,
    progress::{Party, Race, at_least},
    relayout::COMMAND_MAX,
    run_within, sheen,
    wait::{eventually_some, let_pass},
};

/// Default number of operations. Each test takes less than half a minute.
const OPS_DEFAULT: u64 = 9_000;
/// Number of operations with `SHEEN_SOAK`. Each test takes more than a minute.
const OPS_SOAK: u64 = 45_000;
/// Seed without `SHEEN_SOAK`.
const SEED_DEFAULT: u64 = 20_261_123;
/// A test hangs if it takes longer than this, or than `OP_MAX` for each operation.
const LIMIT: Duration = Duration::from_secs(580);
/// Ten times what an operation takes.
const OP_MAX: Duration = Duration::from_millis(20);
/// The file's largest size: four stripes on each of four OSTs.
const SIZE_MAX: usize = 1 << 20;
/// The last operations, printed at a failure.
const HISTORY: usize = 40;
const O_DIRECT: i32 = 0o40000;
const PAGE: usize = 4096;

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|v| v.parse().unwrap_or_else(|_| panic!("invalid {name}={v}: expected a number")))
}

/// Returns the number of operations, the time that they may take, and the seed.
fn plan() -> (u64, Duration, u64) {
    let is_soak = std::env::var_os("SHEEN_SOAK").is_some();
    let ops = setting("SHEEN_FSX_OPS").unwrap_or(if is_soak { OPS_SOAK } else { OPS_DEFAULT });
    let random = || {
        let now = std::time::UNIX_EPOCH.elapsed().expect("a clock after 1970");
        u64::from(now.subsec_nanos() ^ now.as_secs() as u32)
    };
    let seed = setting("SHEEN_FSX_SEED").unwrap_or_else(|| if is_soak { random() } else { SEED_DEFAULT });
    println!("SHEEN_FSX_SEED={seed} SHEEN_FSX_OPS={ops}");
    (ops, LIMIT.max(OP_MAX * ops as u32), seed)
}

/// An operation on the file.
#[derive(Clone, Copy, Debug)]
enum Op {
    Read { at: usize, len: usize },
    ReadDirect { at: usize, len: usize },
    ReadMap { at: usize, len: usize },
    Write { at: usize, len: usize },
    WriteDirect { at: usize, len: usize },
    WriteMap { at: usize, len: usize },
    Append { len: usize },
    Truncate { to: usize },
    TruncatePath { to: usize },
    Punch { at: usize, len: usize },
    Allocate { at: usize, len: usize },
    Stat,
    StatOpen,
    Reopen,
    Remap,
    Sync,
    Copy { from: usize, to: usize, len: usize },
}

/// The file, as one mount has it open.
struct View {
    path: PathBuf,
    cached: File,
    direct: File,
    append: File,
    map: Map,
    /// Buffer that contains [`SIZE_MAX`] bytes from a page boundary on.
    room: Vec<u8>,
}

impl View {
    fn open(path: PathBuf) -> View {
        let options = |append: bool, flags| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).append(append).custom_flags(flags);
            options.open(&path).unwrap()
        };
        let (cached, direct, append) = (options(false, 0), options(false, O_DIRECT), options(true, 0));
        let map = Map::new(&cached, SIZE_MAX);
        View { cached, direct, append, map, room: vec![0; SIZE_MAX + PAGE], path }
    }

    fn aligned(&mut self, len: usize) -> (&File, &mut [u8]) {
        let skip = self.room.as_ptr().align_offset(PAGE);
        (&self.direct, &mut self.room[skip..skip + len])
    }
}

/// The model of the file, and its views on both mounts.
struct OneFile {
    model: Vec<u8>,
    views: [View; 2],
    /// Operations so far.
    count: u64,
    history: VecDeque<(u64, usize, Op)>,
    rng: Rng,
}

impl OneFile {
    fn new(views: [View; 2], seed: u64) -> OneFile {
        OneFile { model: Vec::new(), views, count: 0, history: VecDeque::new(), rng: Rng::with_seed(seed) }
    }

    fn pick(&mut self) -> Op {
        let size = self.model.len();
        let rng = &mut self.rng;
        let mut range = |max: usize, page: usize| {
            let at = rng.usize(..max.max(1)) / page * page;
            let most = if rng.u8(..10) == 0 { 200_000 } else { 10_000 };
            (at, (rng.usize(1..most).next_multiple_of(page)).min(SIZE_MAX - at))
        };
        let ((at, len), (page_at, page_len)) = (range(SIZE_MAX, 1), range(SIZE_MAX, PAGE));
        let (inside, inside_len) = range(size, 1);
        let inside_len = inside_len.min(size.saturating_sub(inside));
        let other = range(SIZE_MAX, 1).0;
        match rng.u8(..100) {
            0..18 => Op::Read { at, len },
            18..24 => Op::ReadDirect { at: page_at, len: page_len },
            24..34 if inside_len > 0 => Op::ReadMap { at: inside, len: inside_len },
            34..48 => Op::Write { at, len },
            48..54 => Op::WriteDirect { at: page_at, len: page_len },
            54..62 if inside_len > 0 => Op::WriteMap { at: inside, len: inside_len },
            62..67 => Op::Append { len: len.min(SIZE_MAX - size) },
            67..71 => Op::Truncate { to: at },
            71..73 => Op::TruncatePath { to: at },
            73..77 => Op::Punch { at, len },
            77..79 => Op::Allocate { at, len },
            79..85 => Op::Stat,
            85..91 => Op::StatOpen,
            91..93 => Op::Reopen,
            93..95 => Op::Remap,
            95..96 => Op::Sync,
            96..98 if inside_len > 0 => Op::Copy { from: inside, to: other, len: inside_len.min(SIZE_MAX - other) },
            _ => Op::Stat,
        }
    }

    /// Performs operation `n` through view `who`. Returns the difference from the model as an
    /// error.
    fn step(&mut self, n: u64, who: usize, op: Op) -> Result<(), String> {
        let OneFile { model, views, rng, .. } = self;
        let view = &mut views[who];
        let failed = |e: std::io::Error| e.to_string();
        let errno = |e: Errno| e.to_string();
        let mut fresh = |len: usize| {
            let mut bytes = vec![0; len];
            rng.fill(&mut bytes);
            // Marks the bytes with the number of the operation, to help with the analysis of a
            // failure.
            bytes.iter_mut().step_by(64).for_each(|b| *b = n as u8);
            bytes
        };
        match op {
            Op::Read { at, len } => {
                let mut bytes = vec![0; len];
                let got = read_fully(&view.cached, &mut bytes, at).map_err(failed)?;
                same(&bytes[..got], expected(model, at, len), at)?;
            }
            Op::ReadDirect { at, len } => {
                let (file, bytes) = view.aligned(len);
                let got = read_fully(file, bytes, at).map_err(failed)?;
                same(&bytes[..got], expected(model, at, len), at)?;
            }
            Op::ReadMap { at, len } => {
                let bytes = mapped(&view.cached, model.len(), || view.map.try_read(at, len))?;
                same(&bytes, expected(model, at, len), at)?;
            }
            Op::Write { at, len } => {
                let bytes = fresh(len);
                view.cached.write_all_at(&bytes, at as u64).map_err(failed)?;
                put(model, at, &bytes);
            }
            Op::WriteDirect { at, len } => {
                let new = fresh(len);
                let (file, bytes) = view.aligned(len);
                bytes.copy_from_slice(&new);
                file.write_all_at(bytes, at as u64).map_err(failed)?;
                put(model, at, &new);
            }
            Op::WriteMap { at, len } => {
                let bytes = fresh(len);
                mapped(&view.cached, model.len(), || view.map.try_write(at, &bytes))?;
                view.map.sync().map_err(errno)?;
                put(model, at, &bytes);
            }
            Op::Append { len } => {
                let bytes = fresh(len);
                let done = std::io::Write::write(&mut view.append, &bytes).map_err(failed)?;
                if done != len {
                    return Err(format!("appended {done}"));
                }
                model.extend_from_slice(&bytes);
            }
            Op::Truncate { to } => {
                view.cached.set_len(to as u64).map_err(failed)?;
                model.resize(to, 0);
            }
            Op::TruncatePath { to } => {
                rustix::fs::open(&view.path, OFlags::WRONLY, Mode::empty())
                    .and_then(|fd| rustix::fs::ftruncate(fd, to as u64))
                    .map_err(errno)?;
                model.resize(to, 0);
            }
            Op::Punch { at, len } => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(&view.cached, flags, at as u64, len as u64).map_err(errno)?;
                let end = (at + len).min(model.len());
                model.get_mut(at..end).into_iter().for_each(|hole| hole.fill(0));
            }
            Op::Allocate { at, len } => {
                let flags = FallocateFlags::empty();
                rustix::fs::fallocate(&view.cached, flags, at as u64, len as u64).map_err(errno)?;
                model.resize(model.len().max(at + len), 0);
            }
            Op::Stat => {
                let found = fs::metadata(&view.path).map_err(failed)?.len() as usize;
                if found != model.len() {
                    return Err(format!("the size is {found}, expected {}", model.len()));
                }
            }
            Op::StatOpen => size_is(&view.cached, model.len())?,
            Op::Reopen => *view = View::open(view.path.clone()),
            Op::Remap => view.map = Map::new(&view.cached, SIZE_MAX),
            Op::Sync => view.cached.sync_all().map_err(failed)?,
            Op::Copy { from, to, len } => {
                let from_to = if from + len <= to || to + len <= from { Some((from, to)) } else { None };
                // Overlapping ranges of one file are refused.
                let Some((from, to)) = from_to else { return Ok(()) };
                let (mut source, mut target) = (from as u64, to as u64);
                let file = &view.cached;
                // The kernel cuts the request at the size that it last saw (`docs/semantics.md`).
                // So stat the file first.
                fs::metadata(&view.path).map_err(failed)?;
                let done = rustix::fs::copy_file_range(file, Some(&mut source), file, Some(&mut target), len);
                let done = done.map_err(errno)?;
                if done > 0 {
                    let bytes = model[from..from + done].to_vec();
                    put(model, to, &bytes);
                }
            }
        }
        Ok(())
    }

    fn run(&mut self, ops: u64) {
        for n in self.count..self.count + ops {
            let (op, who) = (self.pick(), self.rng.usize(..2));
            if self.history.len() == HISTORY {
                self.history.pop_front();
            }
            self.history.push_back((n, who, op));
            let outcome = self.step(n, who, op).and_then(|()| if n % 500 == 499 { self.all() } else { Ok(()) });
            if let Err(what) = outcome {
                for (n, who, op) in &self.history {
                    eprintln!("{n:>7} {} {op:?}", ["A", "B"][*who]);
                }
                panic!("operation {n} on {}: {what}; the size is {}", ["A", "B"][who], self.model.len());
            }
        }
        self.count += ops;
    }

    /// Compares the whole file with the model, on both mounts.
    fn all(&self) -> Result<(), String> {
        for view in &self.views {
            let bytes = fs::read(&view.path).map_err(|e| e.to_string())?;
            same(&bytes, &self.model, 0)?;
        }
        Ok(())
    }
}

/// Reads until `bytes` is full or the file ends. Returns the number of bytes.
fn read_fully(file: &File, bytes: &mut [u8], at: usize) -> std::io::Result<usize> {
    let mut got = 0;
    while got < bytes.len() {
        match file.read_at(&mut bytes[got..], (at + got) as u64)? {
            0 => break,
            n => got += n,
        }
    }
    Ok(got)
}

fn expected(model: &[u8], at: usize, len: usize) -> &[u8] {
    &model[at.min(model.len())..(at + len).min(model.len())]
}

fn put(model: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    model.resize(model.len().max(at + bytes.len()), 0);
    model[at..at + bytes.len()].copy_from_slice(bytes);
}

fn size_is(file: &File, want: usize) -> Result<(), String> {
    match file.metadata().map_err(|e| e.to_string())?.len() as usize {
        found if found == want => Ok(()),
        found => Err(format!("the size of the open file is {found}, expected {want}")),
    }
}

/// Touches pages of a mapping. A mapping ends where the kernel's size of the file ends, and the
/// kernel learns the size by `stat`. It ignores the size in a reply that an invalidation overtook
/// (`docs/semantics.md`). While a migration goes on, several replies in a row can meet that: so
/// `stat` and touch are repeated until the touch succeeds.
fn mapped<T>(file: &File, size: usize, touch: impl Fn() -> Result<T, Errno>) -> Result<T, String> {
    eventually_some("the kernel learns the size of a mapped file", || match size_is(file, size).map(|()| touch()) {
        Ok(Err(Errno::FAULT)) => {
            println!("a mapping did not know of its file's end");
            None
        }
        Ok(done) => Some(done.map_err(|e| format!("a mapped page: {e}"))),
        Err(what) => Some(Err(what)),
    })
}

fn same(found: &[u8], want: &[u8], at: usize) -> Result<(), String> {
    if found == want {
        return Ok(());
    }
    if found.len() != want.len() {
        return Err(format!("{} bytes from {at}, expected {}", found.len(), want.len()));
    }
    let first = found.iter().zip(want).position(|(a, b)| a != b).unwrap_or(0);
    let last = found.iter().zip(want).rposition(|(a, b)| a != b).unwrap_or(0);
    let (found, want) = (&found[first..=last], &want[first..=last]);
    let show = |bytes: &[u8]| format!("{:02x?}", &bytes[..bytes.len().min(16)]);
    Err(format!("bytes {} to {} are {}…, expected {}…", at + first, at + last, show(found), show(want)))
}

fn one_file(two: &TwoMounts, layout: &str, ops: u64, seed: u64) {
    let at = two.dir(&layout.replace(' ', ""));
    two.fs.lfs(&format!("setstripe {layout} {}", at.a.display())).ok();
    println!("{layout}");
    let views = [at.a("f"), at.b("f")].map(View::open);
    OneFile::new(views, seed).run(ops);
}

#[test]
fn random_operations_on_one_file_match_the_model() {
    if !can_mount() {
        return println!("skipped: /dev/fuse cannot be opened here");
    }
    let (ops, limit, seed) = plan();
    let two = TwoMounts::up(limit);
    for layout in ["-c 4 -S 64K", "-c 1", "-C 8 -S 64K"] {
        one_file(&two, layout, ops / 3, seed);
    }
}

/// Layouts to which the file is migrated in turn.
const LAYOUTS: [&str; 6] = [
    "-c 1",
    "-E 128K -c 1 -E -1 -c 4 -S 64K",
    "-C 8 -S 64K",
    "-E 64K -L mdt -E -1 -c 2 -S 64K",
    "-c 3 -S 128K",
    "-c 4 -S 64K",
];
/// Layouts with mirrors and without. The mirrors are resynced while the program runs.
const MIRRORED: [&str; 5] = [
    "-N -c 4 -S 64K -N -c 1",
    "-c 3 -S 128K",
    "-N2 -c 2 -S 64K",
    "-N -E 64K -L mdt -E -1 -c 2 -S 64K -N -c 4 -S 64K",
    "-E 64K -L mdt -E -1 -c 2 -S 64K",
];
/// Pause between two migrations, in which the program makes progress.
const PAUSE: Duration = Duration::from_millis(100);

/// Minimum number of completed migrations. Those with a group lock always complete, because writers
/// wait for them.
const DONE_MIN: u64 = 6;
/// The program beside the migrations performs only this fraction of the operations, because each
/// takes longer.
const MIGRATED_OPS_SHARE: u64 = 3;
/// Operations of the program that make one step of the race.
const STEP_OPS: u64 = 100;

/// Migrates a file as long as the race goes on, on each mount in turn, with and without a group
/// lock. Returns how many migrations failed because the program wrote.
fn migrate(paths: &[PathBuf; 2], layouts: &[&str], done: &Party) -> u32 {
    let mut spoilt = 0;
    for turn in 0.. {
        if !done.goes_on() {
            break;
        }
        let mut command = Command::new(sheen());
        let how = ["--block", "--non-block"][turn / 2 % 2];
        command.args(["lfs", "migrate", how]).args(layouts[turn % layouts.len()].split(' ')).arg(&paths[turn % 2]);
        let ran = run_within(command, COMMAND_MAX);
        match ran.code {
            0 => done.did_one(),
            // The program wrote during each attempt, or before the mirrors were up to date.
            16 | 11 => spoilt += 1,
            _ => panic!("{ran:?}"),
        }
        let_pass(PAUSE);
    }
    spoilt
}

#[test]
fn random_operations_during_migrations_match_the_model() {
    migrated_meanwhile(&LAYOUTS);
}

#[test]
fn random_operations_during_mirror_changes_match_the_model() {
    migrated_meanwhile(&MIRRORED);
}

fn migrated_meanwhile(layouts: &[&str]) {
    if !can_mount() {
        return println!("skipped: /dev/fuse cannot be opened here");
    }
    let (ops, limit, seed) = plan();
    let ops = if setting("SHEEN_FSX_OPS").is_some() { ops } else { ops / MIGRATED_OPS_SHARE };
    let two = TwoMounts::up(limit);
    let at = two.dir("migrated");
    let paths = [at.a("f"), at.b("f")];
    let mut file = OneFile::new(paths.clone().map(View::open), seed);
    let race = Race::new([at_least(DONE_MIN), at_least(ops.div_ceil(STEP_OPS))]);
    thread::scope(|scope| {
        let migrating = scope.spawn(|| migrate(&paths, layouts, &race.party(0)));
        let steps = race.party(1);
        while steps.goes_on() {
            file.run(STEP_OPS);
            steps.did_one();
        }
        let spoilt = migrating.join().unwrap();
        let done = race.count(0);
        println!("{} operations beside {done} migrations, and {spoilt} that failed because of a write", file.count);
    });
    file.all().unwrap();
}

/// An operation on the tree. Names are paths below its root.
#[derive(Clone, Debug)]
enum Act {
    Create(String),
    CreateNew(String),
    Mkdir(String),
    Unlink(String),
    Rmdir(String),
    Rename(String, String, RenameFlags),
    Link(String, String),
    Symlink(String, String),
    Mknod(String),
    Chmod(String, u32),
    Truncate(String, u64),
    Append(String),
    SetXattr(String),
    GetXattr(String),
    Stat(String),
    List(String),
    ReadLink(String),
    Read(String),
}

/// The result of an operation, which must be the same on both file systems.
#[derive(PartialEq, Eq)]
struct Outcome(Result<String, Errno>);

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Ok(text) => write!(f, "{text:?}"),
            Err(e) => write!(f, "{e}"),
        }
    }
}

impl Act {
    /// Draws an operation on paths of up to three levels. There are few names, so that operations
    /// collide.
    fn pick(rng: &mut Rng) -> Act {
        let path = |rng: &mut Rng| {
            let depth = rng.usize(1..4);
            (0..depth).map(|_| ["a", "b", "c", "d"][rng.usize(..4)]).collect::<Vec<_>>().join("/")
        };
        let p = path(rng);
        match rng.u8(..100) {
            0..10 => Act::Create(p),
            10..14 => Act::CreateNew(p),
            14..26 => Act::Mkdir(p),
            26..34 => Act::Unlink(p),
            34..40 => Act::Rmdir(p),
            40..52 => {
                let flags = [RenameFlags::empty(), RenameFlags::empty(), RenameFlags::NOREPLACE, RenameFlags::EXCHANGE];
                Act::Rename(p, path(rng), flags[rng.usize(..4)])
            }
            52..56 => Act::Link(p, path(rng)),
            // No symbolic link points out of the tree, wherever it is moved.
            56..59 => Act::Symlink(["a", "b/c", "d", "nowhere"][rng.usize(..4)].to_owned(), p),
            59..61 => Act::Mknod(p),
            61..65 => Act::Chmod(p, [0o644, 0o600, 0o755, 0o700, 0o4711][rng.usize(..5)]),
            65..68 => Act::Truncate(p, rng.u64(..200_000)),
            68..72 => Act::Append(p),
            72..74 => Act::SetXattr(p),
            74..76 => Act::GetXattr(p),
            76..86 => Act::Stat(p),
            86..92 => Act::List(p),
            92..94 => Act::ReadLink(p),
            _ => Act::Read(p),
        }
    }

    fn perform(&self, root: &Path) -> Outcome {
        match (self, self.attempt(root)) {
            // The kernel may still know a directory by a name that another mount has renamed.
            // During a rename it then refuses to find the directory under the new name, because
            // d_splice_alias cannot take its locks. An lstat finds the directory; docs/semantics.md
            // lists this.
            (Act::Rename(p, q, _), Err(Errno::STALE)) => {
                let _ = (rustix::fs::lstat(root.join(p)), rustix::fs::lstat(root.join(q)));
                Outcome(self.attempt(root))
            }
            (_, outcome) => Outcome(outcome),
        }
    }

    fn attempt(&self, root: &Path) -> Result<String, Errno> {
        let nothing = |()| String::new();
        let mode = Mode::from_raw_mode(0o644);
        // Opening an existing fifo would wait for its other end.
        let create = OFlags::CREATE | OFlags::WRONLY | OFlags::NONBLOCK;
        match self {
            Act::Create(p) => rustix::fs::open(root.join(p), create, mode).map(|_| String::new()),
            Act::CreateNew(p) => rustix::fs::open(root.join(p), create | OFlags::EXCL, mode).map(|_| String::new()),
            Act::Mkdir(p) => rustix::fs::mkdir(root.join(p), Mode::from_raw_mode(0o755)).map(nothing),
            Act::Unlink(p) => rustix::fs::unlink(root.join(p)).map(nothing),
            Act::Rmdir(p) => rustix::fs::rmdir(root.join(p)).map(nothing),
            Act::Rename(p, q, f) => rustix::fs::renameat_with(CWD, root.join(p), CWD, root.join(q), *f).map(nothing),
            Act::Link(p, q) => rustix::fs::linkat(CWD, root.join(p), CWD, root.join(q), AtFlags::empty()).map(nothing),
            Act::Symlink(to, p) => rustix::fs::symlink(to, root.join(p)).map(nothing),
            Act::Mknod(p) => rustix::fs::mknodat(CWD, root.join(p), FileType::Fifo, mode, 0).map(nothing),
            Act::Chmod(p, bits) => rustix::fs::chmod(root.join(p), Mode::from_raw_mode(*bits)).map(nothing),
            Act::Truncate(p, to) => open_file(&root.join(p), OFlags::WRONLY)?.set_len(*to).map_err(errno).map(nothing),
            Act::Append(p) => {
                let mut file = open_file(&root.join(p), OFlags::WRONLY | OFlags::APPEND)?;
                std::io::Write::write_all(&mut file, p.as_bytes()).map_err(errno).map(nothing)
            }
            Act::SetXattr(p) => {
                regular(&root.join(p))?;
                let value = p.as_bytes();
                rustix::fs::lsetxattr(root.join(p), "user.k", value, rustix::fs::XattrFlags::empty()).map(nothing)
            }
            Act::GetXattr(p) => {
                regular(&root.join(p))?;
                let mut value = [0; 100];
                let n = rustix::fs::lgetxattr(root.join(p), "user.k", &mut value[..])?;
                Ok(String::from_utf8_lossy(&value[..n]).into_owned())
            }
            Act::Stat(p) => describe(&root.join(p)),
            Act::List(p) => list(&root.join(p)),
            Act::ReadLink(p) => {
                rustix::fs::readlink(root.join(p), Vec::new()).map(|t| t.to_string_lossy().into_owned())
            }
            Act::Read(p) => {
                let mut file = open_file(&root.join(p), OFlags::RDONLY)?;
                let mut bytes = Vec::new();
                std::io::Read::read_to_end(&mut file, &mut bytes).map_err(errno)?;
                let text = bytes.iter().filter(|b| **b != 0).map(|b| char::from(*b)).collect::<String>();
                Ok(format!("{} bytes: {text}", bytes.len()))
            }
        }
    }
}

fn errno(e: std::io::Error) -> Errno {
    Errno::from_io_error(&e).unwrap_or(Errno::IO)
}

/// Opens a regular file, without blocking: opening a fifo would wait for its other end.
fn open_file(path: &Path, flags: OFlags) -> Result<File, Errno> {
    let fd = rustix::fs::open(path, flags | OFlags::NONBLOCK | OFlags::NOCTTY, Mode::empty())?;
    match FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode) {
        FileType::RegularFile => Ok(File::from(fd)),
        FileType::Directory => Err(Errno::ISDIR),
        _ => Err(Errno::NXIO),
    }
}

/// Refuses all but files and directories. Only these have `user.` attributes; what the model's file
/// system allows on other inodes may differ.
fn regular(path: &Path) -> Result<(), Errno> {
    match FileType::from_raw_mode(rustix::fs::lstat(path)?.st_mode) {
        FileType::RegularFile | FileType::Directory => Ok(()),
        _ => Err(Errno::PERM),
    }
}

/// Describes an inode by what lstat(2) returns on every file system.
fn describe(path: &Path) -> Result<String, Errno> {
    let stat = rustix::fs::lstat(path)?;
    let size = if FileType::from_raw_mode(stat.st_mode) == FileType::Directory { 0 } else { stat.st_size };
    Ok(format!("mode {:o} links {} size {size}", stat.st_mode, stat.st_nlink))
}

fn list(path: &Path) -> Result<String, Errno> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path).map_err(errno)? {
        let entry = entry.map_err(errno)?;
        names.push(format!("{} {:?}", entry.file_name().to_string_lossy(), entry.file_type().map_err(errno)?));
    }
    names.sort();
    Ok(names.join(", "))
}

/// Describes everything below `root`.
fn tree(root: &Path) -> String {
    let mut lines = Vec::new();
    let mut todo = vec![root.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(&dir).unwrap().map(Result::unwrap) {
            let path = entry.path();
            let name = path.strip_prefix(root).unwrap().display().to_string();
            lines.push(format!("{name}: {}", describe(&path).unwrap()));
            if entry.file_type().unwrap().is_dir() {
                todo.push(path);
            }
        }
    }
    lines.sort();
    lines.join("\n")
}

#[test]
fn random_operations_on_a_tree_match_the_model() {
    if !can_mount() {
        return println!("skipped: /dev/fuse cannot be opened here");
    }
    let (ops, limit, seed) = plan();
    let two = TwoMounts::up(limit);
    let at = two.dir("tree");
    let model = Path::new("/dev/shm").join(format!("sheen-model-{}", two.fsname));
    fs::create_dir_all(&model).unwrap();
    let outcome = std::panic::catch_unwind(|| follow(&at.both(), &model, ops, seed));
    fs::remove_dir_all(&model).unwrap();
    outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

fn follow(views: &[&Path; 2], model: &Path, ops: u64, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let mut history = VecDeque::new();
    for n in 0..ops {
        let (act, who) = (Act::pick(&mut rng), rng.usize(..2));
        let (found, want) = (act.perform(views[who]), act.perform(model));
        if history.len() == HISTORY {
            history.pop_front();
        }
        history.push_back(format!("{n:>7} {} {act:?}: {want:?}", ["A", "B"][who]));
        let recent = || history.iter().cloned().collect::<Vec<_>>().join("\n");
        assert_eq!(found, want, "operation {n}\n{}", recent());
        if n % 500 == 499 || n + 1 == ops {
            let want = tree(model);
            for view in views {
                assert_eq!(tree(view), want, "the whole tree after operation {n}\n{}", recent());
            }
        }
    }
}
