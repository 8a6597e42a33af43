//! Two files exchange their objects.

use crate::common::*;
use sheen_layout::{Asked, Count, Layout, Spec, Template, TemplateComponent};
use sheen_namespace::{ClientId, OpError, Renamed};
use sheen_wire::{
    Cred, Errno, Fid, Result, Time,
    fid::ROOT,
    ldlm::bits::LAYOUT,
    mds::{Opener, Request, flags, xattr::CREATE},
};

const ROOT_USER: Cred = Cred::ROOT;
const MIB: u64 = 1 << 20;
const NEVER: Time = Time { sec: 0, nsec: 0 };

fn layout(fs: &mut Fs, fid: Fid) -> Layout {
    Layout::decode(&fs.layout(fid).expect("the file has a layout")).unwrap()
}

fn objects(fs: &mut Fs, fid: Fid) -> Vec<(u32, Fid)> {
    layout(fs, fid).stripes().iter().map(|s| (s.ost, s.object)).collect()
}

fn request(cred: &Cred, fids: [Fid; 2], nonce: u64) -> Request {
    Request::SwapLayouts { cred: cred.clone(), fids, mtimes: [NEVER; 2], nonce }
}

fn begin(fs: &mut Fs, request: &Request) -> Result<Option<Vec<Renamed>>> {
    loop {
        match fs.ns.begin_swap(request) {
            Err(OpError::CommitFirst) => fs.commit(),
            Err(OpError::Errno(errno)) => return Err(errno),
            Ok(names) => return Ok(names),
        }
    }
}

/// Does the whole exchange, as the service does.
fn swap(fs: &mut Fs, request: &Request) -> Result<()> {
    let Some(_) = begin(fs, request)? else { return Ok(()) };
    let done = fs.call(request.clone()).map(drop);
    fs.ns.end_swap(request);
    done
}

/// Returns the objects to be destroyed.
fn going(fs: &mut Fs) -> Vec<Fid> {
    fs.commit();
    fs.ns.destroys(0, 100).unwrap().into_iter().flat_map(|d| d.objects).map(|(_, object)| object).collect()
}

fn names(objects: &[(u32, Fid)]) -> Vec<Fid> {
    objects.iter().map(|(_, object)| *object).collect()
}

/// A file of one stripe, and a file with a component of three stripes and one without objects.
fn two(fs: &mut Fs, cred: &Cred) -> [Fid; 2] {
    fs.chmod(&ROOT_USER, ROOT, 0o777).unwrap();
    let one = fs.touch(cred, ROOT, "one", 0o644).unwrap();
    let other = fs.mknod(cred, ROOT, "other", 0o644).unwrap();
    let spec = |n| Spec { count: Count::from_number(n).unwrap(), ..Spec::default() };
    let components =
        vec![TemplateComponent::striped(0, 64 * MIB, spec(3)), TemplateComponent::striped(64 * MIB, u64::MAX, spec(2))];
    let asked = Asked::Composite(Template { components, mirrors: 1 });
    fs.set(cred, other, "lustre.lov", &asked.encode(), CREATE).unwrap();
    [one, other]
}

#[test]
fn swap_exchanges_objects_under_new_names() {
    let mut fs = Fs::new();
    let [one, other] = two(&mut fs, &ROOT_USER);
    let (had, before) = ([objects(&mut fs, one), objects(&mut fs, other)], [fs.attr(one), fs.attr(other)]);
    let generations = [layout(&mut fs, one), layout(&mut fs, other)].map(|l| l.generation());
    let ask = request(&ROOT_USER, [one, other], 5);
    let renamed = begin(&mut fs, &ask).unwrap().unwrap();
    assert_eq!(renamed.iter().map(|r| (r.ost, r.old)).collect::<Vec<_>>(), had.concat());
    assert!(going(&mut fs).is_empty(), "new names of an exchange in progress are skipped");
    let done = fs.execute(&ask).unwrap();
    fs.ns.end_swap(&ask);
    for fid in [one, other] {
        assert!(done.invalidations.iter().any(|(of, bits)| *of == fid && bits & LAYOUT != 0), "LAYOUT is missing");
    }
    let new = |old: &[(u32, Fid)]| -> Vec<(u32, Fid)> {
        let new = |(_, object): &(u32, Fid)| renamed.iter().find(|r| r.old == *object).unwrap();
        old.iter().map(new).map(|r| (r.ost, r.new)).collect()
    };
    let now = [objects(&mut fs, one), objects(&mut fs, other)];
    assert_eq!(now, [new(&had[1]), new(&had[0])]);
    assert!(now.concat().iter().all(|object| !had.concat().contains(object)));
    for fid in [one, other] {
        let layout = layout(&mut fs, fid);
        assert_eq!(layout.fid(), fid);
        assert!(generations.iter().all(|g| layout.generation() > *g), "above all former generations of both files");
    }
    let after = [fs.attr(one), fs.attr(other)];
    for (before, after) in before.iter().zip(&after) {
        assert_eq!((before.perm, before.uid, before.mtime), (after.perm, after.uid, after.mtime));
        assert!(after.ctime > before.ctime);
    }
    assert_eq!(going(&mut fs), names(&had.concat()), "the old names, and nothing else");
    let mut fs = fs.crash();
    assert_eq!([objects(&mut fs, one), objects(&mut fs, other)], now, "all changes become durable together");
    fs.check();
}

#[test]
fn aborted_swap_destroys_its_reserved_names() {
    let mut fs = Fs::new();
    let files = two(&mut fs, &ROOT_USER);
    let had = files.map(|fid| objects(&mut fs, fid));
    // The exchange fails.
    let ask = request(&ROOT_USER, files, 1);
    let renamed = begin(&mut fs, &ask).unwrap().unwrap();
    fs.ns.end_swap(&ask);
    let new = |renamed: &[Renamed]| renamed.iter().map(|r| r.new).collect::<Vec<_>>();
    let mut deleted = going(&mut fs);
    deleted.sort_unstable();
    assert_eq!(deleted, {
        let mut new = new(&renamed);
        new.sort_unstable();
        new
    });
    let seqnos: Vec<_> = fs.ns.destroys(0, 100).unwrap().into_iter().map(|d| d.seqno).collect();
    fs.ns.destroyed(&seqnos);
    // The MDT stops during two exchanges: one whose reservation is committed, and one whose
    // reservation is not.
    let renamed = begin(&mut fs, &request(&ROOT_USER, files, 2)).unwrap().unwrap();
    fs.touch(&ROOT_USER, ROOT, "later", 0o644).unwrap();
    fs.commit();
    let renamed_later = begin(&mut fs, &request(&ROOT_USER, files, 3)).unwrap().unwrap();
    let mut fs = fs.crash();
    let deleted = going(&mut fs);
    assert!(new(&renamed).iter().all(|object| deleted.contains(object)));
    let ranges = fs.ns.orphan_ranges();
    for Renamed { ost, new, .. } in renamed_later {
        assert!(ranges.iter().any(|r| r.ost == ost && (r.first..=r.last).contains(&new.oid)), "{new}");
    }
    // The MDT stops after the exchange, before it is durable.
    let ask = request(&ROOT_USER, files, 4);
    let renamed = begin(&mut fs, &ask).unwrap().unwrap();
    fs.commit();
    fs.call(ask.clone()).unwrap();
    fs.ns.end_swap(&ask);
    let mut fs = fs.crash();
    assert_eq!(files.map(|fid| objects(&mut fs, fid)), had, "the exchange was lost as a whole");
    let deleted = going(&mut fs);
    assert!(new(&renamed).iter().all(|object| deleted.contains(object)));
    assert!(had.concat().iter().all(|(_, object)| !deleted.contains(object)));
}

#[test]
fn resent_swap_is_executed_once() {
    let mut fs = Fs::new();
    let files = two(&mut fs, &ROOT_USER);
    let count = |fs: &mut Fs| files.map(|fid| objects(fs, fid).len());
    let ask = request(&ROOT_USER, files, 17);
    swap(&mut fs, &ask).unwrap();
    assert_eq!(count(&mut fs), [3, 1]);
    fs.commit();
    let mut fs = fs.crash();
    assert_eq!(begin(&mut fs, &ask), Ok(None));
    swap(&mut fs, &request(&ROOT_USER, files, 18)).unwrap();
    assert_eq!((begin(&mut fs, &ask), count(&mut fs)), (Ok(None), [1, 3]));
    // After many other exchanges the number is forgotten.
    for nonce in 100..400 {
        swap(&mut fs, &request(&ROOT_USER, files, nonce)).unwrap();
    }
    assert!(begin(&mut fs, &ask).unwrap().is_some());
}

#[test]
fn swap_without_permission_is_refused_and_changes_nothing() {
    let mut fs = Fs::new();
    let (me, other) = (user(1), user(2));
    let files = two(&mut fs, &me);
    let theirs = fs.touch(&other, ROOT, "theirs", 0o666).unwrap();
    fs.chmod(&other, theirs, 0o666).unwrap();
    let dir = fs.mkdir(&me, ROOT, "dir", 0o777).unwrap();
    let had = files.map(|fid| objects(&mut fs, fid));
    for (cred, fids, errno) in [
        (&other, files, Errno::EACCES),
        (&me, [files[0], theirs], Errno::EPERM),
        (&ROOT_USER, [theirs, files[0]], Errno::EPERM),
        (&me, [files[0], dir], Errno::EINVAL),
        (&me, [files[0], files[0]], Errno::EINVAL),
        (&me, [files[0], Fid::new(5, 5)], Errno::ENOENT),
    ] {
        assert_eq!(swap(&mut fs, &request(cred, fids, 1)), Err(errno), "{fids:?}");
    }
    assert_eq!(fs.call(request(&me, files, 1)).map(drop), Err(Errno::EPROTO), "no new names are reserved");
    // One of the files got other objects in between.
    let ask = request(&me, files, 2);
    begin(&mut fs, &ask).unwrap();
    fs.call(Request::LayoutIntent { fid: files[1], start: 0, end: 65 * MIB, opener: Opener::UNKNOWN }).unwrap();
    assert_eq!(fs.call(ask.clone()).map(drop), Err(Errno::EAGAIN));
    fs.ns.end_swap(&ask);
    assert_eq!(objects(&mut fs, files[0]), had[0]);
    assert_eq!(objects(&mut fs, files[1]).len(), 5);
    swap(&mut fs, &ask).unwrap();
    assert_eq!(files.map(|fid| objects(&mut fs, fid).len()), [5, 1]);
}

#[test]
fn swap_clears_privilege_unless_the_owner_asks() {
    let mut fs = Fs::new();
    let (owner, other) = (user(1), user(2));
    let files = two(&mut fs, &owner);
    for (nonce, (who, left)) in [(&owner, 0o6777), (&ROOT_USER, 0o6777), (&other, 0o777)].into_iter().enumerate() {
        for fid in files {
            fs.chmod(&ROOT_USER, fid, 0o6777).unwrap();
        }
        swap(&mut fs, &request(who, files, nonce as u64)).unwrap();
        assert_eq!(files.map(|fid| fs.attr(fid).perm), [left; 2], "{}", who.uid);
    }
}

#[test]
fn swap_exchanges_all_mirrors_with_their_state() {
    let mut fs = Fs::new();
    let [one, other] = two(&mut fs, &ROOT_USER);
    let f = fs.mknod(&ROOT_USER, ROOT, "f", 0o644).unwrap();
    let dom = vec![
        TemplateComponent::on_mdt(64 << 10),
        TemplateComponent::striped(64 << 10, u64::MAX, Spec::default()),
        TemplateComponent::striped(0, u64::MAX, Spec::default()),
    ];
    let asked = Template { components: dom, mirrors: 2 };
    fs.set(&ROOT_USER, f, "lustre.lov", &asked.encode(), CREATE).unwrap();
    fs.call(Request::LayoutIntent { fid: f, start: 0, end: MIB, opener: Opener::UNKNOWN }).unwrap();
    assert!(!fs.ns.is_any_mirrored(&[one, other]).unwrap() && fs.ns.is_any_mirrored(&[one, f]).unwrap());
    let all = |fs: &mut Fs, fid| -> Vec<Fid> { layout(fs, fid).all_objects().map(|s| s.object).collect() };
    let state = |fs: &mut Fs, fid| {
        let layout = layout(fs, fid);
        let fresh: Vec<u16> = layout.fresh_mirrors().iter().map(|m| m.mirror_id()).collect();
        (layout.mirror_state(), fresh, layout.mirrors().len())
    };
    let (had, states) = ([all(&mut fs, one), all(&mut fs, f)], [state(&mut fs, one), state(&mut fs, f)]);
    let ask = request(&ROOT_USER, [one, f], 7);
    let renamed = begin(&mut fs, &ask).unwrap().unwrap();
    assert_eq!(renamed.iter().map(|r| r.old).collect::<Vec<_>>(), had.concat(), "also of stale mirrors");
    fs.call(ask.clone()).unwrap();
    fs.ns.end_swap(&ask);
    assert_eq!([state(&mut fs, f), state(&mut fs, one)], states);
    let now = [all(&mut fs, f), all(&mut fs, one)].concat();
    assert_eq!(now, renamed.iter().map(|r| r.new).collect::<Vec<_>>());
    assert!(layout(&mut fs, one).check_usable().is_ok());
    let on_mdt = now.iter().copied().find(|object| object.ver > 0).unwrap();
    assert!(on_mdt.oid == one.oid && fs.ns.has_object(on_mdt).unwrap());
    let deleted = going(&mut fs);
    assert!(had.concat().iter().all(|old| deleted.contains(old)) && now.iter().all(|new| !deleted.contains(new)));
    // A client that may have the file open blocks the exchange, except the caller with one open.
    let me = fs.client;
    assert!(!fs.ns.is_in_use(one, me));
    let open = |fs: &mut Fs| fs.opened(Request::Open { cred: ROOT_USER, fid: one, flags: flags::RDWR }).unwrap();
    let first = open(&mut fs);
    assert!(!fs.ns.is_in_use(one, me) && fs.ns.is_in_use(one, ClientId(99)));
    let second = open(&mut fs);
    assert!(fs.ns.is_in_use(one, me));
    fs.close(second).unwrap();
    assert!(!fs.ns.is_in_use(one, me));
    fs.close(first).unwrap();
    fs.check();
}
