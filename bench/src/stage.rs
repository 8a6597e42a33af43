//! File systems to measure. Each is started in a directory of its own and stopped on drop.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use sheen_wire::auth::Flavor;

use crate::{sheen::Sheen, stop};

/// The user `nobody`, as whom a user's key is measured.
pub const NOBODY: u32 = 65534;

/// The nodemap of [`Stage::sheen_in_nodemap`].
const NODEMAP: &str = "bench";

/// Lets all users create files in a directory.
///
/// # Errors
/// As chmod(2).
pub fn for_all(dir: &Path) -> io::Result<()> {
    fs::set_permissions(dir, PermissionsExt::from_mode(0o1777))
}

/// Time limit for a file system to become mounted.
const READY_TIMEOUT: Duration = Duration::from_secs(20);

/// Time for which the free space must stay the same.
const SETTLE_PAUSE: Duration = Duration::from_millis(100);
/// Longest wait for that.
const SETTLE_MAX: Duration = Duration::from_secs(10);

/// Transport of the kernel's requests to a mount of Sheen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// Over `/dev/fuse`.
    Device,
    /// Over io_uring.
    Ring,
}

impl Transport {
    /// Returns the mount options.
    fn options(self) -> [&'static str; 2] {
        let option = match self {
            Transport::Device => "io_uring=off",
            Transport::Ring => "io_uring=on",
        };
        ["-o", option]
    }
}

/// A mounted file system.
pub struct Stage {
    /// Name in tables.
    pub name: &'static str,
    /// Its mount point.
    pub mount: PathBuf,
    /// The program that serves it, with a control directory of its own.
    pub sheen: Sheen,
    dir: PathBuf,
    children: Vec<Child>,
    server: Server,
    transport: Transport,
}

/// The process or processes behind a mount.
enum Server {
    /// One process, with its command line. It ends after it was unmounted or got SIGTERM.
    Process(Vec<OsString>),
    /// A process of the mount alone, with the source to mount. Servers have their own processes.
    Mount(String),
}

impl Stage {
    /// Starts the baseline, served by the program `baseline` beside this one, on `threads` threads.
    pub fn baseline(base: &Path, threads: usize) -> io::Result<Stage> {
        Stage::baseline_with(base, threads, &[])
    }

    /// As [`Stage::baseline`], but the kernel caches names and attributes.
    pub fn baseline_cached(base: &Path, threads: usize) -> io::Result<Stage> {
        Stage::baseline_with(base, threads, &["--cache"])
    }

    fn baseline_with(base: &Path, threads: usize, more: &[&str]) -> io::Result<Stage> {
        let mut stage = Stage::new("baseline", base, Path::new(""), Transport::Device)?;
        let program = std::env::current_exe()?.with_file_name("baseline");
        let mut command = Command::new(program);
        command.arg(&stage.mount).args(["--threads", &threads.to_string()]).args(more);
        stage.start(&command)?;
        Ok(stage)
    }

    /// Starts `program`, the example `passthrough_hp` of libfuse: it shows a directory again.
    pub fn passthrough(base: &Path, program: &Path, transport: Transport) -> io::Result<Stage> {
        let name = if transport == Transport::Ring { "passthrough, io_uring" } else { "passthrough" };
        let mut stage = Stage::new(name, base, Path::new(""), transport)?;
        let below = stage.dir.join("below");
        fs::create_dir_all(&below)?;
        let mut command = Command::new(program);
        // Without --nopassthrough, the kernel would read and write the files below by itself.
        command.args(["--foreground", "--nopassthrough"]).arg(below).arg(&stage.mount);
        if transport == Transport::Ring {
            command.args(["-o", "io_uring"]);
        }
        stage.start(&command)?;
        Ok(stage)
    }

    /// Starts servers and mount in one process, over `lo`.
    pub fn sheen_lo(base: &Path, sheen: &Path, threads: usize, transport: Transport) -> io::Result<Stage> {
        let name = if transport == Transport::Ring { "sheen lo, io_uring" } else { "sheen lo" };
        let mut stage = Stage::new(name, base, sheen, transport)?;
        let mut up = Command::new(sheen);
        up.arg("up");
        up.arg("--dir").arg(stage.dir.join("fs")).arg("--mount").arg(&stage.mount);
        up.args(transport.options());
        // Runs in the foreground like the baseline. A daemon has a session of its own, and the
        // kernel divides CPU time among sessions first, so the two would not be comparable.
        up.args(["--default-layout", "plain", "--osts", "4", "--foreground", "--fuse-threads", &threads.to_string()]);
        stage.start(&up)?;
        Ok(stage)
    }

    /// Starts MGS and MDT, two servers of two OSTs each, and the mount, in processes of their own
    /// over `tcp` on loopback.
    pub fn sheen_tcp(base: &Path, sheen: &Path, threads: usize, transport: Transport) -> io::Result<Stage> {
        let name = if transport == Transport::Ring { "sheen tcp, io_uring" } else { "sheen tcp" };
        Stage::servers(name, base, sheen, threads, transport, &[])
    }

    /// As [`Stage::sheen_tcp`], with a protection of all frames.
    pub fn sheen_protected(base: &Path, sheen: &Path, threads: usize, flavor: Flavor) -> io::Result<Stage> {
        let name = match flavor {
            Flavor::Null => "sheen tcp, null",
            Flavor::Integrity => "sheen tcp, integrity",
            Flavor::Privacy => "sheen tcp, privacy",
        };
        Stage::servers(name, base, sheen, threads, Transport::Device, &["--flavor", &flavor.to_string()])
    }

    /// As [`Stage::sheen_tcp`], with a mount that acts as the user [`NOBODY`].
    pub fn sheen_of_user(base: &Path, sheen: &Path, threads: usize) -> io::Result<Stage> {
        Stage::issued("sheen tcp, user's key", base, sheen, threads, &["--user", &NOBODY.to_string()])
    }

    /// As [`Stage::sheen_tcp`], with a host's key for the mount.
    pub fn sheen_of_host(base: &Path, sheen: &Path, threads: usize) -> io::Result<Stage> {
        Stage::issued("sheen tcp, host's key", base, sheen, threads, &["--host"])
    }

    /// As [`Stage::sheen_of_host`], in a nodemap that squashes root.
    pub fn sheen_in_nodemap(base: &Path, sheen: &Path, threads: usize) -> io::Result<Stage> {
        Stage::issued("sheen tcp, nodemap", base, sheen, threads, &["--host", "--nodemap", NODEMAP])
    }

    /// `role`: options of `sheen key issue`.
    fn issued(name: &'static str, base: &Path, sheen: &Path, threads: usize, role: &[&str]) -> io::Result<Stage> {
        let mut stage = Stage::servers(name, base, sheen, threads, Transport::Device, &[])?;
        for_all(&stage.mount)?;
        let trusted = ["--name", NODEMAP, "--property", "trusted", "--value", "1"];
        succeed(&mut stage.sheen.command(["lctl", "--fsname", "bench", "nodemap_add", NODEMAP]))?;
        succeed(stage.sheen.command(["lctl", "--fsname", "bench", "nodemap_modify"]).args(trusted))?;
        let (keys, file) = (stage.dir.join("keys"), stage.dir.join("key"));
        let mut issue = stage.sheen.command(["key", "issue"]);
        issue.args(role).arg("--dir").arg(stage.dir.join("mgs")).stdout(fs::File::create(&file)?);
        succeed(&mut issue)?;
        fs::remove_dir_all(keys)?;
        succeed(stage.sheen.command(["key", "add"]).arg(file).stdout(Stdio::null()))?;
        stage.remount(threads, &[])?;
        Ok(stage)
    }

    /// `more`: options of the servers.
    fn servers(
        name: &'static str,
        base: &Path,
        sheen: &Path,
        threads: usize,
        transport: Transport,
        more: &[&str],
    ) -> io::Result<Stage> {
        let mut stage = Stage::new(name, base, sheen, transport)?;
        let mgs = format!("127.0.0.1:{}@tcp", free_port()?);
        let (dir, program) = (stage.dir.clone(), stage.sheen.clone());
        let log = stage.log()?;
        let mut serve = |words: &[&str], sub: &str| -> io::Result<()> {
            let mut command = program.command(words);
            command.stderr(log.try_clone()?);
            command.args(more).arg("--dir").arg(dir.join(sub)).stdin(Stdio::null()).stdout(Stdio::null());
            stage.children.push(command.spawn()?);
            Ok(())
        };
        serve(&["mgs", "--listen", &mgs], "mgs")?;
        let plain = ["--default-layout", "plain"];
        serve(&["mds", plain[0], plain[1], "--mgs", &mgs, "--fsname", "bench", "--listen", "127.0.0.1:0@tcp"], "mdt0")?;
        for n in ["ost-a", "ost-b"] {
            serve(&["oss", "--mgs", &mgs, "--fsname", "bench", "--osts", "2", "--listen", "127.0.0.1:0@tcp"], n)?;
        }
        stage.server = Server::Mount(format!("{mgs}:/bench"));
        let until = Instant::now() + READY_TIMEOUT;
        loop {
            if stage.mount_again(threads, &[])? {
                break;
            }
            if Instant::now() > until {
                return Err(io::Error::other("sheen tcp did not start in time"));
            }
            thread::sleep(Duration::from_millis(100));
        }
        stage.wait_mounted()?;
        Ok(stage)
    }

    /// Mounts the file system. Returns whether that succeeded.
    fn mount_again(&self, threads: usize, more: &[&str]) -> io::Result<bool> {
        let Server::Mount(source) = &self.server else {
            return Err(io::Error::other(format!("{} is served by one process", self.name)));
        };
        let mut mount = self.sheen.command(["mount", source]);
        mount.arg(&self.mount).args(["--fuse-threads", &threads.to_string()]);
        mount.args(self.transport.options()).args(more);
        Ok(mount.stdout(Stdio::null()).stderr(Stdio::null()).status()?.success())
    }

    /// Opens the log of its processes, which is removed with the file system.
    fn log(&self) -> io::Result<fs::File> {
        fs::OpenOptions::new().create(true).append(true).open(self.dir.join("log"))
    }

    /// Starts the process that serves the mount alone, by this command line. Its environment is the
    /// same for all such processes.
    fn start(&mut self, command: &Command) -> io::Result<()> {
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        self.server = Server::Process(words.map(OsString::from).collect());
        self.start_again()
    }

    fn start_again(&mut self) -> io::Result<()> {
        let Server::Process(words) = &self.server else { return Ok(()) };
        let [program, words @ ..] = words.as_slice() else { return Ok(()) };
        let mut command = Command::new(program);
        command.args(words).env("SHEEN_RUNTIME_DIR", self.dir.join("run")).env("SHEEN_KEY_DIR", self.dir.join("keys"));
        command.stderr(self.log()?);
        self.children.push(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?);
        self.wait_mounted()
    }

    /// Unmounts and mounts again, so that the caches of client and kernel are empty. If one process
    /// serves all, it is started again; the baseline then loses its files. `more` are options for
    /// a mount with servers of its own.
    pub fn remount(&mut self, threads: usize, more: &[&str]) -> io::Result<()> {
        succeed(Command::new("umount").arg(&self.mount))?;
        if matches!(self.server, Server::Process(_)) {
            self.end_processes();
            return self.start_again();
        }
        if !self.mount_again(threads, more)? {
            return Err(io::Error::other("cannot mount again"));
        }
        self.wait_mounted()
    }

    fn new(name: &'static str, base: &Path, program: &Path, transport: Transport) -> io::Result<Stage> {
        let dir = base.join(name.replace(", ", "-").replace(' ', "-"));
        let mount = dir.join("mnt");
        fs::create_dir_all(&mount)?;
        let sheen = Sheen::new(program, dir.join("run")).with_keys(dir.join("keys"));
        let server = Server::Process(Vec::new());
        Ok(Stage { name, mount, sheen, dir, children: Vec::new(), server, transport })
    }

    fn wait_mounted(&self) -> io::Result<()> {
        let until = Instant::now() + READY_TIMEOUT;
        let mount = self.mount.to_string_lossy().into_owned();
        while !fs::read_to_string("/proc/mounts")?.lines().any(|l| l.split(' ').nth(1) == Some(&mount)) {
            if Instant::now() > until {
                return Err(io::Error::other(format!("{} was not mounted in time", self.name)));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Returns the ids of the processes that serve it.
    pub fn pids(&self) -> Vec<u32> {
        self.children.iter().map(Child::id).collect()
    }

    /// Ends the processes, the last one first.
    fn end_processes(&mut self) {
        for mut child in self.children.drain(..).rev() {
            stop::kill(child.id(), Signal::TERM);
            let _ = child.wait();
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.mount).status();
        self.end_processes();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Returns the order of `count` file systems in a round. Each is the first one in some rounds, and
/// has another predecessor in every second round.
pub fn order(round: usize, count: usize) -> impl Iterator<Item = usize> {
    let step = if round.is_multiple_of(2) { 1 } else { count - 1 };
    (0..count).map(move |i| (round / 2 + step * i) % count)
}

/// Waits until the servers have destroyed the objects of the files removed last: until the free
/// space of their directories stays the same.
pub fn settle(base: &Path) -> io::Result<()> {
    let free = || rustix::fs::statvfs(base).map(|space| space.f_bfree);
    let (until, mut before) = (Instant::now() + SETTLE_MAX, free()?);
    loop {
        thread::sleep(SETTLE_PAUSE);
        let now = free()?;
        if now == before || Instant::now() > until {
            return Ok(());
        }
        before = now;
    }
}

fn free_port() -> io::Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn succeed(command: &mut Command) -> io::Result<()> {
    let status = command.status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("{command:?}: {status}"))) }
}
