//! Addresses and ports: where servers listen and what they register, on a host with several
//! networks.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};

use rustix::thread::{UnshareFlags, unshare_unsafe};
use sheen_tests::{Guarded, Ran, is_root, new_dir, run_command, run_within, sheen, wait};

/// Sets up two networks besides loopback. Packets of the default route have the first network's
/// source address.
const SET_UP: &str = "
set -e
ip link set lo up
ip addr add 10.77.0.1/24 dev lo
ip addr add 10.88.0.1/24 dev lo
ip route add default dev lo src 10.77.0.1
mount --make-rprivate /
mount --bind hosts /etc/hosts
";

/// Servers in network and mount namespaces of their own; killed when dropped.
struct Servers {
    base: PathBuf,
    children: Vec<Guarded>,
}

impl Servers {
    /// Runs a test in the namespaces. There the host's name, and `node1`, resolve to 127.0.1.1, as
    /// on Debian.
    fn enter(test: impl FnOnce(&mut Servers) + Send + 'static) {
        if !is_root() {
            return println!("skipped: namespaces need root");
        }
        // Namespaces belong to a thread and to the processes that it starts.
        let thread = thread::spawn(move || {
            // SAFETY: the views of mounts and of the network change for this thread; file
            // descriptors and memory stay as they are.
            if unsafe { unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::NEWNET) }.is_err() {
                return println!("skipped: namespaces cannot be made here");
            }
            let mut servers = Servers { base: new_dir(Path::new("/dev/shm")), children: Vec::new() };
            let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
            fs::write(servers.base.join("hosts"), format!("127.0.0.1 localhost\n127.0.1.1 node1 {name}\n")).unwrap();
            let mut set_up = Command::new("bash");
            set_up.args(["-c", SET_UP]).current_dir(&servers.base);
            run_command(set_up).ok();
            test(&mut servers);
        });
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    }

    fn command(&self, name: &str, words: &str) -> Command {
        let mut command = Command::new(sheen());
        command.args(words.split_whitespace()).arg("--dir").arg(self.base.join(name));
        command
    }

    /// Starts a server in the directory `name`.
    fn start(&mut self, name: &str, words: &str) {
        let log = fs::File::create(self.log(name)).unwrap();
        let mut command = self.command(name, words);
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.children.push(Guarded(command.spawn().expect("the server starts")));
    }

    /// Starts the servers of the file system `net`. `mgs` and `oss`: options of these servers.
    /// `nid`: the address at which the others find the MGS.
    fn start_net(&mut self, mgs: &str, nid: &str, oss: &str) {
        self.start("mgs", &format!("mgs {mgs}"));
        self.start("mds", &format!("mds --mgs {nid} --fsname net"));
        self.start("oss", &format!("oss --mgs {nid} --fsname net {oss}"));
    }

    /// Runs a server command that must fail with exit code 1, and returns its output.
    fn refused(&self, name: &str, words: &str) -> Ran {
        let ran = run_within(self.command(name, words), wait::EVENTUALLY);
        assert_eq!(ran.code, 1, "{words}: {ran:?}");
        ran
    }

    fn log(&self, name: &str) -> PathBuf {
        self.base.join(name.to_owned() + ".log")
    }

    /// Waits until the log of the server `name` contains `what`.
    #[track_caller]
    fn says(&self, name: &str, what: &str) {
        wait::eventually(format!("{name} says '{what}'"), || {
            fs::read_to_string(self.log(name)).unwrap_or_default().contains(what)
        });
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.children.clear();
        if thread::panicking() {
            for entry in fs::read_dir(&self.base).into_iter().flatten().flatten() {
                if entry.path().extension().is_some_and(|e| e == "log") {
                    eprintln!("{}:\n{}", entry.path().display(), fs::read_to_string(entry.path()).unwrap_or_default());
                }
            }
        }
        let _ = fs::remove_dir_all(&self.base);
    }
}

#[test]
fn servers_register_the_address_from_which_they_reach_the_mgs() {
    Servers::enter(|servers| {
        servers.start_net("--listen 0.0.0.0@tcp", "10.77.0.1@tcp", "");
        servers.start("any", "oss --mgs 10.88.0.1@tcp --fsname net --listen 0.0.0.0:0@tcp");
        servers.says("mds", "net-MDT0000 ready at 10.77.0.1:7989@tcp");
        servers.says("oss", "1 OSTs of net ready at 10.77.0.1:7990@tcp");
        servers.says("any", "1 OSTs of net ready at 10.88.0.1:");
        servers.says("mgs", "is at 10.77.0.1:7989@tcp");
        servers.says("mgs", "is at 10.77.0.1:7990@tcp");
        servers.says("mgs", "is at 10.88.0.1:");
    });
}

#[test]
fn servers_register_loopback_if_the_mgs_is_on_loopback() {
    Servers::enter(|servers| {
        servers.start_net("", "localhost@tcp", "--listen 0.0.0.0@tcp");
        servers.says("mgs", "MGS ready at 127.0.0.1@tcp");
        servers.says("mds", "net-MDT0000 ready at 127.0.0.1:7989@tcp");
        servers.says("oss", "1 OSTs of net ready at 127.0.0.1:7990@tcp");
        servers.says("oss", "registering 127.0.0.1, which only this host can reach");
    });
}

#[test]
fn servers_register_a_network_address_if_the_mgs_is_named_by_host_name() {
    Servers::enter(|servers| {
        servers.start_net("--listen 0.0.0.0@tcp", "node1@tcp", "--listen 0.0.0.0:0@tcp");
        servers.says("mds", "node1 resolves to a loopback address on this host: registering 10.77.0.1");
        servers.says("mds", "net-MDT0000 ready at 10.77.0.1:7989@tcp");
        servers.says("oss", "1 OSTs of net ready at 10.77.0.1:");
    });
}

#[test]
fn server_registers_the_network_of_the_mgs_nid_that_answers() {
    Servers::enter(|servers| {
        servers.start("oss", "oss --mgs 10.77.0.1:7988@tcp,10.88.0.1:7988@tcp --fsname net");
        servers.says("oss", "no MGS answers yet");
        servers.start("mgs", "mgs --listen 10.88.0.1@tcp");
        servers.start("mds", "mds --mgs 10.88.0.1@tcp --fsname net");
        servers.says("oss", "1 OSTs of net ready at 10.88.0.1:7990@tcp");
    });
}

#[test]
fn server_refuses_a_loopback_listen_address_if_the_mgs_is_remote() {
    Servers::enter(|servers| {
        for kind in ["mds", "oss"] {
            let ran = servers.refused(kind, &format!("{kind} --mgs 10.77.0.1@tcp --listen 127.0.0.1:0@tcp"));
            assert!(ran.err.contains("other hosts cannot reach a server at 127.0.0.1"), "{ran:?}");
            assert!(ran.err.contains("10.77.0.1@tcp") && ran.err.contains("--listen 0.0.0.0:0@tcp"), "{ran:?}");
        }
        // `--announce` overrides the check: the administrator knows an address that clients reach.
        servers.start_net("--listen 0.0.0.0@tcp", "10.77.0.1@tcp", "--listen 127.0.0.1@tcp --announce 10.88.0.1@tcp");
        servers.says("oss", "1 OSTs of net ready at 10.88.0.1:7990@tcp");
    });
}

#[test]
fn listen_on_a_used_port_fails_and_suggests_another_port() {
    Servers::enter(|servers| {
        servers.start_net("--listen 0.0.0.0@tcp", "10.77.0.1@tcp", "");
        servers.says("oss", "1 OSTs of net ready");
        let ran = servers.refused("oss2", "oss --mgs 10.77.0.1@tcp --fsname net");
        assert!(ran.err.contains("cannot listen on 0.0.0.0:7990"), "{ran:?}");
        assert!(ran.err.contains("another process uses port 7990"), "{ran:?}");
        assert!(ran.err.contains("--listen 0.0.0.0:8000@tcp"), "{ran:?}");
        servers.start("oss2", "oss --mgs 10.77.0.1@tcp --fsname net --listen 0.0.0.0:8000@tcp");
        servers.says("oss2", "1 OSTs of net ready at 10.77.0.1:8000@tcp");
    });
}

#[test]
fn up_on_all_addresses_reports_a_reachable_nid() {
    Servers::enter(|servers| {
        servers.start("up", "up --foreground --osts 1 --listen 0.0.0.0@tcp");
        let mut status = servers.command("up", "status --json");
        status.stdin(Stdio::null());
        wait::eventually("the file system is up", || {
            let said = status.output().expect("the command runs");
            String::from_utf8_lossy(&said.stdout).contains("10.77.0.1@tcp:/sheen")
        });
    });
}
