//! A corner of this machine for tests that compare what commands print: the commands see one file
//! system, at paths of the test's choice, and no other Sheen process.
//!
//! The corner is a mount namespace of its own. In it `/mnt` and `/run/sheen` are fresh, its files
//! are in memory of their own, and mounts of other tests are taken away, so that `lfs df` or
//! `lctl dl`, which show all that there is, show this file system alone. It takes root to make one.

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

/// Space of the file system: its own, so that no other test makes its OSTs unevenly full. Of this,
/// memory is used as it fills.
const SPACE: &str = "4g";

/// The corner, with a file system in it if one was started; all of it ends when dropped.
#[derive(Debug)]
pub struct Sandbox {
    base: PathBuf,
}

impl Sandbox {
    /// Runs a test in a corner of its own. Says so and does nothing where this machine does not
    /// allow one.
    pub fn enter(name: &str, test: impl FnOnce(&Sandbox) + Send + 'static) {
        if !can_mount() || !is_root() {
            return println!("skipped: needs root and /dev/fuse");
        }
        let base = new_dir(Path::new("/dev/shm"));
        // A namespace belongs to a thread and to the processes that it starts.
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            // SAFETY: nothing is unshared but the view of mounts; file descriptors and memory stay
            // as they are.
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
mkdir -p /run/sheen
mount -t tmpfs -o mode=700 none /run/sheen
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

    /// Where `sheen`, `lfs` and `lctl` lie.
    pub fn bin(&self) -> PathBuf {
        self.base.join("bin")
    }

    /// The directory of the file system.
    pub fn dir(&self) -> PathBuf {
        self.base.join("fs")
    }

    /// Runs a script in a directory, with the tools on the path and messages in English.
    #[track_caller]
    pub fn sh(&self, cwd: &Path, script: &str) -> Ran {
        run_within(self.script(cwd, script), EVENTUALLY)
    }

    fn script(&self, cwd: &Path, script: &str) -> Command {
        let path = format!("{}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", self.bin().display());
        let mut command = Command::new("bash");
        command.args(["-c", script]).current_dir(cwd).env("PATH", path).env("LC_ALL", "C.UTF-8").env("TZ", "UTC");
        command.env_remove("SHEEN_RUNTIME_DIR").env_remove("XDG_DATA_HOME");
        command
    }

    /// Starts a file system of 4 OSTs and mounts it; files have one stripe by default, as Lustre's.
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

    /// Mounts it a second time, by a process of its own.
    #[track_caller]
    pub fn mount_again(&self, mnt: &str) {
        let line = format!(
            "sheen mount $(sheen status --json --dir {} | sed -n 's/.*\"source\": *\"\\(.*\\)\".*/\\1/p') {mnt}",
            self.dir().display()
        );
        self.sh(Path::new("/"), &format!("mkdir -p {mnt} && {line}")).ok();
    }
}

/// Ends the kernel's side of the mounts, so that nobody waits for a process that hangs or is
/// stopped.
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
