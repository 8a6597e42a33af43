//! Mirrored files: created, written through one mirror, resynced, extended, merged, split.

use crate::common::*;
use sheen_layout::{Composite, Count, Layout, MDT_OST, Spec, Template, TemplateComponent};
use sheen_namespace::{ClientId, read_changelog};
use sheen_wire::{
    Cred, Errno, Fid, Result, Time,
    changelog::Kind,
    fid::ROOT,
    ldlm::bits::LAYOUT,
    mds::{Opener, Reply, Request, flags, xattr::CREATE},
    mirror::{MirrorChange, XATTR},
};

const ROOT_USER: Cred = Cred::ROOT;
/// The user whose writes need objects.
const WRITER: Opener = Opener { uid: 5, gid: 6 };
const MIB: u64 = 1 << 20;
const EOF: u64 = u64::MAX;
const NEVER: Time = Time { sec: 0, nsec: 0 };

fn spec(count: i64) -> Spec {
    Spec { count: Count::from_number(count).unwrap(), ..Spec::default() }
}

/// That many mirrors of two components each.
fn template(mirrors: u16) -> Template {
    let one = vec![TemplateComponent::striped(0, MIB, spec(1)), TemplateComponent::striped(MIB, EOF, spec(2))];
    Template { components: vec![one; usize::from(mirrors)].concat(), mirrors }
}

fn bare(fs: &mut Fs, name: &str) -> Fid {
    fs.mknod(&ROOT_USER, ROOT, name, 0o644).unwrap()
}

fn mirrored(fs: &mut Fs, name: &str, mirrors: u16) -> Fid {
    let f = bare(fs, name);
    fs.set(&ROOT_USER, f, "lustre.lov", &template(mirrors).encode(), CREATE).unwrap();
    f
}

fn layout(fs: &mut Fs, fid: Fid) -> Layout {
    Layout::decode(&fs.layout(fid).expect("the file has a layout")).unwrap()
}

fn fresh(layout: &Layout) -> Vec<u16> {
    layout.fresh_mirrors().iter().map(|m| m.mirror_id()).collect()
}

fn change(fs: &mut Fs, fid: Fid, change: &MirrorChange) -> Result<Layout> {
    fs.set(&ROOT_USER, fid, XATTR, &change.encode().unwrap(), 0)?;
    Ok(layout(fs, fid))
}

fn intent(fs: &mut Fs, fid: Fid, start: u64, end: u64) -> Layout {
    match fs.call(Request::LayoutIntent { fid, start, end, opener: WRITER }).unwrap() {
        Reply::Entry(entry) => Layout::decode(&entry.layout.unwrap()).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn write_makes_other_mirrors_stale_and_resync_refreshes_them() {
    let mut fs = Fs::new();
    let f = mirrored(&mut fs, "f", 3);
    assert_eq!(fresh(&layout(&mut fs, f)), [1, 2, 3]);

    let written = intent(&mut fs, f, 2 * MIB, 3 * MIB);
    assert!(
        fs.invalidations.contains(&(f, fs.invalidations[0].1)) && fs.invalidations[0].1 & LAYOUT != 0,
        "LAYOUT is invalidated"
    );
    assert_eq!((fresh(&written), written.mirror_state()), (vec![1], Composite::WRITE_PENDING));
    let counts: Vec<usize> = written.components().iter().map(|c| c.objects().len()).collect();
    assert_eq!(counts, [1, 2, 1, 0, 1, 0], "the primary alone got objects");
    assert_eq!(intent(&mut fs, f, 2 * MIB, 3 * MIB), written, "the next write intent changes nothing");
    assert!(fs.invalidations.is_empty());

    let begun = change(&mut fs, f, &MirrorChange::Resync { mirrors: vec![2, 2], end: 3 * MIB }).unwrap();
    assert!(begun.follows(&written), "one change, though there are new objects");
    assert_eq!((begun.mirror_state(), begun.mirrors()[1].missing(0, 3 * MIB)), (Composite::SYNC_PENDING, None));
    assert!(begun.mirrors()[2].missing(0, 3 * MIB).is_some(), "a mirror that is not resynced gets no objects");
    let done = MirrorChange::Resynced { generation: begun.generation(), mirrors: vec![2], mtime: NEVER };
    // A write during the resync.
    intent(&mut fs, f, 0, 1);
    assert_eq!(change(&mut fs, f, &done), Err(Errno::EBUSY));
    let begun = change(&mut fs, f, &MirrorChange::Resync { mirrors: vec![2], end: 3 * MIB }).unwrap();
    let done = MirrorChange::Resynced { generation: begun.generation(), mirrors: vec![2], mtime: NEVER };
    let before = fs.attr(f);
    let done = change(&mut fs, f, &done).unwrap();
    assert_eq!((fresh(&done), done.mirror_state()), (vec![1, 2], Composite::READ_ONLY));
    let after = fs.attr(f);
    assert_eq!(after.mtime, before.mtime);
    assert!(after.mtime_set > before.mtime_set, "the modification times of the copies do not show");

    // A fresh mirror is not fresh while it is copied to. Not all mirrors can be resynced at once.
    let again = change(&mut fs, f, &MirrorChange::Resync { mirrors: vec![1], end: 0 }).unwrap();
    assert_eq!(fresh(&again), [2]);
    let late = Time { sec: i64::MAX, nsec: u32::MAX };
    let done = MirrorChange::Resynced { generation: again.generation(), mirrors: vec![1], mtime: late };
    let done = change(&mut fs, f, &done).unwrap();
    let now = fs.attr(f);
    assert!(now.mtime == now.ctime && now.mtime > after.mtime, "not in the future");
    assert_eq!(change(&mut fs, f, &MirrorChange::Resync { mirrors: vec![1, 2], end: 0 }), Err(Errno::EUCLEAN));

    // The OSTs of the first mirror are disconnected: another mirror is written.
    fs.env.down = done.mirrors()[0].stripes().iter().map(|s| s.ost).collect();
    let others = done.mirrors()[1].stripes().iter().all(|s| !fs.env.down.contains(&s.ost));
    assert_eq!(fresh(&intent(&mut fs, f, 0, 1)), [if others { 2 } else { 1 }]);
}

#[test]
fn changelog_has_the_first_write_after_a_resync_with_its_user_and_the_end_of_a_resync() {
    let mut fs = Fs::new();
    let f = mirrored(&mut fs, "f", 2);
    fs.commit();
    fs.ns.changelog_register("", None, 1, fs.env.now).unwrap();
    intent(&mut fs, f, 0, 1);
    intent(&mut fs, f, 0, 1);
    intent(&mut fs, f, 2 * MIB, 3 * MIB);
    let begun = change(&mut fs, f, &MirrorChange::Resync { mirrors: vec![2], end: 3 * MIB }).unwrap();
    let done = MirrorChange::Resynced { generation: begun.generation(), mirrors: vec![2], mtime: NEVER };
    change(&mut fs, f, &done).unwrap();
    intent(&mut fs, f, 0, 1);
    fs.commit();
    let (first, last) = fs.ns.changelog_range();
    let records = read_changelog(&*fs.store, first, last, usize::MAX).unwrap();
    let kinds: Vec<Kind> = records.iter().map(|record| record.kind).collect();
    // The second write changes nothing, and the third adds objects.
    assert_eq!(kinds, [Kind::Flrw, Kind::Lyout, Kind::Lyout, Kind::Resync, Kind::Flrw]);
    assert!(records.iter().all(|record| record.target == f));
    let of_writer: Vec<bool> = records.iter().map(|record| (record.uid, record.gid) == (5, 6)).collect();
    assert_eq!(of_writer, [true, true, false, false, true], "the resync is another user's");
}

#[test]
fn mirrors_are_added_merged_and_split() {
    let mut fs = Fs::new();
    let (f, other, target) = (bare(&mut fs, "f"), bare(&mut fs, "other"), bare(&mut fs, "target"));
    fs.set(&ROOT_USER, f, "lustre.lov", &spec(2).encode(), CREATE).unwrap();
    fs.set(&ROOT_USER, other, "lustre.lov", &template(1).encode(), CREATE).unwrap();
    let before = layout(&mut fs, f);
    let extended = change(&mut fs, f, &MirrorChange::Extend { template: template(2).encode() }).unwrap();
    assert_eq!((fresh(&extended), extended.mirrors().len()), (vec![1], 3));
    assert_eq!(extended.stripes(), before.stripes(), "the first mirror keeps its objects");

    let theirs = layout(&mut fs, other);
    let merged = change(&mut fs, f, &MirrorChange::Merge { other }).unwrap();
    assert_eq!(merged.mirrors()[3].stripes(), theirs.stripes());
    assert_eq!(fs.layout(other), None, "the merged file has no layout any more");
    assert_eq!(change(&mut fs, f, &MirrorChange::Merge { other }), Err(Errno::EINVAL));
    assert_eq!(change(&mut fs, f, &MirrorChange::Merge { other: f }), Err(Errno::EINVAL));

    let (four, three) = (merged.mirrors()[3].mirror_id(), merged.mirrors()[2].mirror_id());
    change(&mut fs, f, &MirrorChange::Split { mirror: four, into: Some(target) }).unwrap();
    let split = layout(&mut fs, target);
    assert_eq!((split.fid(), split.stripes()), (target, theirs.stripes()));
    let into_full = MirrorChange::Split { mirror: three, into: Some(target) };
    assert_eq!(change(&mut fs, f, &into_full), Err(Errno::EEXIST));
    let deleted: Vec<(u32, Fid)> = merged.mirrors()[2].stripes().iter().map(|s| (s.ost, s.object)).collect();
    change(&mut fs, f, &MirrorChange::Split { mirror: three, into: None }).unwrap();
    assert_eq!(
        change(&mut fs, f, &MirrorChange::Split { mirror: 1, into: None }),
        Err(Errno::EUCLEAN),
        "last fresh mirror"
    );
    let left = layout(&mut fs, f);
    assert_eq!(left.mirrors().len(), 2);
    assert_eq!(destroyed(&mut fs), deleted);

    // Deleting the file destroys the remaining objects of all mirrors.
    let all: Vec<(u32, Fid)> = left.all_objects().map(|s| (s.ost, s.object)).collect();
    fs.unlink(&ROOT_USER, ROOT, "f").unwrap();
    assert!(destroyed(&mut fs).ends_with(&all));
}

/// Returns the objects to be destroyed, after a commit.
fn destroyed(fs: &mut Fs) -> Vec<(u32, Fid)> {
    fs.commit();
    fs.ns.destroys(0, 100).unwrap().into_iter().flat_map(|d| d.objects).collect()
}

#[test]
fn mirror_extend_is_refused_while_an_opener_lacks_a_layout_lock() {
    let mut fs = Fs::new();
    let f = bare(&mut fs, "f");
    fs.set(&ROOT_USER, f, "lustre.lov", &spec(1).encode(), CREATE).unwrap();
    let extend = MirrorChange::Extend { template: template(1).encode() };
    let (me, deaf) = (fs.client, ClientId(99));
    fs.client = deaf;
    let Reply::Opened { handle, .. } = fs.call(Request::Open { cred: ROOT_USER, fid: f, flags: flags::RDWR }).unwrap()
    else {
        panic!()
    };
    fs.client = me;
    assert_eq!(change(&mut fs, f, &extend), Err(Errno::EBUSY));
    fs.env.locks = vec![(deaf, LAYOUT)];
    assert_eq!(change(&mut fs, f, &extend).unwrap().mirrors().len(), 2, "the client holds a LAYOUT lock");
    fs.env.locks.clear();
    change(&mut fs, f, &extend).expect("the layout of a mirrored file is expected to change");
    fs.client = deaf;
    fs.call(Request::close(f, handle)).unwrap();
}

#[test]
fn mirror_changes_beyond_limits_are_refused() {
    let mut fs = Fs::new();
    let f = mirrored(&mut fs, "f", 16);
    let before = fs.layout(f);
    let one = MirrorChange::Extend { template: template(1).encode() };
    assert_eq!(change(&mut fs, f, &one), Err(Errno::EINVAL), "sixteen at most");
    assert_eq!(change(&mut fs, f, &MirrorChange::Split { mirror: 99, into: None }), Err(Errno::EINVAL));
    assert_eq!(change(&mut fs, f, &MirrorChange::Resync { mirrors: vec![99], end: 1 }), Err(Errno::EINVAL));
    let many = [vec![1; 17], (1..=17).collect()];
    for mirrors in many {
        assert_eq!(change(&mut fs, f, &MirrorChange::Resync { mirrors: mirrors.clone(), end: 1 }), Err(Errno::EINVAL));
        assert_eq!(
            change(&mut fs, f, &MirrorChange::Resynced { generation: 1, mirrors, mtime: NEVER }),
            Err(Errno::EINVAL)
        );
    }
    assert_eq!(change(&mut fs, f, &MirrorChange::Objects { mirror: 99, start: 0, end: 1 }), Err(Errno::EINVAL));
    assert_eq!(fs.layout(f), before);
    assert_eq!(fs.set(&user(1), f, XATTR, &one.encode().unwrap(), 0), Err(Errno::EPERM));
    assert_eq!(fs.set(&ROOT_USER, f, XATTR, b"rubbish", 0), Err(Errno::EINVAL));
    assert_eq!(fs.get(&ROOT_USER, f, XATTR), Err(Errno::ENODATA));
    assert_eq!(fs.unset(&ROOT_USER, f, XATTR), Err(Errno::EOPNOTSUPP));
    assert_eq!(fs.set(&ROOT_USER, ROOT, XATTR, &one.encode().unwrap(), 0), Err(Errno::EOPNOTSUPP));
    let many = Template { mirrors: 17, ..template(17) };
    let g = bare(&mut fs, "g");
    assert_eq!(fs.set(&ROOT_USER, g, "lustre.lov", &many.encode(), CREATE), Err(Errno::EINVAL));
}

/// A file with one mirror that begins on the MDT and one that does not, in either order.
#[test]
fn create_allocates_one_mirror_that_begins_on_the_mdt() {
    let mut fs = Fs::new();
    let dom = || [TemplateComponent::on_mdt(64 << 10), TemplateComponent::striped(64 << 10, EOF, spec(1))];
    let whole = || TemplateComponent::striped(0, EOF, spec(2));
    let object = |layout: &Layout| layout.all_objects().find(|s| s.ost == MDT_OST).map(|s| s.object);
    for (name, components) in
        [("first", [dom().to_vec(), vec![whole()]].concat()), ("second", [vec![whole()], dom().to_vec()].concat())]
    {
        let f = bare(&mut fs, name);
        let template = Template { components, mirrors: 2 };
        fs.set(&ROOT_USER, f, "lustre.lov", &template.encode(), CREATE).unwrap();
        let made = layout(&mut fs, f);
        let first = object(&made).unwrap();
        assert_eq!((fresh(&made), made.check_usable()), (vec![1, 2], Ok(())));
        assert!(fs.ns.has_object(first).unwrap(), "the object belongs to the file");
        let id = made.mirrors().iter().find(|m| m.mdt_end() > 0).unwrap().mirror_id();
        // The mirror is deleted and added again with another object, which is not mistaken for the
        // one being destroyed.
        change(&mut fs, f, &MirrorChange::Split { mirror: id, into: None }).unwrap();
        assert!(!fs.ns.has_object(first).unwrap());
        let again = MirrorChange::Extend { template: Template::new(dom().to_vec()).encode() };
        let extended = change(&mut fs, f, &again).unwrap();
        let second = object(&extended).unwrap();
        assert!(second != first && fs.ns.has_object(second).unwrap());
        assert_eq!(change(&mut fs, f, &again), Err(Errno::EOPNOTSUPP), "a mirror begins on the MDT already");
        let objects = destroyed(&mut fs);
        assert!(objects.contains(&(MDT_OST, first)) && !objects.contains(&(MDT_OST, second)), "{objects:?}");
    }
}
