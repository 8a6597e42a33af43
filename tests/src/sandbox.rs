//! Sandboxes for tests that compare the output of commands. In a sandbox, commands see one file
//! system, at paths of the test's choice, and no other Sheen process.
//!
//! A sandbox is a mount namespace with a fresh `/mnt`, `/run/sheen` and `/run/sheen-public`. Its
//! files are in a tmpfs of its own. Mounts of other tests are unmounted in it. `lfs df` and
//! `lctl dl`, which show all mounts of the host, so show only this file system. Creating a sandbox
//! requires root.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use rustix::process::Signal;

use crate::{
    Ran, can_mount, clean_up, copy_program, is_root, new_dir, run_within, sheen, signal_all, wait::EVENTUALLY,
};

/// Size of the sandbox's tmpfs. It is separate, so that other tests do not fill this file system's
/// OSTs unevenly. The tmpfs takes memory only as it fills.
const SPACE: &str = "4g";

/// A mount namespace, with a file system if one was started. Both end on drop.
#[derive(Debug)]
pub struct Sandbox {
    base: PathBuf,
}

impl Sandbox {
    /// Runs a test in a sandbox of its own. Prints a message and does nothing if this machine does
    /// not allow a sandbox.
    pub fn enter(name: &str, test: impl FnOnce(&Sandbox) + Send + 'static) {
        if !can_mount() || !is_root() {
            return println!("skipped: needs root and /dev/fuse");
        }
        let base = new_dir(Path::new("/dev/shm"));
        // A namespace belongs to a thread and to the processes that it starts.
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            // SAFETY: only the mount namespace is unshared; file descriptors and memory stay
            // shared.
            unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }
                .expect("root may unshare mounts");
            let sandbox = Sandbox { base };
            sandbox.furnish();
            test(&sandbox);
        });
        let thread = thread.expect("a thread");
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    }

    fn furnish(&self) {
        fs::create_dir_all(&self.base).expect("a directory for the test");
        let script = format!(
            "
set -e
mount --make-rprivate /
awk '$3 == \"fuse.sheen\" {{ print $2 }}' /proc/mounts | while read -r at; do
  # One whose directory another test removes meanwhile goes by itself.
  umount -l \"$(printf %b \"$at\")\" || ! grep -qF \" $at fuse.sheen\" /proc/mounts
done
mkdir -p /run/sheen /run/sheen-public
mount -t tmpfs -o mode=700 none /run/sheen
mount -t tmpfs -o mode=755 none /run/sheen-public
mount -t tmpfs -o mode=755 none /mnt
mount -t tmpfs -o mode=755,size={SPACE} none {}",
            self.base.display()
        );
        self.sh(Path::new("/"), &script).ok();
        fs::create_dir(self.bin()).expect("its own directory");
        let program = self.bin().join("sheen");
        copy_program(&sheen(), &program);
        for tool in ["lfs", "lctl"] {
            std::os::unix::fs::symlink(&program, self.bin().join(tool)).expect("a link in its own directory");
        }
    }

    /// Returns the directory of the programs `sheen`, `lfs` and `lctl`.
    pub fn bin(&self) -> PathBuf {
        self.base.join("bin")
    }

    /// Returns the directory of the file system.
    pub fn dir(&self) -> PathBuf {
        self.base.join("fs")
    }

    /// Runs a script in a directory, with the programs in PATH and messages in English.
    #[track_caller]
    pub fn sh(&self, cwd: &Path, script: &str) -> Ran {
        run_within(self.script(cwd, script), EVENTUALLY)
    }

    fn script(&self, cwd: &Path, script: &str) -> Command {
        let path = format!("{}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", self.bin().display());
        let mut command = Command::new("bash");
        command.args(["-c", script]).current_dir(cwd).env("PATH", path).env("LC_ALL", "C.UTF-8").env("TZ", "UTC");
        command.env_remove("SHEEN_RUNTIME_DIR").env_remove("XDG_DATA_HOME");
        // Models of the lab.
        command.env_remove("SHEEN_LAB_DIR").env("XDG_STATE_HOME", self.base.join("state"));
        command
    }

    /// Starts a file system of 4 OSTs and mounts it. Files have one stripe by default, as in
    /// Lustre.
    #[track_caller]
    pub fn up(&self, fsname: &str, mnt: &str) {
        self.up_with(fsname, mnt, "--default-layout plain");
    }

    /// As [`Sandbox::up`], with these options instead.
    #[track_caller]
    pub fn up_with(&self, fsname: &str, mnt: &str, options: &str) {
        let dir = self.dir();
        let line = format!(
            "sheen up --dir {} --mount {mnt} --osts 4 --fsname {fsname} --listen 127.0.0.1:0 {options}",
            dir.display()
        );
        self.sh(Path::new("/"), &line).ok();
    }

    /// Mounts the file system a second time, by a process of its own.
    #[track_caller]
    pub fn mount_again(&self, mnt: &str) {
        let line = format!(
            "sheen mount $(sheen status --json --dir {} | sed -n 's/.*\"source\": *\"\\(.*\\)\".*/\\1/p') {mnt}",
            self.dir().display()
        );
        self.sh(Path::new("/"), &format!("mkdir -p {mnt} && {line}")).ok();
    }
}

/// Script that aborts the FUSE connections of all mounts. No process then waits for a mount whose
/// process hangs or is stopped.
const ABORT: &str =
    "awk '/ - fuse[.]sheen / { split($3, dev, \":\"); print dev[2] }' /proc/self/mountinfo | while read -r minor; do
  echo 1 >/sys/fs/fuse/connections/$minor/abort
done";

impl Drop for Sandbox {
    fn drop(&mut self) {
        let (root, base) = (Path::new("/"), self.base.display());
        let unmount = "awk '$3 == \"fuse.sheen\" { print $2 }' /proc/mounts | while read -r at; do sheen umount --force \"$at\"; done";
        let down = format!("sheen down --force --dir {}", self.dir().display());
        if !clean_up(&mut self.script(root, &format!("{unmount}; {down}"))) || thread::panicking() {
            clean_up(&mut self.script(root, ABORT));
            signal_all(&[self.bin().join("sheen").as_os_str()], Signal::KILL);
            clean_up(&mut self.script(root, unmount));
        }
        clean_up(&mut self.script(root, &format!("umount -l {base}; rmdir {base}")));
    }
}
