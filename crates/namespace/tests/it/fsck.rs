//! The check of a store, and its repair. The damaged stores are mixtures of two states of one
//! history: some records are older than the others.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::*;
use proptest::prelude::*;
use sheen_layout::{Count, Layout, Spec, Template, TemplateComponent};
use sheen_namespace::{Batch, Check, Config, DamagedStore, MemStore, Problem, Records, Store, StoreError, salvage};
use sheen_wire::{
    Cred, Errno, Fid, FileKind, Time,
    fid::ROOT,
    mds::{flags, rename::EXCHANGE, xattr::CREATE},
    ost::StoredObject,
    quota::Owner,
    seq::{MdtIndex, ost_seq},
};

pub type Content = BTreeMap<Vec<u8>, Vec<u8>>;

pub fn content(store: &MemStore) -> Content {
    store.range(&[0], &[u8::MAX], usize::MAX).unwrap().into_iter().collect()
}

pub fn store(content: &Content) -> Arc<MemStore> {
    let store = MemStore::new();
    content.iter().for_each(|(key, value)| store.put(key.clone(), value.clone()));
    Arc::new(store)
}

pub fn key(table: u8, fid: Fid) -> Vec<u8> {
    [&[table][..], &fid.to_key()].concat()
}

pub fn check(store: &MemStore) -> Check {
    Check::of(store, &mut |_, _| {}).unwrap()
}

pub fn names(check: &Check) -> Vec<&'static str> {
    check.problems().iter().map(Problem::name).collect()
}

/// An object of this size without an owner.
fn stored(size: u64) -> StoredObject {
    StoredObject { size, owner: None }
}

/// Repairs until nothing is left that can be repaired. Returns the last check.
pub fn repair(store: &MemStore) -> Check {
    for _ in 0..20 {
        let check = check(store);
        match check.repair(store, Time { sec: 5000, nsec: 0 }).unwrap() {
            Some((batch, count)) => {
                assert!(count > 0);
                store.commit(&batch).unwrap();
            }
            None => return check,
        }
    }
    panic!("the repair does not end: {:?}", check(store));
}

/// Serves a repaired store, and asserts that its tree is consistent.
pub fn served(store: Arc<MemStore>) -> Fs {
    let mut fs = Fs::on(store, Config::default());
    fs.ns.finish_recovery().unwrap();
    fs.commit();
    fs.check();
    fs
}

/// A tree with a directory "d", a file "d/f" with a second name "g", and the state before "g".
pub fn tree() -> (Fs, Fid, Fid, Content) {
    let mut fs = Fs::new();
    let d = fs.mkdir(&Cred::ROOT, ROOT, "d", 0o755).unwrap();
    let f = fs.touch(&Cred::ROOT, d, "f", 0o644).unwrap();
    fs.commit();
    let before = content(&fs.store);
    fs.link(&Cred::ROOT, f, ROOT, "g").unwrap();
    fs.commit();
    (fs, d, f, before)
}

#[test]
fn file_without_entries_is_linked_in_lost_found() {
    let (fs, d, f, _) = tree();
    let mut damaged = content(&fs.store);
    damaged.retain(|key, _| key[0] != b'e' || !key[1..].starts_with(&d.to_key()));
    let damaged = store(&damaged);
    assert_eq!(names(&check(&damaged)), ["entry_count", "link_count", "wrong_links"]);
    assert_eq!(repair(&damaged).problems(), []);
    let mut fs = served(damaged.clone());
    assert_eq!((fs.attr(f).nlink, fs.ls(d).len()), (1, 0));

    // Without its last name.
    let mut damaged = content(&damaged);
    damaged.retain(|key, _| key[0] != b'e' || !key[1..].starts_with(&ROOT.to_key()));
    let damaged = store(&damaged);
    assert!(names(&check(&damaged)).contains(&"file_without_name"));
    assert_eq!(repair(&damaged).problems(), []);
    let mut fs = served(damaged.clone());
    let lost = fs.lookup(&Cred::ROOT, ROOT, "lost+found").unwrap();
    assert_eq!((lost.perm, lost.nlink), (0o700, 3));
    let [d, f] = [d, f].map(|fid| fid.to_string().trim_matches(['[', ']']).to_owned());
    assert_eq!(fs.ls(lost.fid), [d, f.clone()]);
    assert_eq!(
        Check::path(&*damaged, fs.lookup(&Cred::ROOT, lost.fid, &f).unwrap().fid),
        Some(format!("/lost+found/{f}"))
    );
}

#[test]
fn entry_of_a_lost_file_is_removed() {
    let (fs, _, f, _) = tree();
    fs.store.remove(&key(b'i', f));
    let found = check(&fs.store);
    let usage = ["quota_usage"; 3];
    assert_eq!(names(&found), [&["dangling_entry", "dangling_entry", "file_count"][..], &usage].concat());
    assert_eq!(found.problems()[0].to_string(), format!("entry \"g\" of directory {ROOT}: file {f} does not exist"));
    assert_eq!(repair(&fs.store).problems(), []);
    served(fs.store);
}

#[test]
fn lost_directory_with_entries_is_made_again() {
    let (fs, d, _, _) = tree();
    for dir in [d, ROOT] {
        fs.store.remove(&key(b'i', dir));
        assert!(names(&check(&fs.store)).contains(&"no_directory"));
        assert_eq!(repair(&fs.store).problems(), []);
    }
    let mut fs = served(fs.store);
    assert_eq!((fs.ls(ROOT), fs.ls(d)), (vec!["d".to_owned(), "g".to_owned()], vec!["f".to_owned()]));
    assert_eq!(fs.attr(d).perm, 0o700);
}

#[test]
fn stale_inode_gets_the_right_numbers() {
    let (fs, _, f, before) = tree();
    for fid in [f, ROOT] {
        fs.store.put(key(b'i', fid), before[&key(b'i', fid)].clone());
    }
    assert_eq!(names(&check(&fs.store)), ["entry_count", "link_count"]);
    assert_eq!(repair(&fs.store).problems(), []);
    let mut fs = served(fs.store);
    assert_eq!(fs.attr(f).nlink, 2);
}

#[test]
fn unreadable_records_are_removed_and_reported() {
    let (fs, d, f, _) = tree();
    let mut record = content(&fs.store)[&key(b'i', f)].clone();
    record.truncate(5);
    fs.store.put(key(b'i', f), record);
    let found = check(&fs.store);
    let expected = ["unreadable_record", "dangling_entry", "dangling_entry", "file_count"];
    assert_eq!(names(&found), [&expected[..], &["quota_usage"; 3]].concat());
    assert_eq!(repair(&fs.store).problems(), []);
    assert_eq!(served(fs.store).ls(d), Vec::<String>::new());
}

#[test]
fn directory_below_itself_moves_to_lost_found() {
    let mut fs = Fs::new();
    let a = fs.mkdir(&Cred::ROOT, ROOT, "a", 0o755).unwrap();
    let b = fs.mkdir(&Cred::ROOT, ROOT, "b", 0o755).unwrap();
    fs.rename(&Cred::ROOT, (ROOT, "a"), (b, "a"), 0).unwrap();
    fs.commit();
    let mut looped: Content = content(&fs.store);
    fs.rename(&Cred::ROOT, (b, "a"), (ROOT, "a"), 0).unwrap();
    fs.rename(&Cred::ROOT, (ROOT, "b"), (a, "b"), 0).unwrap();
    fs.commit();
    // The entries of the root are the later ones without "a"; both others have each other.
    let later = content(&fs.store);
    looped.retain(|key, _| !key[1..].starts_with(&ROOT.to_key()) || key[0] != b'e');
    looped.extend(later.into_iter().filter(|(key, _)| key[0] == b'e' && key[1..].starts_with(&a.to_key())));
    let looped = store(&looped);
    assert!(names(&check(&looped)).contains(&"directory_loop"));
    assert_eq!(repair(&looped).problems(), []);
    let mut fs = served(looped);
    let lost = fs.lookup(&Cred::ROOT, ROOT, "lost+found").unwrap();
    assert_eq!(fs.ls(lost.fid).len(), 1);
}

#[test]
fn second_name_of_a_directory_is_removed() {
    let mut fs = Fs::new();
    let d = fs.mkdir(&Cred::ROOT, ROOT, "d", 0o755).unwrap();
    fs.commit();
    let before = content(&fs.store);
    fs.rename(&Cred::ROOT, (ROOT, "d"), (ROOT, "e"), 0).unwrap();
    fs.commit();
    before.into_iter().filter(|(key, _)| key[0] == b'e').for_each(|(key, value)| fs.store.put(key, value));
    let found = check(&fs.store);
    assert!(names(&found).contains(&"second_name_of_directory"), "{found:?}");
    assert_eq!(repair(&fs.store).problems(), []);
    assert_eq!(served(fs.store.clone()).ls(ROOT), ["e"], "the name that is stored with {d}");
}

#[test]
fn objects_of_files_are_not_destroyed_or_used_again() {
    let mut fs = Fs::new();
    let f = fs.touch(&Cred::ROOT, ROOT, "f", 0o644).unwrap();
    fs.commit();
    let with_file = content(&fs.store);
    fs.unlink(&Cred::ROOT, ROOT, "f").unwrap();
    fs.commit();
    // The unlink log has the file's objects, and so has the file.
    let mut both = content(&fs.store);
    both.extend(with_file.iter().filter(|(key, _)| key[0] != b's').map(|(k, v)| (k.clone(), v.clone())));
    let both = store(&both);
    assert_eq!(names(&check(&both)), ["doomed_object"]);
    assert_eq!(repair(&both).problems(), []);
    assert_eq!(served(both).ns.destroys(0, 10).unwrap(), []);

    // The ids are those of before the file.
    let mut unused = with_file.clone();
    unused.retain(|key, _| key[0] != b'o');
    let unused = store(&unused);
    assert_eq!(names(&check(&unused)), ["reusable_object"]);
    assert_eq!(repair(&unused).problems(), []);
    let mut fs = served(unused);
    let g = fs.touch(&Cred::ROOT, ROOT, "g", 0o644).unwrap();
    assert_ne!(fs.layout(f), fs.layout(g));
    fs.commit();
}

#[test]
fn object_without_file_becomes_a_file_in_lost_found() {
    let mut fs = Fs::new();
    fs.commit();
    let older = store(&content(&fs.store));
    fs.touch(&Cred::ROOT, ROOT, "f", 0o644).unwrap();
    fs.ns.stop(false);
    fs.commit();
    let used = fs.check();
    let seq = ost_seq(MdtIndex::ZERO, 3);
    let [full, empty, free] = [1, 2, 9].map(|oid| Fid::new(seq, oid));
    // Ids up to 2 were used on OST 3.
    let last = |last: u32| [&[1][..], &[last as u8, last as u8]].concat();
    fs.store.put([&b"o"[..], &3u32.to_be_bytes()].concat(), last(2));
    let on_osts = |check: &mut Check| {
        used.iter().for_each(|object| check.object(object.seq as u32, *object, &stored(7)));
        [(full, 4096), (empty, 0)].iter().for_each(|(object, size)| check.object(3, *object, &stored(*size)));
    };
    // A repair of a later stage does not come first.
    let root = content(&fs.store)[&key(b'i', ROOT)].clone();
    fs.store.put(key(b'i', ROOT), content(&older)[&key(b'i', ROOT)].clone());
    let mut found = check(&fs.store);
    on_osts(&mut found);
    assert_eq!(names(&found), ["entry_count", "orphan_object", "orphan_object"]);
    assert_eq!(found.next_repairs().len(), 2);
    fs.store.put(key(b'i', ROOT), root);
    let mut found = check(&fs.store);
    on_osts(&mut found);
    let (batch, count) = found.repair(&*fs.store, Time { sec: 5000, nsec: 0 }).unwrap().unwrap();
    assert_eq!(count, 2);
    fs.store.commit(&batch).unwrap();
    let mut found = check(&fs.store);
    on_osts(&mut found);
    assert_eq!(found.problems(), []);
    found.object(3, free, &stored(1));
    assert_eq!(found.problem_count(), 1);

    let mut fs = served(fs.store.clone());
    let lost = fs.lookup(&Cred::ROOT, ROOT, "lost+found").unwrap();
    let name = fs.ls(lost.fid).remove(0);
    assert_eq!(name, format!("OST0003-{:#x}:0x1:0x0", seq));
    let destroyed: Vec<_> = fs.ns.destroys(0, 10).unwrap().into_iter().flat_map(|d| d.objects).collect();
    assert_eq!(destroyed, [(3, empty)]);
    let file = fs.lookup(&Cred::ROOT, lost.fid, &name).unwrap();
    assert_eq!((file.kind, file.perm), (FileKind::Regular, 0o600));
    assert_eq!(fs.ns.owner_changes(Fid::ZERO, 10).unwrap(), [file.fid], "the OST gets the owner");
}

/// Returns the first object of a file, with its OST.
fn object_of(fs: &mut Fs, file: Fid) -> (u32, Fid) {
    fs.ns.charged(file).unwrap().unwrap().1[0]
}

#[test]
fn other_owner_of_an_object_is_a_problem_unless_the_file_is_in_the_owner_log() {
    let mut fs = Fs::new();
    let f = fs.touch(&Cred::ROOT, ROOT, "f", 0o644).unwrap();
    fs.chown(&Cred::ROOT, f, Some(1000), None).unwrap();
    fs.commit();
    let (ost, object) = object_of(&mut fs, f);
    let found = |store: &MemStore, uid: Option<u32>| {
        let owner = uid.map(|uid| Owner { uid, ..Owner::default() });
        let mut found = check(store);
        found.object(ost, object, &StoredObject { size: 7, owner });
        found
    };
    assert_eq!(found(&fs.store, Some(0)).problems(), [], "the OST gets the owner later");
    let sent = fs.ns.owner_changes(Fid::ZERO, 10).unwrap();
    fs.ns.owners_sent(&sent);
    fs.commit();
    for uid in [None, Some(1000)] {
        assert_eq!(found(&fs.store, uid).problems(), [], "{uid:?}");
    }
    let wrong = found(&fs.store, Some(5));
    let text = format!(
        "object {object} on OST{ost:04x} of file {f} is charged to user 5, group 0, project 0, and should be to user \
         1000, group 0, project 0"
    );
    assert_eq!(names(&wrong), ["inconsistent_owner"]);
    assert_eq!(wrong.problems()[0].to_string(), text);
    let (batch, count) = wrong.repair(&*fs.store, Time { sec: 5000, nsec: 0 }).unwrap().unwrap();
    assert_eq!(count, 1);
    fs.store.commit(&batch).unwrap();
    assert_eq!(found(&fs.store, Some(5)).problems(), []);
    let mut fs = served(fs.store);
    assert_eq!(fs.ns.owner_changes(Fid::ZERO, 10).unwrap(), [f], "the MDT sends the owner");
}

#[test]
fn bytes_of_an_object_beyond_its_component_are_a_problem_without_repair() {
    const END: u64 = 64 << 20;
    let mut fs = Fs::new();
    let f = fs.mknod(&Cred::ROOT, ROOT, "f", 0o644).unwrap();
    let spec = || Spec { count: Some(Count::Stripes(1)), ..Spec::default() };
    let components =
        vec![TemplateComponent::striped(0, END, spec()), TemplateComponent::striped(END, u64::MAX, spec())];
    fs.set(&Cred::ROOT, f, "lustre.lov", &Template { components, mirrors: 1 }.encode(), CREATE).unwrap();
    fs.commit();
    let (ost, object) = object_of(&mut fs, f);
    let mut found = check(&fs.store);
    found.object(ost, object, &stored(END));
    assert_eq!(found.problems(), []);
    found.object(ost, object, &stored(END + 1));
    assert_eq!((names(&found), found.next_repairs().len()), (vec!["bytes_beyond_layout"], 0));
    let text = format!("object {object} on OST{ost:04x} of file {f} has 67108865 bytes; its layout ends at 67108864");
    assert_eq!(found.problems()[0].to_string(), text);
    assert!(found.online_stages().is_empty());
}

#[test]
fn adopted_object_becomes_a_file_and_discarded_one_is_destroyed() {
    let mut fs = Fs::new();
    fs.commit();
    // Ids up to 3 were used on OST 3.
    fs.store.put([&b"o"[..], &3u32.to_be_bytes()].concat(), vec![1, 3, 3]);
    let mut fs = fs.crash();
    let seq = ost_seq(MdtIndex::ZERO, 3);
    let [full, other, empty] = [1, 2, 3].map(|oid| Fid::new(seq, oid));
    let sequence = fs.ns.take_sequence().unwrap();
    let fid = |oid: u32| Fid::new(sequence, oid);
    assert_eq!(fs.ns.lost_found(), Ok(None));
    let done = fs.ns.make_lost_found(fid(1), &mut fs.env).unwrap();
    assert!(done.transno > 0 && done.invalidations.iter().any(|(fid, _)| *fid == ROOT), "{done:?}");
    let lost = fs.lookup(&Cred::ROOT, ROOT, "lost+found").unwrap();
    assert_eq!((fs.ns.lost_found(), lost.fid), (Ok(Some(fid(1))), fid(1)));
    let done = fs.ns.adopt(3, full, lost.fid, fid(2), &mut fs.env).unwrap();
    assert!(done.transno > 0 && done.invalidations.iter().any(|(fid, _)| *fid == lost.fid), "{done:?}");
    fs.ns.adopt(3, other, lost.fid, fid(3), &mut fs.env).unwrap();
    assert_eq!(fs.ns.adopt(3, other, lost.fid, fid(4), &mut fs.env).unwrap_err(), Errno::EEXIST);
    assert_eq!(fs.ns.adopt(3, empty, lost.fid, fid(3), &mut fs.env).unwrap_err(), Errno::EINVAL, "a used FID");
    let mut files = fs.ls(lost.fid);
    files.sort();
    assert_eq!(files, [1, 2].map(|oid| format!("OST0003-{seq:#x}:{oid:#x}:0x0")));
    let file = fs.lookup(&Cred::ROOT, lost.fid, &files[0]).unwrap();
    assert_eq!((lost.perm, file.kind, file.perm, file.nlink), (0o700, FileKind::Regular, 0o600, 1));
    let layout = Layout::decode(&fs.layout(file.fid).unwrap()).unwrap();
    assert_eq!(layout.all_objects().map(|s| (s.ost, s.object)).collect::<Vec<_>>(), [(3, full)]);
    fs.ns.discard(3, empty, Time::default()).unwrap();
    fs.commit();
    let destroyed: Vec<_> = fs.ns.destroys(0, 10).unwrap().into_iter().flat_map(|d| d.objects).collect();
    assert_eq!(destroyed, [(3, empty)]);

    // Another use of the name is respected.
    files.iter().for_each(|file| fs.unlink(&Cred::ROOT, lost.fid, file).unwrap());
    fs.rmdir(&Cred::ROOT, ROOT, "lost+found").unwrap();
    fs.touch(&Cred::ROOT, ROOT, "lost+found", 0o644).unwrap();
    assert_eq!(fs.ns.lost_found(), Err(Errno::ENOTDIR));
    assert_eq!(fs.ns.adopt(3, full, lost.fid, fid(5), &mut fs.env).unwrap_err(), Errno::ENOENT);
}

/// Numbers that select a change.
pub type RandomChange = (u8, usize, usize, u8);

/// Some random changes of a small tree.
pub fn change(fs: &mut Fs, dirs: &mut Vec<Fid>, (op, a, b, n): RandomChange) {
    let (d, e) = (dirs[a % dirs.len()], dirs[b % dirs.len()]);
    let (name, other) = (format!("n{}", n % 5), format!("n{}", n / 5 % 5));
    let cred = &Cred::ROOT;
    // Many of them fail, for example because a name exists.
    match op % 8 {
        0 => dirs.extend(fs.mkdir(cred, d, &name, 0o755)),
        1 => drop(fs.touch(cred, d, &name, 0o644)),
        2 => drop(fs.remove(cred, d, &name, n.is_multiple_of(2))),
        3 => drop(fs.rename(cred, (d, &name), (e, &other), 0)),
        4 => drop(fs.rename(cred, (d, &name), (e, &other), EXCHANGE)),
        5 => {
            if let Ok(found) = fs.lookup(cred, d, &name) {
                let _ = fs.link(cred, found.fid, e, &other);
                let _ = fs.set(cred, found.fid, "user.a", &[n; 9][..(n % 9).into()], 0);
            }
        }
        6 => drop(fs.symlink(cred, d, &name, "x")),
        _ => drop(fs.create(cred, d, &name, flags::RDWR, 0o600)),
    }
}

/// Executes some changes, and then more. Returns the records before and after the latter, and the
/// directories.
pub fn two_states(first: Vec<RandomChange>, second: Vec<RandomChange>) -> (Content, Content, Vec<Fid>) {
    let mut fs = Fs::new();
    let mut dirs = vec![ROOT];
    let mut state_after = |changes: Vec<RandomChange>| {
        changes.into_iter().for_each(|op| change(&mut fs, &mut dirs, op));
        fs.commit();
        content(&fs.store)
    };
    let (before, after) = (state_after(first), state_after(second));
    (before, after, dirs)
}

/// Makes one record what it was before.
pub fn revert(records: &mut Content, before: &Content, key: &[u8]) {
    match before.get(key) {
        Some(value) => drop(records.insert(key.to_vec(), value.clone())),
        None => drop(records.remove(key)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// A repair ends, and makes any mixture of records consistent.
    #[test]
    fn mixtures_of_two_states_are_repaired(
        first in prop::collection::vec(any::<RandomChange>(), 1..40),
        second in prop::collection::vec(any::<RandomChange>(), 1..40),
        old in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        lost in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        cut in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let (before, mut mixed, _) = two_states(first, second);
        // These records exist in every store that can be checked.
        let keys: Vec<Vec<u8>> = mixed.keys().chain(before.keys()).filter(|k| !b"scf".contains(&k[0])).cloned().collect();
        prop_assume!(!keys.is_empty());
        for key in old.iter().map(|index| index.get(&keys)) {
            revert(&mut mixed, &before, key);
        }
        for key in lost.iter().map(|index| index.get(&keys)) {
            mixed.remove(key);
        }
        for (index, len) in &cut {
            if let Some(value) = mixed.get_mut(index.get(&keys)) {
                value.truncate(usize::from(*len) % value.len().max(1));
            }
        }
        let mixed = store(&mixed);
        let found = repair(&mixed);
        for problem in found.problems() {
            prop_assert!(matches!(problem, Problem::SharedObject { .. } | Problem::LayoutOfOther(..)), "{problem}");
        }
        if found.problems().is_empty() {
            let mut fs = served(mixed);
            fs.touch(&Cred::ROOT, ROOT, "new", 0o644).unwrap();
            fs.commit();
            fs.check();
        }
    }
}

/// A store whose records lie in leaves, some of which cannot be read. A leaf holds the keys from
/// its first one up to the first one of the next leaf.
struct Leaves {
    leaves: Vec<(Records, bool)>,
}

impl Leaves {
    fn new(content: &Content, records: usize, damaged: &[prop::sample::Index]) -> Leaves {
        let all: Records = content.clone().into_iter().collect();
        let mut leaves: Vec<_> = all.chunks(records).map(|leaf| (leaf.to_vec(), false)).collect();
        damaged.iter().for_each(|index| index.get_mut(&mut leaves).1 = true);
        Leaves { leaves }
    }

    fn leaf_of(&self, key: &[u8]) -> usize {
        self.leaves.partition_point(|(leaf, _)| *leaf[0].0 <= *key).saturating_sub(1)
    }

    fn read<'a>(
        &'a self,
        leaves: impl Iterator<Item = usize> + 'a,
        limit: usize,
        in_range: impl Fn(&[u8]) -> bool,
        is_last: impl Fn(usize) -> bool,
        order: fn(&Records) -> Records,
    ) -> Result<Records, StoreError> {
        let mut out = Records::new();
        for leaf in leaves {
            if self.leaves[leaf].1 {
                return Err(StoreError::Damaged("a leaf".into()));
            }
            out.extend(order(&self.leaves[leaf].0).into_iter().filter(|(key, _)| in_range(key)));
            if out.len() >= limit || is_last(leaf) {
                break;
            }
        }
        out.truncate(limit);
        Ok(out)
    }
}

impl Store for Leaves {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let found = self.range(key, &[key, &[0]].concat(), 1)?;
        Ok(found.into_iter().next().map(|(_, value)| value))
    }

    fn range(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Records, StoreError> {
        let (first, last) = (self.leaf_of(from), self.leaf_of(to));
        let in_range = |key: &[u8]| key >= from && key < to;
        self.read(first..self.leaves.len(), limit, in_range, |leaf| leaf >= last, Records::clone)
    }

    fn commit(&self, _: &Batch) -> Result<(), StoreError> {
        panic!("a damaged store is not changed")
    }
}

impl DamagedStore for Leaves {
    fn range_back(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Records, StoreError> {
        let (first, last) = (self.leaf_of(from), self.leaf_of(to));
        let in_range = |key: &[u8]| key >= from && key < to;
        self.read((0..=last).rev(), limit, in_range, |leaf| leaf <= first, |leaf| leaf.iter().rev().cloned().collect())
    }
}

#[test]
fn salvage_finds_records_between_damaged_ones() {
    let mut fs = Fs::new();
    for i in 0..200 {
        fs.touch(&Cred::ROOT, ROOT, &format!("file{i}"), 0o644).unwrap();
    }
    fs.commit();
    let all = content(&fs.store);
    let mut leaves = Leaves::new(&all, 4, &[]);
    let of_table = |table: u8, share: usize| {
        let (first, last) = (leaves.leaf_of(&[table]) + 1, leaves.leaf_of(&[table + 1]) - 1);
        first + (last - first) * share / 4
    };
    let damaged = [of_table(b'e', 1), of_table(b'e', 3), of_table(b'i', 1), of_table(b'i', 3)];
    damaged.iter().for_each(|leaf| leaves.leaves[*leaf].1 = true);
    let target = MemStore::new();
    assert_eq!(salvage(&leaves, &target).unwrap() as usize, all.len() - 4 * damaged.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Of each table everything before the first damage and after the last one is copied, and a
    /// repair makes the rest consistent.
    #[test]
    fn salvage_copies_what_is_not_damaged(
        ops in prop::collection::vec(any::<RandomChange>(), 1..80),
        records in 1..9_usize,
        damaged in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let mut fs = Fs::new();
        let mut dirs = vec![ROOT];
        ops.into_iter().for_each(|op| change(&mut fs, &mut dirs, op));
        fs.commit();
        let all = content(&fs.store);
        let leaves = Leaves::new(&all, records, &damaged);
        let target = Arc::new(MemStore::new());
        let copied = match salvage(&leaves, &*target) {
            Ok(copied) => copied,
            Err(e) => {
                prop_assert_eq!(e, StoreError::Incomplete("superblock"));
                prop_assert!(leaves.get(b"s").is_err());
                return Ok(());
            }
        };
        let found = content(&target);
        let lost = leaves.get(b"c").is_err();
        prop_assert_eq!(copied as usize + usize::from(lost), found.len());
        for table in all.keys().map(|key| key[0]).collect::<std::collections::BTreeSet<_>>() {
            let (first, last) = (leaves.leaf_of(&[table]), leaves.leaf_of(&[table + 1]));
            let is_damaged = |leaf: &usize| leaves.leaves[*leaf].1;
            let Some(from) = (first..=last).find(is_damaged) else {
                prop_assert!(all.range(vec![table]..vec![table + 1]).all(|(key, value)| found.get(key) == Some(value)));
                continue;
            };
            let to = (first..=last).rfind(is_damaged).unwrap();
            for (key, value) in all.range(vec![table]..vec![table + 1]) {
                let leaf = leaves.leaf_of(key);
                prop_assert!((from..=to).contains(&leaf) || found.get(key) == Some(value), "{key:02x?}");
            }
        }
        let repaired = repair(&target);
        prop_assert_eq!(repaired.problems(), []);
        let mut fs = served(target);
        fs.touch(&Cred::ROOT, ROOT, "new", 0o644).unwrap();
        fs.commit();
    }
}
