//! Crashes at any point between, before and after commits: the remaining state is consistent, and
//! ids are never used again.

use std::{collections::BTreeSet, sync::Arc};

use crate::common::*;
use proptest::prelude::*;
use sheen_layout::{Count, Layout, Spec};
use sheen_namespace::{Config, MemStore, Namespace, StoreError};
use sheen_wire::{
    Errno, Fid, Time,
    fid::ROOT,
    mds::{NewNode, Reply, Request, flags, rename},
    seq::{MdtIndex, ost_seq},
};

#[derive(Clone, Debug)]
enum Step {
    Create(u8, u8),
    Mkdir(u8, u8),
    Unlink(u8, u8),
    Rmdir(u8, u8),
    Rename(u8, u8, u8, u8, bool),
    Link(u8, u8, u8, u8),
    OpenUnlinked(u8, u8),
    Leave,
    Seal,
    Commit,
    Destroyed,
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    use Step::*;
    let (d, n) = (0..4u8, 0..6u8);
    prop_oneof![
        8 => (d.clone(), n.clone()).prop_map(|(d, n)| Create(d, n)),
        4 => (d.clone(), n.clone()).prop_map(|(d, n)| Mkdir(d, n)),
        3 => (d.clone(), n.clone()).prop_map(|(d, n)| Unlink(d, n)),
        2 => (d.clone(), n.clone()).prop_map(|(d, n)| Rmdir(d, n)),
        6 => (d.clone(), n.clone(), d.clone(), n.clone(), any::<bool>()).prop_map(|(a, b, c, d, x)| Rename(a, b, c, d, x)),
        3 => (d.clone(), n.clone(), d.clone(), n.clone()).prop_map(|(a, b, c, d)| Link(a, b, c, d)),
        2 => (d, n).prop_map(|(d, n)| OpenUnlinked(d, n)),
        1 => Just(Leave),
        3 => Just(Seal),
        3 => Just(Commit),
        1 => Just(Destroyed),
        1 => Just(Crash),
    ]
}

/// Runs steps in up to four directories, and records every object and sequence handed out.
struct Run {
    fs: Fs,
    dirs: Vec<Fid>,
    objects: BTreeSet<Fid>,
    seqs: BTreeSet<u64>,
}

impl Run {
    fn new() -> Run {
        Run { fs: Fs::new(), dirs: vec![ROOT], objects: BTreeSet::new(), seqs: BTreeSet::new() }
    }

    fn dir(&self, i: u8) -> Fid {
        self.dirs[usize::from(i) % self.dirs.len()]
    }

    /// Checks that a created file has new objects.
    fn created(&mut self, fid: Fid) {
        for stripe in Layout::decode(&self.fs.layout(fid).unwrap()).unwrap().stripes() {
            assert!(self.objects.insert(stripe.object), "{} handed out twice", stripe.object);
        }
    }

    fn step(&mut self, step: &Step) {
        let c = &ROOT_CRED;
        let name = |n: u8| format!("n{n}");
        match *step {
            Step::Create(d, n) => {
                let dir = self.dir(d);
                if let Ok((fid, h)) = self.fs.create(c, dir, &name(n), flags::RDWR | flags::EXCL, 0o644) {
                    self.fs.close((fid, h)).unwrap();
                    self.created(fid);
                }
            }
            Step::Mkdir(d, n) => {
                let dir = self.dir(d);
                if let Ok(fid) = self.fs.mkdir(c, dir, &name(n), 0o755)
                    && self.dirs.len() < 4
                {
                    self.dirs.push(fid);
                }
            }
            Step::Unlink(d, n) => drop(self.fs.unlink(c, self.dir(d), &name(n))),
            Step::Rmdir(d, n) => drop(self.fs.rmdir(c, self.dir(d), &name(n))),
            Step::Rename(d, n, e, m, x) => {
                let flags = if x { rename::EXCHANGE } else { 0 };
                let _ = self.fs.rename(c, (self.dir(d), &name(n)), (self.dir(e), &name(m)), flags);
            }
            Step::Link(d, n, e, m) => {
                if let Ok(attr) = self.fs.lookup(c, self.dir(d), &name(n)) {
                    let _ = self.fs.link(c, attr.fid, self.dir(e), &name(m));
                }
            }
            Step::OpenUnlinked(d, n) => {
                let dir = self.dir(d);
                if let Ok(attr) = self.fs.lookup(c, dir, &name(n)) {
                    let _ = self.fs.open(c, attr.fid, flags::RDONLY);
                    let _ = self.fs.unlink(c, dir, &name(n));
                }
            }
            Step::Leave => self.fs.ns.disconnect(ME),
            Step::Seal => self.fs.seal(),
            Step::Commit => self.fs.land(),
            Step::Destroyed => {
                for destroy in self.fs.ns.destroys(0, 3).unwrap() {
                    self.fs.ns.destroyed(&[destroy.seqno]);
                }
            }
            Step::Crash => self.crash(),
        }
    }

    fn crash(&mut self) {
        let committed = self.fs.ns.last_committed();
        let fs = std::mem::take(&mut self.fs);
        self.fs = fs.crash();
        assert_eq!(self.fs.ns.last_committed(), committed);
        self.fs.ns.finish_recovery().unwrap();
        let live = self.fs.check();
        let Ok(Reply::Seq(seq)) = self.fs.call(Request::AllocSeq) else { panic!("no sequence") };
        assert!(self.seqs.insert(seq), "sequence {seq:#x} handed out twice");
        // Every object ever handed out is in a file, in the unlink log, in an orphan range, or was
        // destroyed.
        let log: BTreeSet<Fid> =
            self.fs.ns.destroys(0, 9999).unwrap().iter().flat_map(|d| &d.objects).map(|(_, o)| *o).collect();
        for range in self.fs.ns.orphan_ranges() {
            assert_eq!(range.seq, ost_seq(MdtIndex::ZERO, range.ost));
            let in_range = |o: &&Fid| o.seq == range.seq && (range.first..=range.last).contains(&o.oid);
            assert!(!live.iter().any(|o| in_range(&o)), "a live object would be destroyed as an orphan");
            assert!(!log.iter().any(|o| in_range(&o)));
        }
        self.dirs.retain(|d| *d == ROOT);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn any_crash_leaves_a_consistent_tree(steps in prop::collection::vec(step(), 1..120)) {
        let mut run = Run::new();
        for step in &steps {
            run.step(step);
        }
        run.crash();
    }
}

#[test]
fn lost_creates_become_orphan_ranges_until_they_are_removed() {
    let mut fs = Fs::new();
    fs.touch(&ROOT_CRED, ROOT, "committed", 0o644).unwrap();
    fs.commit();
    let lost = fs.touch(&ROOT_CRED, ROOT, "lost", 0o644).unwrap();
    let object = Layout::decode(&fs.layout(lost).unwrap()).unwrap().stripes()[0];
    let fs = fs.crash();
    let covers = |fs: &Fs| {
        let holds = |r: &sheen_namespace::OrphanRange| {
            r.ost == object.ost && r.seq == object.object.seq && (r.first..=r.last).contains(&object.object.oid)
        };
        fs.ns.orphan_ranges().iter().filter(|r| holds(r)).count()
    };
    assert_eq!(covers(&fs), 1);
    let mut fs = fs.crash();
    assert_eq!(covers(&fs), 1, "the range survives a second crash");
    for range in fs.ns.orphan_ranges() {
        fs.ns.range_destroyed(&range);
    }
    assert_eq!(covers(&fs), 0);
    fs.commit();
    assert_eq!(covers(&fs.crash()), 0);
}

#[test]
fn clean_stop_wastes_no_ids() {
    let mut fs = Fs::new();
    let f = fs.touch(&ROOT_CRED, ROOT, "f", 0o644).unwrap();
    let last = Layout::decode(&fs.layout(f).unwrap()).unwrap().stripes()[0];
    fs.ns.stop(false);
    fs.commit();
    let mut fs = fs.crash();
    assert_eq!(fs.ns.orphan_ranges(), []);
    let spec = Spec { count: Some(Count::Stripes(1)), start: Some(last.ost), ..Spec::default() };
    let g = fs.mknod(&ROOT_CRED, ROOT, "g", 0o644).unwrap();
    assert_eq!(g.seq, f.seq + 1, "no sequence is wasted");
    fs.set(&ROOT_CRED, g, "lustre.lov", &spec.encode(), 0).unwrap();
    let next = Layout::decode(&fs.layout(g).unwrap()).unwrap().stripes()[0];
    assert_eq!(next.object.oid, last.object.oid + 1, "no object id is wasted");
}

/// 2000 objects on one OST per file: the reservation is used up again and again.
#[test]
fn reservations_are_durable_before_they_are_used() {
    let mut fs = Fs::new();
    let spec = Spec { osts: vec![1; 2000], overstripe: true, ..Spec::default() };
    let (mut used, mut waits) = (BTreeSet::new(), 0);
    for i in 0..200 {
        let f = fs.mknod(&ROOT_CRED, ROOT, &format!("f{i}"), 0o644).unwrap();
        let request = Request::SetXattr {
            cred: ROOT_CRED,
            fid: f,
            name: "lustre.lov".into(),
            value: spec.encode().into(),
            flags: 0,
        };
        while let Err(e) = fs.ns.execute(ME, &request, &mut fs.env) {
            assert_eq!(e, sheen_namespace::OpError::CommitFirst);
            waits += 1;
            fs.commit();
        }
        used.extend(Layout::decode(&fs.layout(f).unwrap()).unwrap().stripes().iter().map(|s| s.object));
        if i % 50 == 49 {
            fs = fs.crash();
            for object in fs.ns.orphan_ranges() {
                assert!(used.iter().any(|o| o.oid >= object.first), "the range was never used");
            }
        }
    }
    assert_eq!(used.len(), 200 * 2000, "an id was used twice");
    assert!(waits >= 4);
}

#[test]
fn store_of_another_mdt_is_refused() {
    let store = Arc::new(MemStore::new());
    drop(Fs::on(store.clone(), Config::default()));
    let open = |config| Namespace::open(store.clone(), config, Time::default(), 0).map(drop);
    assert!(matches!(open(Config { mdt_index: 1, ..Config::default() }), Err(StoreError::Incompatible(_))));
    assert_eq!(open(Config { hash_seed: 99, ..Config::default() }), Ok(()), "the store's own seed counts");
    store.put(b"s".to_vec(), vec![200, 0, 0]);
    assert!(matches!(open(Config::default()), Err(StoreError::Corrupt { .. })));
}

#[test]
fn store_without_a_formatted_record_is_refused() {
    let open = |store: &Arc<MemStore>, was_formatted| {
        let config = Config { was_formatted, ..Config::default() };
        Namespace::open(store.clone(), config, Time::default(), 0).map(drop)
    };
    assert_eq!(open(&Arc::new(MemStore::new()), true), Err(StoreError::Incomplete("superblock")));
    let mut root = b"i".to_vec();
    root.extend(ROOT.to_key());
    for (key, what) in [(b"s".to_vec(), "superblock"), (b"c".to_vec(), "counters"), (root, "root directory")] {
        let store = Arc::new(MemStore::new());
        assert_eq!(open(&store, false), Ok(()));
        assert_eq!(open(&store, true), Ok(()));
        store.remove(&key);
        let records = store.len();
        for was_formatted in [false, true] {
            let refused = open(&store, was_formatted).unwrap_err();
            assert_eq!(refused, StoreError::Incomplete(what));
            assert!(refused.is_damage());
        }
        assert_eq!(store.len(), records, "the refused store was changed");
    }
}

#[test]
fn damaged_record_returns_eio_and_stores_the_reason() {
    let mut fs = Fs::new();
    let f = fs.touch(&ROOT_CRED, ROOT, "f", 0o644).unwrap();
    fs.commit();
    let mut fs = fs.crash();
    let mut key = b"i".to_vec();
    key.extend(f.to_key());
    fs.store.put(key, vec![1, 2, 3]);
    assert_eq!(fs.lookup(&ROOT_CRED, ROOT, "f"), Err(Errno::EIO));
    assert!(matches!(fs.ns.take_fault(), Some(StoreError::Corrupt { .. })));
    assert_eq!(fs.ls(ROOT), ["f"]);
}

#[test]
fn resent_create_after_a_crash_finds_its_own_file() {
    let mut fs = Fs::new();
    let (dir, file, tmp) = (fs.fid(), fs.fid(), fs.fid());
    let me = user(1);
    let name = |name: &'static str| bytes::Bytes::from_static(name.as_bytes());
    let make = |fid, n| Request::Create {
        cred: me.clone(),
        parent: ROOT,
        name: name(n),
        fid,
        node: NewNode::Dir,
        mode: 0o700,
        umask: 0,
    };
    let flags = flags::CREAT | flags::EXCL | flags::RDWR;
    // The open succeeds with the requested flags, whatever the mode.
    let open =
        |fid, n| Request::OpenCreate { cred: me.clone(), parent: ROOT, name: name(n), fid, flags, mode: 0, umask: 0 };
    let orphan = Request::TmpFile { cred: me.clone(), parent: ROOT, fid: tmp, flags: flags::RDWR, mode: 0, umask: 0 };
    fs.chmod(&ROOT_CRED, ROOT, 0o777).unwrap();
    fs.call(make(dir, "d")).unwrap();
    let first = fs.opened(open(file, "f")).unwrap();
    fs.opened(orphan.clone()).unwrap();
    fs.commit();
    let mut fs = fs.crash();
    let Ok(Reply::Entry(found)) = fs.call(make(dir, "d")) else { panic!("mkdir") };
    assert_eq!((found.attr.fid, found.attr.nlink), (dir, 2));
    let Ok(Reply::Opened { handle, entry, created, .. }) = fs.call(open(file, "f")) else { panic!("create") };
    assert_eq!((entry.attr.fid, created), (file, true));
    assert_ne!(handle, first.1);
    assert_eq!(fs.opened(orphan.clone()).unwrap().0, tmp);
    fs.ns.finish_recovery().unwrap();
    assert_eq!(fs.attr(tmp).nlink, 0, "an orphan lives on while it is open");
    // A file that another request created still conflicts.
    let other = fs.fid();
    assert_eq!(fs.call(make(other, "d")).err(), Some(Errno::EEXIST));
    assert_eq!(fs.call(open(other, "f")).err(), Some(Errno::EEXIST));
    assert_eq!(fs.ls(ROOT), ["d", "f"]);
}
