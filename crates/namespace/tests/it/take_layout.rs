//! TakeLayout: a file takes over the objects of an orphan.

use std::collections::BTreeSet;

use crate::common::*;
use sheen_layout::{Asked, Count, Layout, MDT_OST, Spec, Template, TemplateComponent};
use sheen_namespace::Renamed;
use sheen_wire::{
    Cred, Errno, Fid, Result, Time,
    fid::ROOT,
    ldlm::bits::LAYOUT,
    mds::{
        Opener, Request, flags,
        xattr::{CREATE, REPLACE},
    },
};

const ME: Cred = Cred::ROOT;
const LOV: &str = "lustre.lov";
const NEVER: Time = Time { sec: 0, nsec: 0 };
const DOOMSDAY: Time = Time { sec: i64::MAX, nsec: 0 };

fn layout(fs: &mut Fs, fid: Fid) -> Layout {
    Layout::decode(&fs.layout(fid).expect("the file has a layout")).unwrap()
}

fn objects(fs: &mut Fs, fid: Fid) -> Vec<Fid> {
    layout(fs, fid).stripes().iter().map(|s| s.object).collect()
}

fn orphan(fs: &mut Fs, cred: &Cred) -> (Fid, u64) {
    let fid = fs.fid();
    let request = |cred| Request::TmpFile { cred, parent: ROOT, fid, flags: flags::RDWR, mode: 0o600, umask: 0 };
    fs.opened(request(cred.clone())).unwrap()
}

fn request(cred: &Cred, fid: Fid, from: Fid, objects: &[Fid], mtime: Time) -> Request {
    let versions = objects.iter().map(|object| (*object, 1)).collect();
    Request::TakeLayout { cred: cred.clone(), fid, from, versions, group: None, mtime }
}

fn take(fs: &mut Fs, cred: &Cred, fid: Fid, from: Fid) -> Result<()> {
    let had = objects(fs, fid);
    fs.call(request(cred, fid, from, &had, NEVER)).map(drop)
}

#[test]
fn take_layout_takes_the_copys_objects_and_destroys_the_former() {
    let mut fs = Fs::new();
    fs.chmod(&ME, ROOT, 0o777).unwrap();
    let f = fs.touch(&ME, ROOT, "f", 0o644).unwrap();
    let (t, handle) = orphan(&mut fs, &ME);
    let asked = Asked::Plain(Spec { count: Count::from_number(3).unwrap(), ..Spec::default() });
    let first = objects(&mut fs, t);
    fs.set(&ME, t, LOV, &asked.encode(), REPLACE).unwrap();
    let (had, has, before) = (objects(&mut fs, f), objects(&mut fs, t), fs.attr(f));
    assert!(has.len() == 3 && has.iter().all(|object| !first.contains(object)));
    let taking = fs.ns.begin_take(&request(&ME, f, t, &had, NEVER)).unwrap();
    assert_eq!((taking.leaving.len(), taking.renamed.len()), (had.len(), 0));
    let done = fs.execute(&request(&ME, f, t, &had, DOOMSDAY)).unwrap();
    assert!(done.invalidations.iter().any(|(fid, bits)| *fid == f && bits & LAYOUT != 0), "LAYOUT is invalidated");
    let now = layout(&mut fs, f);
    assert_eq!((objects(&mut fs, f), now.fid()), (has, f));
    assert!(now.generation() > 1, "above all former generations of both files");
    assert_eq!(fs.layout(t), None);
    let after = fs.attr(f);
    assert!(after.mtime >= before.mtime && after.mtime <= after.ctime, "not in the future");
    fs.close((t, handle)).unwrap();
    fs.commit();
    let deleted: Vec<Fid> =
        fs.ns.destroys(0, 100).unwrap().into_iter().flat_map(|d| d.objects).map(|(_, object)| object).collect();
    assert_eq!(deleted, [first, had].concat(), "and nothing else");
    // All changes become durable together.
    let mut fs = fs.crash();
    assert_eq!(layout(&mut fs, f), now);
    fs.check();
}

/// Layout of a file that begins on the MDT.
fn on_mdt() -> Vec<u8> {
    let rest = TemplateComponent::striped(64 << 10, u64::MAX, Spec::default());
    Template::new(vec![TemplateComponent::on_mdt(64 << 10), rest]).encode()
}

/// Returns the objects to be destroyed, after a commit.
fn destroyed(fs: &mut Fs) -> BTreeSet<Fid> {
    fs.commit();
    fs.ns.destroys(0, 100).unwrap().into_iter().flat_map(|d| d.objects).map(|(_, object)| object).collect()
}

/// The client that migrated the file still has the copy open, and knows its former layout. If the
/// copy got the objects back, its last close would destroy them.
#[test]
fn copy_does_not_get_its_objects_back_after_a_crash() {
    let mut fs = Fs::new();
    let f = fs.touch(&ME, ROOT, "f", 0o644).unwrap();
    let (t, _) = orphan(&mut fs, &ME);
    let known = fs.layout(t).unwrap();
    take(&mut fs, &ME, f, t).unwrap();
    let taken = fs.layout(f);
    fs.commit();
    let mut fs = fs.crash();
    assert_eq!(fs.ns.adopt_layout(t, &known), Ok(false));
    assert_eq!((fs.layout(t), fs.layout(f)), (None, taken));
}

#[test]
fn take_layout_renames_the_copys_object_on_the_mdt() {
    let mut fs = Fs::new();
    let f = fs.touch(&ME, ROOT, "f", 0o644).unwrap();
    let mut names = BTreeSet::new();
    for round in 0..3 {
        let (t, handle) = orphan(&mut fs, &ME);
        fs.set(&ME, t, LOV, &on_mdt(), REPLACE).unwrap();
        let had = objects(&mut fs, f);
        let request = request(&ME, f, t, &had, NEVER);
        assert_eq!(fs.call(request.clone()).map(drop), Err(Errno::EPROTO), "no new name is reserved");
        // The first attempt is abandoned.
        let first = fs.ns.begin_take(&request).unwrap();
        fs.ns.end_take(f);
        let taking = fs.ns.begin_take(&request).unwrap();
        let [Renamed { ost: MDT_OST, old, new }] = taking.renamed[..] else { panic!("{taking:?}") };
        assert_eq!((old, new.oid, new.seq), (objects(&mut fs, t)[0], f.oid, f.seq));
        assert!(fs.ns.has_object(old).unwrap() && fs.ns.has_object(new).unwrap());
        fs.call(request).unwrap();
        fs.ns.end_take(f);
        assert_eq!(objects(&mut fs, f)[0], new);
        assert!(fs.ns.has_object(new).unwrap() && !fs.ns.has_object(old).unwrap());
        fs.close((t, handle)).unwrap();
        let deleted = destroyed(&mut fs);
        assert!(
            deleted.contains(&old)
                && deleted.contains(&first.renamed[0].new)
                && had.iter().all(|o| deleted.contains(o))
        );
        assert!(!deleted.contains(&new) && names.insert(new), "round {round}");
        fs = fs.crash();
        assert_eq!(objects(&mut fs, f)[0], new);
        assert!(!destroyed(&mut fs).contains(&new));
    }
    fs.check();
}

/// The copy gets other objects between begin and end.
/// Versions of objects on the MDT come from two sources: files without a name, and reserved names.
#[test]
fn take_layout_reserves_no_name_of_a_file_that_began_without_one() {
    let mut fs = Fs::new();
    fs.set(&ME, ROOT, LOV, &on_mdt(), 0).unwrap();
    let ((f, _), (t, _)) = (orphan(&mut fs, &ME), orphan(&mut fs, &ME));
    fs.link(&ME, f, ROOT, "f").unwrap();
    let had = objects(&mut fs, f);
    let [Renamed { new, .. }] = fs.ns.begin_take(&request(&ME, f, t, &had, NEVER)).unwrap().renamed[..] else {
        panic!("one object on the MDT")
    };
    assert!(!had.contains(&new), "{new} is the name of an object of the file");
    fs.ns.end_take(f);
    assert!(destroyed(&mut fs).iter().all(|object| !had.contains(object)));
}

#[test]
fn take_layout_refuses_a_copy_that_changed() {
    let mut fs = Fs::new();
    let f = fs.touch(&ME, ROOT, "f", 0o644).unwrap();
    let (t, _) = orphan(&mut fs, &ME);
    fs.set(&ME, t, LOV, &on_mdt(), REPLACE).unwrap();
    let had = objects(&mut fs, f);
    fs.ns.begin_take(&request(&ME, f, t, &had, NEVER)).unwrap();
    fs.set(&ME, t, LOV, &on_mdt(), REPLACE).unwrap();
    assert_eq!(take(&mut fs, &ME, f, t), Err(Errno::EBUSY));
    assert_eq!(objects(&mut fs, f), had);
}

#[test]
fn take_layout_without_permission_is_refused_and_changes_nothing() {
    let mut fs = Fs::new();
    fs.chmod(&ME, ROOT, 0o777).unwrap();
    let (me, other) = (user(1), user(2));
    let f = fs.touch(&me, ROOT, "f", 0o644).unwrap();
    let named = fs.touch(&me, ROOT, "named", 0o644).unwrap();
    let dir = fs.mkdir(&me, ROOT, "dir", 0o777).unwrap();
    let ((mine, _), (theirs, _)) = (orphan(&mut fs, &me), orphan(&mut fs, &other));
    let had = objects(&mut fs, f);
    assert_eq!(take(&mut fs, &other, f, theirs), Err(Errno::EACCES));
    assert_eq!(take(&mut fs, &me, f, theirs), Err(Errno::EINVAL));
    assert_eq!(take(&mut fs, &me, f, named), Err(Errno::EINVAL));
    assert_eq!(take(&mut fs, &me, f, f), Err(Errno::EINVAL));
    assert_eq!(fs.call(request(&me, dir, mine, &[], NEVER)).map(drop), Err(Errno::EINVAL));
    assert_eq!(fs.call(request(&me, f, mine, &[], NEVER)).map(drop), Err(Errno::EBUSY), "not all objects are sealed");
    assert_eq!(fs.call(request(&me, f, mine, &[had[0], Fid::new(9, 9)], NEVER)).map(drop), Err(Errno::EBUSY));
    assert_eq!(objects(&mut fs, f), had);
    take(&mut fs, &me, f, mine).unwrap();
    assert_eq!(take(&mut fs, &me, f, mine), Err(Errno::EINVAL), "the orphan has no layout any more");
}

#[test]
fn take_layout_clears_privilege_unless_the_owner_asks() {
    let mut fs = Fs::new();
    fs.chmod(&ME, ROOT, 0o777).unwrap();
    let (owner, other) = (user(1), user(2));
    let f = fs.touch(&owner, ROOT, "f", 0o777).unwrap();
    for (who, left) in [(&owner, 0o6777), (&ME, 0o6777), (&other, 0o777)] {
        fs.chmod(&ME, f, 0o6777).unwrap();
        let (t, _) = orphan(&mut fs, who);
        take(&mut fs, who, f, t).unwrap();
        assert_eq!(fs.attr(f).perm, left, "{}", who.uid);
    }
}

/// Returns all objects of all mirrors, and the layout's generation, as a copying tool records them.
fn state(fs: &mut Fs, fid: Fid) -> Vec<(Fid, u64)> {
    let layout = layout(fs, fid);
    let objects = layout.all_objects().map(|s| (s.object, 1));
    objects.chain([(fid, u64::from(layout.generation()))]).collect()
}

fn take_as(fs: &mut Fs, fid: Fid, from: Fid, versions: &[(Fid, u64)]) -> Result<Vec<Renamed>> {
    let versions = versions.to_vec();
    let request = Request::TakeLayout { cred: ME, fid, from, versions, group: None, mtime: NEVER };
    let taking = fs.ns.begin_take(&request)?;
    let done = fs.call(request);
    fs.ns.end_take(fid);
    done.map(|_| taking.renamed)
}

#[test]
fn take_layout_replaces_all_mirrors_and_takes_a_mirrored_copy() {
    let mut fs = Fs::new();
    let f = fs.mknod(&ME, ROOT, "f", 0o644).unwrap();
    let plain = || TemplateComponent::striped(0, u64::MAX, Spec::default());
    let two = Template { components: vec![plain(), plain()], mirrors: 2 };
    fs.set(&ME, f, LOV, &two.encode(), CREATE).unwrap();
    let write = |fs: &mut Fs, fid| {
        drop(fs.call(Request::LayoutIntent { fid, start: 0, end: 1, opener: Opener::UNKNOWN }).unwrap())
    };
    let (t, handle) = orphan(&mut fs, &ME);
    let before = state(&mut fs, f);
    let objects_alone = &before[..before.len() - 1];
    assert_eq!(take_as(&mut fs, f, t, objects_alone), Err(Errno::EBUSY), "no generation in the request");
    write(&mut fs, f);
    assert_eq!(take_as(&mut fs, f, t, &before), Err(Errno::EBUSY), "another mirror may be the valid one");
    let before = state(&mut fs, f);
    let has = objects(&mut fs, t);
    take_as(&mut fs, f, t, &before).unwrap();
    let now = layout(&mut fs, f);
    assert_eq!((now.is_mirrored(), now.stripes().len(), objects(&mut fs, f)), (false, 1, has));
    fs.close((t, handle)).unwrap();
    let deleted = destroyed(&mut fs);
    assert!(before.iter().all(|(object, _)| deleted.contains(object) || *object == f), "also of the stale mirror");

    // A mirrored copy, partly on the MDT.
    let dom = [TemplateComponent::on_mdt(64 << 10), TemplateComponent::striped(64 << 10, u64::MAX, Spec::default())];
    let copy = Template { components: [vec![plain()], dom.to_vec()].concat(), mirrors: 2 };
    let (t, handle) = orphan(&mut fs, &ME);
    fs.set(&ME, t, LOV, &copy.encode(), REPLACE).unwrap();
    write(&mut fs, t);
    let had: Vec<_> = objects(&mut fs, f).into_iter().map(|object| (object, 1)).collect();
    let theirs: Vec<Fid> = layout(&mut fs, t).all_objects().map(|s| s.object).collect();
    let renamed = take_as(&mut fs, f, t, &had).unwrap();
    let [Renamed { ost: MDT_OST, old, new }] = renamed[..] else { panic!("{renamed:?}") };
    let now = layout(&mut fs, f);
    let fresh: Vec<u16> = now.fresh_mirrors().iter().map(|m| m.mirror_id()).collect();
    assert_eq!((now.mirrors().len(), fresh, now.check_usable()), (2, vec![1], Ok(())), "the other mirror is stale");
    let named = |object: Fid| if object == old { new } else { object };
    assert!(now.all_objects().map(|s| s.object).eq(theirs.into_iter().map(named)));
    assert!(fs.ns.has_object(new).unwrap() && new.oid == f.oid);
    fs.close((t, handle)).unwrap();
    fs.commit();
    let mut fs = fs.crash();
    assert_eq!(layout(&mut fs, f), now);
    let deleted = destroyed(&mut fs);
    assert!(now.all_objects().all(|s| !deleted.contains(&s.object)) && deleted.contains(&old));
    fs.check();
}
