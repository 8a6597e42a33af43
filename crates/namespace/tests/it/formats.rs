//! Formats of the store, and the sequences that an MDT hands out.

use std::sync::Arc;

use crate::common::*;
use bytes::Bytes;
use sheen_layout::Layout;
use sheen_namespace::{Config, MemStore, Namespace, OrphanRange, STORE_FORMAT, Store, StoreError};
use sheen_wire::{
    Cred, Errno, Fid, Time,
    fid::ROOT,
    mds::{NewNode, Request},
    seq::{MdtIndex, client_seqs, mdt_of, ost_seq, ost_seq_owner},
};

const ME: Cred = Cred::ROOT;
/// Key of the format record.
const FORMAT: &[u8] = b"f";

fn on_mdt(index: u32) -> Config {
    Config { mdt_index: index, ..Config::default() }
}

/// The error with which a store is refused.
fn refusal(store: &Arc<MemStore>, config: Config) -> String {
    match Namespace::open(store.clone(), config, Time::default(), 0) {
        Err(StoreError::Incompatible(why)) => why,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was opened"),
    }
}

fn marked(store: &MemStore) -> Option<Vec<u8>> {
    store.get(FORMAT).unwrap()
}

fn objects(fs: &mut Fs, file: Fid) -> Vec<(u32, Fid)> {
    let layout = Layout::decode(&fs.layout(file).unwrap()).unwrap();
    layout.stripes().iter().map(|s| (s.ost, s.object)).collect()
}

#[test]
fn store_of_format_1_is_read_and_raised() {
    let mut fs = Fs::new();
    let old = fs.touch(&ME, ROOT, "old", 0o644).unwrap();
    let old_objects = objects(&mut fs, old);
    fs.commit();
    let orphans = fs.ns.orphan_ranges();
    assert_eq!(marked(&fs.store), Some(vec![1, STORE_FORMAT as u8]), "a new store is marked");
    // Format 1 had all records of format 2 except this one. No inode has a project, so all others
    // are those of format 2.
    fs.store.remove(FORMAT);

    let mut fs = fs.crash();
    assert_eq!(marked(&fs.store), Some(vec![1, STORE_FORMAT as u8]), "a store of format 1 is marked when it is opened");
    assert_eq!(fs.lookup(&ME, ROOT, "old").unwrap().fid, old);
    assert_eq!(objects(&mut fs, old), old_objects);
    let lost: Vec<_> = fs.ns.orphan_ranges().into_iter().filter(|range| !orphans.contains(range)).collect();
    assert!(!lost.is_empty(), "reserved objects may exist");
    assert!(lost.iter().all(|range| range.seq == ost_seq(MdtIndex::ZERO, range.ost)), "{lost:?}");

    let new = fs.touch(&ME, ROOT, "new", 0o644).unwrap();
    assert!(new.seq > old.seq && mdt_of(new.seq) == Some(MdtIndex::ZERO), "{new} after {old}");
    for (ost, object) in objects(&mut fs, new) {
        assert_eq!(object.seq, ost_seq(MdtIndex::ZERO, ost));
        assert!(!old_objects.iter().any(|(_, old)| old.seq == object.seq && old.oid >= object.oid), "{object}");
    }
    fs.commit();
    fs.crash().check();
}

#[test]
fn store_of_format_2_is_read_and_raised() {
    let mut fs = Fs::new();
    let old = fs.touch(&ME, ROOT, "old", 0o644).unwrap();
    fs.commit();
    fs.store.put(FORMAT.to_vec(), vec![1, 2]);
    let mut fs = fs.crash();
    fs.commit();
    assert_eq!(marked(&fs.store), Some(vec![1, STORE_FORMAT as u8]));
    assert_eq!(fs.lookup(&ME, ROOT, "old").unwrap().fid, old);
    assert_eq!(fs.get(&ME, old, "lustre.project").unwrap()[..], [0; 8], "a file without a project");
}

#[test]
fn store_of_a_later_format_is_refused() {
    let store = Arc::new(MemStore::new());
    drop(Fs::on(store.clone(), Config::default()));
    store.put(FORMAT.to_vec(), vec![1, STORE_FORMAT as u8 + 1]);
    // No other record is read: it may have another form in a later format.
    store.put(b"s".to_vec(), vec![200]);
    let records = store.len();
    let says = "it has format 5, this release reads up to 4; use the release that wrote it, or a later one";
    assert_eq!(refusal(&store, Config::default()), says);
    assert_eq!((marked(&store), store.len()), (Some(vec![1, 5]), records), "the refused store is unchanged");
}

#[test]
fn store_of_format_1_of_another_mdt_than_0_is_refused() {
    let store = Arc::new(MemStore::new());
    drop(Fs::on(store.clone(), on_mdt(1)));
    store.remove(FORMAT);
    let why = refusal(&store, on_mdt(1));
    assert!(why.starts_with("it has format 1, in which MDT 1 used the FIDs of MDT 0"), "{why}");
    assert_eq!(refusal(&store, on_mdt(2)), "it belongs to MDT 1, this is MDT 2");
    assert_eq!(marked(&store), None, "the refused store is unchanged");
}

#[test]
fn mdt_index_without_sequences_is_refused() {
    let store = Arc::new(MemStore::new());
    let why = refusal(&store, on_mdt(MdtIndex::MAX + 1));
    assert_eq!(why, "MDT index 2029 is too large; use one from 0 to 2028");
    assert!(store.is_empty(), "nothing is formatted");
}

#[test]
fn each_mdt_names_files_and_objects_from_its_own_sequences() {
    for index in [0, 1, 2, MdtIndex::MAX] {
        let (store, mdt) = (Arc::new(MemStore::new()), MdtIndex::new(index).unwrap());
        let mut fs = Fs::on(store.clone(), on_mdt(index));
        let file = fs.touch(&ME, ROOT, "f", 0o644).unwrap();
        assert_eq!(mdt_of(file.seq), Some(mdt), "{file}");
        let objects = objects(&mut fs, file);
        assert!(!objects.is_empty());
        for (ost, object) in &objects {
            assert_eq!(ost_seq_owner(object.seq), Some((mdt, *ost)), "{object}");
        }
        // The create is lost: orphan ranges cover its objects where they are.
        drop(fs);
        let ns = Namespace::open(store, on_mdt(index), Time::default(), 0).unwrap();
        for (ost, object) in &objects {
            let holds = |r: &OrphanRange| r.seq == object.seq && (r.first..=r.last).contains(&object.oid);
            let ranges = ns.orphan_ranges();
            let osts: Vec<u32> = ranges.iter().filter(|r| holds(r)).map(|r| r.ost).collect();
            assert_eq!(osts, [*ost], "{object}");
        }
    }
}

#[test]
fn create_with_a_fid_of_another_mdt_is_refused() {
    let mut fs = Fs::on(Arc::new(MemStore::new()), on_mdt(1));
    let used = fs.mkdir(&ME, ROOT, "a", 0o755).unwrap();
    let next = Fid::new(used.seq, used.oid + 1);
    let [lower, upper] = [0, 2].map(|index| *client_seqs(MdtIndex::new(index).unwrap()).start() + 1);
    let refused = Err(Errno::EINVAL);
    for (fid, expected) in [(Fid::new(lower, 1), refused), (Fid::new(upper, 1), refused), (next, Ok(()))] {
        let (cred, name) = (ME, Bytes::from_static(b"b"));
        let create = Request::Create { cred, parent: ROOT, name, fid, node: NewNode::Dir, mode: 0, umask: 0 };
        assert_eq!(fs.call(create).map(drop), expected, "{fid}");
    }
}
