//! Servers in processes of their own, over tcp, as on many hosts.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::{Mount, Ran, new_dir, run_within, sheen};

/// A file system of one MGS, one MDT and two OSTs, each kind in a process of its own.
pub struct Cluster {
    /// Its directory.
    pub base: PathBuf,
    /// The processes of its servers.
    pub children: Vec<(&'static str, Child)>,
    ports: u16,
}

impl Cluster {
    /// Starts the servers and waits until a client finds them.
    #[track_caller]
    pub fn start() -> Cluster {
        let base = new_dir(Path::new("/dev/shm"));
        let mut cluster = Cluster { base, ports: free_port(), children: Vec::new() };
        for kind in ["mgs", "mds", "oss"] {
            cluster.spawn(kind);
        }
        // A mount does not wait for servers that the MGS has never heard of.
        let end = Instant::now() + Duration::from_secs(30);
        while !["many-MDT0000 (", "OSTs of many ready"].iter().all(|said| cluster.log().contains(said)) {
            assert!(Instant::now() < end, "the servers do not start");
            thread::sleep(Duration::from_millis(10));
        }
        cluster
    }

    /// What the servers wrote.
    pub fn log(&self) -> String {
        fs::read_to_string(self.base.join("log")).unwrap_or_default()
    }

    /// Where the servers of a kind listen.
    pub fn nid(&self, kind: &str) -> String {
        let offset = ["mgs", "mds", "oss"].iter().position(|k| *k == kind).expect("a kind") as u16;
        format!("127.0.0.1:{}@tcp", self.ports + offset)
    }

    /// Starts the servers of a kind (again).
    #[track_caller]
    pub fn spawn(&mut self, kind: &'static str) {
        let nid = self.nid(kind);
        self.spawn_at(kind, &nid);
    }

    /// Starts the servers of a kind again, at another address than [`Cluster::nid`] says.
    #[track_caller]
    pub fn spawn_at(&mut self, kind: &'static str, listen: &str) {
        let mut command = Command::new(sheen());
        command.arg(kind).arg("--dir").arg(self.base.join(kind)).args(["--listen", listen]);
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
        self.children.push((kind, command.spawn().expect("the server starts")));
    }

    /// kill -9
    #[track_caller]
    pub fn kill(&mut self, kind: &str) {
        let at = self.children.iter().position(|(k, _)| *k == kind).expect("it runs");
        let (_, mut child) = self.children.remove(at);
        child.kill().expect("kills its own child");
        child.wait().expect("its own child");
    }

    /// Mounts it.
    #[track_caller]
    pub fn mount(&self) -> Mount {
        self.mount_as("mnt")
    }

    /// Mounts it at a place of that name.
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
        let _ = fs::remove_dir_all(&self.base);
    }
}

/// The first of three ports that are free now.
fn free_port() -> u16 {
    loop {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("it is bound").port();
        if port < 60000 && (1..3).all(|i| std::net::TcpListener::bind(("127.0.0.1", port + i)).is_ok()) {
            return port;
        }
    }
}

/// Runs a script that ends at its first failure, within a minute.
#[track_caller]
pub fn bash(dir: &Path, script: &str) -> Ran {
    let mut command = Command::new("bash");
    command.args(["-ec", script]).current_dir(dir);
    run_within(command, Duration::from_secs(60))
}
