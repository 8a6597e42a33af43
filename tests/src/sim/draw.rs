//! Draws random operations, and computes their claims.
//!
//! Names, sizes and files come from small sets, so that operations meet. Most of them succeed, and
//! enough of them fail.

use bytes::Bytes;
use fastrand::Rng;
use sheen_wire::{
    Fid, FileKind,
    fid::ROOT,
    mds::{flags, rename, xattr},
};

use super::{
    claims::{Key, Mode, Wanted},
    cluster::acts_as_user,
    model::Model,
    op::Op,
    striping::{ON_MDT, STRIPINGS, Striping},
};

const NAMES: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "longer-than-the-others"];
/// Maximum open files of a client.
const HANDLES_MAX: usize = 5;
/// Maximum number of directories.
const DIRS_MAX: usize = 8;
/// With fewer names than this, operations that create names are preferred.
const NAMES_MIN: usize = 8;
/// Maximum offset of a write in bytes.
const OFFSET_MAX: u64 = 400 << 10;
/// Size in bytes of the chunks that a write claims. Stripe boundaries are chunk boundaries, so two
/// concurrent writes never share a stripe boundary.
const CHUNK: u64 = 16 << 10;

/// Migrations per 100 operations, in runs with migrations.
const MIGRATIONS: u32 = 8;

/// Draws the operations of one client.
pub struct Draw<'a> {
    /// The random numbers.
    pub rng: &'a mut Rng,
    /// The present file system.
    pub model: &'a Model,
    /// Index of the client.
    pub client: usize,
    /// Whether to draw migrations.
    pub migrates: bool,
    /// Whether the MDT has a data service, so that layouts may begin on the MDT.
    pub on_mdt: bool,
}

impl Draw<'_> {
    fn one_of<T: Clone>(&mut self, all: &[T]) -> Option<T> {
        if all.is_empty() { None } else { Some(all[self.rng.usize(0..all.len())].clone()) }
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.rng.u32(0..100) < percent
    }

    fn of_kind(&mut self, kind: FileKind) -> Option<Fid> {
        let all: Vec<Fid> = self.model.inodes.iter().filter(|(_, i)| i.kind() == kind).map(|(f, _)| *f).collect();
        self.one_of(&all)
    }

    /// Returns a directory; rarely another inode or a FID that never existed.
    fn dir(&mut self) -> Fid {
        match self.rng.u32(0..50) {
            0 => self.any(),
            1 => Fid::new(0x2_0000_0400, 0x7777),
            _ => self.of_kind(FileKind::Dir).unwrap_or(ROOT),
        }
    }

    /// Returns any inode.
    fn any(&mut self) -> Fid {
        let all: Vec<Fid> = self.model.inodes.keys().copied().collect();
        self.one_of(&all).unwrap_or(ROOT)
    }

    fn name(&mut self) -> String {
        NAMES[self.rng.usize(0..NAMES.len())].to_owned()
    }

    /// Returns a directory and a name in it, which mostly exists.
    fn entry(&mut self) -> (Fid, String) {
        let all: Vec<(Fid, String)> = self.model.names().map(|(dir, name, _)| (dir, name.clone())).collect();
        match self.one_of(&all) {
            Some(found) if self.chance(85) => found,
            _ => (self.dir(), self.name()),
        }
    }

    fn handle(&mut self, may: fn(u32) -> bool) -> Option<(u64, Fid)> {
        let mine = self.model.handles.iter().filter(|(_, h)| h.client == self.client);
        let all: Vec<_> = mine.clone().filter(|(_, h)| may(h.flags)).map(|(n, h)| (*n, h.fid)).collect();
        self.one_of(&all)
    }

    fn size(&mut self) -> u64 {
        match self.rng.u32(0..10) {
            0 => 0,
            1..4 => self.rng.u64(0..5000),
            4..7 => self.rng.u64(0..8) * (64 << 10),
            _ => self.rng.u64(0..OFFSET_MAX),
        }
    }

    fn len(&mut self) -> usize {
        match self.rng.u32(0..12) {
            0 => self.rng.usize(0..250_000),
            1..4 => self.rng.usize(0..40_000),
            _ => self.rng.usize(0..6000),
        }
    }

    fn open_flags(&mut self) -> u32 {
        let access = [flags::RDWR, flags::RDWR, flags::WRONLY, flags::RDONLY][self.rng.usize(0..4)];
        let append = if self.chance(20) { flags::APPEND } else { 0 };
        let trunc = if self.chance(10) { flags::TRUNC } else { 0 };
        let sync = if self.chance(5) { flags::SYNC } else { 0 };
        access | append | trunc | sync
    }

    fn perm(&mut self) -> u32 {
        // The superuser may do everything, whatever the mode. An owner needs permission.
        let owners = if acts_as_user() { 0o700 } else { 0 };
        owners | [0o644, 0o600, 0o755, 0o777, 0o400][self.rng.usize(0..5)]
    }

    /// Returns the next operation. `None` if the drawn kind of operation has no target.
    pub fn op(&mut self) -> Option<Op> {
        let open = self.model.handles.values().filter(|h| h.client == self.client).count();
        let dirs = self.model.inodes.values().filter(|i| i.is_dir()).count();
        let room = open < HANDLES_MAX;
        if self.migrates && self.chance(MIGRATIONS) {
            return self.migration();
        }
        let sparse = self.model.names().count() < NAMES_MIN && self.chance(60);
        Some(match self.rng.u32(0..if sparse { 25 } else { 100 }) {
            0..16 if room => self.create(),
            0..16 => Op::Close { handle: self.handle(|_| true)?.0 },
            16..19 => Op::Mknod { dir: self.dir(), name: self.name(), perm: self.perm() },
            19..21 => Op::Symlink { dir: self.dir(), name: self.name(), target: self.name() },
            21..25 if dirs < DIRS_MAX => Op::Mkdir { dir: self.dir(), name: self.name(), perm: 0o755 },
            21..30 => self.removal(),
            30..34 if room => Op::Open { fid: self.of_kind(FileKind::Regular)?, flags: self.open_flags() },
            30..38 => Op::Close { handle: self.handle(|_| true)?.0 },
            38..56 => self.write()?,
            56..66 => {
                let (offset, len) = (self.size(), if self.chance(30) { 500_000 } else { self.len() });
                Op::Read { handle: self.handle(flags::reads)?.0, offset, len }
            }
            66..70 => self.truncate()?,
            70..72 => Op::Fsync { handle: self.handle(|_| true)?.0 },
            72..80 => self.rename(),
            80..83 => {
                // A file without a layout inherits it from its directory. Among several names it is
                // undefined which directory counts, so only files with a layout get further names.
                let fid = self.any();
                let settled =
                    self.model.inode(fid).is_ok_and(|i| i.striping.is_some() || i.kind() != FileKind::Regular);
                Op::Link { fid: settled.then_some(fid)?, dir: self.dir(), name: self.name() }
            }
            83..88 => self.look(),
            88..91 => Op::ReadDir { dir: self.dir(), page: self.rng.u32(100..2000), plus: self.rng.bool() },
            91..94 => self.striping(),
            94..96 => self.xattr(),
            96 => Op::Chmod { fid: self.any(), perm: self.perm() },
            97 if room => Op::TmpFile { dir: self.of_kind(FileKind::Dir)? },
            98 if self.chance(30) => Op::SyncFs,
            _ => {
                let (handle, _) = self.handle(flags::writes)?;
                Op::Punch { handle, offset: self.size(), len: self.rng.u64(1..100_000) }
            }
        })
    }

    fn create(&mut self) -> Op {
        let excl = if self.chance(20) { flags::EXCL } else { 0 };
        let flags = self.open_flags() | flags::CREAT | excl;
        Op::Create { dir: self.dir(), name: self.name(), flags, perm: self.perm() }
    }

    fn write(&mut self) -> Option<Op> {
        let (handle, _) = self.handle(flags::writes)?;
        Some(Op::Write { handle, offset: self.size(), len: self.len(), seed: self.rng.u64(..) })
    }

    fn truncate(&mut self) -> Option<Op> {
        let size = self.size();
        if self.rng.bool()
            && let Some((handle, fid)) = self.handle(|_| true)
        {
            return Some(Op::Truncate { fid, size, handle: Some(handle) });
        }
        let fid = if self.chance(90) { self.of_kind(FileKind::Regular)? } else { self.any() };
        Some(Op::Truncate { fid, size, handle: None })
    }

    fn removal(&mut self) -> Op {
        let (dir, name) = self.entry();
        let found = self.model.find(dir, &name).ok().flatten();
        let is_dir = found.is_some_and(|f| self.model.inode(f).is_ok_and(|i| i.is_dir()));
        if is_dir != self.chance(10) { Op::Rmdir { dir, name } } else { Op::Unlink { dir, name } }
    }

    fn rename(&mut self) -> Op {
        let (dir, name) = self.entry();
        let (new_dir, new_name) = if self.rng.bool() { self.entry() } else { (self.dir(), self.name()) };
        let flags = [0, 0, 0, rename::NOREPLACE, rename::EXCHANGE][self.rng.usize(0..5)];
        Op::Rename { dir, name, new_dir, new_name, flags }
    }

    fn look(&mut self) -> Op {
        match self.rng.u32(0..4) {
            0 => Op::GetAttr { fid: self.any() },
            1 => Op::Walk { path: self.path() },
            2 => Op::ReadLink { fid: self.of_kind(FileKind::Symlink).unwrap_or(ROOT) },
            _ => {
                let (dir, name) = self.entry();
                Op::Lookup { dir, name }
            }
        }
    }

    /// Returns a path. All its names exist, except for the last one in some cases.
    fn path(&mut self) -> Vec<String> {
        let mut path = Vec::new();
        let mut at = ROOT;
        while let Ok(entries) = self.model.entries(at)
            && path.len() < DIRS_MAX
        {
            let names: Vec<String> = entries.keys().cloned().collect();
            let name = if self.chance(90) { self.one_of(&names) } else { None };
            let Some(name) = name else {
                path.push(self.name());
                break;
            };
            at = entries[&name];
            path.push(name);
        }
        path
    }

    fn striping(&mut self) -> Op {
        let new = |i: &super::model::Inode| i.striping.is_none() || i.is_dir();
        let fids: Vec<Fid> = self.model.inodes.iter().filter(|(f, i)| **f != ROOT && new(i)).map(|(f, _)| *f).collect();
        match self.one_of(&fids) {
            Some(fid) if self.chance(50) => Op::SetStripe { fid, striping: self.any_striping() },
            _ => Op::GetStripe { fid: self.any() },
        }
    }

    fn any_striping(&mut self) -> Striping {
        if self.on_mdt && self.rng.bool() {
            return ON_MDT[self.rng.usize(0..ON_MDT.len())];
        }
        STRIPINGS[self.rng.usize(0..STRIPINGS.len())]
    }

    /// Returns the default layout of the root in this run, if it has one.
    pub fn root_striping(&mut self) -> Option<Op> {
        let striping = self.any_striping();
        self.chance(60).then_some(Op::SetStripe { fid: ROOT, striping })
    }

    fn migration(&mut self) -> Option<Op> {
        let fid = self.of_kind(FileKind::Regular)?;
        // For a file without a layout it is undefined whether it gets its own layout before the
        // migration.
        self.model.inode(fid).ok()?.striping?;
        let striping = self.any_striping();
        let group = self.rng.bool().then(|| self.rng.u64(1..1 << 40));
        // A group lock covers the whole file. A self-extending component then extends as far as it
        // can, even if the migration fails. So such files are migrated without a group.
        let group = group.filter(|_| !self.model.inode(fid).is_ok_and(|i| i.striping.is_some_and(|s| s.grows())));
        Some(Op::Migrate { fid, striping, group })
    }

    fn xattr(&mut self) -> Op {
        let there = self.model.inodes.iter().flat_map(|(f, i)| i.xattrs.keys().map(|name| (*f, name.clone())));
        let there: Vec<(Fid, String)> = there.collect();
        let (fid, name) = match self.one_of(&there) {
            Some(one) if self.rng.bool() => one,
            _ => (self.any(), format!("user.{}", NAMES[self.rng.usize(0..3)])),
        };
        match self.rng.u32(0..5) {
            0 => Op::RemoveXattr { fid, name },
            1 | 2 => Op::GetXattr { fid, name },
            _ => {
                let flags = [0, 0, xattr::CREATE, xattr::REPLACE][self.rng.usize(0..4)];
                let len = if self.chance(10) { 20_000 } else { 20 };
                Op::SetXattr { fid, name, value: Bytes::from(crate::noise(self.rng.u64(..), len)), flags }
            }
        }
    }
}

/// Returns the claims that an operation needs.
pub fn wanted(model: &Model, op: &Op) -> Wanted {
    let mut w = Want { model, all: Vec::new() };
    w.op(op);
    w.all
}

struct Want<'a> {
    model: &'a Model,
    all: Wanted,
}

impl Want<'_> {
    fn inode(&mut self, fid: Fid, mode: Mode) {
        self.all.push((Key::Inode(fid), mode));
    }

    /// Claims a name and the inode that it names.
    fn name(&mut self, dir: Fid, name: &str, mode: Mode, child: Mode) {
        self.inode(dir, Mode::Entries);
        self.all.push((Key::Name(dir, name.to_owned()), mode));
        if let Ok(Some(fid)) = self.model.find(dir, name) {
            self.inode(fid, child);
        }
    }

    fn handle(&mut self, handle: u64, mode: Mode) -> Fid {
        self.all.push((Key::Handle(handle), mode));
        self.model.handles.get(&handle).map_or(Fid::ZERO, |h| h.fid)
    }

    fn is_dir(&self, fid: Fid) -> bool {
        self.model.inode(fid).is_ok_and(|i| i.is_dir())
    }

    /// Claims an inode for an open, which may truncate the file or create its layout.
    fn opening(&mut self, fid: Fid, flags: u32) {
        let lays_out = self.claim_missing_layout(fid);
        self.inode(fid, if flags & flags::TRUNC != 0 || lays_out { Mode::Alone } else { Mode::Look });
    }

    /// Returns whether the file has no layout yet. It then claims the file's directories, from
    /// which the layout is inherited.
    fn claim_missing_layout(&mut self, fid: Fid) -> bool {
        if self.model.inode(fid).map_or(true, |i| i.striping.is_some()) {
            return false;
        }
        let dirs: Vec<Fid> = self.model.names().filter(|(_, _, f)| *f == fid).map(|(dir, ..)| dir).collect();
        dirs.into_iter().for_each(|dir| self.inode(dir, Mode::Entries));
        true
    }

    fn op(&mut self, op: &Op) {
        match op {
            Op::Lookup { dir, name } => self.name(*dir, name, Mode::Look, Mode::Look),
            Op::Walk { path } => {
                self.all.push((Key::Tree, Mode::Look));
                let mut at = ROOT;
                for (i, name) in path.iter().enumerate() {
                    let child = self.model.find(at, name).ok().flatten();
                    // The walk reads the directories on the path as well, but only the attributes
                    // of the last inode are compared.
                    let last = i + 1 == path.len();
                    let mode = if !last && child.is_some_and(|f| self.is_dir(f)) { Mode::Entries } else { Mode::Look };
                    self.name(at, name, Mode::Look, mode);
                    let Some(child) = child else { break };
                    at = child;
                }
            }
            Op::GetAttr { fid } | Op::ReadLink { fid } | Op::GetXattr { fid, .. } => self.inode(*fid, Mode::Look),
            Op::GetStripe { fid } => {
                self.inode(*fid, Mode::Look);
                self.all.push((Key::Layout(*fid), Mode::Look));
            }
            // A migration changes no result of other operations on the file.
            Op::Migrate { fid, .. } => self.all.push((Key::Layout(*fid), Mode::Alone)),
            Op::Create { dir, name, flags, .. } => {
                self.inode(*dir, Mode::Entries);
                self.all.push((Key::Name(*dir, name.clone()), Mode::Alone));
                if let Ok(Some(fid)) = self.model.find(*dir, name) {
                    self.opening(fid, *flags);
                }
            }
            Op::Mknod { dir, name, .. } | Op::Mkdir { dir, name, .. } | Op::Symlink { dir, name, .. } => {
                self.inode(*dir, Mode::Entries);
                self.all.push((Key::Name(*dir, name.clone()), Mode::Alone));
            }
            Op::TmpFile { dir } => self.inode(*dir, Mode::Entries),
            Op::Open { fid, flags } => self.opening(*fid, *flags),
            Op::Close { handle } => {
                let fid = self.handle(*handle, Mode::Alone);
                let is_orphan = self.model.inode(fid).is_ok_and(|i| i.nlink == 0);
                self.inode(fid, if is_orphan { Mode::Alone } else { Mode::Look });
            }
            Op::Read { handle, .. } => {
                let fid = self.handle(*handle, Mode::Look);
                self.inode(fid, Mode::Look);
            }
            Op::Write { handle, offset, len, .. } => self.write(*handle, *offset, *len as u64),
            // An fsync makes the file's present bytes and names durable. Nothing may change them
            // meanwhile.
            Op::Punch { handle, .. } | Op::Fsync { handle } => {
                let fid = self.handle(*handle, Mode::Look);
                self.inode(fid, Mode::Alone);
            }
            Op::Truncate { fid, handle, .. } => {
                self.all.extend(handle.map(|h| (Key::Handle(h), Mode::Look)));
                self.claim_missing_layout(*fid);
                self.inode(*fid, Mode::Alone);
            }
            Op::Chmod { fid, .. }
            | Op::SetXattr { fid, .. }
            | Op::RemoveXattr { fid, .. }
            | Op::SetStripe { fid, .. } => {
                self.inode(*fid, Mode::Alone);
            }
            Op::Link { fid, dir, name } => {
                self.inode(*fid, Mode::Alone);
                self.inode(*dir, Mode::Entries);
                self.all.push((Key::Name(*dir, name.clone()), Mode::Alone));
            }
            Op::Unlink { dir, name } | Op::Rmdir { dir, name } => self.name(*dir, name, Mode::Alone, Mode::Alone),
            Op::Rename { dir, name, new_dir, new_name, .. } => {
                let source = self.model.find(*dir, name).ok().flatten();
                let target = self.model.find(*new_dir, new_name).ok().flatten();
                if dir != new_dir && [source, target].into_iter().flatten().any(|f| self.is_dir(f)) {
                    self.all.push((Key::Tree, Mode::Alone));
                }
                let child = if source.is_some_and(|f| self.is_dir(f)) { Mode::Entries } else { Mode::Look };
                self.name(*dir, name, Mode::Alone, child);
                self.name(*new_dir, new_name, Mode::Alone, Mode::Alone);
            }
            Op::ReadDir { dir, plus, .. } => {
                self.all.push((Key::Tree, Mode::Look));
                self.inode(*dir, Mode::Look);
                if *plus && let Ok(entries) = self.model.entries(*dir) {
                    entries.values().for_each(|f| self.inode(*f, Mode::Look));
                }
            }
            Op::SyncFs => {}
        }
    }

    fn write(&mut self, handle: u64, offset: u64, len: u64) {
        let fid = self.handle(handle, Mode::Look);
        let appends = self.model.handles.get(&handle).is_some_and(|h| h.flags & flags::APPEND != 0);
        if appends {
            return self.inode(fid, Mode::Alone);
        }
        self.inode(fid, Mode::Chunks);
        for chunk in offset / CHUNK..=(offset + len) / CHUNK {
            self.all.push((Key::Chunk(fid, chunk), Mode::Alone));
        }
    }
}
