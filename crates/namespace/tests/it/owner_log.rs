//! The owner log: files whose objects must get another owner on their OSTs.

use crate::common::*;
use bytes::Bytes;
use sheen_layout::{Asked, Count, Layout, MDT_OST, Spec, Template, TemplateComponent};
use sheen_namespace::{Decided, OpError, Store};
use sheen_wire::{
    Cred, Fid, Project, Time,
    fid::ROOT,
    mds::{Request, flags, xattr::CREATE},
    mirror::{self, MirrorChange},
    quota::Owner,
    seq::{MdtIndex, ost_seq},
};

const SUPERUSER: Cred = Cred::ROOT;
const NEVER: Time = Time { sec: 0, nsec: 0 };

/// Returns the files in the log, after a commit.
fn logged(fs: &mut Fs) -> Vec<Fid> {
    fs.commit();
    fs.ns.owner_changes(Fid::ZERO, 100).unwrap()
}

/// Returns all files of a walk, of which `part` returns those after a FID.
fn walk(mut part: impl FnMut(Fid) -> Vec<Fid>) -> Vec<Fid> {
    let mut all: Vec<Fid> = Vec::new();
    loop {
        let some = part(all.last().copied().unwrap_or(Fid::ZERO));
        if some.is_empty() {
            return all;
        }
        all.extend(&some);
    }
}

/// Removes all files from the log.
fn send_all(fs: &mut Fs) {
    let files = logged(fs);
    fs.ns.owners_sent(&files);
    assert_eq!(logged(fs), []);
}

fn touch(fs: &mut Fs, name: &str) -> Fid {
    fs.touch(&SUPERUSER, ROOT, name, 0o644).unwrap()
}

fn chown(fs: &mut Fs, fid: Fid, uid: u32) {
    fs.chown(&SUPERUSER, fid, Some(uid), None).unwrap();
}

/// Returns the objects of a file as (OST index, object).
fn objects(fs: &mut Fs, fid: Fid) -> Vec<(u32, Fid)> {
    fs.ns.charged(fid).unwrap().unwrap().1
}

fn sorted<const N: usize>(mut files: [Fid; N]) -> [Fid; N] {
    files.sort_unstable();
    files
}

#[test]
fn chown_and_project_log_regular_files_with_a_layout() {
    let mut fs = Fs::new();
    let f = touch(&mut fs, "f");
    let bare = fs.mknod(&SUPERUSER, ROOT, "bare", 0o644).unwrap();
    let dir = fs.mkdir(&SUPERUSER, ROOT, "dir", 0o755).unwrap();
    assert_eq!(logged(&mut fs), [], "a new file");
    for fid in [f, bare, dir] {
        chown(&mut fs, fid, 5);
    }
    assert_eq!(fs.ns.owner_changes(Fid::ZERO, 10).unwrap(), [], "nothing is durable yet");
    assert!(!fs.ns.has_owner_changes().unwrap());
    assert_eq!(logged(&mut fs), [f]);
    assert!(fs.ns.has_owner_changes().unwrap());
    fs.ns.owners_sent(&[f]);
    assert!(!fs.ns.has_owner_changes().unwrap());
    assert_eq!(fs.ns.owner_changes(Fid::ZERO, 10).unwrap(), []);
    assert_eq!(logged(&mut fs), []);

    let project = |fs: &mut Fs, id, inherits| {
        fs.set(&SUPERUSER, f, "lustre.project", &Project { id, inherits }.encode(), 0).unwrap();
    };
    project(&mut fs, 7, false);
    assert_eq!(logged(&mut fs), [f]);
    send_all(&mut fs);
    project(&mut fs, 7, true);
    chown(&mut fs, f, 5);
    fs.chmod(&SUPERUSER, f, 0o600).unwrap();
    assert_eq!(logged(&mut fs), [], "the owner is the same");
    fs.chown(&SUPERUSER, f, None, Some(8)).unwrap();
    assert_eq!(logged(&mut fs), [f]);
    assert_eq!(fs.crash().ns.owner_changes(Fid::ZERO, 10).unwrap(), [f], "the log survives a crash");
}

#[test]
fn rename_into_a_project_logs_the_file() {
    let mut fs = Fs::new();
    let f = touch(&mut fs, "f");
    let dir = fs.mkdir(&SUPERUSER, ROOT, "p", 0o755).unwrap();
    fs.set(&SUPERUSER, dir, "lustre.project", &Project { id: 9, inherits: true }.encode(), 0).unwrap();
    fs.rename(&SUPERUSER, (ROOT, "f"), (dir, "f"), 0).unwrap();
    assert_eq!(logged(&mut fs), [f]);
}

#[test]
fn file_that_was_logged_again_remains_in_the_log() {
    let mut fs = Fs::new();
    let f = touch(&mut fs, "f");
    chown(&mut fs, f, 5);
    assert_eq!(logged(&mut fs), [f]);
    chown(&mut fs, f, 6);
    fs.ns.owners_sent(&[f]);
    assert_eq!(logged(&mut fs), [f], "logged again in the next batch");
    chown(&mut fs, f, 7);
    fs.seal();
    fs.ns.owners_sent(&[f]);
    fs.land();
    assert_eq!(logged(&mut fs), [f], "logged again in the batch being committed");
    chown(&mut fs, f, 8);
    fs.commit();
    fs.ns.owners_sent(&[f]);
    assert_eq!(logged(&mut fs), [f], "logged again in a committed batch");
    fs.ns.owners_sent(&[f]);
    let mut fs = fs.crash();
    fs.ns.owners_sent(&[f]);
    assert_eq!(logged(&mut fs), [f], "the removal was not durable, and this life has not returned the file");
    // The owner that is read after the log has the change that is not durable yet.
    chown(&mut fs, f, 9);
    assert_eq!(fs.ns.owner_changes(Fid::ZERO, 10).unwrap(), [f]);
    assert_eq!(fs.ns.charged(f).unwrap().unwrap().0.uid, 9);
    fs.ns.owners_sent(&[f]);
    assert_eq!(logged(&mut fs), []);
}

#[test]
fn owner_log_is_returned_in_parts() {
    let mut fs = Fs::new();
    let mut files: Vec<Fid> = (0..300).map(|n| touch(&mut fs, &n.to_string())).collect();
    files.iter().for_each(|fid| chown(&mut fs, *fid, 5));
    fs.commit();
    files.sort_unstable();
    let found = walk(|after| fs.ns.owner_changes(after, 120).unwrap());
    assert_eq!(found, files);
    // An entry of a file that is deleted.
    fs.unlink(&SUPERUSER, ROOT, "0").unwrap();
    fs.commit();
    assert_eq!(fs.ns.owner_changes(Fid::ZERO, 1000).unwrap(), files);
}

#[test]
fn take_layout_logs_the_file() {
    let mut fs = Fs::new();
    let f = touch(&mut fs, "f");
    let from = fs.fid();
    let (cred, parent, flags) = (SUPERUSER, ROOT, flags::RDWR);
    fs.opened(Request::TmpFile { cred: cred.clone(), parent, fid: from, flags, mode: 0o600, umask: 0 }).unwrap();
    let versions = objects(&mut fs, f).into_iter().map(|(_, object)| (object, 1)).collect();
    fs.call(Request::TakeLayout { cred, fid: f, from, versions, group: None, mtime: NEVER }).unwrap();
    assert_eq!(logged(&mut fs), [f]);
}

#[test]
fn swap_layouts_logs_both_files() {
    let mut fs = Fs::new();
    let fids = [touch(&mut fs, "f"), touch(&mut fs, "g")];
    let swap = Request::SwapLayouts { cred: SUPERUSER, fids, mtimes: [NEVER; 2], nonce: 5 };
    while fs.ns.begin_swap(&swap).is_err_and(|e| e == OpError::CommitFirst) {
        fs.commit();
    }
    fs.call(swap.clone()).unwrap();
    fs.ns.end_swap(&swap);
    assert_eq!(logged(&mut fs), sorted(fids));
}

#[test]
fn merge_and_split_of_mirrors_log_the_file_that_gets_objects() {
    let mut fs = Fs::new();
    let [f, other, target] = ["f", "other", "target"].map(|name| fs.mknod(&SUPERUSER, ROOT, name, 0o644).unwrap());
    let template = || {
        let components = vec![TemplateComponent::striped(0, u64::MAX, Spec::default())];
        Template { components, mirrors: 1 }.encode()
    };
    let change = |fs: &mut Fs, change: &MirrorChange| {
        fs.set(&SUPERUSER, f, mirror::XATTR, &change.encode().unwrap(), 0).unwrap();
        fs.ns.layout(f).unwrap().unwrap()
    };
    let one = Spec { count: Some(Count::Stripes(1)), ..Spec::default() };
    fs.set(&SUPERUSER, f, "lustre.lov", &one.encode(), CREATE).unwrap();
    fs.set(&SUPERUSER, other, "lustre.lov", &template(), CREATE).unwrap();
    change(&mut fs, &MirrorChange::Extend { template: template() });
    assert_eq!(logged(&mut fs), [], "new objects");
    let merged = change(&mut fs, &MirrorChange::Merge { other });
    assert_eq!(logged(&mut fs), [f]);
    send_all(&mut fs);
    let mirror = merged.mirrors()[2].mirror_id();
    change(&mut fs, &MirrorChange::Split { mirror, into: Some(target) });
    assert_eq!(logged(&mut fs), [target]);
}

#[test]
fn adopted_object_logs_its_file() {
    let mut fs = Fs::new();
    fs.commit();
    // Ids up to 3 were used on OST 3.
    fs.store.put([&b"o"[..], &3u32.to_be_bytes()].concat(), vec![1, 3, 3]);
    let mut fs = fs.crash();
    let sequence = fs.ns.take_sequence().unwrap();
    let [dir, file, second] = [1, 2, 3].map(|oid| Fid::new(sequence, oid));
    fs.ns.make_lost_found(dir, &mut fs.env).unwrap();
    let object = Fid::new(ost_seq(MdtIndex::ZERO, 3), 1);
    fs.ns.adopt(3, object, dir, file, &mut fs.env).unwrap();
    fs.ns.adopt(3, object, dir, second, &mut fs.env).unwrap_err();
    assert_eq!(logged(&mut fs), [file]);
    assert_eq!(fs.ns.charged(file), Ok(Some((Owner::default(), vec![(3, object)]))));
}

#[test]
fn replay_with_a_layout_logs_the_file() {
    let mut fs = Fs::new();
    for n in 0..OSTS {
        touch(&mut fs, &n.to_string());
    }
    fs.commit();
    let (name, fid, flags) = (Bytes::from_static(b"f"), fs.fid(), flags::RDWR | flags::CREAT);
    let create = Request::OpenCreate { cred: SUPERUSER, parent: ROOT, name, fid, flags, mode: 0o644, umask: 0 };
    let transno = fs.execute(&create).unwrap().transno;
    let (time, layout) = (fs.env.now, fs.layout(fid));
    let mut fs = fs.crash();
    assert_eq!(fs.ns.charged(fid), Ok(None), "so an OST that asks learns that nobody has the object");
    fs.ns.replay(ME, &create, Decided { transno, time, layout, named: Vec::new() }, &mut fs.env).unwrap();
    assert_eq!(logged(&mut fs), [fid]);
}

#[test]
fn charged_returns_the_owner_and_all_objects() {
    let mut fs = Fs::new();
    let d = open_dir(&mut fs);
    let f = fs.touch(&user(5), d, "f", 0o644).unwrap();
    fs.set(&SUPERUSER, f, "lustre.project", &Project { id: 7, inherits: false }.encode(), 0).unwrap();
    let layout = Layout::decode(&fs.layout(f).unwrap()).unwrap();
    let stripes: Vec<(u32, Fid)> = layout.stripes().iter().map(|s| (s.ost, s.object)).collect();
    assert_eq!(fs.ns.charged(f), Ok(Some((Owner { uid: 5, gid: 5, project: 7 }, stripes))));
    let bare = fs.mknod(&user(6), d, "bare", 0o644).unwrap();
    assert_eq!(fs.ns.charged(bare), Ok(Some((Owner { uid: 6, gid: 6, project: 0 }, vec![]))));
    let parts =
        vec![TemplateComponent::on_mdt(64 << 10), TemplateComponent::striped(64 << 10, u64::MAX, Spec::default())];
    let on_mdt = Asked::Composite(Template { components: parts, mirrors: 1 });
    fs.set(&user(6), bare, "lustre.lov", &on_mdt.encode(), CREATE).unwrap();
    assert_eq!(objects(&mut fs, bare).first().map(|(ost, _)| *ost), Some(MDT_OST));
    assert_eq!((fs.ns.charged(d), fs.ns.charged(Fid::new(1, 9))), (Ok(None), Ok(None)));
    let open = fs.open(&user(5), f, flags::RDONLY).unwrap();
    fs.unlink(&user(5), d, "f").unwrap();
    assert_eq!(fs.ns.charged(f).unwrap().unwrap().0.uid, 5, "an orphan");
    fs.close(open).unwrap();
    assert_eq!(fs.ns.charged(f), Ok(None));
}

#[test]
fn undecodable_layout_counts_as_none() {
    let mut fs = Fs::new();
    let [bad, good] = ["bad", "good"].map(|name| touch(&mut fs, name));
    chown(&mut fs, bad, 5);
    fs.commit();
    let layout = fs.layout(bad).unwrap();
    let key = [&b"i"[..], &bad.to_key()].concat();
    let mut record = fs.store.get(&key).unwrap().unwrap();
    let at = record.windows(layout.len()).position(|bytes| *bytes == layout[..]).unwrap();
    record[at..at + layout.len()].fill(0xff);
    fs.store.put(key, record);
    let mut fs = fs.crash();
    assert_eq!(fs.ns.charged(bad), Ok(Some((Owner { uid: 5, ..Owner::default() }, vec![]))));
    assert!(!objects(&mut fs, good).is_empty());
}

#[test]
fn walk_over_all_files_returns_regular_ones_in_order() {
    let mut fs = Fs::new();
    let mut files = Vec::new();
    // More than are read at once.
    for n in 0..600 {
        if n % 3 == 0 {
            files.push(touch(&mut fs, &n.to_string()));
        } else {
            fs.mkdir(&SUPERUSER, ROOT, &n.to_string(), 0o755).unwrap();
        }
    }
    fs.commit();
    files.sort_unstable();
    for limit in [1, 7, 1000] {
        let found = walk(|after| fs.ns.files_from(after, limit).unwrap());
        assert_eq!(found, files, "{limit}");
    }
}
