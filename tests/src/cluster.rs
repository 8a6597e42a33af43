//! File systems whose servers run in processes of their own and talk over tcp, as on many hosts.

use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{
    Mount, Ran,
    address::own_address,
    can_mount, new_dir, run_within, sheen,
    wait::{EVENTUALLY, eventually, eventually_some},
};

/// Ports of the servers, by kind. They are below the kernel's ephemeral ports, so that no other
/// process takes one while its server is down.
const PORTS: [(&str, u16); 3] = [("mgs", 9880), ("mds", 9881), ("oss", 9882)];

/// A file system of one MGS, one MDT and two OSTs, each kind in a process of its own.
pub struct Cluster {
    /// The directory of the file system.
    pub base: PathBuf,
    /// The processes of its servers.
    pub children: Vec<(&'static str, Child)>,
    /// The address on which its servers listen. No other cluster uses it.
    address: Ipv4Addr,
}

impl Cluster {
    /// As [`Cluster::start`]. If this machine allows no FUSE mounts, prints that the test is
    /// skipped, and returns `None`.
    #[track_caller]
    pub fn start_or_skip() -> Option<Cluster> {
        if !can_mount() {
            println!("skipped: /dev/fuse cannot be opened here");
            return None;
        }
        Some(Cluster::start())
    }

    /// Starts the servers and waits until they are registered with the MGS.
    #[track_caller]
    pub fn start() -> Cluster {
        let base = new_dir(Path::new("/dev/shm"));
        let mut cluster = Cluster { base, address: own_address(), children: Vec::new() };
        for kind in ["mgs", "mds", "oss"] {
            cluster.spawn(kind);
        }
        // A mount does not wait for servers that are not registered with the MGS.
        eventually("the servers are ready", || {
            ["many-MDT0000 (", "OSTs of many ready"].iter().all(|said| cluster.log().contains(said))
        });
        cluster
    }

    /// Returns the log of all servers.
    pub fn log(&self) -> String {
        fs::read_to_string(self.base.join("log")).unwrap_or_default()
    }

    /// Returns the NID on which the servers of a kind listen.
    pub fn nid(&self, kind: &str) -> String {
        let (_, port) = PORTS.iter().find(|(k, _)| *k == kind).expect("a kind");
        format!("{}:{port}@tcp", self.address)
    }

    /// Returns the NID on which a further OSS can listen.
    pub fn second_oss(&self) -> String {
        format!("{}:{}@tcp", self.address, PORTS[2].1 + 1)
    }

    /// Starts the servers of a kind, for the first time or again.
    #[track_caller]
    pub fn spawn(&mut self, kind: &'static str) {
        let nid = self.nid(kind);
        self.spawn_at(kind, &nid);
    }

    /// Starts the servers of a kind at another address than [`Cluster::nid`] returns.
    #[track_caller]
    pub fn spawn_at(&mut self, kind: &'static str, listen: &str) {
        let dir = self.base.join(kind);
        self.spawn_as(kind, kind, &dir, listen, &[], Command::new(sheen()));
    }

    /// Starts the servers of a kind in a directory, with further options. `name`: for
    /// [`Cluster::kill`] and so on. `sheen`: runs the program with the arguments that are added.
    #[track_caller]
    pub fn spawn_as(
        &mut self,
        name: &'static str,
        kind: &str,
        dir: &Path,
        listen: &str,
        options: &[&str],
        sheen: Command,
    ) {
        let mut command = sheen;
        command.arg(kind).arg("--dir").arg(dir).args(["--listen", listen]).args(options);
        if kind != "mgs" {
            command.args(["--mgs", &self.nid("mgs"), "--fsname", "many"]);
        }
        if kind == "mds" {
            command.args(["--default-layout", "plain"]);
        }
        if kind == "oss" {
            command.args(["--osts", "2"]);
        }
        let log = fs::OpenOptions::new().create(true).append(true).open(self.base.join("log")).expect("a log");
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a descriptor")).stderr(log);
        self.children.push((name, command.spawn().expect("the server starts")));
    }

    /// Sends a signal to a server.
    #[track_caller]
    pub fn signal(&self, name: &str, signal: Signal) {
        let (_, child) = self.children.iter().find(|(k, _)| *k == name).expect("it runs");
        kill_process(Pid::from_child(child), signal).expect("its own child");
    }

    /// Waits for the end of a server. Returns whether it stopped in order.
    #[track_caller]
    pub fn ended(&mut self, name: &str) -> bool {
        let at = self.children.iter().position(|(k, _)| *k == name).expect("it runs");
        let ended = eventually_some(format!("{name} ends"), || self.children[at].1.try_wait().expect("its own child"));
        self.children.remove(at);
        ended.success()
    }

    /// Kills the servers of a kind with SIGKILL.
    #[track_caller]
    pub fn kill(&mut self, kind: &str) {
        let at = self.children.iter().position(|(k, _)| *k == kind).expect("it runs");
        let (_, mut child) = self.children.remove(at);
        child.kill().expect("kills its own child");
        child.wait().expect("its own child");
    }

    /// Stops the servers of a kind in order.
    #[track_caller]
    pub fn stop(&mut self, kind: &str) {
        let at = self.children.iter().position(|(k, _)| *k == kind).expect("it runs");
        let (_, mut child) = self.children.remove(at);
        let pid = Pid::from_child(&child);
        kill_process(pid, Signal::TERM).expect("stops its own child");
        assert!(child.wait().expect("its own child").success(), "{}", self.log());
    }

    /// Mounts the file system.
    #[track_caller]
    pub fn mount(&self) -> Mount {
        self.mount_as("mnt")
    }

    /// Mounts the file system at `name` below its directory.
    #[track_caller]
    pub fn mount_as(&self, name: &str) -> Mount {
        Mount::new(&format!("{}:/many", self.nid("mgs")), self.base.join(name))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for (_, child) in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        if thread::panicking() {
            eprintln!("{}", self.log());
        }
        if !thread::panicking() || std::env::var_os("SHEEN_TEST_KEEP").is_none() {
            let _ = fs::remove_dir_all(&self.base);
        }
    }
}

/// Runs a script that stops at its first failure. Its time limit is [`EVENTUALLY`]: less than the
/// lifetime of a request whose server does not return.
#[track_caller]
pub fn bash(dir: &Path, script: &str) -> Ran {
    let mut command = Command::new("bash");
    command.args(["-ec", script]).current_dir(dir);
    run_within(command, EVENTUALLY)
}
