//! An in-memory file system for the tests of `lfs`, and test cases in the format of the captures
//! from a real Lustre.

mod quotas;

use std::{
    cell::RefCell,
    collections::BTreeMap,
    ffi::OsString,
    path::{Component, Path, PathBuf},
    time::Duration,
};

use sheen_admin::{Failure, FileSystem, Progress, Step, migrate::MigrateOptions, mounts::Mount};
use sheen_layout::{
    Asked, Defaults, Layout, Limits, Mark, Ost, Placer, Stripe, Template, Wanted, WantedLayout, resolve_asked,
};
use sheen_wire::{
    Errno, Fid, FileKind, Project, Result, StatFs, Time,
    control::{self, ImportInfo, ImportKind, MountInfo, TargetInfo},
    ioctl::Ladvise,
    mgs::{TargetKind, target_name},
    project,
    quota::{Answer, Change, Id, Query, Usage},
    seq::{MdtIndex, ost_seq},
};

use self::quotas::Quotas;
use super::tool::Tool;

const CWD: &str = "/mnt/c1/t";
const INSTANCE: &str = "ff3298de21e05800";
/// Attribute of a directory that the caller may not read.
pub const UNREADABLE: &str = "test.unreadable";
/// Value of an attribute that the mount refuses with EOVERFLOW.
pub const OVERFLOW: &[u8] = b"test.overflow";

struct Node {
    kind: FileKind,
    target: PathBuf,
    attributes: BTreeMap<String, Vec<u8>>,
}

/// A file system with two MDTs, four OSTs and one mount. `/tmp` lies outside the mount.
pub struct Fake {
    mount: PathBuf,
    targets: Vec<TargetInfo>,
    nodes: RefCell<BTreeMap<PathBuf, Node>>,
    placer: RefCell<Placer>,
    next_oid: RefCell<u32>,
    advised: RefCell<Vec<String>>,
    /// Mounts whose processes are stopped.
    stopped: Vec<Mount>,
    quotas: RefCell<Quotas>,
}

impl Fake {
    pub fn new(mount: &str) -> Fake {
        let space = StatFs {
            bsize: 4096,
            blocks: 1 << 20,
            bfree: 1 << 20,
            bavail: 1 << 20,
            files: 1000,
            ffree: 1000,
            state: 0,
        };
        let kinds =
            [TargetKind::Mdt, TargetKind::Mdt, TargetKind::Ost, TargetKind::Ost, TargetKind::Ost, TargetKind::Ost];
        let mut fake = Fake {
            mount: mount.into(),
            targets: Vec::new(),
            nodes: RefCell::default(),
            placer: RefCell::new(Placer::new(1)),
            next_oid: RefCell::new(1),
            advised: RefCell::default(),
            stopped: Vec::new(),
            quotas: RefCell::default(),
        };
        fake.set_targets(&kinds.map(|k| (k, space)));
        for dir in ["/", "/tmp", mount, CWD] {
            fake.dir(dir);
        }
        fake
    }

    pub fn set_targets(&mut self, targets: &[(TargetKind, StatFs)]) {
        let index = |i: usize| targets[..i].iter().filter(|(kind, _)| *kind == targets[i].0).count() as u32;
        let info = |(i, (kind, statfs)): (usize, &(TargetKind, StatFs))| TargetInfo {
            kind: *kind,
            index: index(i),
            uuid: format!("{}_UUID", target_name("lustre", *kind, index(i))),
            active: true,
            statfs: Ok(*statfs),
        };
        self.targets = targets.iter().enumerate().map(info).collect();
    }

    pub fn deactivate_ost(&mut self, index: u32) {
        let ost = self.targets.iter_mut().find(|t| t.kind == TargetKind::Ost && t.index == index).unwrap();
        (ost.active, ost.statfs) = (false, Err(Errno::ENODATA));
    }

    /// Adds a mount that comes first in the table and whose process does not answer.
    pub fn stop_mount(&mut self, point: &str, fsname: &str) {
        self.stopped.push(Mount { point: point.into(), fsname: fsname.into(), device: 0 });
    }

    pub fn node(&mut self, path: &str, kind: FileKind, target: &str) {
        let node = Node { kind, target: target.into(), attributes: BTreeMap::new() };
        self.nodes.borrow_mut().insert(absolute(Path::new(path)), node);
        if absolute(Path::new(path)).starts_with(&self.mount) {
            let fid = self.fresh_fid().to_string();
            self.attribute(path, control::FID, fid.as_bytes());
        }
    }

    pub fn dir(&mut self, path: &str) {
        self.node(path, FileKind::Dir, "");
    }

    /// Adds a regular file on the mount with a FID and, if given, a layout.
    pub fn file(&mut self, path: &str, fid: &str, layout: Option<&Layout>) {
        self.node(path, FileKind::Regular, "");
        self.attribute(path, control::FID, fid.as_bytes());
        if let Some(layout) = layout {
            self.attribute(path, "lustre.lov", &layout.encode_xattr());
        }
    }

    pub fn attribute(&mut self, path: &str, name: &str, value: &[u8]) {
        let mut nodes = self.nodes.borrow_mut();
        let node = nodes.get_mut(&absolute(Path::new(path))).unwrap();
        node.attributes.insert(name.to_owned(), value.to_vec());
    }

    /// Returns an attribute as it is stored.
    pub fn stored(&self, path: &str, name: &str) -> Option<Vec<u8>> {
        self.nodes.borrow().get(&absolute(Path::new(path)))?.attributes.get(name).cloned()
    }

    /// Sets the use of a user, group or project, which is on `lustre-OST0001` and the first MDT.
    pub fn uses(&mut self, id: Id, space: Usage, files: Usage) {
        self.quotas.get_mut().set_use(id, space, files);
    }

    /// Lets an OST be missing in all sums.
    pub fn lose_sums(&mut self) {
        self.quotas.get_mut().inexact = true;
    }

    pub fn exists(&self, path: &str) -> bool {
        self.nodes.borrow().contains_key(&absolute(Path::new(path)))
    }

    /// Returns the recorded calls: advice, group locks, data versions and migrations.
    pub fn advised(&self) -> Vec<String> {
        self.advised.borrow().clone()
    }

    fn note(&self, path: &Path, what: &str) -> Result<()> {
        if !self.resolve(path)?.starts_with(&self.mount) {
            return Err(Errno::ENOTTY);
        }
        self.advised.borrow_mut().push(format!("{} {what}", path.display()));
        Ok(())
    }

    /// EOPNOTSUPP: the path is not the root of the mount.
    fn at_root(&self, path: &Path) -> Result<()> {
        if path == self.mount { Ok(()) } else { Err(Errno::EOPNOTSUPP) }
    }

    /// Returns the number of names of a file.
    fn names_of(&self, fid: Fid) -> u32 {
        let (fid, by_fid) = (fid.to_string(), self.mount.join(".lustre"));
        let nodes = self.nodes.borrow();
        let named = nodes.iter().filter(|(path, _)| !path.starts_with(&by_fid));
        let is_it = |node: &Node| node.attributes.get(control::FID).is_some_and(|own| *own == fid.as_bytes());
        named.filter(|(_, node)| is_it(node)).count() as u32
    }

    fn fresh_fid(&self) -> Fid {
        let mut next = self.next_oid.borrow_mut();
        *next += 1;
        Fid::new(0x200000402, *next)
    }

    /// Applies a layout request like the MDT. Returns the new value, or `None` if the layout stays.
    fn set_layout(&self, path: &Path, name: &str, value: &[u8], create: bool) -> Result<Option<Vec<u8>>> {
        let nodes = self.nodes.borrow();
        let node = nodes.get(path).ok_or(Errno::ENOENT)?;
        let present = node.attributes.get("lustre.lov");
        if name != "lustre.lov" {
            let layout = Layout::decode(present.ok_or(Errno::ENODATA)?)?;
            return self.change_components(&layout, name, value).map(|layout| Some(layout.encode_xattr()));
        }
        if node.kind != FileKind::Dir && present.is_some() {
            return if create { Err(Errno::EEXIST) } else { Ok(None) };
        }
        let asked = Asked::decode(value)?;
        let wanted = resolve_asked(&asked, None, None, &Defaults::default(), 1 << 20);
        if node.kind == FileKind::Dir {
            wanted.all().iter().try_for_each(|(_, wanted)| self.place(wanted).map(drop))?;
            return Ok(Some(value.to_vec()));
        }
        let place = |(i, wanted): (usize, &Wanted)| Ok((i, self.place(wanted)?));
        let objects: Result<Vec<_>> = wanted.first().into_iter().map(place).collect();
        Ok(Some(wanted.layout(self.fresh_fid(), objects?)?.encode_xattr()))
    }

    fn change_components(&self, layout: &Layout, name: &str, value: &[u8]) -> Result<Layout> {
        Ok(match name {
            "lustre.lov.add" => {
                let added = Asked::Composite(Template::decode_added(value, layout.end())?);
                match resolve_asked(&added, None, None, &Defaults::default(), 0) {
                    WantedLayout::Composite(added) => layout.with_components(&added)?,
                    WantedLayout::Plain(_) => return Err(Errno::EINVAL),
                }
            }
            "lustre.lov.del" => layout.without_components(&Mark::decode(value)?[0])?.0.ok_or(Errno::ENODATA)?,
            "lustre.lov.set.flags" => layout.with_flags(&Mark::decode(value)?)?,
            _ => return Err(Errno::EOPNOTSUPP),
        })
    }

    fn place(&self, wanted: &Wanted) -> Result<Vec<Stripe>> {
        let osts: Vec<Ost> = self.targets.iter().filter(|t| t.kind == TargetKind::Ost).map(as_ost).collect();
        let placed = self.placer.borrow_mut().place(wanted, &osts, &Limits::default())?;
        Ok(placed.into_iter().map(|ost| Stripe { object: Fid::new(ost_seq(MdtIndex::ZERO, ost), 2), ost }).collect())
    }

    /// Writes bytes, or sets the size: the components in the range get their objects.
    pub fn write(&mut self, path: &str, offset: u64, len: u64) {
        let mut layout = Layout::decode(&self.stored(path, "lustre.lov").unwrap()).unwrap();
        let wanting = layout.wanting(offset, len).into_iter();
        let objects: Vec<_> = wanting.map(|i| (i, self.place(&layout.wanted_of(i).unwrap()).unwrap())).collect();
        if !objects.is_empty() {
            layout.instantiate(objects).unwrap();
        }
        self.attribute(path, "lustre.lov", &layout.encode_xattr());
    }

    /// Creates a file like an application, with the default of its directory.
    pub fn touch(&mut self, path: &str) {
        let default = self.default_for(path).unwrap_or_else(|| Asked::default().encode());
        self.make_file(Path::new(path), 0o644).unwrap();
        self.set(Path::new(path), "lustre.lov", &default, false).unwrap();
    }

    /// Creates a directory with its parent's default.
    pub fn mkdir(&mut self, path: &str) {
        self.dir(path);
        if let Some(default) = self.default_for(path) {
            self.attribute(path, "lustre.lov", &default);
        }
    }

    fn default_for(&self, path: &str) -> Option<Vec<u8>> {
        self.stored(Path::new(path).parent().and_then(Path::to_str)?, "lustre.lov")
    }

    fn info(&self) -> MountInfo {
        MountInfo {
            fsname: "lustre".into(),
            instance: INSTANCE.into(),
            client_uuid: "a0804f4e-2ee2-4146-8b63-d3b44aeb271d".into(),
            mgs_nids: vec!["10.0.2.15@tcp".into()],
            mountpoint: self.mount.display().to_string(),
            default_stripe_count: 1,
            default_stripe_size: 4 << 20,
        }
    }

    fn imports(&self) -> Vec<ImportInfo> {
        let import = |t: &TargetInfo| {
            let (kind, device) = match t.kind {
                TargetKind::Ost => (ImportKind::Ost, "osc"),
                TargetKind::Mdt => (ImportKind::Mdt, "mdc"),
            };
            let name = format!("{}-{device}-{INSTANCE}", target_name("lustre", t.kind, t.index));
            ImportInfo { kind, name, state: if t.active { Ok(()) } else { Err(Errno::ESHUTDOWN) } }
        };
        let mgs = ImportInfo { kind: ImportKind::Mgs, name: "MGC10.0.2.15@tcp".into(), state: Ok(()) };
        self.targets.iter().map(import).chain([mgs]).collect()
    }
}

fn as_ost(t: &TargetInfo) -> Ost {
    let (index, active) = (t.index, t.active);
    Ost { index, active, degraded: false, free_bytes: 1 << 40, total_bytes: 1 << 40, free_objects: 1000, oss: 0 }
}

fn absolute(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in Path::new(CWD).join(path).components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                out.pop();
            }
            part => out.push(part),
        }
    }
    out
}

impl FileSystem for Fake {
    fn get(&self, path: &Path, name: &str) -> Result<Vec<u8>> {
        assert!(self.stopped.iter().all(|mount| mount.point != path), "hangs on {}", path.display());
        self.kind(path, false)?;
        let path = absolute(path);
        if !path.starts_with(&self.mount) {
            return Err(Errno::EOPNOTSUPP);
        }
        match name {
            control::MOUNT => Ok(serde_json::to_vec(&self.info()).unwrap()),
            control::DF => Ok(serde_json::to_vec(&self.targets).unwrap()),
            control::CHECK => Ok(serde_json::to_vec(&self.imports()).unwrap()),
            _ => match self.nodes.borrow()[&path].attributes.get(name) {
                Some(value) if value == OVERFLOW => Err(Errno::EOVERFLOW),
                value => value.cloned().ok_or(Errno::ENODATA),
            },
        }
    }

    fn set(&self, path: &Path, name: &str, value: &[u8], create: bool) -> Result<()> {
        let path = self.resolve(path)?;
        if let Some(value) = self.set_layout(&path, name, value, create)? {
            self.nodes.borrow_mut().get_mut(&path).unwrap().attributes.insert("lustre.lov".to_owned(), value);
        }
        Ok(())
    }

    fn remove(&self, path: &Path, name: &str) -> Result<()> {
        let path = self.resolve(path)?;
        let mut nodes = self.nodes.borrow_mut();
        nodes.get_mut(&path).unwrap().attributes.remove(name).map(|_| ()).ok_or(Errno::ENODATA)
    }

    fn kind(&self, path: &Path, follow: bool) -> Result<FileKind> {
        if path.as_os_str().is_empty() {
            return Err(Errno::ENOENT);
        }
        let path = if follow { self.resolve(path)? } else { absolute(path) };
        if path.file_name().is_some_and(|name| name.len() > 255) {
            return Err(Errno::ENAMETOOLONG);
        }
        let nodes = self.nodes.borrow();
        if path.parent().and_then(|p| nodes.get(p)).is_some_and(|p| p.kind != FileKind::Dir) {
            return Err(Errno::ENOTDIR);
        }
        nodes.get(&path).map(|n| n.kind).ok_or(Errno::ENOENT)
    }

    fn read_link(&self, path: &Path) -> Result<PathBuf> {
        Ok(self.nodes.borrow()[&absolute(path)].target.clone())
    }

    fn resolve(&self, path: &Path) -> Result<PathBuf> {
        if path.as_os_str().is_empty() {
            return Err(Errno::ENOENT);
        }
        match self.kind(path, false)? {
            FileKind::Symlink => self.resolve(&absolute(path).parent().unwrap().join(self.read_link(path)?)),
            _ => Ok(absolute(path)),
        }
    }

    fn make_file(&self, path: &Path, _mode: u32) -> Result<()> {
        let node = Node { kind: FileKind::Regular, target: PathBuf::new(), attributes: BTreeMap::new() };
        let fid = self.fresh_fid().to_string().into_bytes();
        let mut nodes = self.nodes.borrow_mut();
        nodes.insert(absolute(path), node);
        nodes.get_mut(&absolute(path)).unwrap().attributes.insert(control::FID.to_owned(), fid);
        Ok(())
    }

    fn may_read(&self, path: &Path) -> Result<()> {
        if self.nodes.borrow()[&self.resolve(path)?].attributes.contains_key(UNREADABLE) {
            return Err(Errno::EACCES);
        }
        Ok(())
    }

    fn list(&self, path: &Path) -> Result<Vec<OsString>> {
        let path = absolute(path);
        let nodes = self.nodes.borrow();
        let children = nodes.keys().filter(|p| p.parent() == Some(&path));
        Ok(children.filter_map(|p| p.file_name()).map(OsString::from).collect())
    }

    fn mirror(&self, path: &Path, _: u16, _: bool) -> Result<std::fs::File> {
        self.resolve(path)?;
        Err(Errno::ENOTTY)
    }

    fn size(&self, path: &Path) -> Result<u64> {
        self.resolve(path).map(|_| 0)
    }

    fn blocks(&self, path: &Path) -> Result<u64> {
        self.resolve(path).map(|_| 0)
    }

    fn data_version(&self, path: &Path, flush: u32) -> Result<u64> {
        self.note(path, &format!("data version, flush {flush}")).map(|()| 0)
    }

    fn mtime(&self, path: &Path) -> Result<Time> {
        self.resolve(path).map(|_| Time::default())
    }

    fn adopt(&self, path: &Path, from: &Path) -> Result<()> {
        self.resolve(path).and(self.resolve(from)).map(drop)
    }

    fn project(&self, path: &Path) -> Result<Project> {
        self.kind(path, false)?;
        let nodes = self.nodes.borrow();
        nodes[&absolute(path)].attributes.get(project::XATTR).map_or(Ok(Project::default()), |v| Project::decode(v))
    }

    fn set_project(&self, path: &Path, project: Project) -> Result<()> {
        self.may_read(path)?;
        let mut nodes = self.nodes.borrow_mut();
        let node = nodes.get_mut(&absolute(path)).ok_or(Errno::ENOENT)?;
        node.attributes.insert(project::XATTR.to_owned(), project.encode().to_vec());
        Ok(())
    }

    fn quota(&self, mount: &Path, query: &Query) -> Result<Answer> {
        self.at_root(mount)?;
        self.quotas.borrow().answer(query)
    }

    fn set_quota(&self, mount: &Path, change: &Change) -> Result<()> {
        self.at_root(mount)?;
        self.quotas.borrow_mut().change(change)
    }

    fn unlink(&self, path: &Path) -> Result<()> {
        self.nodes.borrow_mut().remove(&absolute(path)).map(|_| ()).ok_or(Errno::ENOENT)
    }

    fn nlink(&self, path: &Path) -> Result<u32> {
        let fid = path.file_name().and_then(|name| name.to_str()?.parse::<Fid>().ok());
        fid.map(|fid| self.names_of(fid)).ok_or(Errno::ENOENT)
    }

    /// The name is also removed from the paths and parents that the mount returns for the FID.
    fn unlink_fid(&self, mount: &Path, path: &Path, fid: Fid) -> Result<()> {
        let full = mount.join(path);
        if self.fid(&full)? != fid {
            return Err(Errno::ESTALE);
        }
        if self.kind(&full, false)? == FileKind::Dir {
            return Err(Errno::EISDIR);
        }
        self.unlink(&full)?;
        let is_last = self.names_of(fid) == 0;
        let mut nodes = self.nodes.borrow_mut();
        let by_fid = self.mount.join(".lustre/fid").join(fid.to_string());
        if let Some(parents) = nodes.get_mut(&by_fid).and_then(|node| node.attributes.get_mut(control::PARENTS)) {
            let end = format!("/{}", path.file_name().unwrap().display());
            *parents = without(parents, |entry| entry.ends_with(end.as_bytes()));
        }
        let (root, name) = (nodes.get_mut(&self.mount).unwrap(), format!("{}{fid}", control::PATHS_PREFIX));
        let is_overflow = root.attributes.get(&name).is_some_and(|paths| paths == OVERFLOW);
        if is_overflow && is_last {
            root.attributes.remove(&name);
        } else if let Some(paths) = root.attributes.get_mut(&name).filter(|_| !is_overflow) {
            *paths = without(paths, |entry| entry == path.as_os_str().as_encoded_bytes());
        }
        Ok(())
    }

    fn advise(&self, path: &Path, advice: &Ladvise) -> Result<Ladvise> {
        let Ladvise { advice: what, mode, flags, start, last, .. } = advice;
        self.note(path, &format!("{what} mode {mode} flags {flags} {start}..={last}"))?;
        Ok(*advice)
    }

    fn in_group(&self, path: &Path, gid: u64, nowait: bool, work: &mut dyn FnMut()) -> Result<()> {
        self.note(path, &format!("group {gid}{}", if nowait { " or not at all" } else { "" }))?;
        work();
        Ok(())
    }

    fn migrate(
        &self,
        path: &Path,
        options: &MigrateOptions,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), Failure> {
        let failed = |errno| Failure::new(Step::OpenSource, path, errno);
        if self.kind(path, true).map_err(failed)? == FileKind::Dir {
            return Err(failed(Errno::EISDIR));
        }
        let bytes = options.layout.as_ref().map_or(0, Vec::len);
        progress(Progress::End { total: 1 });
        self.note(path, &format!("migrate {bytes} bytes of layout{}", if options.block { " block" } else { "" }))
            .map_err(failed)
    }

    fn swap_layouts(&self, paths: [&Path; 2]) -> Result<(), Failure> {
        for path in paths {
            let failed = |errno| Failure::new(Step::OpenForSwap, path, errno);
            if self.kind(path, true).map_err(failed)? == FileKind::Dir {
                return Err(failed(Errno::EISDIR));
            }
        }
        let mut nodes = self.nodes.borrow_mut();
        let taken = paths.map(|path| nodes.get_mut(&absolute(path)).unwrap().attributes.remove("lustre.lov"));
        for (path, layout) in paths.into_iter().rev().zip(taken) {
            nodes.get_mut(&absolute(path)).unwrap().attributes.extend(layout.map(|l| ("lustre.lov".to_owned(), l)));
        }
        Ok(())
    }

    fn mounts(&self) -> Vec<Mount> {
        let own = Mount { point: self.mount.clone(), fsname: "lustre".into(), device: 0 };
        self.stopped.iter().cloned().chain([own]).collect()
    }

    fn answers(&self, points: &[PathBuf], _: &'static str, _: Duration) -> Vec<bool> {
        points.iter().map(|point| self.stopped.iter().all(|mount| mount.point != *point)).collect()
    }
}

/// Removes entries from a list that [`control::decode_paths`] decodes.
fn without(list: &[u8], is_removed: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let left = control::decode_paths(list).into_iter().filter(|entry| !is_removed(entry));
    left.flat_map(|entry| [entry, &b"\0"[..]].concat()).collect()
}

/// Runs a command line that begins with `lfs`. Returns the exit code, stdout and stderr.
pub fn lfs(fake: &mut Fake, line: &str) -> (i32, String, String) {
    let args: Vec<OsString> = line.split_whitespace().skip(1).map(|a| a.trim_matches('\'').into()).collect();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = super::run(&mut Tool { fs: fake, out: &mut out, err: &mut err }, &args);
    (code, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
}

/// Runs a case in the format of the captures: `$ command`, `[exit N]`, then `--- stdout` and
/// `--- stderr`, each followed by exact text.
pub fn check_case(fake: &mut Fake, case: &str) {
    let (command, rest) = case.strip_prefix("$ ").unwrap().split_once('\n').unwrap();
    let (exit, rest) = rest.split_once('\n').unwrap();
    let (out, err) = match rest.split_once("--- stderr\n") {
        Some((out, err)) => (out, err),
        None => (rest, ""),
    };
    let out = out.strip_prefix("--- stdout\n").unwrap_or(out);
    let (code, got_out, got_err) = lfs(fake, command);
    assert_eq!(got_out, out, "stdout of {command}");
    assert_eq!(got_err, err, "stderr of {command}");
    assert_eq!(format!("[exit {code}]"), exit, "exit code of {command}");
}
