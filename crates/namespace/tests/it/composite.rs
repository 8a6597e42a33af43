//! Composite layouts: created from templates, instantiated by writes, changed by their owner,
//! deleted with all objects.

use std::collections::BTreeSet;

use crate::common::*;
use sheen_layout::{Asked, Component, Count, Layout, Mark, Spec, Template, TemplateComponent, flags as comp};
use sheen_wire::{
    Cred, Errno, Fid, FileKind, Result,
    fid::ROOT,
    ldlm::bits::{LAYOUT, UPDATE, XATTR},
    mds::{NewNode, Opener, Reply, Request, flags, xattr::CREATE},
};

const ME: Cred = Cred::ROOT;
const LOV: &str = "lustre.lov";
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const EOF: u64 = u64::MAX;

fn count(n: i64) -> Spec {
    Spec { count: Count::from_number(n).unwrap(), ..Spec::default() }
}

fn part(start: u64, end: u64, spec: Spec) -> TemplateComponent {
    TemplateComponent::striped(start, end, spec)
}

/// `-E 1M -c 1 -E 4G -c 4 -E -1 -c -1`: the first layout of the reference's 020-pfl.
fn three() -> Vec<TemplateComponent> {
    vec![part(0, MIB, count(1)), part(MIB, 4 * GIB, count(4)), part(4 * GIB, EOF, count(-1))]
}

fn value(components: Vec<TemplateComponent>) -> Vec<u8> {
    Template::new(components).encode()
}

/// A file without a layout.
fn bare(fs: &mut Fs, name: &str) -> Fid {
    fs.mknod(&ME, ROOT, name, 0o644).unwrap()
}

/// A file with this layout.
fn file(fs: &mut Fs, name: &str, components: Vec<TemplateComponent>) -> Fid {
    let f = bare(fs, name);
    fs.set(&ME, f, LOV, &value(components), CREATE).unwrap();
    f
}

fn layout(fs: &mut Fs, fid: Fid) -> Layout {
    Layout::decode(&fs.layout(fid).expect("the file has a layout")).unwrap()
}

/// Number of objects of each component.
fn objects(fs: &mut Fs, fid: Fid) -> Vec<usize> {
    layout(fs, fid).components().iter().map(|c| c.objects().len()).collect()
}

fn all_objects(layout: &Layout) -> BTreeSet<(u32, Fid)> {
    layout.stripes().iter().map(|s| (s.ost, s.object)).collect()
}

/// Sends a layout intent and returns the layout from the reply.
fn intent(fs: &mut Fs, fid: Fid, start: u64, end: u64) -> Result<Layout> {
    match fs.call(Request::LayoutIntent { fid, start, end, opener: Opener::UNKNOWN })? {
        Reply::Entry(entry) => Ok(Layout::decode(&entry.layout.expect("an intent returns the layout")).unwrap()),
        other => panic!("{other:?}"),
    }
}

/// Returns the durable content of the unlink log.
fn destroyed(fs: &mut Fs) -> BTreeSet<(u32, Fid)> {
    fs.commit();
    fs.commit();
    fs.ns.destroys(0, 100).unwrap().into_iter().flat_map(|d| d.objects).collect()
}

#[test]
fn create_allocates_objects_of_first_component_only() {
    let mut fs = Fs::new();
    let f = file(&mut fs, "pfl", three());
    let l = layout(&mut fs, f);
    let composite = l.composite().unwrap();
    assert_eq!((composite.layout_gen, composite.mirror_count), (3, 1));
    let shown = |c: &Component| (c.id, c.flags, c.start, c.end, c.stripe_count, c.stripe_size, c.objects().len());
    let expected = [
        (1, comp::INIT, 0, MIB, 1, 1 << 20, 1),
        (2, 0, MIB, 4 * GIB, 4, 4 << 20, 0),
        (3, 0, 4 * GIB, EOF, u16::MAX, 4 << 20, 0),
    ];
    assert_eq!(l.components().iter().map(shown).collect::<Vec<_>>(), expected);
    assert_eq!(l.fid(), f);
    assert_eq!(fs.set(&ME, f, LOV, &value(three()), CREATE), Err(Errno::EEXIST));
    // A copy of the layout has objects of its own.
    let copied = fs.get(&ME, f, LOV).unwrap();
    let copy = bare(&mut fs, "copy");
    fs.set(&ME, copy, LOV, &copied, 0).unwrap();
    assert_eq!(objects(&mut fs, copy), [1, 0, 0]);
    assert_eq!(fs.check().len(), 2);
}

#[test]
fn layout_intent_allocates_only_components_in_range() {
    let mut fs = Fs::new();
    let f = file(&mut fs, "f", three());
    let (first, before) = (layout(&mut fs, f).components()[0].clone(), fs.attr(f));
    for (start, end) in [(0, MIB), (MIB, MIB), (5 * GIB, 5 * GIB), (9, 3), (MIB - 1, MIB)] {
        assert_eq!(intent(&mut fs, f, start, end).unwrap().generation(), 3, "[{start}, {end}) needs nothing");
        assert!(fs.invalidations.is_empty());
    }
    let two = intent(&mut fs, f, 2 * MIB, 3 * MIB).unwrap();
    assert_eq!(fs.invalidations, [(f, LAYOUT | XATTR)]);
    assert_eq!(fs.attr(f), before, "the write sets the times");
    assert_eq!(layout(&mut fs, f), two);
    assert_eq!((two.generation(), objects(&mut fs, f)), (4, vec![1, 4, 0]));
    assert_eq!(two.components()[0], first);
    let osts: BTreeSet<u32> = two.components()[1].stripes.iter().map(|s| s.ost).collect();
    assert_eq!(osts.len(), 4);
    // A repeated request, and the same request of another client.
    let request = Request::LayoutIntent { fid: f, start: MIB, end: 4 * GIB, opener: Opener::UNKNOWN };
    for client in [7, 8] {
        fs.client = sheen_namespace::ClientId(client);
        let done = fs.execute(&request).unwrap();
        assert_eq!((done.transno, done.invalidations), (0, vec![]));
    }
    assert_eq!(layout(&mut fs, f), two);
    // The last byte of one component and the first of the next.
    let g = file(&mut fs, "g", three());
    assert_eq!(intent(&mut fs, g, 4 * GIB, 4 * GIB + 1).unwrap().generation(), 4);
    assert_eq!(objects(&mut fs, g), [1, 0, 4], "the middle component is unchanged");
    let h = file(&mut fs, "h", three());
    assert_eq!(intent(&mut fs, h, MIB - 1, EOF).unwrap().generation(), 4, "one change, however many components");
    assert_eq!(objects(&mut fs, h), [1, 4, 4]);
    assert_eq!(fs.check().len(), 5 + 5 + 9);
}

#[test]
fn layout_intent_serves_plain_bare_and_unlinked_files() {
    let mut fs = Fs::new();
    let plain = fs.touch(&ME, ROOT, "plain", 0o644).unwrap();
    let before = layout(&mut fs, plain);
    assert_eq!(intent(&mut fs, plain, 0, EOF).unwrap(), before);
    assert!(fs.invalidations.is_empty());
    let f = bare(&mut fs, "bare");
    assert_eq!(intent(&mut fs, f, 0, 1).unwrap().stripe_count(), 1);
    assert_eq!(fs.invalidations, [(f, LAYOUT | XATTR)]);
    let d = fs.mkdir(&ME, ROOT, "d", 0o755).unwrap();
    assert_eq!(intent(&mut fs, d, 0, 1), Err(Errno::EINVAL));
    let deleted = fs.fid();
    assert_eq!(intent(&mut fs, deleted, 0, 1), Err(Errno::ENOENT));
    // An orphan can still be written while it is open.
    let f = file(&mut fs, "f", three());
    let open = fs.open(&ME, f, flags::RDWR).unwrap();
    fs.unlink(&ME, ROOT, "f").unwrap();
    let orphan = intent(&mut fs, f, 0, 2 * MIB).unwrap();
    fs.close(open).unwrap();
    assert!(destroyed(&mut fs).is_superset(&all_objects(&orphan)));
}

#[test]
fn layout_intent_and_truncate_past_the_layout_end_are_refused() {
    let mut fs = Fs::new();
    // 020-pfl: pfl3.
    let f = file(&mut fs, "pfl3", vec![part(0, MIB, count(1)), part(MIB, 8 * MIB, count(2))]);
    assert_eq!(intent(&mut fs, f, 8 * MIB, 9 * MIB), Err(Errno::ENODATA));
    assert_eq!(fs.truncate(&ME, f, 16 * MIB), Err(Errno::ENODATA));
    assert_eq!(objects(&mut fs, f), [1, 0]);
    fs.truncate(&ME, f, 8 * MIB).unwrap();
    intent(&mut fs, f, 7 * MIB, 9 * MIB).unwrap();
    assert_eq!(objects(&mut fs, f), [1, 2]);
    let big = file(&mut fs, "big", vec![part(0, MIB, count(1)), part(MIB, EOF, count(1))]);
    assert_eq!(fs.truncate(&ME, big, i64::MAX as u64), Err(Errno::EFBIG), "larger than one object can be");
}

#[test]
fn new_files_inherit_the_directorys_composite_template() {
    let mut fs = Fs::new();
    let d = fs.mkdir(&ME, ROOT, "pd", 0o777).unwrap();
    let size = Spec { stripe_size: Some(4 << 20), ..count(2) };
    let template = vec![part(0, MIB, count(1)), part(MIB, EOF, size)];
    fs.set(&ME, d, LOV, &value(template.clone()), 0).unwrap();
    assert_eq!(fs.invalidations, [(d, UPDATE | LAYOUT | XATTR)]);
    assert_eq!(fs.get(&ME, d, LOV).unwrap(), value(template.clone()));
    let s = fs.mkdir(&ME, d, "s", 0o777).unwrap();
    assert_eq!(fs.get(&ME, s, LOV).unwrap(), value(template));
    for parent in [d, s] {
        let f = fs.touch(&ME, parent, "f", 0o644).unwrap();
        let l = layout(&mut fs, f);
        assert_eq!((l.generation(), objects(&mut fs, f)), (2, vec![1, 0]));
        assert_eq!(l.components()[1].stripe_size, 4 << 20);
    }
    // A layout that the user requests replaces the default as a whole. So does the default of a
    // directory that has its own.
    let plain = fs.mknod(&ME, d, "plain", 0o644).unwrap();
    fs.set(&ME, plain, LOV, &count(3).encode(), CREATE).unwrap();
    assert!(layout(&mut fs, plain).is_plain());
    assert_eq!(objects(&mut fs, plain), [3]);
    fs.set(&ME, s, LOV, &count(2).encode(), 0).unwrap();
    let g = fs.touch(&ME, s, "g", 0o644).unwrap();
    assert!(layout(&mut fs, g).is_plain());
    let fid = fs.fid();
    fs.opened(Request::TmpFile { cred: ME, parent: d, fid, flags: flags::RDWR, mode: 0o600, umask: 0 }).unwrap();
    assert_eq!(objects(&mut fs, fid), [1, 0]);
    let late = fs.mknod(&ME, d, "late", 0o644).unwrap();
    fs.truncate(&ME, late, 5).unwrap();
    assert_eq!(objects(&mut fs, late), [1, 0]);
    fs.set(&ME, d, LOV, &Asked::default().encode(), 0).unwrap();
    assert_eq!(fs.get(&ME, d, LOV), Err(Errno::ENODATA));
    // The root's default applies where there is no other.
    fs.set(&ME, ROOT, LOV, &value(three()), 0).unwrap();
    let e = fs.mkdir(&ME, ROOT, "e", 0o777).unwrap();
    let f = fs.touch(&ME, e, "f", 0o644).unwrap();
    assert_eq!(objects(&mut fs, f), [1, 0, 0]);
    assert_eq!(fs.get(&ME, e, LOV), Err(Errno::ENODATA), "and is not copied");
}

#[test]
fn refused_composite_layouts_change_nothing() {
    let mut fs = Fs::new();
    let (d, f) = (fs.mkdir(&ME, ROOT, "d", 0o755).unwrap(), bare(&mut fs, "f"));
    let listed = |osts: &[u32]| Spec { osts: osts.to_vec(), ..Spec::default() };
    let sized = |bytes: u32| Spec { stripe_size: Some(bytes), ..Spec::default() };
    let many = (0..600).map(|i| {
        let spec = Spec { overstripe: true, ..count(10) };
        part(i * MIB, (i + 1) * MIB, spec)
    });
    let on_mdt = || [TemplateComponent::on_mdt(64 * KIB), part(64 * KIB, EOF, count(1))];
    let mirrored = Template { components: on_mdt().into_iter().chain(on_mdt()).collect(), mirrors: 2 };
    for (refused, why) in [
        // 031-errors and 020-pfl.
        (value(vec![part(0, MIB, count(1)), part(512 * KIB, EOF, count(1))]), Errno::EINVAL),
        (value(vec![part(0, MIB, count(1)), part(2 * MIB, EOF, count(1))]), Errno::EINVAL),
        (value(vec![part(MIB, EOF, count(1))]), Errno::EINVAL),
        (value(vec![part(0, 64 * KIB, count(1)), part(64 * KIB, 64 * KIB, count(1))]), Errno::EINVAL),
        (value(vec![part(0, 1000, count(1)), part(1000, EOF, count(1))]), Errno::EINVAL),
        (value(vec![part(0, MIB, sized(4 << 20)), part(MIB, EOF, count(1))]), Errno::EINVAL),
        (value(vec![part(0, MIB, count(1)), part(MIB, EOF, listed(&[1, 99]))]), Errno::EINVAL),
        (value(vec![part(0, MIB, count(1)), part(MIB, EOF, Spec { start: Some(99), ..count(1) })]), Errno::EINVAL),
        (value(many.collect()), Errno::ERANGE),
        // Not supported by this version.
        (mirrored.encode(), Errno::EOPNOTSUPP),
    ] {
        assert_eq!(fs.set(&ME, f, LOV, &refused, 0), Err(why));
        assert_eq!(fs.set(&ME, d, LOV, &refused, 0), Err(why));
    }
    assert_eq!((fs.layout(f), fs.get(&ME, d, LOV)), (None, Err(Errno::ENODATA)));
    let good = value(three());
    for cut in 0..good.len() {
        assert!(fs.set(&ME, f, LOV, &good[..cut], 0).is_err(), "{cut} of {} bytes", good.len());
    }
    assert_eq!(fs.set(&user(1), f, LOV, &good, 0), Err(Errno::EPERM));
    let fifo = fs.make(&ME, ROOT, "p", NewNode::Node { kind: FileKind::Fifo, rdev: 0 }, 0o644).unwrap();
    assert_eq!(fs.set(&ME, fifo, LOV, &good, 0), Err(Errno::EOPNOTSUPP));
    assert_eq!(fs.check().len(), 0);
}

#[test]
fn layout_intent_skips_full_osts() {
    let mut fs = Fs::new();
    let f = file(&mut fs, "f", three());
    let before = layout(&mut fs, f);
    fs.env.full = (0..OSTS).collect();
    assert_eq!(intent(&mut fs, f, 2 * MIB, 5 * GIB), Err(Errno::ENOSPC));
    assert_eq!(layout(&mut fs, f), before);
    fs.env.full = vec![1, 2];
    let l = intent(&mut fs, f, 2 * MIB, 5 * GIB).unwrap();
    for component in &l.components()[1..] {
        let osts: BTreeSet<u32> = component.stripes.iter().map(|s| s.ost).collect();
        assert_eq!((component.stripes.len(), osts), (2, BTreeSet::from([0, 3])));
    }
    assert_eq!(l.generation(), 4);
}

#[test]
fn committed_components_survive_a_crash_and_ids_are_not_reused() {
    let mut fs = Fs::new();
    let f = file(&mut fs, "f", three());
    let two = intent(&mut fs, f, MIB, 2 * MIB).unwrap();
    assert!(fs.ns.needs_commit(Some(f)).is_some());
    fs.commit();
    assert_eq!(fs.ns.needs_commit(Some(f)), None);
    let lost = intent(&mut fs, f, 5 * GIB, 6 * GIB).unwrap();
    let mut fs = fs.crash();
    assert_eq!(layout(&mut fs, f), two, "exactly the committed layout");
    let orphans = fs.ns.orphan_ranges();
    let last = &lost.components()[2].stripes;
    for s in last {
        let is_orphan = orphans.iter().any(|r| r.ost == s.ost && (r.first..=r.last).contains(&s.object.oid));
        assert!(is_orphan, "no orphan range covers {}", s.object);
    }
    let again = intent(&mut fs, f, 5 * GIB, 6 * GIB).unwrap();
    assert_eq!(again.generation(), 5);
    let again: BTreeSet<Fid> = again.components()[2].stripes.iter().map(|s| s.object).collect();
    assert!(last.iter().all(|s| !again.contains(&s.object)), "an id was used twice");
    fs.commit();
    let mut fs = fs.crash();
    assert_eq!(objects(&mut fs, f), [1, 4, 4]);
    assert_eq!(fs.check().len(), 9);
}

#[test]
fn unlink_destroys_exactly_the_objects_of_a_composite_file() {
    let mut fs = Fs::new();
    let listed = Spec { osts: vec![1, 2], ..Spec::default() };
    let f = file(&mut fs, "f", vec![part(0, MIB, count(1)), part(MIB, GIB, count(2)), part(GIB, EOF, listed)]);
    let l = intent(&mut fs, f, MIB, 2 * MIB).unwrap();
    assert_eq!(l.components()[2].stripes.len(), 2, "the OSTs are listed, without objects");
    fs.unlink(&ME, ROOT, "f").unwrap();
    let deleted = destroyed(&mut fs);
    assert_eq!((deleted.len(), deleted), (3, all_objects(&l)));
    let mut fs = fs.crash();
    assert_eq!(destroyed(&mut fs), all_objects(&l), "until they are destroyed");
}

#[test]
fn components_are_added_at_the_end() {
    let mut fs = Fs::new();
    let add = |fs: &mut Fs, f, components| fs.set(&ME, f, "lustre.lov.add", &value(components), 0);
    let f = file(&mut fs, "f", vec![part(0, MIB, count(1))]);
    assert_eq!(add(&mut fs, f, vec![part(2 * MIB, EOF, count(1))]), Err(Errno::EINVAL), "a gap");
    assert_eq!(add(&mut fs, f, vec![part(0, MIB, count(1))]), Err(Errno::EINVAL), "an overlap");
    assert_eq!(add(&mut fs, f, vec![part(MIB, EOF, Spec { start: Some(9), ..count(1) })]), Err(Errno::EINVAL));
    assert_eq!(layout(&mut fs, f).generation(), 1);
    let ctime = fs.attr(f).ctime;
    add(&mut fs, f, vec![part(MIB, 4 * MIB, count(2)), part(4 * MIB, 8 * MIB, Spec::default())]).unwrap();
    assert_eq!(fs.invalidations, [(f, UPDATE | LAYOUT | XATTR)]);
    assert!(fs.attr(f).ctime > ctime);
    let l = layout(&mut fs, f);
    assert_eq!(l.components().iter().map(|c| c.id).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!((l.end(), objects(&mut fs, f)), (8 * MIB, vec![1, 0, 0]));
    intent(&mut fs, f, 5 * MIB, 6 * MIB).unwrap();
    assert_eq!(objects(&mut fs, f), [1, 0, 1]);
    add(&mut fs, f, vec![part(8 * MIB, EOF, count(1))]).unwrap();
    assert_eq!(add(&mut fs, f, vec![part(8 * MIB, EOF, count(1))]), Err(Errno::EINVAL), "the layout is complete");
    let d = fs.mkdir(&ME, ROOT, "d", 0o755).unwrap();
    assert_eq!(add(&mut fs, d, three()), Err(Errno::EOPNOTSUPP));
    for other in [bare(&mut fs, "bare"), fs.touch(&ME, ROOT, "plain", 0o644).unwrap()] {
        assert_eq!(add(&mut fs, other, vec![part(MIB, EOF, count(1))]), Err(Errno::EINVAL));
    }
    let mine = value(vec![part(MIB, EOF, count(1))]);
    assert_eq!(fs.set(&user(1), f, "lustre.lov.add", &mine, 0), Err(Errno::EPERM));
    assert_eq!(fs.get(&ME, f, "lustre.lov.add"), Err(Errno::ENODATA));
    assert_eq!(fs.unset(&ME, f, "lustre.lov.add"), Err(Errno::EOPNOTSUPP));
}

#[test]
fn components_are_deleted_from_the_end_with_their_objects() {
    let mut fs = Fs::new();
    let f = file(&mut fs, "f", three());
    let all = intent(&mut fs, f, 0, 4 * GIB).unwrap();
    let del = |fs: &mut Fs, id, flags, negative| {
        fs.set(&ME, f, "lustre.lov.del", &Mark::encode(&[Mark { id, flags, negative }]), 0)
    };
    assert_eq!(del(&mut fs, 2, 0, false), Err(Errno::EINVAL), "the layout would have a hole");
    assert_eq!(del(&mut fs, 9, 0, false), Err(Errno::EINVAL), "no such component");
    assert_eq!(fs.set(&ME, f, "lustre.lov.del", b"junk", 0), Err(Errno::EINVAL));
    del(&mut fs, 0, comp::INIT, true).unwrap();
    assert_eq!(fs.invalidations, [(f, UPDATE | LAYOUT | XATTR)]);
    assert_eq!((objects(&mut fs, f), layout(&mut fs, f).end()), (vec![1, 4], 4 * GIB));
    assert!(destroyed(&mut fs).is_empty(), "the component had no objects");
    del(&mut fs, 2, 0, false).unwrap();
    assert_eq!(objects(&mut fs, f), [1]);
    let second: BTreeSet<_> = all.components()[1].stripes.iter().map(|s| (s.ost, s.object)).collect();
    assert_eq!((second.len(), destroyed(&mut fs)), (4, second));
    // The file continues without a layout, like a new one.
    del(&mut fs, 1, 0, false).unwrap();
    assert_eq!((fs.layout(f), fs.get(&ME, f, LOV)), (None, Err(Errno::ENODATA)));
    assert_eq!(destroyed(&mut fs), all_objects(&all));
    assert_eq!(del(&mut fs, 1, 0, false), Err(Errno::EINVAL));
    fs.open(&ME, f, flags::RDWR).unwrap();
    assert!(layout(&mut fs, f).is_plain());
    assert_eq!(fs.check().len(), 1);
}

#[test]
fn setting_component_flags_refuses_init_and_last_stale() {
    let mut fs = Fs::new();
    let f = file(&mut fs, "f", three());
    let set = |fs: &mut Fs, id, flags, negative| {
        fs.set(&ME, f, "lustre.lov.set.flags", &Mark::encode(&[Mark { id, flags, negative }]), 0)
    };
    let first = |fs: &mut Fs| layout(fs, f).components()[0].flags;
    set(&mut fs, 1, comp::PREF_RD, false).unwrap();
    assert_eq!(first(&mut fs), comp::INIT | comp::PREF_RD);
    set(&mut fs, 1, comp::PREF_RD, true).unwrap();
    assert_eq!(first(&mut fs), comp::INIT);
    assert_eq!(set(&mut fs, 1, comp::INIT, true), Err(Errno::EINVAL), "INIT cannot be cleared");
    assert_eq!(set(&mut fs, 7, comp::PREF_RD, false), Err(Errno::EINVAL));
    assert_eq!(set(&mut fs, 1, comp::STALE, false), Err(Errno(117)), "EUCLEAN: the only mirror cannot become stale");
    assert_eq!(objects(&mut fs, f), [1, 0, 0]);
}

#[test]
fn layout_intent_extends_a_component_by_its_extension_size() {
    let mut fs = Fs::new();
    let growing = part(0, GIB, count(2)).extendable(64 * MIB);
    let f = file(&mut fs, "sel", growing.into_iter().chain([part(GIB, EOF, count(4))]).collect());
    let ends = |fs: &mut Fs| layout(fs, f).components().iter().map(|c| c.end).collect::<Vec<_>>();
    assert_eq!((ends(&mut fs), objects(&mut fs, f)), (vec![64 * MIB, GIB, EOF], vec![2, 0, 0]));
    intent(&mut fs, f, 70 * MIB, 71 * MIB).unwrap();
    assert_eq!(fs.invalidations, [(f, LAYOUT | XATTR)]);
    assert_eq!((ends(&mut fs), objects(&mut fs, f)), (vec![128 * MIB, GIB, EOF], vec![2, 0, 0]));
    let grown = layout(&mut fs, f);
    assert_eq!(intent(&mut fs, f, 70 * MIB, 128 * MIB).unwrap(), grown);
    // The component's OSTs are full: the next component takes over, on other OSTs.
    fs.env.full = grown.components()[0].stripes.iter().map(|s| s.ost).collect();
    let spilt = intent(&mut fs, f, 128 * MIB, 129 * MIB).unwrap();
    assert_eq!((ends(&mut fs), objects(&mut fs, f)), (vec![128 * MIB, EOF], vec![2, 2]));
    assert!(spilt.components()[1].stripes.iter().all(|s| !fs.env.full.contains(&s.ost)));
    fs.unlink(&ME, ROOT, "sel").unwrap();
    assert_eq!(destroyed(&mut fs), all_objects(&spilt));
}

#[test]
fn open_with_layout_later_allocates_layout_at_first_use() {
    let mut fs = Fs::new();
    let later = flags::RDWR | flags::LAYOUT_LATER;
    let made = fs.create(&ME, ROOT, "f", later, 0o644).unwrap();
    let (f, _) = made;
    assert_eq!(fs.layout(f), None);
    let again = fs.open(&ME, f, later).unwrap();
    assert_eq!(fs.layout(f), None, "another LAYOUT_LATER open allocates none either");
    // A user sets a layout.
    fs.set(&ME, f, LOV, &value(three()), CREATE).unwrap();
    let third = fs.open(&ME, f, later).unwrap();
    assert_eq!(objects(&mut fs, f), [1, 0, 0]);
    // No user sets one: the first write intent, ordinary open or truncation allocates it.
    type Way = fn(&mut Fs, Fid);
    let ways: [(&str, Way); 3] = [
        ("write", |fs, f| drop(intent(fs, f, 0, 0).unwrap())),
        ("open", |fs, f| fs.open(&ME, f, flags::WRONLY).and_then(|open| fs.close(open)).unwrap()),
        ("cut", |fs, f| fs.open(&ME, f, later_and_cut()).and_then(|open| fs.close(open)).unwrap()),
    ];
    let usual = fs.touch(&ME, ROOT, "usual", 0o644).unwrap();
    let usual = layout(&mut fs, usual);
    for (name, way) in ways {
        let open = fs.create(&ME, ROOT, name, later, 0o644).unwrap();
        assert_eq!(fs.layout(open.0), None, "{name}");
        way(&mut fs, open.0);
        let given = layout(&mut fs, open.0);
        assert_eq!(
            (given.components().len(), given.stripe_size()),
            (usual.components().len(), usual.stripe_size()),
            "{name}"
        );
        fs.close(open).unwrap();
    }
    for open in [made, again, third] {
        fs.close(open).unwrap();
    }
}

fn later_and_cut() -> u32 {
    flags::RDWR | flags::LAYOUT_LATER | flags::TRUNC
}
