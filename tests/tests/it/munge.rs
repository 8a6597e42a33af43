//! Mounts of users without a key, who prove by a real MUNGE daemon who they are.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use sheen_tests::{
    Fs, Ran, can_mount, copy_program, detach, is_root,
    mounts::as_nobody,
    new_dir, run, run_command, run_within, sh, sheen,
    wait::{EVENTUALLY, eventually},
};

/// A host with a MUNGE daemon and a file system of root, and a user without a key.
struct World {
    fs: Fs,
    /// The user's directory.
    dir: PathBuf,
    daemon: Child,
}

impl World {
    /// `munge`: the option of the servers.
    fn new(munge: &str) -> Option<World> {
        let missing = ["munged", "munge", "unmunge", "fusermount3"].into_iter().find(|p| run("which", [p]).code != 0);
        if !can_mount() || !is_root() || missing.is_some() {
            println!("skipped: needs /dev/fuse, root, fusermount3 and MUNGE (missing: {missing:?})");
            return None;
        }
        // Distributions let all users open /dev/fuse; a bare container may not.
        sh("chmod 666 /dev/fuse").ok();
        let dir = new_dir(&std::env::temp_dir());
        let at = dir.display();
        copy_program(&sheen(), &dir.join("sheen"));
        sh(&format!(
            "mkdir {at}/munge {at}/home; chown nobody {at}/home; umask 077; head -c 128 /dev/urandom > {at}/munge/key"
        ))
        .ok();
        let daemon = World::munged(&dir);
        let base = new_dir(Path::new("/dev/shm"));
        let fs = Fs { mnt: base.join("mnt"), base };
        let world = World { fs, dir, daemon };
        world.up(munge).ok();
        Some(world)
    }

    fn munged(dir: &Path) -> Child {
        let file = |name: &str| format!("{}/munge/{name}", dir.display());
        let mut command = Command::new("munged");
        command.arg("--foreground").args(["--key-file", &file("key"), "--socket", &file("socket")]);
        command.args(["--pid-file", &file("pid"), "--log-file", &file("log"), "--seed-file", &file("seed")]);
        let daemon = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("munged starts");
        eventually("munged answers", || run("munge", ["--no-input", "--socket", &file("socket")]).code == 0);
        daemon
    }

    fn up(&self, options: &str) -> Ran {
        let (dir, mnt) = (self.fs.dir(), &self.fs.mnt);
        sh(&format!(
            "SHEEN_MUNGE_SOCKET={}/munge/socket {} up --dir {} --mount {} --osts 2 --default-layout plain \
             --listen 127.0.0.1:0 {options}",
            self.dir.display(),
            sheen().display(),
            dir.display(),
            mnt.display()
        ))
    }

    /// Runs a script as the user, in its home, with the program's words in `sheen`.
    fn user(&self, script: &str) -> Ran {
        let dir = self.dir.display();
        let script = format!(
            "export SHEEN_MUNGE_SOCKET={dir}/munge/socket SHEEN_KEY_DIR={dir}/home/keys HOME={dir}/home \
             SHEEN_RUNTIME_DIR={dir}/home/run; cd {dir}/home; sheen() {{ {dir}/sheen \"$@\"; }}; {script}"
        );
        run_within(as_nobody(&script), EVENTUALLY)
    }

    /// Mounts as the user.
    fn mount(&self, options: &str) -> Ran {
        self.user(&format!("sheen mount {options} {} mnt", self.fs.source()))
    }

    fn key(&self, words: &str) -> Ran {
        let mut command = Command::new(sheen());
        command.arg("key").args(words.split(' ')).arg("--dir").arg(self.fs.dir());
        run_command(command)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        detach(&self.dir.join("home/mnt"));
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

#[test]
fn user_without_a_key_mounts_by_munge_and_acts_as_itself() {
    let Some(world) = World::new("--munge users") else { return };
    world.fs.sh("chmod 1777 .; echo secret > private; chmod 600 private; echo public > public").ok();
    world.mount("").ok();
    let source = world.fs.source();
    world.user(&format!("sheen lctl ping {}", source.split(":/").next().expect("a NID"))).ok();
    let ran = world.user("cat mnt/public; echo mine > mnt/own; cat mnt/own; stat -c %u mnt/own; ! cat mnt/private");
    assert_eq!(ran.ok(), "public\nmine\n65534\n");
    assert_eq!(world.fs.sh("stat -c %u own; cat own").ok(), "65534\nmine\n");
    assert!(!world.dir.join("home/keys").exists(), "the key is in memory only");
    // Another mount of the user gets the same key.
    let listed = world.key("list").ok();
    assert_eq!(listed.matches("user 65534").count(), 1, "{listed}");
    world.user(&format!("sheen mount {} second && cat second/own && sheen umount second", world.fs.source())).ok();
    assert_eq!(world.key("list").ok(), listed);
    world.user("sheen umount mnt").ok();
}

#[test]
fn munge_mount_goes_on_with_another_key_after_the_clusters_key_was_replaced() {
    let Some(world) = World::new("--munge users") else { return };
    world.fs.sh("chmod 1777 .").ok();
    world.mount("").ok();
    world.user("echo before > mnt/f").ok();
    let keys = || {
        let found =
            fs::read_dir(world.fs.dir().join("mgs/keys")).expect("a directory").map(|f| f.expect("a file").path());
        let names =
            found.filter_map(|f| Some(f.file_name()?.to_str()?.strip_suffix(".key")?.rsplit_once('-')?.1.to_owned()));
        names.collect::<Vec<String>>()
    };
    let old = keys();
    world.key("new").ok();
    world.key(&format!("revoke {}", old[0])).ok();
    let ran = world.user("cat mnt/f; for i in $(seq 100); do echo $i > mnt/f; done; sync mnt/f");
    assert_eq!(ran.ok(), "before\n");
    eventually("root's mount sees the file", || world.fs.sh("cat f").out == "100\n");
}

#[test]
fn withdrawn_munge_key_ends_the_mount_and_is_not_issued_again() {
    let Some(world) = World::new("--munge users") else { return };
    world.mount("-o soft=1").ok();
    let listed: serde_json::Value = serde_json::from_str(&world.key("list --json").ok()).expect("JSON");
    let text = listed.to_string();
    let issued = listed.as_array().expect("keys").iter().find(|key| key.to_string().contains("user")).expect(&text);
    world.key(&format!("revoke {}", issued["key"].as_str().expect("an id"))).ok();
    eventually("the mount fails", || world.user("ls mnt").code != 0);
    let ran = world.user(&format!("sheen mount {} second", world.fs.source()));
    assert!(ran.code != 0 && ran.err.contains("this user's key was withdrawn"), "{}", ran.err);
}

#[test]
fn servers_issue_no_key_without_the_option_a_daemon_or_trust() {
    let Some(mut world) = World::new("") else { return };
    let ran = world.mount("");
    assert!(ran.code != 0 && ran.err.contains("this user has no key"), "{}", ran.err);
    world.fs.stop().ok();
    let none = world.up("--munge users --auth none");
    assert!(none.code != 0 && none.err.contains("--munge issues keys"), "{}", none.err);
    world.up("--munge users").ok();
    let ran = world.mount("-o munge=daemon");
    assert!(ran.code != 0 && ran.err.contains("the server runs as user 0"), "{}", ran.err);
    let ran = world.mount("-o munge=nobody-knows-this-user");
    assert!(ran.code != 0 && ran.err.contains("there is no user"), "{}", ran.err);
    world.daemon.kill().expect("it runs");
    world.daemon.wait().expect("it ended");
    let ran = world.mount("");
    assert!(ran.code != 0 && ran.err.contains("start MUNGE on this host"), "{}", ran.err);
    world.daemon = World::munged(&world.dir);
    world.mount("").ok();
}

#[test]
fn root_of_a_host_mounts_by_munge_only_if_the_servers_issue_hosts_keys() {
    let Some(world) = World::new("--munge users") else { return };
    let at = world.dir.join("root");
    let mount = || {
        let (dir, at) = (world.dir.display(), at.display());
        let (program, source) = (sheen().display().to_string(), world.fs.source());
        sh(&format!(
            "export SHEEN_MUNGE_SOCKET={dir}/munge/socket SHEEN_KEY_DIR={dir}/none; {program} mount {source} {at}"
        ))
    };
    let ran = mount();
    assert!(ran.code != 0 && ran.err.contains("gives root no key"), "{}", ran.err);
    world.fs.stop().ok();
    world.up("--munge hosts").ok();
    world.fs.sh("echo secret > private; chmod 600 private; chown nobody private").ok();
    mount().ok();
    assert_eq!(sh(&format!("cat {}/private", at.display())).ok(), "secret\n");
    assert!(world.key("list").ok().contains("host"));
    detach(&at);
}
