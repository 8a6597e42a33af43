//! Strangers on the same machine: processes that do not know the key of a file system.

use std::{ffi::OsStr, fs, path::Path, process::Command};

use sheen_tests::{
    Fs, Mount, Ran, is_mounted, is_root,
    mounts::{as_nobody, get_param},
    new_dir, noise, run, run_command, run_within,
    sandbox::Sandbox,
    sh, sheen,
    wait::{EVENTUALLY, eventually},
};

/// A directory of another user, with the program, an empty directory of keys, and a mount point.
struct Stranger {
    dir: String,
}

impl Stranger {
    fn new() -> Stranger {
        let dir = new_dir(&std::env::temp_dir()).display().to_string();
        sheen_tests::copy_program(&sheen(), Path::new(&format!("{dir}/sheen")));
        sh(&format!("mkdir {dir}/mnt {dir}/keys {dir}/run; chown -R nobody {dir}; chmod 755 {dir}")).ok();
        Stranger { dir }
    }

    /// Runs `sheen` with these arguments as the other user, who becomes root of a namespace.
    fn sheen(&self, words: &str) -> Ran {
        let Stranger { dir } = self;
        let script = format!(
            "export SHEEN_KEY_DIR={dir}/keys SHEEN_RUNTIME_DIR={dir}/run HOME={dir}; \
             unshare -Urm true 2>/dev/null && in='unshare -Urm'; exec $in {dir}/sheen {words}"
        );
        run_within(as_nobody(&script), EVENTUALLY)
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn log(fs: &Fs) -> String {
    fs::read_to_string(fs.dir().join("sheen.log")).unwrap_or_default()
}

/// Returns the arguments of a mount that would run as long as the test.
fn mount_in_foreground(options: &str, source: &str, at: &str) -> String {
    format!("mount --foreground {options} {source} {at}/mnt")
}

#[test]
fn stranger_without_key_cannot_mount_or_ping() {
    if !is_root() {
        return println!("skipped: needs root to become another user");
    }
    let Some(fs) = Fs::up_or_skip(2) else { return };
    let stranger = Stranger::new();
    fs.sh("echo secret > f; chmod 600 f").ok();
    let source = fs.source();
    let ran = stranger.sheen(&mount_in_foreground("", &source, &stranger.dir));
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(ran.err.contains("this user has no key of the file system"), "{}", ran.err);
    eventually("the server reports the stranger", || log(&fs).contains("refusing a connection"));
    let ran = stranger.sheen(&mount_in_foreground("-o auth=none", &source, &stranger.dir));
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(ran.err.contains("the server demands a key"), "{}", ran.err);
    let nid = source.split(":/").next().expect("a NID");
    let ran = stranger.sheen(&format!("lctl ping {nid}"));
    assert_ne!(ran.code, 0);
    assert!(ran.err.contains("no key"), "{}", ran.err);
    assert!(!is_mounted(Path::new(&format!("{}/mnt", stranger.dir))));
}

#[test]
fn stranger_with_another_key_is_refused() {
    if !is_root() {
        return println!("skipped: needs root to become another user");
    }
    let Some(fs) = Fs::up_or_skip(2) else { return };
    let stranger = Stranger::new();
    // The stranger knows the names of cluster and key, which are no secrets, but not the secret.
    let keys = fs.dir().join("mgs/keys");
    let file = fs::read_dir(&keys).expect("it exists").next().expect("a key").expect("readable");
    let text = fs::read_to_string(file.path()).expect("a key file");
    let (heading, _) = text.split_once("secret = ").expect("it has a secret");
    let forged = format!("{heading}secret = \"{}\"\n", "00".repeat(32));
    let path = format!("{}/keys/{}", stranger.dir, file.file_name().display());
    fs::write(&path, forged).expect("a copy");
    sh(&format!("chmod 600 {path}; chown nobody {path}")).ok();
    let ran = stranger.sheen(&mount_in_foreground("", &fs.source(), &stranger.dir));
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(ran.err.contains("the server refused key"), "{}", ran.err);
    eventually("the server reports the stranger", || log(&fs).contains("does not know the secret of key"));
    // With the true key, which the owner may pass on, the server answers.
    fs::write(&path, text).expect("a copy");
    assert!(stranger.sheen("key list").ok().contains(&path));
    let source = fs.source();
    stranger.sheen(&format!("lctl ping {}", source.split(":/").next().expect("a NID"))).ok();
}

#[test]
fn oss_without_key_cannot_join() {
    let Some(fs) = Fs::up_or_skip(2) else { return };
    let base = &fs.base;
    let (keys, dir) = (base.join("no-keys"), base.join("oss"));
    let source = fs.source();
    let mut command = Command::new(sheen());
    command.args(["oss", "--listen", "127.0.0.1:0", "--mgs", source.split(":/").next().expect("a NID"), "--dir"]);
    command.arg(&dir).env("SHEEN_KEY_DIR", &keys);
    let ran = run_command(command);
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(ran.err.contains("cannot join the file system"), "{}", ran.err);
    assert_eq!(fs.lfs("osts .").ok().lines().count(), 3, "a heading and two OSTs");
}

#[test]
fn server_without_authentication_needs_consent_on_both_sides() {
    let Some(fs) = Fs::up_with_or_skip(2, &["--auth", "none"]) else { return };
    assert!(log(&fs).contains("without authentication: everybody"), "{}", log(&fs));
    let (source, at) = (fs.source(), fs.base.join("mnt2"));
    let mount = |options: &[&str]| {
        let mut command = Command::new(sheen());
        command.arg("mount").args(options).arg(&source).arg(&at);
        run_command(command)
    };
    let ran = mount(&[]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("the server has no key"), "{}", ran.err);
    mount(&["-o", "auth=none"]).ok();
    fs.sh("echo open > f").ok();
    assert_eq!(fs::read_to_string(at.join("f")).expect("it is mounted"), "open\n");
    let mut command = Command::new(sheen());
    command.arg("umount").arg(&at);
    run_command(command).ok();
    let mut command = Command::new(sheen());
    command.args(["mgs", "--auth", "none", "--listen", "0.0.0.0:0", "--dir"]).arg(fs.base.join("mgs"));
    let ran = run_command(command);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("--trust-network"), "{}", ran.err);
}

#[test]
fn key_made_by_a_later_start_serves_the_existing_data() {
    let Some(fs) = Fs::up_or_skip(2) else { return };
    fs.sh("echo old > f").ok();
    fs.stop().ok();
    // As a file system made before keys existed.
    fs::remove_dir_all(fs.dir().join("mgs/keys")).expect("keys");
    fs.start(&[]).ok();
    assert_eq!(fs.sh("cat f").ok(), "old\n");
    assert!(log(&fs).contains("made the key of this file system"), "{}", log(&fs));
    let second = fs.second_mount();
    assert_eq!(fs::read_to_string(second.mnt.join("f")).expect("mounted"), "old\n");
}

#[test]
fn key_add_copies_a_key_and_refuses_other_files() {
    let Some(fs) = Fs::up_or_skip(2) else { return };
    let keys = fs.base.join("copies");
    let file = fs::read_dir(fs.dir().join("mgs/keys")).expect("it exists").next().expect("a key").expect("readable");
    let add = |from: &str| sh(&format!("SHEEN_KEY_DIR={} {} key add {from}", keys.display(), sheen().display()));
    let copy = keys.join(file.file_name());
    let original = file.path();
    assert_eq!(add(&original.display().to_string()).ok(), format!("{}\n", copy.display()));
    assert_eq!(fs::read(&copy).expect("a copy"), fs::read(&original).expect("a key"));
    fs::remove_file(&copy).expect("a copy");
    add(&format!("- < {}", original.display())).ok();
    assert_eq!(sh(&format!("stat -c %a {}", copy.display())).ok(), "600\n");
    let ran = add("- < /etc/hostname");
    assert!(ran.code == 1 && ran.err.contains("is not a key file"), "{}", ran.err);
    // The same for the directory of a server, which takes keys of its own cluster only.
    let add = |from: &str| key(&format!("add --dir {} {from}", fs.dir().display()));
    assert_eq!(add(&copy.display().to_string()).ok(), format!("{}\n", original.display()));
    let foreign = fs::read_to_string(&copy).expect("a key").replace("cluster = \"", "cluster = \"0123456789abcdef\" #");
    fs::write(fs.base.join("foreign"), foreign).expect("a file");
    let ran = add(&fs.base.join("foreign").display().to_string());
    assert!(ran.code == 1 && ran.err.contains("is not that of this server"), "{}", ran.err);
    sh(&format!("chmod 644 {}", copy.display())).ok();
    let ran = sh(&format!("SHEEN_KEY_DIR={} {} key list", keys.display(), sheen().display()));
    assert!(ran.err.contains("chmod 600") && !ran.out.contains(".key"), "{}{}", ran.out, ran.err);
}

#[test]
fn mount_that_demands_privacy_gets_it() {
    let Some(fs) = Fs::up_or_skip(2) else { return };
    let content = noise(7, (3 << 20) + 5);
    fs::write(fs.path("written-here"), &content).expect("a file");
    let mount = Mount::with(&fs.source(), fs.base.join("private"), &["-o", "flavor=privacy"]);
    assert!(fs::read(mount.path("written-here")).expect("readable") == content);
    fs::write(mount.path("written-there"), &content).expect("a file");
    assert!(fs::read(fs.path("written-there")).expect("readable") == content);
    // The mount with the servers uses `lo`.
    for (at, flavor) in [(&mount.mnt, "privacy"), (&fs.mnt, "null")] {
        let name = run(sheen(), [OsStr::new("lfs"), OsStr::new("getname"), at.as_os_str()]).ok();
        let id = name.trim().rsplit('-').next().expect("a name ends with an id");
        eventually(format!("MDT and OSTs are connected with {flavor}"), || {
            let flavors = get_param(&format!("[mo][ds]c.*-{id}.srpc_info"));
            assert_eq!(flavors.matches("flavor:  ").count(), 6, "{flavors}");
            flavors.matches(&format!("rpc flavor:      {flavor}\n")).count() == 3
        });
    }
}

#[test]
fn flavor_of_a_file_system_reaches_its_mounts_and_their_present_connections() {
    Sandbox::enter("flavor", |s| {
        s.up("scratch", "/mnt/here");
        s.mount_again("/mnt/there");
        let there = |script: &str| s.sh(Path::new("/mnt/there"), script);
        let flavors = "id=$(lfs getname -i /mnt/there)
                       lctl get_param -n [mo][ds]c.*-$id.srpc_info | grep '^rpc' | sort | uniq -c | xargs";
        // One to the MDT, and one to each OST. The mount of the servers' process uses `lo`.
        eventually("the mount is connected", || there(flavors).ok() == "5 rpc flavor: null\n");
        there("seq 300000 > before; lctl conf_param scratch.srpc.flavor.default=privacy").ok();
        // Its connections were closed. Requests open new ones.
        let wide =
            "lfs setstripe -c 4 -S 64k wide; dd if=before of=wide bs=64k count=4 conv=fsync,notrunc 2>&1; rm wide";
        eventually("all its connections are private", || {
            there(wide).ok();
            there(flavors).ok() == "5 rpc flavor: privacy\n"
        });
        there("set -e; seq 300000 | cmp - before; seq 300000 > after").ok();
        assert!(there("lctl llog_print params").ok().contains("parameter: srpc.scratch.flavor, value: privacy"));
        let refused = there("lctl conf_param scratch.srpc.flavor.tcp.cli2ost=null");
        assert!(refused.code == 22 && refused.err.contains("FSNAME.srpc.flavor.default"), "{}", refused.err);
        assert_eq!(there("lctl conf_param scratch.srpc.flavor.tcp=krb5p").code, 22);
        s.mount_again("/mnt/later");
        s.sh(Path::new("/mnt/later"), "seq 300000 | cmp - after").ok();
    });
}

#[test]
fn flavors_that_cannot_be_given_are_refused() {
    let mount = |options: &str| {
        let mut command = Command::new(sheen());
        command.args(["mount", "-o", options, "127.0.0.1:9@tcp:/none", "/nowhere"]);
        let ran = run_command(command);
        assert_eq!(ran.code, 1);
        ran.err
    };
    assert!(mount("flavor=ski").contains("mount option 'flavor': expected null, integrity or privacy"));
    assert!(mount("auth=none,flavor=privacy").contains("flavor privacy needs a key, and auth is none"));
}

/// Runs `sheen key` with these words. Returns its output.
fn key(words: &str) -> Ran {
    sh(&format!("{} key {words}", sheen().display()))
}

/// Returns the ids of the keys that a file system accepts, the oldest first.
fn key_ids(fs: &Fs) -> Vec<String> {
    let listed = key(&format!("list --json --dir {}", fs.dir().display())).ok();
    let keys: serde_json::Value = serde_json::from_str(&listed).expect("JSON");
    let id = |key: &serde_json::Value| key["key"].as_str().expect("an id").to_owned();
    keys.as_array().expect("a list").iter().map(id).collect()
}

#[test]
fn key_withdrawn_during_a_transfer_ends_its_connections_and_a_newer_one_goes_on() {
    let Some(fs) = Fs::up_or_skip(2) else { return };
    let (source, dir, holders) = (fs.source(), fs.dir(), fs.base.join("holders"));
    let [old] = &key_ids(&fs)[..] else { unreachable!("a new file system has one key") };
    // One mount has only a copy of the old key. The other one finds the new key as well.
    let holder = Mount { mnt: fs.base.join("holder") };
    sh(&format!("mkdir {} {}; cp -p {}/mgs/keys/* {0}", holders.display(), holder.mnt.display(), dir.display())).ok();
    let mount = || {
        let mut command = Command::new(sheen());
        command.args(["mount", "-o", "soft=1", &source]).arg(&holder.mnt).env("SHEEN_KEY_DIR", &holders);
        run_command(command)
    };
    mount().ok();
    let member = fs.second_mount();
    fs::write(member.path("before"), "before").expect("a file");
    let ran = key(&format!("revoke {old} --dir {}", dir.display()));
    assert!(ran.code == 1 && ran.err.contains("is the only key"), "{}", ran.err);
    key(&format!("new --dir {}", dir.display())).ok();
    let [_, new] = &key_ids(&fs)[..] else { unreachable!("it has two keys") };
    eventually("the server accepts the new key", || log(&fs).contains(&format!("accepting key {new}")));
    // The transfer is endless: it ends by an error only.
    let transfer = "while dd if=/dev/zero of=f bs=1M count=8 oflag=direct; do :; done";
    let mut command = Command::new("bash");
    command.args(["-c", transfer]).current_dir(&holder.mnt).stderr(std::process::Stdio::null());
    let mut transfer = command.spawn().expect("a transfer");
    eventually("the transfer has begun", || fs.path("f").metadata().is_ok_and(|f| f.len() == 8 << 20));
    key(&format!("revoke {old} --dir {}", dir.display())).ok();
    eventually("the transfer ends", || transfer.try_wait().expect("a child").is_some());
    let log = log(&fs);
    assert!(log.contains(&format!("key {old} was withdrawn")), "{log}");
    assert_eq!(&key_ids(&fs)[..], std::slice::from_ref(new));
    // The other mount and the servers go on with the new key.
    fs::write(member.path("after"), "after").expect("a file");
    assert_eq!(fs::read_to_string(fs.path("after")).expect("readable"), "after");
    sheen_tests::detach(&holder.mnt);
    let ran = mount();
    assert!(ran.code == 1 && ran.err.contains("this user has no key of the file system there"), "{}", ran.err);
}
