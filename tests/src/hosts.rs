//! Hosts of a cluster: network namespaces that veth pairs join.
//!
//! Each host has an address, ports and a loopback network of its own, and directories of its own
//! for keys and control sockets. The hosts share the files and mounts of the test.
//!
//! The namespaces have no names: descriptors of the test hold them. So the kernel removes them with
//! the test's processes, also if the test is killed. Tests in parallel may use the same addresses.

use std::{
    ffi::OsStr,
    fs,
    net::Ipv4Addr,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::{DirBuilderExt, symlink},
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};

use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::{
    Guarded, Mount, Ran, can_mount, copy_program, is_root, new_dir, run_command, run_within, sh, sheen,
    wait::{EVENTUALLY, eventually},
};

/// Several hosts, with the numbers 1, 2 and so on. Their servers are killed on drop. Declare them
/// before their mounts, which are then dropped first.
#[derive(Debug)]
pub struct Hosts {
    /// The directories of the hosts.
    base: PathBuf,
    /// The programs `sheen`, `lfs` and `lctl`, at a place where every user may run them.
    bin: PathBuf,
    servers: Vec<Guarded>,
    /// The namespaces.
    networks: Vec<OwnedFd>,
}

impl Hosts {
    /// Makes `count` hosts. Prints a message and returns `None` if this machine does not allow it.
    #[track_caller]
    pub fn join(count: u8) -> Option<Hosts> {
        if !can_mount() || !is_root() || sh("command -v ip nsenter").code != 0 {
            println!("skipped: needs root, /dev/fuse, ip and nsenter");
            return None;
        }
        let Some(networks) = (0..count).map(|_| network()).collect::<Option<Vec<OwnedFd>>>() else {
            println!("skipped: network namespaces cannot be made here");
            return None;
        };
        let (base, bin) = (new_dir(Path::new("/dev/shm")), new_dir(&std::env::temp_dir()));
        let hosts = Hosts { base, bin, servers: Vec::new(), networks };
        if let Some(why) = hosts.connect() {
            println!("skipped: veth pairs cannot be made here: {why}");
            return None;
        }
        hosts.furnish();
        Some(hosts)
    }

    /// Joins each two hosts by a veth pair. Returns why that is not possible.
    fn connect(&self) -> Option<String> {
        for b in self.numbers() {
            self.sh_in(Path::new("/"), b, "ip link set lo up").ok();
            for a in 1..b {
                let (here, there) = (self.network(a), self.network(b));
                let made = sh(&format!("ip link add to{b} netns {here} type veth peer name to{a} netns {there}"));
                if made.code != 0 {
                    return Some(made.err);
                }
                for (own, other) in [(a, b), (b, a)] {
                    let (from, to) = (self.address(own), self.address(other));
                    let script = format!("ip addr add {from} peer {to} dev to{other}; ip link set to{other} up");
                    self.sh_in(Path::new("/"), own, &script).ok();
                }
            }
        }
        None
    }

    /// Makes the directories and copies the programs. Waits until the hosts' links are up.
    fn furnish(&self) {
        let program = self.bin.join("sheen");
        copy_program(&sheen(), &program);
        for tool in ["lfs", "lctl"] {
            symlink(&program, self.bin.join(tool)).expect("a link in its own directory");
        }
        for host in self.numbers() {
            fs::create_dir(self.dir(host)).expect("a directory of the host");
            let run = self.dir(host).join("run");
            fs::DirBuilder::new().mode(0o700).create(run).expect("a directory for control sockets");
            let others = self.networks.len() - 1;
            eventually(format!("the links of host {host} are up"), || {
                let links = self.sh(host, "ip -br link show type veth").ok();
                links.lines().filter(|line| line.split_whitespace().nth(1) == Some("UP")).count() == others
            });
        }
    }

    fn numbers(&self) -> impl Iterator<Item = u8> + use<> {
        (1..).take(self.networks.len())
    }

    /// Returns the path by which commands enter the namespace of a host.
    fn network(&self, host: u8) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.networks[usize::from(host) - 1].as_raw_fd())
    }

    /// Returns the address of a host.
    pub fn address(&self, host: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, 0, host)
    }

    /// Returns the NID of a host, without a port.
    pub fn nid(&self, host: u8) -> String {
        format!("{}@tcp", self.address(host))
    }

    /// Returns the directory of a host.
    pub fn dir(&self, host: u8) -> PathBuf {
        self.base.join(format!("host{host}"))
    }

    /// Runs a script on a host, in its directory, with `sheen`, `lfs` and `lctl` in PATH. The
    /// script stops at its first failure.
    #[track_caller]
    pub fn sh(&self, host: u8, script: &str) -> Ran {
        self.sh_in(&self.dir(host), host, script)
    }

    #[track_caller]
    fn sh_in(&self, cwd: &Path, host: u8, script: &str) -> Ran {
        let mut command = self.command(host, "bash");
        command.args(["-ec", script]).current_dir(cwd);
        run_within(command, EVENTUALLY)
    }

    fn command(&self, host: u8, program: impl AsRef<OsStr>) -> Command {
        let (dir, path) = (self.dir(host), std::env::var("PATH").unwrap_or_default());
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.network(host))).arg(program);
        command.env("PATH", format!("{}:{path}", self.bin.display())).env("LC_ALL", "C.UTF-8");
        command.env("SHEEN_RUNTIME_DIR", dir.join("run")).env("SHEEN_KEY_DIR", dir.join("keys"));
        command.env("SHEEN_MUNGE_SOCKET", dir.join("munge/socket"));
        command
    }

    /// Starts a server on a host, in its directory. `name`: that of its log. `line`: the program
    /// and its words.
    #[track_caller]
    pub fn start(&mut self, host: u8, name: &str, line: &str) {
        let log = fs::File::create(self.log(name)).expect("a log");
        let mut words = line.split_whitespace();
        let mut command = self.command(host, words.next().expect("a program"));
        command.args(words).current_dir(self.dir(host)).stdin(Stdio::null());
        command.stdout(log.try_clone().expect("a descriptor")).stderr(log);
        self.servers.push(Guarded(command.spawn().expect("the server starts")));
    }

    fn log(&self, name: &str) -> PathBuf {
        self.base.join(format!("{name}.log"))
    }

    /// Waits until the log of a server contains `what`.
    #[track_caller]
    pub fn says(&self, name: &str, what: &str) {
        eventually(format!("{name} says '{what}'"), || {
            fs::read_to_string(self.log(name)).unwrap_or_default().contains(what)
        });
    }

    /// Mounts a file system on a host, at `mnt` in its directory.
    #[track_caller]
    pub fn mount(&self, host: u8, source: &str) -> Mount {
        let mut command = self.command(host, "sheen");
        // Created before the command runs: a mount that hangs while it starts is cleaned up as
        // well.
        let mount = Mount { mnt: self.dir(host).join("mnt") };
        command.args(["mount", source]).arg(&mount.mnt);
        run_command(command).ok();
        mount
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        self.servers.clear();
        let logs = fs::read_dir(&self.base).into_iter().flatten().flatten().map(|entry| entry.path());
        for log in logs.filter(|path| thread::panicking() && path.extension().is_some_and(|e| e == "log")) {
            eprintln!("{}:\n{}", log.display(), fs::read_to_string(&log).unwrap_or_default());
        }
        let _ = fs::remove_dir_all(&self.bin);
        if !thread::panicking() || std::env::var_os("SHEEN_TEST_KEEP").is_none() {
            let _ = fs::remove_dir_all(&self.base);
        }
    }
}

/// Makes a network namespace. Returns a descriptor that holds it, or `None` if this machine does
/// not allow it.
fn network() -> Option<OwnedFd> {
    // A namespace belongs to a thread, and this one shall stay in its own.
    let thread = thread::spawn(|| {
        // SAFETY: only the network of the new thread changes; file descriptors and memory stay
        // shared.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.ok()?;
        fs::File::open("/proc/thread-self/ns/net").ok().map(OwnedFd::from)
    });
    thread.join().expect("it does not panic")
}
