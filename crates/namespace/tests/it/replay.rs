//! Changes that clients replay to an MDT that crashed.

use std::collections::BTreeMap;

use crate::common::*;
use bytes::Bytes;
use sheen_layout::{
    Count, Layout, Pool, Spec, Template, TemplateComponent,
    lmv::{HashType, LmvUser},
};
use sheen_namespace::Decided;
use sheen_wire::{
    Cred, Errno, Fid, FileKind, Project, Result, Time,
    fid::ROOT,
    mds::{Closed, Entry, NO_HANDLE, NewNode, Opener, Reopened, Reply, Request, SetAttr, SetTime, flags},
};

/// An answered change, as a client retains it.
#[derive(Debug)]
struct Answered {
    request: Request,
    transno: u64,
    time: Time,
    layout: Option<Bytes>,
    named: Vec<Fid>,
}

const MIB: u64 = 1 << 20;

/// Executes requests, and records the changes.
struct Client {
    fs: Fs,
    answered: Vec<Answered>,
}

impl Client {
    fn new() -> Client {
        let mut fs = Fs::new();
        assert!(fs.ns.list_client("me"));
        // Reserves ids of all OSTs.
        let value = Spec { count: Some(Count::All), ..Spec::default() }.encode();
        fs.mknod(&Cred::ROOT, ROOT, "wide", 0o644)
            .and_then(|fid| fs.set(&Cred::ROOT, fid, "lustre.lov", &value, 0))
            .unwrap();
        fs.commit();
        Client { fs, answered: Vec::new() }
    }

    fn send(&mut self, request: Request) -> Result<Reply> {
        let done = self.fs.execute(&request)?;
        let entry = match &done.reply {
            Reply::Opened { entry, .. } | Reply::Entry(entry) => Some(entry),
            _ => None,
        };
        let of = match (&request, entry) {
            (Request::SetXattr { fid, .. }, _) => Some(*fid),
            (_, entry) => entry.map(|entry| entry.attr.fid),
        };
        let layout = of.and_then(|fid| self.fs.ns.layout(fid).ok().flatten()).map(|layout| layout.encode().into());
        if done.transno > 0 && request.is_replayed() {
            let (transno, time) = (done.transno, self.fs.env.now);
            let named = match &done.reply {
                Reply::Opened { entry, .. } => vec![entry.attr.fid],
                _ if request.takes_names() => done.invalidations.iter().map(|(fid, _)| *fid).collect(),
                _ => Vec::new(),
            };
            self.answered.push(Answered { request, transno, time, layout, named });
        }
        Ok(done.reply)
    }

    /// Crashes the MDT, and replays what was not committed. The OSTs are full: nothing new can be
    /// placed.
    fn crash_and_replay(self) -> Client {
        let Client { fs, mut answered } = self;
        let mut fs = fs.crash();
        assert_eq!(fs.ns.clients_to_recover(), ["me"]);
        assert!(fs.ns.client_returned("me"));
        fs.env.full = (0..OSTS).collect();
        let committed = fs.ns.last_committed();
        answered.retain(|change| change.transno > committed);
        for change in &answered {
            replay(&mut fs, change).unwrap_or_else(|e| panic!("{change:?}: {e}"));
            assert_eq!(fs.ns.last_transno(), change.transno);
        }
        fs.env.full.clear();
        Client { fs, answered }
    }
}

fn replay(fs: &mut Fs, change: &Answered) -> Result<()> {
    let Answered { transno, time, layout, named, .. } = change;
    let decided = Decided { transno: *transno, time: *time, layout: layout.clone(), named: named.clone() };
    fs.ns.replay(ME, &change.request, decided, &mut fs.env)
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn create(fid: Fid, name: &str, flags: u32) -> Request {
    let (name, flags) = (bytes(name), flags | flags::CREAT);
    Request::OpenCreate { cred: Cred::ROOT, parent: ROOT, name, fid, flags, mode: 0o644, umask: 0 }
}

fn unlink(name: &str) -> Request {
    Request::Unlink { cred: Cred::ROOT, parent: ROOT, name: bytes(name), dir: false }
}

fn setattr(fid: Fid, set: SetAttr, handle: Option<u64>) -> Request {
    Request::SetAttr { cred: Cred::ROOT, fid, set, handle }
}

/// Returns name, attributes and layout of each entry of the root.
fn tree(fs: &mut Fs) -> BTreeMap<String, Entry> {
    let names = fs.ls(ROOT);
    let entry = |fs: &mut Fs, name: &str| {
        let lookup = Request::Lookup { cred: Cred::ROOT, parent: ROOT, name: bytes(name) };
        match fs.call(lookup).unwrap() {
            Reply::Entry(entry) => entry,
            other => panic!("{other:?}"),
        }
    };
    let root = fs.call(Request::GetAttr { fid: ROOT, layout_known: false }).unwrap();
    let mut tree: BTreeMap<_, _> = names.into_iter().map(|name| (name.clone(), entry(fs, &name))).collect();
    if let Reply::Entry(root) = root {
        tree.insert("/".into(), root);
    }
    tree
}

/// Returns layout and default layout of each directory in the root, and of the root.
fn directory_layouts(fs: &mut Fs) -> BTreeMap<String, [Result<Bytes>; 2]> {
    let directories = tree(fs).into_iter().filter(|(_, entry)| entry.attr.kind == FileKind::Dir);
    let mut of = |fid| ["lustre.lmv", "lustre.dmv"].map(|name| fs.get(&Cred::ROOT, fid, name));
    directories.map(|(name, entry)| (name, of(entry.attr.fid))).collect()
}

/// Whether an object may be destroyed as that of a lost create.
fn is_orphan(fs: &Fs, ost: u32, object: Fid) -> bool {
    let ranges = fs.ns.orphan_ranges();
    ranges.iter().any(|r| r.ost == ost && r.seq == object.seq && (r.first..=r.last).contains(&object.oid))
}

/// Value of `lustre.lov`: a composite layout, two mirrors, a layout in a pool, or nothing special.
fn layout_value(n: usize) -> Vec<u8> {
    let spec = |count| Spec { count: Some(Count::Stripes(count)), ..Spec::default() };
    let part = |start, end, count| TemplateComponent::striped(start, end, spec(count));
    let two_parts = vec![part(0, MIB, 1), part(MIB, u64::MAX, 2)];
    match n {
        0 => Template::new(two_parts).encode(),
        1 => Template { components: [vec![part(0, u64::MAX, 2)], two_parts].concat(), mirrors: 2 }.encode(),
        2 => Spec { pool: Some(Pool::new("flash").unwrap()), ..spec(2) }.encode(),
        _ => Spec::default().encode(),
    }
}

/// One random request.
fn draw(client: &mut Client, dice: &mut impl FnMut(usize) -> usize) -> Request {
    const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
    let (name, other) = (NAMES[dice(6)], NAMES[dice(6)]);
    let new = client.fs.fid();
    let old = client.fs.lookup(&Cred::ROOT, ROOT, name).map_or(new, |attr| attr.fid);
    let set = |set: SetAttr| setattr(old, set, None);
    let set_value = |fid, name, value: Vec<u8>| Request::SetXattr {
        cred: Cred::ROOT,
        fid,
        name: bytes(name),
        value: value.into(),
        flags: 0,
    };
    match dice(18) {
        0 | 1 => create(new, name, flags::RDWR),
        2 => create(new, name, flags::RDWR | flags::LAYOUT_LATER | flags::EXCL),
        3 => {
            let (name, node) = (bytes(name), [NewNode::Dir, NewNode::Symlink(bytes("target"))][dice(2)].clone());
            Request::Create { cred: Cred::ROOT, parent: ROOT, name, fid: new, node, mode: 0o755, umask: 0o022 }
        }
        4 => unlink(name),
        5 => Request::Unlink { cred: Cred::ROOT, parent: ROOT, name: bytes(name), dir: true },
        6 => {
            let (name, new_name, flags) = (bytes(name), bytes(other), dice(3) as u32);
            Request::Rename { cred: Cred::ROOT, parent: ROOT, name, new_parent: ROOT, new_name, flags, whiteout: None }
        }
        7 => Request::Link { cred: Cred::ROOT, fid: old, parent: ROOT, name: bytes(other) },
        8 => set(SetAttr { size: Some(dice(9) as u64), ..SetAttr::default() }),
        9 => set(SetAttr { perm: Some(0o600), atime: Some(SetTime::Now), ..SetAttr::default() }),
        10 => set_value(old, "lustre.lov", Spec { count: Some(Count::Stripes(2)), ..Spec::default() }.encode()),
        // The default of the root is the layout of later files.
        11 | 12 => set_value([old, ROOT][dice(2)], "lustre.lov", layout_value(dice(4))),
        13 => {
            let striped = LmvUser { hash: HashType(HashType::OVERSTRIPED), ..LmvUser::new(dice(4) as i32) };
            let (fid, name) = [(old, "lustre.lmv"), (old, "lustre.dmv"), (ROOT, "lustre.dmv")][dice(3)];
            set_value(fid, name, striped.encode())
        }
        14 | 15 => {
            let start = dice(3) as u64 * MIB;
            Request::LayoutIntent { fid: old, start, end: start + 1, opener: Opener::UNKNOWN }
        }
        16 => {
            let read = Some(dice(3) as u64 * 700_000);
            Request::Close { files: vec![Closed { fid: old, handle: NO_HANDLE, read }] }
        }
        _ => Request::Open { cred: Cred::ROOT, fid: old, flags: flags::RDWR | [0, flags::TRUNC][dice(2)] },
    }
}

#[test]
fn replayed_changes_have_the_same_result_as_before() {
    for seed in 1..=60u64 {
        let mut state = seed;
        let mut dice = |sides: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % sides
        };
        let mut client = Client::new();
        for round in 0..4 {
            let commit_at = dice(40);
            for i in 0..40 {
                let request = draw(&mut client, &mut dice);
                let _ = client.send(request);
                if i == commit_at {
                    client.fs.commit();
                }
            }
            let (before, directories) = (tree(&mut client.fs), directory_layouts(&mut client.fs));
            client = client.crash_and_replay();
            let after = tree(&mut client.fs);
            assert_eq!(format!("{after:?}"), format!("{before:?}"), "seed {seed}, round {round}");
            assert_eq!(directory_layouts(&mut client.fs), directories, "seed {seed}, round {round}");
            for layout in after.values().filter_map(|e| e.layout.as_ref()).filter_map(|l| Layout::decode(l).ok()) {
                assert!(layout.all_objects().all(|s| !is_orphan(&client.fs, s.ost, s.object)), "seed {seed}");
            }
            client.fs.ns.finish_recovery().unwrap();
            client.fs.check();
        }
    }
}

#[test]
fn object_of_a_replayed_create_stays_out_of_orphan_ranges_after_another_crash() {
    let mut client = Client::new();
    let fids = [client.fs.fid(), client.fs.fid(), client.fs.fid()];
    client.fs.commit();
    let layouts = fids.map(|fid| {
        client.send(create(fid, &fid.oid.to_string(), flags::RDWR)).unwrap();
        client.fs.ns.layout(fid).unwrap().unwrap()
    });
    let mut client = client.crash_and_replay();
    client.fs.commit();
    let fs = client.fs.crash();
    for stripe in layouts.iter().flat_map(Layout::all_objects) {
        assert!(!is_orphan(&fs, stripe.ost, stripe.object), "{stripe:?}");
        let next = Fid { oid: stripe.object.oid + 100, ..stripe.object };
        assert!(is_orphan(&fs, stripe.ost, next), "an id that no file has");
    }
}

#[test]
fn file_unlinked_while_open_survives_the_replay() {
    let mut client = Client::new();
    let [fid, never] = [client.fs.fid(), client.fs.fid()];
    for (fid, name) in [(fid, "open"), (never, "closed")] {
        client.send(create(fid, name, flags::RDWR)).unwrap();
        client.send(unlink(name)).unwrap();
    }
    let mut client = client.crash_and_replay();
    let reopen = Request::Reopen { files: vec![Reopened::new(fid, flags::RDWR, 1)], first: false, last: false };
    let Reply::Handles(handles) = client.fs.call(reopen).unwrap() else { panic!() };
    let handle = handles[0].expect("the client has it open");
    client.fs.ns.finish_recovery().unwrap();
    let there = |fs: &mut Fs, fid| fs.call(Request::GetAttr { fid, layout_known: true }).is_ok();
    assert!(there(&mut client.fs, fid) && !there(&mut client.fs, never));
    client.fs.close((fid, handle)).unwrap();
    assert!(!there(&mut client.fs, fid));
}

#[test]
fn replayed_tmpfile_replaces_the_one_of_a_request_without_an_answer() {
    let mut client = Client::new();
    let fid = client.fs.fid();
    let tmpfile = Request::TmpFile { cred: Cred::ROOT, parent: ROOT, fid, flags: flags::RDWR, mode: 0o600, umask: 0 };
    client.fs.call(tmpfile.clone()).unwrap();
    let first = client.fs.layout(fid);
    client.fs.commit();
    // The client has got no answer, so it does not open the file again.
    let mut client = client.crash_and_replay();
    client.fs.ns.finish_recovery().unwrap();
    client.send(tmpfile).unwrap();
    let second = client.fs.layout(fid);
    assert_ne!(first, second);
    let mut client = client.crash_and_replay();
    assert_eq!(client.fs.layout(fid), second);
}

#[test]
fn truncate_by_handle_is_replayed_without_the_handle() {
    let mut client = Client::new();
    let fid = client.fs.fid();
    let Ok(Reply::Opened { handle, .. }) = client.send(create(fid, "f", flags::RDWR)) else { panic!() };
    client.send(setattr(fid, SetAttr { perm: Some(0), ..SetAttr::default() }, None)).unwrap();
    client.send(setattr(fid, SetAttr { size: Some(7), ..SetAttr::default() }, Some(handle))).unwrap();
    client.crash_and_replay();
}

/// The file is read, changed and read again. It is open, and the handle does not survive the crash.
#[test]
fn access_times_that_closes_reported_are_replayed() {
    let mut client = Client::new();
    let fid = client.fs.fid();
    let Ok(Reply::Opened { handle, .. }) = client.send(create(fid, "f", flags::RDWR)) else { panic!() };
    client.fs.commit();
    let read = |handle, micros| Request::Close { files: vec![Closed { fid, handle, read: Some(micros) }] };
    let mut times = vec![client.fs.attr(fid).atime];
    for handle in [NO_HANDLE, handle] {
        client.send(setattr(fid, SetAttr { perm: Some(0o600), ..SetAttr::default() }, None)).unwrap();
        client.send(read(handle, 300_000)).unwrap();
        times.push(client.fs.attr(fid).atime);
    }
    assert!(times.is_sorted_by(|a, b| a < b), "{times:?}");
    let mut client = client.crash_and_replay();
    assert_eq!(client.answered.len(), 4);
    assert_eq!(Some(client.fs.attr(fid).atime), times.pop());
}

/// Another client removed the file before, or changed it after the read.
#[test]
fn replayed_close_of_a_missing_or_changed_file_changes_nothing() {
    let mut client = Client::new();
    let fid = client.fs.mknod(&Cred::ROOT, ROOT, "f", 0o644).unwrap();
    client.fs.commit();
    client.send(Request::Close { files: vec![Closed { fid, handle: NO_HANDLE, read: Some(0) }] }).unwrap();
    let close = client.answered.pop().unwrap();
    let mut fs = client.fs.crash();
    fs.env.now = close.time;
    fs.chmod(&Cred::ROOT, fid, 0o600).unwrap();
    let before = fs.attr(fid);
    let close = Answered { transno: fs.ns.last_transno() + 10, ..close };
    assert_eq!(replay(&mut fs, &close), Ok(()));
    assert_eq!(fs.attr(fid), before);
    fs.call(unlink("f")).unwrap();
    let last = fs.ns.last_transno();
    assert_eq!(replay(&mut fs, &close), Ok(()));
    assert_eq!(fs.ns.last_transno(), last, "a sync does not wait for it");
}

#[test]
fn layout_that_a_client_knows_is_adopted_if_it_is_newer() {
    let mut client = Client::new();
    let fid = client.fs.mknod(&Cred::ROOT, ROOT, "f", 0o644).unwrap();
    client.fs.commit();
    client.send(Request::LayoutIntent { fid, start: 0, end: 1, opener: Opener::UNKNOWN }).unwrap();
    let known = client.fs.layout(fid).unwrap();
    let mut fs = client.fs.crash();
    assert_eq!(fs.layout(fid), None, "nobody replays it");
    assert_eq!(fs.ns.adopt_layout(fid, &known), Ok(true));
    assert_eq!(fs.ns.adopt_layout(fid, &known), Ok(false));
    assert_eq!(fs.layout(fid), Some(known.clone()));
    let stripes = Layout::decode(&known).unwrap();
    assert!(stripes.all_objects().all(|s| !is_orphan(&fs, s.ost, s.object)));
    assert_eq!(fs.ns.adopt_layout(ROOT, &known), Err(Errno::EINVAL));
    assert_eq!(fs.ns.adopt_layout(Fid::new(1, 2), &known), Err(Errno::ENOENT));
}

#[test]
fn change_that_depends_on_a_missing_one_is_refused() {
    let mut client = Client::new();
    let [dir, fid] = [client.fs.fid(), client.fs.fid()];
    client.fs.commit();
    let (name, node) = (bytes("d"), NewNode::Dir);
    client
        .send(Request::Create { cred: Cred::ROOT, parent: ROOT, name, fid: dir, node, mode: 0o755, umask: 0 })
        .unwrap();
    let Request::OpenCreate { cred, name, flags, mode, umask, .. } = create(fid, "f", flags::RDWR) else { panic!() };
    client.send(Request::OpenCreate { cred, parent: dir, name, fid, flags, mode, umask }).unwrap();
    let [mkdir, create]: [Answered; 2] = client.answered.try_into().unwrap();
    let mut fs = client.fs.crash();
    assert_eq!(replay(&mut fs, &create), Err(Errno::ENOENT), "another client made the directory");
    let committed = fs.ns.last_committed();
    assert_eq!(fs.ns.last_transno(), committed, "a sync does not wait for it");
    let early =
        Answered { request: mkdir.request.clone(), transno: committed, time: mkdir.time, layout: None, named: vec![] };
    assert_eq!(replay(&mut fs, &early), Err(Errno::ESTALE), "out of order");
    assert_eq!(fs.ls(ROOT), ["wide"]);
    assert_eq!(fs.ns.needs_commit(None), None, "nothing was changed");
    let bad =
        Answered { request: Request::AllocSeq, transno: u64::MAX / 2, time: mkdir.time, layout: None, named: vec![] };
    assert_eq!(replay(&mut fs, &bad), Err(Errno::EINVAL));
}

/// Another client had replaced the file, and did not come back.
#[test]
fn replay_takes_no_name_from_another_file() {
    let rename = |name, new_name| {
        let [name, new_name] = [name, new_name].map(bytes);
        Request::Rename { cred: Cred::ROOT, parent: ROOT, name, new_parent: ROOT, new_name, flags: 0, whiteout: None }
    };
    let changes =
        [unlink("f"), rename("f", "g"), rename("g", "f"), create(Fid::new(9, 9), "f", flags::RDWR | flags::TRUNC)];
    for change in changes {
        let mut client = Client::new();
        let names = ["f", "g", "new"];
        let files = names.map(|name| client.fs.mknod(&Cred::ROOT, ROOT, name, 0o644).unwrap());
        client.fs.commit();
        client.send(rename("new", "f")).unwrap();
        client.send(change).unwrap();
        let [lost, change]: [Answered; 2] = client.answered.try_into().unwrap();
        let mut fs = client.fs.crash();
        assert_eq!(replay(&mut fs, &change), Err(Errno::ESTALE), "{:?} without {:?}", change.request, lost.request);
        assert_eq!(names.map(|name| tree(&mut fs)[name].attr.fid), files);
    }
}

/// Another client had removed a file of that name, and did not come back.
#[test]
fn replay_creates_a_name_only_if_no_other_file_has_it() {
    for existed in [true, false] {
        let mut client = Client::new();
        let [other, mine] = [client.fs.fid(), client.fs.fid()];
        if existed {
            client.fs.mknod(&Cred::ROOT, ROOT, "f", 0o644).unwrap();
        }
        client.fs.commit();
        if !existed {
            client.send(create(other, "f", flags::RDWR)).unwrap();
        }
        client.send(unlink("f")).unwrap();
        client.send(create(mine, "f", flags::RDWR)).unwrap();
        let created = client.answered.pop().unwrap();
        let mut fs = client.fs.crash();
        assert_eq!(replay(&mut fs, &created), if existed { Err(Errno::ESTALE) } else { Ok(()) });
        assert_eq!(tree(&mut fs)["f"].attr.fid == mine, !existed);
    }
}

#[test]
fn clients_are_recovered_after_a_crash_but_not_after_a_clean_stop() {
    let mut fs = Fs::new();
    assert!(fs.ns.clients_to_recover().is_empty() && fs.ns.list_client("a") && !fs.ns.list_client("a"));
    assert!(fs.ns.list_client("b") && fs.ns.clients_to_recover().is_empty());
    fs.ns.forget_client("b");
    fs.commit();
    let mut fs = fs.crash();
    assert_eq!(fs.ns.clients_to_recover(), ["a"]);
    assert!(fs.ns.client_returned("a") && !fs.ns.client_returned("b"));
    fs.ns.finish_recovery().unwrap();
    fs.ns.stop(false);
    fs.commit();
    let mut fs = fs.crash();
    assert!(fs.ns.clients_to_recover().is_empty() && fs.ns.client_returned("a"), "it may have files open");
    let mut fs = fs.crash();
    assert_eq!(fs.ns.clients_to_recover(), ["a"], "this life did not end cleanly");
    fs.ns.finish_recovery().unwrap();
    fs.commit();
    assert!(fs.crash().ns.clients_to_recover().is_empty(), "it did not come back");
}

#[test]
fn stop_during_a_recovery_is_not_clean() {
    let mut fs = Fs::new();
    fs.ns.list_client("a");
    fs.commit();
    let mut fs = fs.crash();
    fs.ns.stop(false);
    fs.commit();
    assert_eq!(fs.crash().ns.clients_to_recover(), ["a"]);
}

#[test]
fn stop_while_programs_hold_locks_lets_clients_recover() {
    let mut fs = Fs::new();
    fs.ns.list_client("a");
    fs.ns.stop(true);
    fs.commit();
    assert_eq!(fs.crash().ns.clients_to_recover(), ["a"]);
}

#[test]
fn replayed_project_is_inherited_by_replayed_creates() {
    let mut client = Client::new();
    let dir = client.fs.mkdir(&Cred::ROOT, ROOT, "p", 0o755).unwrap();
    let fid = client.fs.fid();
    client.fs.commit();
    let value = Bytes::copy_from_slice(&Project { id: 7, inherits: true }.encode());
    let name = bytes("lustre.project");
    client.send(Request::SetXattr { cred: Cred::ROOT, fid: dir, name, value: value.clone(), flags: 0 }).unwrap();
    let ctime = client.fs.attr(dir).ctime;
    let (cred, name) = (Cred::ROOT, bytes("s"));
    client.send(Request::Create { cred, parent: dir, name, fid, node: NewNode::Dir, mode: 0o755, umask: 0 }).unwrap();
    assert!(client.fs.attr(dir).ctime > ctime);
    let before = (client.fs.attr(dir), client.fs.attr(fid));

    let mut client = client.crash_and_replay();
    assert_eq!((client.fs.attr(dir), client.fs.attr(fid)), before);
    for fid in [dir, fid] {
        assert_eq!(client.fs.get(&Cred::ROOT, fid, "lustre.project"), Ok(value.clone()));
    }
}
