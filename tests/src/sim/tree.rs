//! The whole file system as a client sees it, read back into a [`Model`], and the objects on the
//! OSTs' disks.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use sheen_client::{Caller, Client};
use sheen_layout::MDT_OST;
use sheen_mds::DATA_DIR;
use sheen_rt::{Disk, sim::World};
use sheen_wire::{Errno, Fid, FileKind, control, fid::ROOT, mds::flags};

use super::{
    MDS, OSSES,
    cluster::{MDT_DIR, OST_DIR},
    model::{Content, Inode, Model},
    op::{Op, Outcome, View},
    perform::{entries, perform},
    striping::{Striping, layout},
};

/// Bytes of a read.
const READ: usize = 150_000;
/// Bytes of a readdir page: few, so that directories have several pages.
const PAGE: u32 = 300;

/// Result of a walk.
#[derive(PartialEq)]
pub struct Tree {
    /// All inodes that have a name.
    pub model: Model,
    /// The objects of all files, with their OST.
    pub objects: BTreeSet<(u32, Fid)>,
    /// The OSTs of each file.
    pub osts: BTreeMap<Fid, BTreeSet<u32>>,
}

/// Walks the whole tree and reads all inodes.
///
/// # Panics
/// If the file system is inconsistent: names without inodes, wrong link counts.
pub async fn walk(client: &Client) -> Tree {
    let mut tree = Tree { model: Model::default(), objects: BTreeSet::new(), osts: BTreeMap::new() };
    tree.model.inodes.clear();
    let mut views = BTreeMap::new();
    let root: View = client.getattr(ROOT, None).await.expect("the root is there").into();
    let mut todo = vec![(root, ROOT)];
    while let Some((view, parent)) = todo.pop() {
        if views.insert(view.fid, view).is_some_and(|before| before != view) {
            panic!("{view:?} looked different before");
        }
        if tree.model.inodes.contains_key(&view.fid) {
            continue; // a further name
        }
        let content = content(client, view, parent).await;
        if let Content::Dir { entries, .. } = &content {
            for (name, fid) in entries {
                let found = perform(client, &Op::Lookup { dir: view.fid, name: name.clone() }, None).await.0;
                let Ok(Outcome::Seen(child)) = found else { panic!("{name} in {}: {found:?}", view.fid) };
                assert_eq!(child.fid, *fid, "readdir and lookup of {name} in {}", view.fid);
                todo.push((child, view.fid));
            }
        }
        let inode = Inode { nlink: 1, ..Inode::new(content, view.perm) };
        let inode = with_attributes(client, view, inode, &mut tree).await;
        tree.model.inodes.insert(view.fid, inode);
    }
    let mut names: BTreeMap<Fid, u32> = BTreeMap::new();
    tree.model.names().for_each(|(_, _, fid)| *names.entry(fid).or_default() += 1);
    for (fid, inode) in &mut tree.model.inodes {
        inode.nlink = if inode.is_dir() { 1 } else { names.get(fid).copied().unwrap_or(0) };
    }
    for (fid, view) in views {
        assert_eq!(Ok(view), tree.model.view(fid), "stat against the inodes that were read");
    }
    tree
}

async fn content(client: &Client, view: View, parent: Fid) -> Content {
    match view.kind {
        FileKind::Dir => {
            let mut found = entries(client, view.fid, PAGE, false).await.expect("a directory can be read");
            assert_eq!(found.remove(".").map(|e| e.0), Some(view.fid), "the entry . of {}", view.fid);
            assert_eq!(found.remove("..").map(|e| e.0), Some(parent), "the entry .. of {}", view.fid);
            Content::Dir { entries: found.into_iter().map(|(name, (fid, ..))| (name, fid)).collect(), parent }
        }
        FileKind::Symlink => {
            let target = client.readlink(view.fid).await.expect("a link can be read");
            Content::Symlink(String::from_utf8_lossy(&target).into_owned())
        }
        _ => {
            let file = client.open(&Caller::ROOT, view.fid, flags::RDONLY).await.expect("a file can be opened");
            let mut bytes = Vec::new();
            loop {
                let data = client.read(&file, bytes.len() as u64, READ).await.expect("a file can be read");
                if data.is_empty() {
                    break;
                }
                data.bulk.segments().iter().for_each(|s| bytes.extend_from_slice(s));
            }
            client.release(file).await.expect("a file can be closed");
            Content::File(bytes)
        }
    }
}

async fn with_attributes(client: &Client, view: View, mut inode: Inode, tree: &mut Tree) -> Inode {
    for name in client.listxattr(&Caller::ROOT, view.fid).await.expect("attributes can be listed") {
        if name.starts_with(b"user.") {
            let value = client.getxattr(&Caller::ROOT, view.fid, &name).await.expect("what is listed can be read");
            inode.xattrs.insert(String::from_utf8_lossy(&name).into_owned(), value);
        }
    }
    if view.kind == FileKind::Symlink {
        return inode;
    }
    match perform(client, &Op::GetStripe { fid: view.fid }, None).await.0 {
        Ok(Outcome::Striped(striping)) => inode.striping = Some(striping),
        Err(Errno::ENODATA) => {}
        other => panic!("{} of {}: {other:?}", control::PREFIX, view.fid),
    }
    if view.kind == FileKind::Regular && inode.striping.is_some() {
        let layout = layout(client, view.fid).await.expect("read just now");
        for stripe in layout.stripes() {
            assert!(tree.objects.insert((stripe.ost, stripe.object)), "{:?} belongs to two files", stripe.object);
            tree.osts.entry(view.fid).or_default().insert(stripe.ost);
        }
    }
    inode
}

/// Returns the model without what a walk cannot see: inodes without names, and open handles.
pub fn visible(model: &Model) -> Model {
    let named: BTreeSet<Fid> = model.names().map(|(_, _, fid)| fid).chain([ROOT]).collect();
    let mut seen = model.clone();
    seen.handles.clear();
    seen.inodes.retain(|fid, _| named.contains(fid));
    seen.inodes.values_mut().for_each(|i| (i.opens, i.linkable) = (0, false));
    seen
}

/// Returns the model without stripe counts.
pub fn without_counts(mut model: Model) -> Model {
    model.inodes.values_mut().for_each(|inode| inode.striping = inode.striping.map(Striping::without_counts));
    model
}

/// Asserts that two models are equal.
///
/// # Panics
/// If they differ. The message shows the differences.
pub fn assert_same(found: &Model, expected: &Model, who: &str) {
    let fids: BTreeSet<&Fid> = found.inodes.keys().chain(expected.inodes.keys()).collect();
    let mut wrong = Vec::new();
    for fid in fids {
        let (f, e) = (found.inodes.get(fid), expected.inodes.get(fid));
        if f != e {
            wrong.push(format!("{fid}: found {}, expected {}", describe(f), describe(e)));
        }
    }
    assert!(wrong.is_empty(), "{who}:\n{}", wrong.join("\n"));
}

fn describe(inode: Option<&Inode>) -> String {
    let Some(inode) = inode else { return "nothing".into() };
    let content = match &inode.content {
        Content::File(bytes) => format!("{:?}", Outcome::Bytes(bytes.clone().into())),
        other => format!("{other:?}"),
    };
    let Inode { perm, nlink, striping, xattrs, .. } = inode;
    format!("{content} {perm:o} {nlink} names {striping:?} {} xattrs", xattrs.len())
}

/// Returns the objects on the OSTs' disks.
pub fn objects(world: &World) -> BTreeSet<(u32, Fid)> {
    let mut found = BTreeSet::new();
    for (ost, host) in OSSES.iter().enumerate() {
        let disk = world.rt(*host).disk();
        for seq in names(&disk, &Path::new(OST_DIR).join("O")) {
            for slot in names(&disk, &seq) {
                for object in names(&disk, &slot) {
                    let number = |path: &Path| {
                        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
                        u64::from_str_radix(name, 16).expect("objects are named in hexadecimal")
                    };
                    found.insert((ost as u32, Fid::new(number(&seq), number(&object) as u32)));
                }
            }
        }
    }
    found
}

/// Returns the DoM objects on the MDT's disk.
pub fn data_objects(world: &World) -> BTreeSet<(u32, Fid)> {
    let disk = world.rt(MDS).disk();
    let mut found = BTreeSet::new();
    for slot in names(&disk, &Path::new(MDT_DIR).join(DATA_DIR).join("O/files")) {
        for object in names(&disk, &slot) {
            let name = object.file_name().and_then(|n| n.to_str()).unwrap_or_default();
            let numbers: Vec<u64> = name.split(':').filter_map(|n| u64::from_str_radix(n, 16).ok()).collect();
            let [seq, oid, ver] = numbers[..] else { panic!("{name} is no object's name") };
            found.insert((MDT_OST, Fid { seq, oid: oid as u32, ver: ver as u32 }));
        }
    }
    found
}

fn names(disk: &Disk, dir: &Path) -> Vec<PathBuf> {
    let entries = disk.read_dir(dir).unwrap_or_default();
    entries.into_iter().map(|e| dir.join(e.name)).collect()
}
