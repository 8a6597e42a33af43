//! Keys of users and hosts: mounts with such a key, and programs of their holders that do not obey
//! the rules of a client.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use bytes::Bytes;
use sheen_keys::Key;
use sheen_layout::Layout;
use sheen_mgc::MGS_TARGET;
use sheen_rpc::Import;
use sheen_tests::{Fs, Mount, Ran, can_mount, detach, is_root, run_command, sh, sheen, wait::eventually};
use sheen_wire::{
    Cred, Errno, Fid, Mgs, Time,
    auth::{KeyId, Proof},
    fid::ROOT,
    frame,
    ldlm::{Cookie, Enqueue, Mode, Policy, Resource},
    mds::{Call, Opener, REOPENS_MAX, Reopened, Replay, Reply, Request, flags},
    mgs::{self, TargetKind},
    ost::{self, Capability, DamagedBlock, rights},
    quota::Owner,
};

use crate::key_holder::{Program, ask, ask_mdt, capabilities, read, write};

/// A user of this machine who is not root.
const USER: &str = "nobody";

/// A file system of root, and the directory of keys of somebody else.
struct World {
    fs: Fs,
    keys: PathBuf,
}

impl World {
    /// Starts a file system, and issues a key with these options of `sheen key issue`.
    fn with_key(role: &str) -> Option<World> {
        if !can_mount() || !is_root() {
            println!("skipped: needs /dev/fuse, and root to have files of several users");
            return None;
        }
        let fs = Fs::up(2);
        fs.sh("chmod 1777 .; echo secret > private; chmod 600 private; echo public > public; mkdir -m 700 closed; echo all > closed/open; chmod 666 closed/open; mkdir listed; touch listed/f; chmod 744 listed").ok();
        let keys = fs.base.join("their-keys");
        let (program, dir) = (sheen().display().to_string(), fs.dir().display().to_string());
        let add = format!("SHEEN_KEY_DIR={} {program} key add -", keys.display());
        sh(&format!("{program} key issue --dir {dir} {role} | {add}")).ok();
        Some(World { fs, keys })
    }

    fn key(&self) -> Key {
        let file = fs::read_dir(&self.keys).expect("a directory").next().expect("a key").expect("readable");
        Key::parse(&fs::read_to_string(file.path()).expect("a file")).expect("a key")
    }

    fn mount(&self, at: &Path) -> Ran {
        self.mount_with(&[], at)
    }

    fn mount_with(&self, options: &[&str], at: &Path) -> Ran {
        let mut command = Command::new(sheen());
        command.arg("mount").args(options).arg(self.fs.source()).arg(at).env("SHEEN_KEY_DIR", &self.keys);
        run_command(command)
    }

    fn fid(&self, name: &str) -> Fid {
        self.fs.lfs(&format!("path2fid {name}")).ok().trim().parse().expect("a FID")
    }

    /// Returns the FID of a file, and its first object with the index of its OST.
    fn object(&self, name: &str) -> (Fid, Fid, u32) {
        let layout =
            self.fs.sh(&format!("getfattr --only-values -n lustre.lov {name} | od -An -v -tx1 | tr -d ' \\n'"));
        let hex = layout.ok();
        let bytes: Vec<u8> =
            (0..hex.len() / 2).map(|n| u8::from_str_radix(&hex[2 * n..2 * n + 2], 16).unwrap()).collect();
        let layout = Layout::decode(&bytes).expect("a layout");
        (self.fid(name), layout.stripes()[0].object, layout.stripes()[0].ost)
    }
}

/// Runs `story` with a program that uses the world's issued key.
fn run_program(world: &World, story: impl AsyncFnOnce(&Program)) {
    Program::run(world.key(), &world.fs.source(), story);
}

fn lock(object: Fid, mode: Mode) -> ost::Request {
    let policy = Policy::extent(0, u64::MAX);
    ost::Request::Enqueue { locks: vec![Enqueue::new(Resource::extent(object), mode, policy, Cookie(1))], want: 0 }
}

#[test]
fn mount_with_a_users_key_acts_as_that_user_only() {
    let Some(world) = World::with_key(&format!("--user {USER}")) else { return };
    let mount = Mount { mnt: world.fs.base.join("theirs") };
    world.mount(&mount.mnt).ok();
    // This test runs as root, and so does the mount.
    let at = |script: &str| sh(&format!("cd {}; {script}", mount.mnt.display()));
    for refused in [
        "cat private",
        "ls closed",
        "echo more >> public",
        "rm public",
        "chmod 777 private",
        "truncate -s 0 public",
        "echo new > closed/new",
        "chown root own",
        "mknod device c 1 3",
    ] {
        at("echo own > own").ok();
        let ran = at(refused);
        assert_ne!(ran.code, 0, "{refused}");
        assert!(ran.err.contains("ermission denied") || ran.err.contains("not permitted"), "{refused}: {}", ran.err);
    }
    assert_eq!(at("cat public").ok(), "public\n");
    at("mkdir dir; cp own dir/copy; dd if=/dev/urandom of=dir/large bs=1M count=9 status=none; sync dir/large").ok();
    let uid = sh(&format!("id -u {USER}")).ok();
    assert_eq!(world.fs.sh("stat -c %u own dir dir/copy dir/large | sort -u").ok(), uid);
    world.fs.sh("cmp own dir/copy").ok();
    assert_eq!(world.fs.sh("md5sum < dir/large").ok(), at("md5sum < dir/large").ok());
    at("exec 3<>removed; rm removed; echo text >&3; dd if=own iflag=direct status=none | cmp - own").ok();
    assert_eq!(world.fs.sh("cat private public").ok(), "secret\npublic\n");
}

#[test]
fn objects_need_a_capability_over_a_raw_connection() {
    let Some(world) = World::with_key(&format!("--user {USER}")) else { return };
    let ((private, object, index), (public, other, there)) = (world.object("private"), world.object("public"));
    run_program(&world, async |program| {
        let (ost, mdt) = (program.ost(index), program.mdt());
        for request in
            [read(object), lock(object, Mode::Pw), ost::Request::Versions { objects: vec![object], flush: true }]
        {
            assert_eq!(ask(&ost, request, b"").await.unwrap_err(), Errno::NO_CAPABILITY);
        }
        assert_eq!(ask(&ost, write(private, object), b"bad").await.unwrap_err(), Errno::NO_CAPABILITY);
        let cut = ost::Request::Truncate { file: private, objects: vec![(object, 0)] };
        assert_eq!(ask(&ost, cut, b"").await.unwrap_err(), Errno::NO_CAPABILITY);
        assert_eq!(capabilities(&mdt, private).await, []);
        // As the stock client, which may read the other file.
        let ost = program.ost(there);
        let capabilities = capabilities(&mdt, public).await;
        assert_eq!(capabilities.iter().map(|c| (c.object, c.rights)).collect::<Vec<_>>(), [(other, rights::READ)]);
        ask(&ost, ost::Request::Present { capabilities }, b"").await.unwrap();
        assert!(matches!(ask(&ost, read(other), b"").await, Ok(ost::Reply::Read(lens)) if lens == [3]));
        assert_eq!(ask(&ost, write(public, other), b"bad").await.unwrap_err(), Errno::NO_CAPABILITY);
        assert_eq!(ask(&ost, lock(other, Mode::Pw), b"").await.unwrap_err(), Errno::NO_CAPABILITY);
        // A connection of its own has presented nothing.
        assert_eq!(ask(&program.ost(there), read(other), b"").await.unwrap_err(), Errno::NO_CAPABILITY);
    });
    assert_eq!(world.fs.sh("cat private public").ok(), "secret\npublic\n");
}

#[test]
fn changed_and_foreign_capabilities_are_ignored() {
    let Some(world) = World::with_key(&format!("--user {USER}")) else { return };
    let ((_, object, index), (public, ..)) = (world.object("private"), world.object("public"));
    run_program(&world, async |program| {
        let (ost, mdt) = (program.ost(index), program.mdt());
        let [valid] = capabilities(&mdt, public).await[..] else { unreachable!("one key, one object") };
        let mut proof = valid.proof;
        proof.mac[7] ^= 1;
        let changed = [
            Capability { object, ..valid },
            Capability { object, rights: rights::READ | rights::WRITE, ..valid },
            Capability { object, expires: valid.expires + 1_000_000, ..valid },
            Capability { object, proof, ..valid },
        ];
        let presented = ost::Request::Present { capabilities: changed.to_vec() };
        ask(&ost, presented, b"").await.unwrap();
        assert_eq!(ask(&ost, read(object), b"").await.unwrap_err(), Errno::NO_CAPABILITY);
        let more = Capability { rights: rights::READ | rights::WRITE, ..valid };
        let late = Capability { expires: valid.expires + 1_000_000, ..valid };
        let ost = program.ost(world.object("public").2);
        ask(&ost, ost::Request::Present { capabilities: vec![more, late] }, b"").await.unwrap();
        assert_eq!(ask(&ost, write(public, valid.object), b"bad").await.unwrap_err(), Errno::NO_CAPABILITY);
        assert_eq!(ask(&ost, read(valid.object), b"").await.unwrap_err(), Errno::NO_CAPABILITY);
    });
}

#[test]
fn forged_credentials_are_those_of_the_keys_user() {
    let Some(world) = World::with_key(&format!("--user {USER}")) else { return };
    let (private, closed, listed) = (world.fid("private"), world.fid("closed"), world.fid("listed"));
    run_program(&world, async |program| {
        let mdt = program.mdt();
        let open = |fid, flags| Request::Open { cred: Cred::ROOT, fid, flags };
        let name = Bytes::from_static(b"new");
        // As if the program's first execution of it had survived a crash.
        let again = |flags| Request::OpenCreate {
            cred: Cred::ROOT,
            parent: ROOT,
            name: Bytes::from_static(b"private"),
            fid: private,
            flags,
            mode: 0o600,
            umask: 0,
        };
        for flags in [flags::RDWR, flags::RDWR | flags::EXCL] {
            assert_eq!(ask_mdt(&mdt, again(flags)).await.unwrap_err(), Errno::UNKNOWN_SEQUENCE, "a FID of others");
        }
        let hidden = world.fid("closed/open");
        for request in [
            open(hidden, flags::RDONLY),
            Request::GetAttr { fid: hidden, layout_known: false },
            Request::Link { cred: Cred::ROOT, fid: hidden, parent: ROOT, name: name.clone() },
            open(private, flags::RDONLY),
            open(private, flags::RDWR),
            Request::Lookup { cred: Cred::ROOT, parent: closed, name: name.clone() },
            Request::ReadDir { fid: closed, cookie: 0, max_bytes: 4096, attrs: true },
            Request::LayoutIntent { fid: private, start: 0, end: 1, opener: Opener::UNKNOWN },
            Request::Access { cred: Cred::ROOT, fid: private, mask: 4 },
        ] {
            assert_eq!(ask_mdt(&mdt, request.clone()).await.unwrap_err(), Errno::EACCES, "{request:?}");
        }
        match ask_mdt(&mdt, Request::ReadDir { fid: listed, cookie: 0, max_bytes: 4096, attrs: true }).await {
            Ok(Reply::Entries { entries, .. }) => {
                assert!(entries.iter().any(|entry| &entry.name[..] == b"f"));
                assert!(entries.iter().all(|entry| entry.entry.is_none()), "it may be listed, and not searched");
            }
            other => unreachable!("{other:?}"),
        }
        assert_eq!(ask_mdt(&mdt, Request::Paths { cred: Cred::ROOT, fid: private }).await.unwrap_err(), Errno::EPERM);
        // The program says that it has the file open, and has no more rights by that.
        let files = vec![Reopened::new(private, flags::RDWR, 7)];
        match ask_mdt(&mdt, Request::Reopen { files, first: true, last: true }).await {
            Ok(Reply::Handles(handles)) => assert_eq!(handles, [Err(Errno::ESTALE)]),
            other => unreachable!("{other:?}"),
        }
        let files = vec![Reopened::new(private, flags::RDWR, 7); REOPENS_MAX + 1];
        assert_eq!(ask_mdt(&mdt, Request::Reopen { files, first: true, last: true }).await.unwrap_err(), Errno::E2BIG);
        assert_eq!(capabilities(&mdt, private).await, []);
        assert_eq!(capabilities(&mdt, hidden).await, []);
        let forged = (private.seq, Proof { key: KeyId(1), mac: [0; 16] });
        match ask_mdt(&mdt, Request::OwnSequences { sequences: vec![forged] }).await {
            Ok(Reply::Sequences(accepted)) => assert!(accepted.is_empty(), "no sequences of others"),
            other => unreachable!("{other:?}"),
        }
        let Ok(Reply::OwnSeq(seq, _)) = ask_mdt(&mdt, Request::AllocSeq).await else { unreachable!("a sequence") };
        let node = sheen_wire::mds::NewNode::Dir;
        let fid = Fid::new(seq, 1);
        let made = Request::Create { cred: Cred::ROOT, parent: ROOT, name, fid, node, mode: 0o755, umask: 0 };
        match ask_mdt(&mdt, made).await {
            Ok(Reply::Entry(entry)) => assert_eq!(entry.attr.uid.to_string(), sh(&format!("id -u {USER}")).ok().trim()),
            other => unreachable!("{other:?}"),
        }
    });
}

#[test]
fn forged_replays_are_refused() {
    let Some(world) = World::with_key(&format!("--user {USER}")) else { return };
    let fid = world.fid("private");
    // The program is on the MDT's list of clients, because it has changed something.
    run_program(&world, async |program| {
        let mdt = program.mdt();
        let Ok(Reply::OwnSeq(seq, _)) = ask_mdt(&mdt, Request::AllocSeq).await else { unreachable!("a sequence") };
        let (name, node) = (Bytes::from_static(b"new"), sheen_wire::mds::NewNode::Dir);
        let made = Request::Create {
            cred: Cred::ROOT,
            parent: ROOT,
            name,
            fid: Fid::new(seq, 1),
            node,
            mode: 0o755,
            umask: 0,
        };
        ask_mdt(&mdt, made).await.unwrap();
        let outcome = Arc::new(std::sync::Mutex::new(None));
        let seen = outcome.clone();
        mdt.on_restart(move |mdt| {
            let seen = seen.clone();
            Box::pin(async move {
                let set = sheen_wire::mds::SetAttr { perm: Some(0o777), ..Default::default() };
                let forged = Request::SetAttr { cred: Cred::ROOT, fid, set, handle: Some(7) };
                let call = frame::to_body(&Call::from(forged)).expect("a small request").into();
                let (time, named) = (Time::default(), Vec::new());
                let replays = vec![Replay { transno: u64::MAX / 2, call, time, layout: None, named, proof: None }];
                let answer = mdt.call(Request::Replay { replays, first: true, last: true }).await;
                *seen.lock().unwrap() = Some(answer.map(drop).map_err(|e| e.errno()));
                mdt.call(Request::Recovered).await.map(drop).map_err(|e| e.errno())
            })
        });
        world.fs.kill();
        world.fs.start(&["--listen", program.nid.to_string().trim_end_matches("@tcp")]).ok();
        ask_mdt(&mdt, Request::StatFs).await.unwrap();
        assert_eq!(outcome.lock().unwrap().take(), Some(Err(Errno::EPERM)));
    });
    assert_eq!(world.fs.sh("stat -c %a private").ok(), "600\n");
}

#[test]
fn changes_of_a_users_mount_survive_a_kill_of_the_servers() {
    let Some(world) = World::with_key(&format!("--user {USER}")) else { return };
    let mount = Mount { mnt: world.fs.base.join("theirs") };
    world.mount(&mount.mnt).ok();
    let nid = world.fs.source().split("@tcp").next().expect("an address").to_owned();
    let script =
        "mkdir d; for i in $(seq 50); do echo $i > d/$i; done; mv d/1 d/one; rm d/2; chmod 640 d/3; echo x >> d/4";
    sh(&format!("cd {}; {script}", mount.mnt.display())).ok();
    world.fs.kill();
    world.fs.start(&["--listen", &nid]).ok();
    let seen = |at: &Path| {
        sh(&format!("cd {}/d; ls | sort | tr '\\n' ' '; cat * | sort | md5sum; stat -c %a 3", at.display())).ok()
    };
    assert_eq!(seen(&mount.mnt), seen(&world.fs.mnt));
    assert!(seen(&world.fs.mnt).contains(" 9 one "), "{}", seen(&world.fs.mnt));
    assert!(seen(&world.fs.mnt).ends_with("640\n"));
    sh(&format!("sync -f {}", mount.mnt.display())).ok();
}

#[test]
fn keys_of_hosts_and_users_cannot_add_or_replace_servers() {
    for role in ["--host", &format!("--user {USER}")] {
        let Some(world) = World::with_key(role) else { return };
        let (public, object, index) = world.object("public");
        run_program(&world, async |program| {
            let mgs: Arc<Import<Mgs>> = program.import(MGS_TARGET);
            let (fsname, uuid, nids) = ("sheen".to_owned(), "mine".to_owned(), vec![program.nid.to_string()]);
            let kind = TargetKind::Ost;
            let register = mgs::Request::Register { fsname, kind, index: None, uuid, nids, incarnation: 1 };
            let refused = mgs.request(register).send().await.map(drop).map_err(|e| e.errno());
            assert_eq!(refused, Err(Errno::EPERM));
            let ost = program.ost(index);
            for request in [
                ost::Request::Destroy { objects: vec![object] },
                ost::Request::DestroyRange { seq: object.seq, first: 0, last: u32::MAX },
                ost::Request::Seal { objects: vec![(object, None)], group: None, order: 1 },
                ost::Request::Unseal { objects: vec![object], order: 1 },
                ost::Request::Link { objects: vec![(object, Fid::new(object.seq, object.oid + 1))], order: 1 },
                ost::Request::List { after: Fid::ZERO },
                ost::Request::Evict { client: "other".to_owned() },
                ost::Request::SetOwners { owners: Vec::new(), only_unowned: false },
                ost::Request::QuotaWait,
                ost::Request::QuotaAllow { ids: Vec::new(), all: true },
                ost::Request::QuotaUse { first: Owner::default().ids()[0] },
                ost::Request::Stored { objects: vec![object] },
            ] {
                assert_eq!(ask(&ost, request.clone(), b"").await.unwrap_err(), Errno::EPERM, "{request:?}");
            }
            let block = DamagedBlock { offset: 0, len: 1, sum: 0 };
            let repair = ost::Request::Repair { object, block, at: 0 };
            assert_eq!(ask(&ost, repair, b"x").await.unwrap_err(), Errno::EPERM);
            let recreate = ost::Request::Recreate { object, step: ost::Recreate::Begin { copy: 1, size: 1 } };
            assert_eq!(ask(&ost, recreate, b"").await.unwrap_err(), Errno::EPERM);
            assert_eq!(ask(&ost, read(object), b"").await.unwrap_err(), Errno::NO_CAPABILITY);
            // A host without limits gets all capabilities.
            let all = if role == "--host" { rights::READ | rights::WRITE } else { rights::READ };
            let capabilities = capabilities(&program.mdt(), public).await;
            assert_eq!(capabilities.iter().map(|c| (c.object, c.rights)).collect::<Vec<_>>(), [(object, all)]);
        });
        // The whole command, in a new directory.
        let dir = world.fs.base.join("oss");
        let mut command = Command::new(sheen());
        command.args(["oss", "--listen", "127.0.0.1:0", "--mgs"]);
        command.arg(world.fs.source().split(":/").next().expect("a NID")).arg("--dir").arg(&dir);
        let ran = run_command({
            command.env("SHEEN_KEY_DIR", &world.keys);
            command
        });
        assert_eq!(ran.code, 1, "{}", ran.err);
        assert!(ran.err.contains("is not for servers"), "{}", ran.err);
    }
}

#[test]
fn withdrawn_users_key_ends_its_mount() {
    let Some(world) = World::with_key(&format!("--user {USER}")) else { return };
    let at = world.fs.base.join("theirs");
    world.mount_with(&["-o", "soft=1"], &at).ok();
    fs::write(at.join("before"), "before").expect("a file");
    let (dir, id) = (world.fs.dir().display().to_string(), world.key().id);
    let listed = sh(&format!("{} key list --dir {dir}", sheen().display())).ok();
    assert!(listed.contains(&id.to_string()) && listed.contains("user "), "{listed}");
    let log = || fs::read_to_string(world.fs.dir().join("sheen.log")).unwrap_or_default();
    let revoke = |key: &str| sh(&format!("{} key revoke {key} --dir {dir}", sheen().display()));
    assert_eq!(revoke("0123456789abcdef").code, 1, "there is no such key");
    revoke(&id.to_string()).ok();
    eventually("the server withdraws the key", || log().contains(&format!("key {id} was withdrawn")));
    eventually("the mount fails", || sh(&format!("ls {}", at.display())).code != 0);
    detach(&at);
    let ran = world.mount(&at);
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(ran.err.contains("the server refused key"), "{}", ran.err);
    assert_eq!(world.fs.sh("cat before").ok(), "before");
}
