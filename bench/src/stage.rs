//! File systems to measure. Each is started in a directory of its own and stopped on drop.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::sheen::Sheen;

/// Time limit for a file system to become mounted.
const READY_TIMEOUT: Duration = Duration::from_secs(20);

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
    /// The source to mount, if the servers run in processes of their own.
    source: String,
    transport: Transport,
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
        stage.children.push(command.spawn()?);
        stage.wait_mounted()?;
        Ok(stage)
    }

    /// Starts servers and mount in one process, over `lo`.
    pub fn sheen_lo(base: &Path, sheen: &Path, threads: usize, transport: Transport) -> io::Result<Stage> {
        let name = if transport == Transport::Ring { "sheen lo, io_uring" } else { "sheen lo" };
        let mut stage = Stage::new(name, base, sheen, transport)?;
        let mut up = stage.sheen.command(["up"]);
        up.arg("--dir").arg(stage.dir.join("fs")).arg("--mount").arg(&stage.mount);
        up.args(transport.options());
        // Runs in the foreground like the baseline. A daemon has a session of its own, and the
        // kernel divides CPU time among sessions first, so the two would not be comparable.
        up.args(["--default-layout", "plain", "--osts", "4", "--foreground", "--fuse-threads", &threads.to_string()]);
        stage.children.push(up.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?);
        stage.wait_mounted()?;
        Ok(stage)
    }

    /// Starts MGS and MDT, two servers of two OSTs each, and the mount, in processes of their own
    /// over `tcp` on loopback.
    pub fn sheen_tcp(base: &Path, sheen: &Path, threads: usize, transport: Transport) -> io::Result<Stage> {
        let name = if transport == Transport::Ring { "sheen tcp, io_uring" } else { "sheen tcp" };
        let mut stage = Stage::new(name, base, sheen, transport)?;
        let mgs = format!("127.0.0.1:{}@tcp", free_port()?);
        let (dir, program) = (stage.dir.clone(), stage.sheen.clone());
        let mut serve = |words: &[&str], sub: &str| -> io::Result<()> {
            let mut command = program.command(words);
            command.arg("--dir").arg(dir.join(sub)).stdin(Stdio::null()).stdout(Stdio::null());
            stage.children.push(command.spawn()?);
            Ok(())
        };
        serve(&["mgs", "--listen", &mgs], "mgs")?;
        let plain = ["--default-layout", "plain"];
        serve(&["mds", plain[0], plain[1], "--mgs", &mgs, "--fsname", "bench", "--listen", "127.0.0.1:0@tcp"], "mdt0")?;
        for n in ["ost-a", "ost-b"] {
            serve(&["oss", "--mgs", &mgs, "--fsname", "bench", "--osts", "2", "--listen", "127.0.0.1:0@tcp"], n)?;
        }
        stage.source = format!("{mgs}:/bench");
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
        let mut mount = self.sheen.command(["mount", &self.source]);
        mount.arg(&self.mount).args(["--fuse-threads", &threads.to_string()]);
        mount.args(self.transport.options()).args(more);
        Ok(mount.stdout(Stdio::null()).stderr(Stdio::null()).status()?.success())
    }

    /// Unmounts and mounts again, so that the client's caches are empty. For [`Stage::sheen_tcp`].
    pub fn remount(&mut self, threads: usize, more: &[&str]) -> io::Result<()> {
        succeed(Command::new("umount").arg(&self.mount))?;
        if !self.mount_again(threads, more)? {
            return Err(io::Error::other("cannot mount again"));
        }
        self.wait_mounted()
    }

    fn new(name: &'static str, base: &Path, program: &Path, transport: Transport) -> io::Result<Stage> {
        let dir = base.join(name.replace(", ", "-").replace(' ', "-"));
        let mount = dir.join("mnt");
        fs::create_dir_all(&mount)?;
        let sheen = Sheen::new(program, dir.join("run"));
        Ok(Stage { name, mount, sheen, dir, children: Vec::new(), source: String::new(), transport })
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
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.mount).status();
        for child in self.children.iter_mut().rev() {
            if let Some(pid) = rustix::process::Pid::from_raw(child.id() as i32) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            }
            let _ = child.wait();
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn free_port() -> io::Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn succeed(command: &mut Command) -> io::Result<()> {
    let status = command.status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("{command:?}: {status}"))) }
}
