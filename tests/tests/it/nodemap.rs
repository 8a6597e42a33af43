//! Nodemaps: mounts of hosts and users that are squashed, mapped, confined to a directory, or may
//! only read.

use std::{fs, path::Path};

use sheen_keys::Key;
use sheen_tests::{address::own_address, sandbox::Sandbox, wait::eventually};
use sheen_wire::{
    Cred, Errno, Fid,
    fid::ROOT,
    ldlm::{Cookie, Enqueue, Mode, Policy, Resource},
    mds::{NewNode, Reply, Request, flags},
    mirror::{self, MirrorChange},
    ost::rights,
};

use crate::key_holder::{Program, ask, ask_mdt, capabilities, read, write};

/// The mount of root, with a key of the cluster itself.
const ALL: &str = "/mnt/all";
/// The mount with the issued key.
const THEIRS: &str = "/mnt/theirs";
/// Sets up a nodemap that squashes root, and has a fileset.
const LAB: &str = "lctl nodemap_add lab; lctl nodemap_modify --name lab --property trusted --value 1; lctl \
                   nodemap_set_fileset --name lab --fileset /tenant";

/// A file system with a directory of a tenant, and a host's or user's key in its nodemap.
struct World<'a>(&'a Sandbox);

impl World<'_> {
    /// Runs a test with a key that `sheen key issue` made with these options. `nodemap`: commands
    /// that set up nodemaps.
    fn enter(name: &'static str, role: &'static str, nodemap: &'static str, test: fn(&World<'_>)) {
        Sandbox::enter(name, move |sandbox| {
            let world = World(sandbox);
            world.sh("/", "mkdir -p /mnt/all /mnt/theirs /mnt/keys");
            sandbox.up("sheen", ALL);
            world.sh(
                ALL,
                "mkdir -m 1777 tenant; mkdir -m 755 other; echo secret > other/file; echo root > tenant/private; \
                 chmod 600 tenant/private; echo all > tenant/shared; chmod 666 tenant/shared; mkdir -m 755 tenant/dir; \
                 echo deep > tenant/dir/file; ln other/file tenant/link",
            );
            world.sh("/", nodemap);
            let dir = sandbox.dir();
            let key =
                format!("sheen key issue --dir {} {role} | SHEEN_KEY_DIR=/mnt/keys sheen key add -", dir.display());
            world.sh("/", &key);
            test(&world);
        });
    }

    /// Runs a script that must succeed, and returns its output.
    #[track_caller]
    fn sh(&self, at: &str, script: &str) -> String {
        self.0.sh(Path::new(at), &format!("set -e; {script}")).ok()
    }

    /// Runs a script that must fail with this message.
    #[track_caller]
    fn fails(&self, at: &str, script: &str, message: &str) {
        let ran = self.0.sh(Path::new(at), script);
        assert!(ran.code != 0 && ran.err.contains(message), "{script}: {} {}", ran.code, ran.err);
    }

    fn source(&self) -> String {
        let status = format!("sheen status --json --dir {}", self.0.dir().display());
        self.sh("/", &format!("{status} | sed -n 's/.*\"source\": *\"\\(.*\\)\".*/\\1/p'")).trim().to_owned()
    }

    fn mount_line(&self) -> String {
        format!("SHEEN_KEY_DIR=/mnt/keys sheen mount {} {THEIRS}", self.source())
    }

    fn mount(&self) {
        self.sh("/", &self.mount_line());
    }

    fn key(&self) -> Key {
        let file = fs::read_dir("/mnt/keys").expect("a directory").next().expect("a key").expect("readable");
        Key::parse(&fs::read_to_string(file.path()).expect("a file")).expect("a key")
    }

    fn program(&self, story: impl AsyncFnOnce(&Program)) {
        Program::run(self.key(), &self.source(), story);
    }

    fn fid(&self, name: &str) -> Fid {
        self.sh(ALL, &format!("lfs path2fid {name}")).trim().parse().expect("a FID")
    }

    /// Returns the first object of a file, and the index of its OST.
    fn object(&self, name: &str) -> (Fid, u32) {
        let line = self.sh(ALL, &format!("lfs getstripe {name} | grep -A1 obdidx | tail -1"));
        let words: Vec<&str> = line.split_whitespace().collect();
        let oid = words[1].parse().expect("an object id");
        let seq = u64::from_str_radix(words[3].trim_start_matches("0x"), 16).expect("a sequence");
        (Fid::new(seq, oid), words[0].parse().expect("an index"))
    }
}

#[test]
fn host_in_a_nodemap_is_squashed_and_confined_to_its_fileset() {
    World::enter("fileset", "--host --nodemap lab", LAB, |world| {
        world.mount();
        assert_eq!(world.sh(THEIRS, "ls; cat shared dir/file link"), "dir\nlink\nprivate\nshared\nall\ndeep\nsecret\n");
        // Root is squashed, although its kernel lets it do everything.
        for refused in ["cat private", "echo more >> private", "chmod 777 dir", "echo x > dir/new", "rm shared"] {
            let ran = world.0.sh(Path::new(THEIRS), refused);
            assert_ne!(ran.code, 0, "{refused}: {}", ran.out);
        }
        world.sh(THEIRS, "echo mine > mine; dd if=/dev/urandom of=large bs=1M count=9 status=none; sync large");
        assert_eq!(
            world.sh(ALL, "stat -c %u:%g tenant/mine tenant/large | sort -u; stat -c %u tenant/dir"),
            "65534:65534\n0\n"
        );
        assert_eq!(world.sh(ALL, "md5sum < tenant/large"), world.sh(THEIRS, "md5sum < large"));
        assert_eq!(world.sh(THEIRS, "stat -c %u dir"), "0\n", "trusted ids are shown as they are");
        // Another user of the host is itself.
        world.sh(THEIRS, "setpriv --reuid 1234 --regid 1234 --clear-groups bash -c 'mkdir theirs; lfs setstripe -c 2 theirs/two; echo text > theirs/two'");
        assert_eq!(
            world.sh(ALL, "stat -c %u:%g tenant/theirs/two; lfs getstripe -c tenant/theirs/two"),
            "1234:1234\n2\n\n"
        );
        // A directory within the fileset can be mounted.
        world.sh("/", &format!("mkdir /mnt/sub; SHEEN_KEY_DIR=/mnt/keys sheen mount {}/dir /mnt/sub", world.source()));
        assert_eq!(world.sh("/mnt/sub", "cat file"), "deep\n");
        world.fails(
            "/",
            &format!("SHEEN_KEY_DIR=/mnt/keys sheen mount {}/other /mnt/sub2", world.source()),
            "No such file",
        );
        world.sh("/", "sheen umount /mnt/sub; sheen umount /mnt/theirs");
    });
}

/// A request that gives a file's objects to another file, as root.
fn merge(fid: Fid, other: Fid) -> Request {
    let value = MirrorChange::Merge { other }.encode().expect("a small value").into();
    Request::SetXattr {
        cred: Cred::ROOT,
        fid,
        name: bytes::Bytes::from_static(mirror::XATTR.as_bytes()),
        value,
        flags: 0,
    }
}

#[test]
fn program_of_a_confined_host_reaches_nothing_outside_of_its_fileset() {
    World::enter("outside", "--host --nodemap lab", LAB, |world| {
        let (other, tenant, private, shared) =
            (world.fid("other"), world.fid("tenant"), world.fid("tenant/private"), world.fid("tenant/shared"));
        let (outside, (secret, at), (all, there)) =
            (world.fid("other/file"), world.object("tenant/private"), world.object("tenant/shared"));
        world.sh(ALL, "echo hidden > other/hidden");
        let hidden = world.fid("other/hidden");
        world.program(async |program| {
            let (mdt, cred) = (program.mdt(), Cred { uid: 1234, gid: 1234, groups: Some(vec![]) });
            let name = |name: &'static str| bytes::Bytes::from_static(name.as_bytes());
            let root = ask_mdt(&mdt, Request::Root { path: String::new() }).await;
            assert!(matches!(root, Ok(Reply::Root { fid, read_only: false }) if fid == tenant), "{root:?}");
            for request in [
                Request::GetAttr { fid: ROOT, layout_known: true },
                Request::GetAttr { fid: hidden, layout_known: true },
                Request::Lookup { cred: cred.clone(), parent: other, name: name("hidden") },
                Request::Lookup { cred: cred.clone(), parent: tenant, name: name("..") },
                Request::Open { cred: cred.clone(), fid: hidden, flags: flags::RDONLY },
                Request::Link { cred: cred.clone(), fid: hidden, parent: tenant, name: name("stolen") },
                Request::ReadDir { fid: other, cookie: 0, max_bytes: 4096, attrs: true },
                Request::Rename {
                    cred: cred.clone(),
                    parent: tenant,
                    name: name("shared"),
                    new_parent: other,
                    new_name: name("shared"),
                    flags: 0,
                    whiteout: None,
                },
                Request::Enqueue(Enqueue::new(Resource::flock(hidden), Mode::Pr, Policy::extent(0, 1), Cookie(1))),
                // As root, which is squashed, although a mount gives objects to mirrors so.
                merge(shared, private),
                merge(shared, hidden),
                // As root, which is squashed.
                Request::Open { cred: Cred::ROOT, fid: private, flags: flags::RDONLY },
                Request::Access { cred: Cred::ROOT, fid: private, mask: 4 },
            ] {
                let answer = ask_mdt(&mdt, request.clone()).await;
                assert!(matches!(answer, Err(Errno::EACCES | Errno::EPERM)), "{request:?}: {answer:?}");
            }
            assert!(capabilities(&mdt, private).await.is_empty() && capabilities(&mdt, hidden).await.is_empty());
            assert_eq!(ask(&program.ost(at), read(secret), b"").await.err(), Some(Errno::NO_CAPABILITY));
            assert_eq!(ask(&program.ost(there), write(shared, all), b"bad").await.err(), Some(Errno::NO_CAPABILITY));
            let own: Vec<u8> = capabilities(&mdt, shared).await.iter().map(|capability| capability.rights).collect();
            assert_eq!(own, [rights::READ | rights::WRITE]);
            assert_eq!(capabilities(&mdt, outside).await.len(), 1, "it has a name in the fileset");
        });
    });
}

#[test]
fn mount_in_a_read_only_nodemap_changes_nothing() {
    let nodemap = "lctl nodemap_add lab; for p in trusted admin readonly_mount; do lctl nodemap_modify --name lab \
                   --property $p --value 1; done";
    World::enter("read-only", "--user nobody --nodemap lab", nodemap, |world| {
        world.mount();
        world.fails(THEIRS, "echo x > tenant/new", "Read-only file system");
        assert_eq!(
            world.sh(THEIRS, "cat tenant/shared; grep -c ' /mnt/theirs fuse.sheen ro,' /proc/mounts"),
            "all\n1\n"
        );
        let (tenant, shared, (object, ost)) =
            (world.fid("tenant"), world.fid("tenant/shared"), world.object("tenant/shared"));
        world.program(async |program| {
            let (mdt, cred) = (program.mdt(), Cred::ROOT);
            let create = |fid| Request::Create {
                cred: cred.clone(),
                parent: tenant,
                name: bytes::Bytes::from_static(b"new"),
                fid,
                node: NewNode::Dir,
                mode: 0o755,
                umask: 0,
            };
            for request in [
                create(Fid::new(0x2_0000_0999, 1)),
                Request::Open { cred: cred.clone(), fid: shared, flags: flags::RDWR },
            ] {
                assert_eq!(ask_mdt(&mdt, request).await.err(), Some(Errno::EROFS));
            }
            let capabilities = capabilities(&mdt, shared).await;
            assert_eq!(capabilities.iter().map(|c| c.rights).collect::<Vec<_>>(), [rights::READ]);
            let ost = program.ost(ost);
            ask(&ost, sheen_wire::ost::Request::Present { capabilities }, b"").await.expect("they are valid");
            assert_eq!(ask(&ost, write(shared, object), b"bad").await.err(), Some(Errno::NO_CAPABILITY));
            ask(&ost, read(object), b"").await.expect("it may read");
        });
        world.sh("/", "sheen umount /mnt/theirs");
    });
}

#[test]
fn ids_of_a_host_are_mapped_in_both_directions() {
    let nodemap = "lctl nodemap_add lab; lctl nodemap_add_idmap --name lab --idtype uid --idmap 1000:5000; lctl \
                   nodemap_add_idmap --name lab --idtype gid --idmap 100:500; lctl nodemap_modify --name lab --property \
                   squash_uid --value 99; lctl nodemap_modify --name lab --property squash_gid --value 98";
    World::enter("idmap", "--host --nodemap lab", nodemap, |world| {
        world.mount();
        world.sh(
            THEIRS,
            "setpriv --reuid 1000 --regid 100 --clear-groups bash -c 'cd tenant; mkdir d; echo own > d/own; chmod 700 d; \
             setfacl -m u:1000:r,g:100:rw d/own'; setpriv --reuid 1001 --regid 101 --clear-groups bash -c ': > tenant/unknown'",
        );
        assert_eq!(world.sh(ALL, "stat -c %u:%g tenant/d/own tenant/unknown"), "5000:500\n99:98\n");
        assert_eq!(
            world.sh(THEIRS, "ls tenant > /dev/null; stat -c %u:%g tenant/unknown tenant/shared"),
            "99:98\n99:98\n"
        );
        let own = "setpriv --reuid 1000 --regid 100 --clear-groups bash -c 'stat -c %u:%g tenant/d/own; getfacl -nc tenant/d/own'";
        assert_eq!(
            world.sh(THEIRS, own),
            "1000:100\nuser::rw-\nuser:1000:r--\ngroup::r--\ngroup:100:rw-\nmask::rw-\nother::r--\n\n"
        );
        assert!(world.sh(ALL, "getfacl -nc tenant/d/own").contains("user:5000:r--"));
        assert!(world.sh(ALL, "getfacl -nc tenant/d/own").contains("group:500:rw-"));
        world.sh("/", "lctl nodemap_modify --name lab --property deny_unknown --value 1");
        world.fails(THEIRS, "setpriv --reuid 1001 --regid 101 --clear-groups touch tenant/denied", "Permission denied");
        world.sh(THEIRS, "setpriv --reuid 1000 --regid 100 --clear-groups touch tenant/allowed");
        world.sh("/", "sheen umount /mnt/theirs");
    });
}

#[test]
fn hosts_without_a_nodemap_in_their_key_have_that_of_their_address_or_the_default() {
    World::enter("ranges", "--host", "lctl nodemap_add lab", |world| {
        world.mount();
        world.sh(THEIRS, "echo x > other/free; rm other/free");
        // The default squashes all users.
        world.sh("/", "lctl nodemap_activate 1");
        world.fails(THEIRS, "echo x > other/new", "Permission denied");
        world.sh(THEIRS, "echo x > tenant/squashed");
        assert_eq!(
            world.sh(ALL, "stat -c %u tenant/squashed; echo x > other/ours"),
            "65534\n",
            "administrators are free"
        );
        world.sh("/", "for p in trusted admin; do lctl nodemap_modify --name lab --property $p --value 1; done; lctl nodemap_add_range --name lab --range 127.0.0.[0-255]@tcp");
        world.sh(THEIRS, "echo x > other/new");
        assert_eq!(world.sh("/", "lctl nodemap_test_nid 127.0.0.7@tcp"), "lab\n");
        // After a restart, too.
        world.sh("/", "lctl nodemap_del_range --name lab --range 127.0.0.[0-255]@tcp");
        world.sh("/", &format!("sheen down --dir {}", world.0.dir().display()));
        world.0.up("sheen", ALL);
        let tried = "for i in $(seq 100); do echo x > tenant/again 2> /dev/null && break; sleep 0.1; done";
        world.sh("/", &format!("sheen umount /mnt/theirs; {}; cd {THEIRS}; {tried}", world.mount_line()));
        assert_eq!(world.sh(ALL, "stat -c %u tenant/again"), "65534\n");
        world.sh("/", "sheen umount /mnt/theirs");
    });
}

#[test]
fn changes_of_a_confined_host_survive_a_kill_of_the_servers() {
    World::enter("killed", "--host --nodemap lab", LAB, |world| {
        let dir = world.0.dir().display().to_string();
        let up = |listen: &str| {
            let options = format!("--osts 4 --fsname sheen --default-layout plain --listen {listen}");
            format!("sheen up --dir {dir} --mount {ALL} {options}")
        };
        // At an address of its own, so that its port is still free after the kill.
        world.sh("/", &format!("sheen down --dir {dir}; {}", up(&format!("{}:0", own_address()))));
        let listen = world.source().split("@tcp").next().expect("an address").to_owned();
        world.mount();
        // The layout is set by the mount itself, as root, which is squashed.
        world.sh(
            THEIRS,
            "setpriv --reuid 1234 --regid 1234 --clear-groups bash -c 'mkdir d; for i in $(seq 20); do echo $i > d/$i; \
             done; lfs setstripe -c 2 d/two; echo x > d/two; chmod 640 d/3; mv d/1 d/one; rm d/2'",
        );
        let pid = format!("sed -n 's/.*\"pid\": *\\([0-9]*\\).*/\\1/p' {dir}/run.json");
        let killed = format!("kill -9 $({pid}); flock {dir}/run.json true; umount -l {ALL}");
        world.sh("/", &format!("{killed}; {}", up(&listen)));
        let seen = "ls d | tr '\n' ' '; cat d/* | sort | md5sum; stat -c %a:%u d/3; lfs getstripe -c d/two";
        let user = "setpriv --reuid 1234 --regid 1234 --clear-groups";
        let theirs = world.sh(THEIRS, &format!("{user} bash -c \"{seen}\""));
        assert_eq!(theirs, world.sh(&format!("{ALL}/tenant"), seen));
        assert!(theirs.contains(" one two ") && theirs.ends_with("640:1234\n2\n\n"), "{theirs}");
        world.sh(THEIRS, "sync -f .");
        world.sh("/", "sheen umount /mnt/theirs");
    });
}

#[test]
fn key_of_an_unknown_nodemap_is_refused_with_a_clear_error() {
    World::enter("unknown", "--host --nodemap lab", "true", |world| {
        world.fails("/", &world.mount_line(), "nodemap");
        world.sh("/", "lctl nodemap_add lab; lctl nodemap_set_fileset --name lab --fileset /missing");
        world.fails("/", &world.mount_line(), "nodemap");
        world.sh("/", "lctl nodemap_set_fileset --name lab --fileset /tenant");
        world.mount();
        world.sh("/", "sheen umount /mnt/theirs");
    });
}

#[test]
fn denied_requests_are_in_the_audit_trail_unless_the_nodemap_has_audit_mode_0() {
    World::enter("audit", "--host --nodemap lab", LAB, |world| {
        let dir = world.0.dir();
        let trail = dir.with_file_name("audit");
        world.sh("/", &format!("sheen down --dir {}", dir.display()));
        world.0.up_with("sheen", ALL, &format!("--audit {}", trail.display()));
        let set = |value: u8| {
            world.sh("/", &format!("lctl nodemap_modify --name lab --property audit_mode --value {value}"));
        };
        // Only the MDT denies it: the kernel lets root do everything.
        let denied = |name: &str| {
            world.sh(ALL, &format!("echo root > tenant/{name}; chmod 600 tenant/{name}"));
            world.fails(THEIRS, &format!("cat {name}"), "Permission denied");
            format!("\"fid\":\"{}\"", world.sh(ALL, &format!("lfs path2fid tenant/{name}")).trim())
        };
        world.mount();
        let before = denied("before");
        set(0);
        let unrecorded = denied("unrecorded");
        set(1);
        let after = denied("after");
        let recorded = |fid: &str| {
            let text = fs::read_to_string(&trail).expect("a trail");
            text.lines().any(|line| line.contains("\"event\":\"denied\"") && line.contains(fid))
        };
        // Events have the order of the requests.
        eventually("the last denied request is in the trail", || recorded(&after));
        assert!(recorded(&before) && !recorded(&unrecorded), "{:?}", fs::read_to_string(&trail));
        world.sh("/", "sheen umount /mnt/theirs");
    });
}
