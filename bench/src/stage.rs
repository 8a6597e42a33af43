//! The file systems to measure, each brought up in a directory of its own and taken down when
//! dropped.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::sheen::Sheen;

/// How long a file system may take to appear.
const READY_TIMEOUT: Duration = Duration::from_secs(20);

/// A mounted file system.
pub struct Stage {
    /// Name in tables.
    pub name: &'static str,
    /// Where it is mounted.
    pub mount: PathBuf,
    /// Its program, which reaches its processes and no others.
    pub sheen: Sheen,
    dir: PathBuf,
    children: Vec<Child>,
    /// What it is mounted from, where servers are processes of their own.
    source: String,
}

impl Stage {
    /// The baseline, served by the program of that name beside this one, on `threads` threads.
    pub fn baseline(base: &Path, threads: usize) -> io::Result<Stage> {
        Stage::baseline_with(base, threads, &[])
    }

    /// The same with names and attributes kept by the kernel.
    pub fn baseline_cached(base: &Path, threads: usize) -> io::Result<Stage> {
        Stage::baseline_with(base, threads, &["--cache"])
    }

    fn baseline_with(base: &Path, threads: usize, more: &[&str]) -> io::Result<Stage> {
        let mut stage = Stage::new("baseline", base, Path::new(""))?;
        let program = std::env::current_exe()?.with_file_name("baseline");
        let mut command = Command::new(program);
        command.arg(&stage.mount).args(["--threads", &threads.to_string()]).args(more);
        stage.children.push(command.spawn()?);
        stage.wait_mounted()?;
        Ok(stage)
    }

    /// Everything in one process, over `lo`.
    pub fn sheen_lo(base: &Path, sheen: &Path, threads: usize) -> io::Result<Stage> {
        let mut stage = Stage::new("sheen lo", base, sheen)?;
        let mut up = stage.sheen.command(["up"]);
        up.arg("--dir").arg(stage.dir.join("fs")).arg("--mount").arg(&stage.mount);
        // A daemon has a session of its own, and the kernel shares processors out among sessions
        // first: not what the baseline has.
        up.args(["--default-layout", "plain", "--osts", "4", "--foreground", "--fuse-threads", &threads.to_string()]);
        stage.children.push(up.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?);
        stage.wait_mounted()?;
        Ok(stage)
    }

    /// MGS and MDT, two servers of two OSTs each, and the mount, in processes of their own over
    /// `tcp` on loopback.
    pub fn sheen_tcp(base: &Path, sheen: &Path, threads: usize) -> io::Result<Stage> {
        let mut stage = Stage::new("sheen tcp", base, sheen)?;
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
                return Err(io::Error::other("sheen tcp did not come up"));
            }
            thread::sleep(Duration::from_millis(100));
        }
        stage.wait_mounted()?;
        Ok(stage)
    }

    /// Mounts it; whether that worked.
    fn mount_again(&self, threads: usize, more: &[&str]) -> io::Result<bool> {
        let mut mount = self.sheen.command(["mount", &self.source]);
        mount.arg(&self.mount).args(["--fuse-threads", &threads.to_string()]).args(more);
        Ok(mount.stdout(Stdio::null()).stderr(Stdio::null()).status()?.success())
    }

    /// Unmounts and mounts it, so that the client knows nothing; for [`Stage::sheen_tcp`].
    pub fn remount(&mut self, threads: usize, more: &[&str]) -> io::Result<()> {
        succeed(Command::new("umount").arg(&self.mount))?;
        if !self.mount_again(threads, more)? {
            return Err(io::Error::other("cannot mount again"));
        }
        self.wait_mounted()
    }

    fn new(name: &'static str, base: &Path, program: &Path) -> io::Result<Stage> {
        let dir = base.join(name.replace(' ', "-"));
        let mount = dir.join("mnt");
        fs::create_dir_all(&mount)?;
        let sheen = Sheen::new(program, dir.join("run"));
        Ok(Stage { name, mount, sheen, dir, children: Vec::new(), source: String::new() })
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

    /// Process ids of what serves it.
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
