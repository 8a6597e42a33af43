//! Generations: after every change of a file's layout, the next layout has a higher generation.
//! Clients tell by the generation which of two layouts is newer.

use std::collections::BTreeSet;

use crate::common::*;
use sheen_layout::{Count, Layout, MDT_OST, Mark, Spec, Template, TemplateComponent};
use sheen_namespace::ClientId;
use sheen_wire::{
    Cred, Errno, Fid,
    fid::ROOT,
    mds::{
        Opener, Reply, Request, flags,
        xattr::{CREATE, REPLACE},
    },
    mirror::{MirrorChange, XATTR},
};

const ME: Cred = Cred::ROOT;
const LOV: &str = "lustre.lov";
const MIB: u64 = 1 << 20;

fn spec(count: i64) -> Spec {
    Spec { count: Count::from_number(count).unwrap(), ..Spec::default() }
}

/// A template of components with these ends.
fn template(ends: &[u64]) -> Vec<u8> {
    let starts = std::iter::once(&0).chain(ends);
    Template::new(starts.zip(ends).map(|(start, end)| TemplateComponent::striped(*start, *end, spec(1))).collect())
        .encode()
}

fn file(fs: &mut Fs, name: &str, value: &[u8]) -> Fid {
    let fid = fs.mknod(&ME, ROOT, name, 0o644).unwrap();
    fs.set(&ME, fid, LOV, value, CREATE).unwrap();
    fid
}

fn tmpfile(fs: &mut Fs) -> Fid {
    let fid = fs.fid();
    fs.opened(Request::TmpFile { cred: ME, parent: ROOT, fid, flags: flags::RDWR, mode: 0o600, umask: 0 }).unwrap().0
}

fn generation(fs: &mut Fs, fid: Fid) -> u32 {
    Layout::decode(&fs.layout(fid).expect("the file has a layout")).unwrap().generation()
}

fn change(fs: &mut Fs, fid: Fid, change: &MirrorChange) {
    fs.set(&ME, fid, XATTR, &change.encode().unwrap(), 0).unwrap();
}

fn open(fs: &mut Fs, fid: Fid) {
    let opened = fs.call(Request::Open { cred: ME, fid, flags: flags::WRONLY }).unwrap();
    assert!(matches!(opened, Reply::Opened { .. }));
}

/// An orphan with that layout, which was replaced twice.
fn orphan(fs: &mut Fs, value: &[u8]) -> Fid {
    let fid = tmpfile(fs);
    (0..2).for_each(|_| fs.set(&ME, fid, LOV, value, REPLACE).unwrap());
    fid
}

#[test]
fn generation_rises_when_all_components_are_deleted_and_rewritten() {
    let mut fs = Fs::new();
    let f = file(&mut fs, "f", &template(&[MIB, u64::MAX]));
    for id in [2, 1] {
        fs.call(Request::LayoutIntent { fid: f, start: 0, end: 1, opener: Opener::UNKNOWN }).unwrap();
        let last = generation(&mut fs, f);
        fs.set(&ME, f, "lustre.lov.del", &Mark::encode(&[Mark { id, flags: 0, negative: false }]), 0).unwrap();
        if id == 1 {
            assert_eq!(fs.layout(f), None);
            open(&mut fs, f);
        }
        assert!(generation(&mut fs, f) > last);
    }
    let truncated = file(&mut fs, "truncated", &template(&[u64::MAX]));
    let last = generation(&mut fs, truncated);
    fs.set(&ME, truncated, "lustre.lov.del", &Mark::encode(&[Mark { id: 1, flags: 0, negative: false }]), 0).unwrap();
    fs.truncate(&ME, truncated, 5).unwrap();
    assert!(generation(&mut fs, truncated) > last);
}

#[test]
fn generation_rises_when_a_migrated_file_is_mirrored() {
    let mut fs = Fs::new();
    let f = file(&mut fs, "f", &template(&[MIB, u64::MAX]));
    let from = orphan(&mut fs, &spec(1).encode());
    let versions = Layout::decode(&fs.layout(f).unwrap()).unwrap().stripes().iter().map(|s| (s.object, 1)).collect();
    let mtime = fs.attr(f).mtime;
    fs.call(Request::TakeLayout { cred: ME, fid: f, from, versions, mtime, group: None }).unwrap();
    let plain = generation(&mut fs, f);
    assert!(plain > 1, "{plain}");
    change(&mut fs, f, &MirrorChange::Extend { template: template(&[u64::MAX]) });
    assert!(generation(&mut fs, f) > plain);
}

#[test]
fn generation_rises_when_merged_objects_are_split_back() {
    let mut fs = Fs::new();
    let (f, other) = (file(&mut fs, "f", &spec(1).encode()), file(&mut fs, "other", &template(&[u64::MAX])));
    let theirs = generation(&mut fs, other);
    change(&mut fs, f, &MirrorChange::Merge { other });
    assert_eq!(fs.layout(other), None);
    let mirror = Layout::decode(&fs.layout(f).unwrap()).unwrap().mirrors()[1].mirror_id();
    change(&mut fs, f, &MirrorChange::Split { mirror, into: Some(other) });
    let split = generation(&mut fs, other);
    assert!(split > theirs, "{split} > {theirs}");
    change(&mut fs, f, &MirrorChange::Merge { other });
    open(&mut fs, other);
    assert!(generation(&mut fs, other) > split);
}

/// Otherwise bytes written to the new object would be destroyed with the old one.
#[test]
fn replaced_dom_component_gets_a_new_object() {
    let mut fs = Fs::new();
    let on_mdt = |end: u64| {
        let components = vec![TemplateComponent::on_mdt(end), TemplateComponent::striped(end, u64::MAX, spec(1))];
        Template::new(components).encode()
    };
    let fid = tmpfile(&mut fs);
    let mut objects = BTreeSet::new();
    for kib in [64, 128, 64, 64] {
        fs.set(&ME, fid, LOV, &on_mdt(kib << 10), REPLACE).unwrap();
        let layout = Layout::decode(&fs.layout(fid).unwrap()).unwrap();
        assert_eq!(layout.stripes()[0].ost, MDT_OST);
        assert!(objects.insert(layout.stripes()[0].object), "{objects:?}");
        assert!(fs.ns.has_object(layout.stripes()[0].object).unwrap());
    }
    let its = objects.iter().filter(|object| fs.ns.has_object(**object).unwrap()).count();
    assert_eq!((its, objects.len()), (1, 4));
}

#[test]
fn component_delete_is_refused_while_an_opener_lacks_a_layout_lock() {
    let mut fs = Fs::new();
    let f = file(&mut fs, "f", &template(&[MIB, u64::MAX]));
    fs.call(Request::LayoutIntent { fid: f, start: 0, end: u64::MAX, opener: Opener::UNKNOWN }).unwrap();
    let id = Layout::decode(&fs.layout(f).unwrap()).unwrap().components().last().unwrap().id;
    let delete = Mark::encode(&[Mark { id, flags: 0, negative: false }]);
    let me = std::mem::replace(&mut fs.client, ClientId(99));
    open(&mut fs, f);
    fs.client = me;
    assert_eq!(fs.set(&ME, f, "lustre.lov.del", &delete, 0), Err(Errno::EBUSY));
}
