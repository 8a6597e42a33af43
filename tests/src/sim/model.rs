//! The model of the file system: a map in memory, with the effect and the reply of each operation.
//!
//! It is the specification with which the real file system is compared, so it is as simple as
//! possible. Files are vectors, directories are maps, and nothing is shared or cached. The checks
//! of an operation are in the order of POSIX and Linux.

use std::collections::BTreeMap;

use bytes::Bytes;
use sheen_wire::{
    Errno, Fid, FileKind,
    fid::ROOT,
    mds::{flags, rename, xattr},
};

use super::{
    op::{Answer, Op, Outcome, View},
    striping::Striping,
};

/// How replies to operations that end from now on are compared with the model's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// They must be equal.
    Exact,
    /// They are not compared: the MDT lost transactions that were not committed.
    Doubtful,
}

/// Content of an inode.
#[derive(Clone, PartialEq, Debug)]
pub enum Content {
    /// Bytes of a regular file.
    File(Vec<u8>),
    /// Entries of a directory, and its parent.
    Dir {
        /// Names.
        entries: BTreeMap<String, Fid>,
        /// Target of `..`.
        parent: Fid,
    },
    /// Target of a symbolic link.
    Symlink(String),
}

/// A file.
#[derive(Clone, PartialEq, Debug)]
pub struct Inode {
    /// Its content.
    pub content: Content,
    /// Permission bits.
    pub perm: u32,
    /// Number of names. Not used for directories, whose link count is computed.
    pub nlink: u32,
    /// Layout of a file, or default layout of a directory.
    pub striping: Option<Striping>,
    /// Attributes `user.*`.
    pub xattrs: BTreeMap<String, Bytes>,
    /// Number of open handles.
    pub opens: u32,
    /// Created by O_TMPFILE and not linked yet.
    pub linkable: bool,
}

/// An open file.
#[derive(Clone, PartialEq, Debug)]
pub struct Handle {
    /// Its client.
    pub client: usize,
    /// Its file.
    pub fid: Fid,
    /// Its open flags.
    pub flags: u32,
}

/// The model of a file system.
#[derive(Clone, PartialEq, Debug)]
pub struct Model {
    /// All inodes that have a name or are open.
    pub inodes: BTreeMap<Fid, Inode>,
    /// Open files by number.
    pub handles: BTreeMap<u64, Handle>,
}

impl Inode {
    /// Returns an inode with this content.
    pub fn new(content: Content, perm: u32) -> Inode {
        Inode { content, perm, nlink: 1, striping: None, xattrs: BTreeMap::new(), opens: 0, linkable: false }
    }

    /// Returns the file type.
    pub fn kind(&self) -> FileKind {
        match self.content {
            Content::File(_) => FileKind::Regular,
            Content::Dir { .. } => FileKind::Dir,
            Content::Symlink(_) => FileKind::Symlink,
        }
    }

    /// Returns whether the inode is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind() == FileKind::Dir
    }

    /// Returns the data of a regular file.
    pub fn bytes(&self) -> Option<&Vec<u8>> {
        match &self.content {
            Content::File(bytes) => Some(bytes),
            _ => None,
        }
    }
}

impl Default for Model {
    fn default() -> Model {
        let root = Inode::new(Content::Dir { entries: BTreeMap::new(), parent: ROOT }, 0o755);
        Model { inodes: BTreeMap::from([(ROOT, root)]), handles: BTreeMap::new() }
    }
}

/// Read access.
impl Model {
    /// Returns an inode.
    pub fn inode(&self, fid: Fid) -> Result<&Inode, Errno> {
        self.inodes.get(&fid).ok_or(Errno::ENOENT)
    }

    fn edit(&mut self, fid: Fid) -> Result<&mut Inode, Errno> {
        self.inodes.get_mut(&fid).ok_or(Errno::ENOENT)
    }

    /// Returns the entries of a directory.
    pub fn entries(&self, dir: Fid) -> Result<&BTreeMap<String, Fid>, Errno> {
        match &self.inode(dir)?.content {
            Content::Dir { entries, .. } => Ok(entries),
            _ => Err(Errno::ENOTDIR),
        }
    }

    fn entries_mut(&mut self, dir: Fid) -> Result<&mut BTreeMap<String, Fid>, Errno> {
        match &mut self.edit(dir)?.content {
            Content::Dir { entries, .. } => Ok(entries),
            _ => Err(Errno::ENOTDIR),
        }
    }

    /// Looks up a name.
    pub fn find(&self, dir: Fid, name: &str) -> Result<Option<Fid>, Errno> {
        Ok(self.entries(dir)?.get(name).copied())
    }

    /// Returns the parent of a directory.
    pub fn parent(&self, dir: Fid) -> Fid {
        match self.inode(dir).map(|i| &i.content) {
            Ok(Content::Dir { parent, .. }) => *parent,
            _ => dir,
        }
    }

    /// Returns the attributes that stat shows.
    pub fn view(&self, fid: Fid) -> Result<View, Errno> {
        let inode = self.inode(fid)?;
        let (nlink, size) = match &inode.content {
            Content::File(bytes) => (inode.nlink, bytes.len() as u64),
            Content::Symlink(target) => (inode.nlink, target.len() as u64),
            Content::Dir { entries, .. } => {
                let is_dir = |fid: &&Fid| self.inodes.get(fid).is_some_and(Inode::is_dir);
                (2 + entries.values().filter(is_dir).count() as u32, 0)
            }
        };
        Ok(View { fid, kind: inode.kind(), perm: inode.perm, nlink, size })
    }

    /// Returns all names, as (directory, name, inode).
    pub fn names(&self) -> impl Iterator<Item = (Fid, &String, Fid)> {
        self.inodes.iter().flat_map(|(&dir, inode)| match &inode.content {
            Content::Dir { entries, .. } => entries.iter().map(|(name, fid)| (dir, name, *fid)).collect(),
            _ => Vec::new(),
        })
    }

    /// Returns whether `dir` is `above` or below it.
    fn is_below(&self, mut dir: Fid, above: Fid) -> bool {
        while dir != above && dir != ROOT {
            dir = self.parent(dir);
        }
        dir == above
    }

    /// Returns the layout of a file created in `dir`.
    fn inherited(&self, dir: Option<Fid>) -> Striping {
        let of = |fid: Fid| self.inodes.get(&fid).and_then(|i| i.striping);
        dir.and_then(of).or(of(ROOT)).unwrap_or(Striping::DEFAULT)
    }
}

/// Operations.
impl Model {
    /// Executes an operation of a client. `new`: the FID that the real file system gave to the
    /// created inode. `handle`: the number of the handle if the operation opens a file.
    pub fn apply(&mut self, client: usize, op: &Op, new: Fid, handle: u64) -> Answer {
        match op {
            Op::Lookup { dir, name } => self.lookup(*dir, name),
            Op::Walk { path } => {
                let mut at = ROOT;
                for name in path {
                    at = self.find(at, name)?.ok_or(Errno::ENOENT)?;
                }
                self.seen(at)
            }
            Op::GetAttr { fid } => self.seen(*fid),
            Op::Create { dir, name, flags, perm } => self.create(*dir, name, *flags, *perm, new),
            Op::Mknod { dir, name, perm } => self.make(*dir, name, new, Inode::new(Content::File(Vec::new()), *perm)),
            Op::Mkdir { dir, name, perm } => {
                let content = Content::Dir { entries: BTreeMap::new(), parent: *dir };
                let striping = if *dir == ROOT { None } else { self.inode(*dir).ok().and_then(|d| d.striping) };
                self.make(*dir, name, new, Inode { striping, ..Inode::new(content, *perm) })
            }
            Op::Symlink { dir, name, target } => {
                self.make(*dir, name, new, Inode::new(Content::Symlink(target.clone()), 0o777))
            }
            Op::TmpFile { dir } => {
                self.entries(*dir)?;
                let striping = Some(self.inherited(Some(*dir)));
                let file = Inode::new(Content::File(Vec::new()), 0o600);
                self.inodes.insert(new, Inode { striping, nlink: 0, linkable: true, ..file });
                self.seen(new)
            }
            Op::Open { fid, flags } => self.open(*fid, *flags),
            Op::Close { .. } | Op::Fsync { .. } | Op::SyncFs => Ok(Outcome::Done),
            Op::Read { handle, offset, len } => self.read(*handle, *offset, *len),
            Op::Write { handle, offset, .. } => self.write(*handle, *offset, &op.data()),
            Op::Punch { handle, offset, len } => self.punch(*handle, *offset, *len),
            Op::Truncate { fid, size, handle } => self.truncate(*fid, *size, *handle),
            Op::Chmod { fid, perm } => match self.inode(*fid)?.kind() {
                FileKind::Symlink => Err(Errno::EOPNOTSUPP),
                _ => {
                    self.edit(*fid)?.perm = *perm;
                    self.seen(*fid)
                }
            },
            Op::Link { fid, dir, name } => self.link(*fid, *dir, name),
            Op::Unlink { dir, name } => self.remove(*dir, name, false),
            Op::Rmdir { dir, name } => self.remove(*dir, name, true),
            Op::Rename { dir, name, new_dir, new_name, flags } => {
                self.rename((*dir, name), (*new_dir, new_name), *flags)
            }
            Op::ReadDir { dir, plus, .. } => self.readdir(*dir, *plus),
            Op::ReadLink { fid } => match &self.inode(*fid)?.content {
                Content::Symlink(target) => Ok(Outcome::Bytes(target.clone().into())),
                _ => Err(Errno::EINVAL),
            },
            Op::SetXattr { fid, name, value, flags } => self.setxattr(*fid, name, value, *flags),
            Op::GetXattr { fid, name } => {
                self.inode(*fid)?.xattrs.get(name).cloned().map(Outcome::Bytes).ok_or(Errno::ENODATA)
            }
            Op::RemoveXattr { fid, name } => match self.inode(*fid)?.kind() {
                FileKind::Symlink => Err(Errno::EPERM),
                _ => self.edit(*fid)?.xattrs.remove(name).map(|_| Outcome::Done).ok_or(Errno::ENODATA),
            },
            Op::SetStripe { fid, striping } => self.set_stripe(*fid, *striping),
            Op::GetStripe { fid } => self.inode(*fid)?.striping.map(Outcome::Striped).ok_or(Errno::ENODATA),
            Op::Migrate { fid, striping, .. } => {
                // The file may have been removed meanwhile.
                if let Ok(inode) = self.edit(*fid) {
                    inode.striping = Some(*striping);
                }
                Ok(Outcome::Done)
            }
        }
        .inspect(|_| self.note_handles(client, op, new, handle))
    }

    /// Adds or removes the handle of a successful operation.
    fn note_handles(&mut self, client: usize, op: &Op, new: Fid, handle: u64) {
        if let Op::Close { handle } = op {
            self.close(*handle);
        }
        let fid = match op {
            Op::Create { dir, name, .. } => self.find(*dir, name).ok().flatten(),
            Op::Open { fid, .. } => Some(*fid),
            Op::TmpFile { .. } => Some(new),
            _ => None,
        };
        if let Some(fid) = fid {
            self.handles.insert(handle, Handle { client, fid, flags: op.flags() });
            if let Ok(inode) = self.edit(fid) {
                inode.opens += 1;
            }
        }
    }

    fn close(&mut self, handle: u64) {
        let Some(Handle { fid, .. }) = self.handles.remove(&handle) else { return };
        if let Ok(inode) = self.edit(fid) {
            inode.opens -= 1;
        }
        self.forget(fid);
    }

    /// Deletes a file that has no names and is not open.
    fn forget(&mut self, fid: Fid) {
        if self.inodes.get(&fid).is_some_and(|i| i.nlink == 0 && i.opens == 0) {
            self.inodes.remove(&fid);
        }
    }

    fn seen(&self, fid: Fid) -> Answer {
        self.view(fid).map(Outcome::Seen)
    }

    fn lookup(&self, dir: Fid, name: &str) -> Answer {
        self.seen(self.find(dir, name)?.ok_or(Errno::ENOENT)?)
    }

    fn make(&mut self, dir: Fid, name: &str, new: Fid, inode: Inode) -> Answer {
        if self.find(dir, name)?.is_some() {
            return Err(Errno::EEXIST);
        }
        self.inodes.insert(new, inode);
        self.entries_mut(dir)?.insert(name.to_owned(), new);
        self.seen(new)
    }

    fn create(&mut self, dir: Fid, name: &str, flags: u32, perm: u32, new: Fid) -> Answer {
        match self.find(dir, name)? {
            Some(_) if flags & flags::EXCL != 0 => Err(Errno::EEXIST),
            Some(fid) if self.inode(fid)?.is_dir() => Err(Errno::EISDIR),
            Some(fid) => {
                self.open(fid, flags)?;
                self.seen(fid)
            }
            None => {
                let striping = Some(self.inherited(Some(dir)));
                self.make(dir, name, new, Inode { striping, ..Inode::new(Content::File(Vec::new()), perm) })
            }
        }
    }

    fn open(&mut self, fid: Fid, flags: u32) -> Answer {
        match self.inode(fid)?.kind() {
            FileKind::Symlink => return Err(Errno::ELOOP),
            FileKind::Dir => return Err(Errno::EISDIR),
            _ => {}
        }
        if flags::writes(flags) || flags & flags::TRUNC != 0 {
            self.ensure_striping(fid)?;
        }
        if flags & flags::TRUNC != 0 {
            self.resize(fid, 0)?;
        }
        Ok(Outcome::Done)
    }

    fn ensure_striping(&mut self, fid: Fid) -> Result<(), Errno> {
        let dir = self.names().find(|(_, _, f)| *f == fid).map(|(dir, _, _)| dir);
        let inherited = self.inherited(dir);
        self.edit(fid)?.striping.get_or_insert(inherited);
        Ok(())
    }

    fn file(&mut self, fid: Fid) -> Result<&mut Vec<u8>, Errno> {
        match &mut self.edit(fid)?.content {
            Content::File(bytes) => Ok(bytes),
            Content::Dir { .. } => Err(Errno::EISDIR),
            Content::Symlink(_) => Err(Errno::EINVAL),
        }
    }

    fn resize(&mut self, fid: Fid, size: u64) -> Result<(), Errno> {
        self.file(fid)?.resize(size as usize, 0);
        Ok(())
    }

    /// Returns the open file if its flags satisfy `may`.
    fn handle(&self, handle: u64, may: fn(u32) -> bool) -> Result<Handle, Errno> {
        self.handles.get(&handle).filter(|h| may(h.flags)).cloned().ok_or(Errno::EBADF)
    }

    fn read(&mut self, handle: u64, offset: u64, len: usize) -> Answer {
        let fid = self.handle(handle, flags::reads)?.fid;
        let bytes = self.file(fid)?;
        let start = (offset as usize).min(bytes.len());
        let end = (start + len).min(bytes.len());
        Ok(Outcome::Bytes(Bytes::copy_from_slice(&bytes[start..end])))
    }

    fn write(&mut self, handle: u64, offset: u64, data: &Bytes) -> Answer {
        let Handle { fid, flags, .. } = self.handle(handle, flags::writes)?;
        let bytes = self.file(fid)?;
        let start = if flags & flags::APPEND != 0 { bytes.len() } else { offset as usize };
        put(bytes, start, data);
        Ok(Outcome::Count(data.len()))
    }

    fn punch(&mut self, handle: u64, offset: u64, len: u64) -> Answer {
        let fid = self.handle(handle, flags::writes)?.fid;
        let bytes = self.file(fid)?;
        let end = bytes.len().min((offset + len) as usize);
        if let Some(hole) = bytes.get_mut(offset as usize..end) {
            hole.fill(0);
        }
        Ok(Outcome::Done)
    }

    fn truncate(&mut self, fid: Fid, size: u64, handle: Option<u64>) -> Answer {
        self.file(fid)?;
        if handle.is_some_and(|h| self.handle(h, flags::writes).is_err()) {
            return Err(Errno::EINVAL);
        }
        self.ensure_striping(fid)?;
        self.resize(fid, size)?;
        self.seen(fid)
    }

    fn link(&mut self, fid: Fid, dir: Fid, name: &str) -> Answer {
        if self.find(dir, name)?.is_some() {
            return Err(Errno::EEXIST);
        }
        let inode = self.edit(fid)?;
        if inode.is_dir() {
            return Err(Errno::EPERM);
        }
        if inode.nlink == 0 && !inode.linkable {
            return Err(Errno::ENOENT);
        }
        inode.nlink += 1;
        inode.linkable = false;
        self.entries_mut(dir)?.insert(name.to_owned(), fid);
        self.seen(fid)
    }

    fn remove(&mut self, dir: Fid, name: &str, rmdir: bool) -> Answer {
        let fid = self.find(dir, name)?.ok_or(Errno::ENOENT)?;
        match (rmdir, self.inode(fid)?.is_dir()) {
            (true, false) => return Err(Errno::ENOTDIR),
            (false, true) => return Err(Errno::EISDIR),
            (true, true) if !self.entries(fid)?.is_empty() => return Err(Errno::ENOTEMPTY),
            _ => {}
        }
        self.entries_mut(dir)?.remove(name);
        self.drop_name(fid)?;
        Ok(Outcome::Done)
    }

    fn drop_name(&mut self, fid: Fid) -> Result<(), Errno> {
        self.edit(fid)?.nlink -= 1;
        self.forget(fid);
        Ok(())
    }

    fn rename(&mut self, from: (Fid, &str), to: (Fid, &str), flags: u32) -> Answer {
        let exchange = flags & rename::EXCHANGE != 0;
        let (source, target) = (self.find(from.0, from.1)?, self.find(to.0, to.1)?);
        let source = source.ok_or(Errno::ENOENT)?;
        match target {
            Some(_) if flags & rename::NOREPLACE != 0 => return Err(Errno::EEXIST),
            None if exchange => return Err(Errno::ENOENT),
            _ => {}
        }
        let is_dir = self.inode(source)?.is_dir();
        if is_dir && self.is_below(to.0, source) {
            return Err(Errno::EINVAL);
        }
        if let Some(target) = target {
            let target_is_dir = self.inode(target)?.is_dir();
            if target_is_dir && self.is_below(from.0, target) {
                return Err(if exchange { Errno::EINVAL } else { Errno::ENOTEMPTY });
            }
            if target == source {
                return Ok(Outcome::Done);
            }
            match (is_dir, target_is_dir) {
                _ if exchange => {}
                (true, false) => return Err(Errno::ENOTDIR),
                (false, true) => return Err(Errno::EISDIR),
                (true, true) if !self.entries(target)?.is_empty() => return Err(Errno::ENOTEMPTY),
                _ => {}
            }
        }
        self.entries_mut(from.0)?.remove(from.1);
        self.entries_mut(to.0)?.insert(to.1.to_owned(), source);
        self.moved(source, to.0);
        match target {
            Some(target) if exchange => {
                self.entries_mut(from.0)?.insert(from.1.to_owned(), target);
                self.moved(target, from.0);
            }
            Some(target) => self.drop_name(target)?,
            None => {}
        }
        Ok(Outcome::Done)
    }

    fn moved(&mut self, fid: Fid, dir: Fid) {
        if let Ok(Inode { content: Content::Dir { parent, .. }, .. }) = self.edit(fid) {
            *parent = dir;
        }
    }

    fn readdir(&self, dir: Fid, plus: bool) -> Answer {
        let mut all = BTreeMap::new();
        for (name, fid) in self.entries(dir)? {
            let view = self.view(*fid)?;
            all.insert(name.clone(), (*fid, view.kind, plus.then_some(view)));
        }
        all.insert(".".to_owned(), (dir, FileKind::Dir, None));
        all.insert("..".to_owned(), (self.parent(dir), FileKind::Dir, None));
        Ok(Outcome::Entries(all))
    }

    fn setxattr(&mut self, fid: Fid, name: &str, value: &Bytes, flags: u32) -> Answer {
        let inode = self.edit(fid)?;
        if inode.kind() == FileKind::Symlink {
            return Err(Errno::EPERM);
        }
        match inode.xattrs.contains_key(name) {
            true if flags & xattr::CREATE != 0 => return Err(Errno::EEXIST),
            false if flags & xattr::REPLACE != 0 => return Err(Errno::ENODATA),
            _ => inode.xattrs.insert(name.to_owned(), value.clone()),
        };
        Ok(Outcome::Done)
    }

    fn set_stripe(&mut self, fid: Fid, striping: Striping) -> Answer {
        let inode = self.edit(fid)?;
        match inode.kind() {
            FileKind::Symlink => return Err(Errno::EOPNOTSUPP),
            FileKind::Regular if inode.striping.is_some() => return Err(Errno::EEXIST),
            _ => inode.striping = Some(striping),
        }
        Ok(Outcome::Done)
    }
}

/// Writes into a vector like write(2) into a file.
pub fn put(bytes: &mut Vec<u8>, start: usize, data: &[u8]) {
    if data.is_empty() {
        return;
    }
    if bytes.len() < start + data.len() {
        bytes.resize(start + data.len(), 0);
    }
    bytes[start..start + data.len()].copy_from_slice(data);
}
