//! The environment of a command of `lfs`: the file system, the output streams, and the errors and
//! questions that commands have in common.

use std::{
    ffi::{OsStr, OsString},
    fmt,
    io::Write,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use serde::de::DeserializeOwned;
use sheen_admin::{FileSystem, mounts::ANSWER_WAIT, not_sheen, paths::join};
use sheen_wire::{Errno, control, control::MountInfo};

use crate::time_limits::scaled;

/// Exit code of a usage error (Lustre's CMD_HELP).
pub const EXIT_USAGE: i32 = 4;

/// A command: its name, its usage text, and the function that runs it.
pub struct Command {
    pub name: &'static str,
    pub usage: &'static str,
    pub run: fn(&mut Tool, &[OsString]) -> i32,
}

/// The environment of a command: the file system and the two output streams.
pub struct Tool<'a> {
    /// The file system.
    pub fs: &'a dyn FileSystem,
    /// Standard output.
    pub out: &'a mut dyn Write,
    /// Standard error.
    pub err: &'a mut dyn Write,
}

impl Tool<'_> {
    /// Prints to stdout. A closed stdout is not a failure.
    pub fn print(&mut self, text: fmt::Arguments<'_>) {
        let _ = self.out.write_fmt(text);
    }

    /// Prints to stdout and flushes, for output that is read while the command runs.
    pub fn print_now(&mut self, text: &str) {
        self.print(format_args!("{text}"));
        let _ = self.out.flush();
    }

    /// Prints bytes, such as names that are not text, to stdout.
    pub fn print_bytes(&mut self, bytes: &[u8]) {
        let _ = self.out.write_all(bytes);
    }

    /// Flushes stdout, then prints a line to stderr.
    pub fn complain(&mut self, text: fmt::Arguments<'_>) {
        let _ = self.out.flush();
        let _ = writeln!(self.err, "{text}");
    }

    /// Reports a usage error: prints the usage and the error, and returns [`EXIT_USAGE`].
    pub fn usage(&mut self, usage: &str, wrong: fmt::Arguments<'_>) -> i32 {
        self.print(format_args!("{usage}"));
        self.complain(wrong);
        EXIT_USAGE
    }

    /// Prints the usage for `--help` and returns [`EXIT_USAGE`].
    pub fn help(&mut self, usage: &str) -> i32 {
        self.print(format_args!("{usage}"));
        EXIT_USAGE
    }

    /// Checks that the caller may read a directory whose layout is asked for, and reports a
    /// refusal. Lustre's `lfs` opens the directory.
    pub fn check_readable(&mut self, command: &str, dir: &Path) -> Result<(), Errno> {
        self.fs.may_read(dir).inspect_err(|e| {
            let (what, dir) = ("llapi_semantic_traverse: Failed to open", dir.display());
            self.complain(format_args!("lfs {command}: {what} '{dir}': {e} ({})", e.0));
        })
    }

    /// Returns the paths of a directory's entries in reverse order, for a stack. Reports a failure,
    /// and notes it in `first` if it is the first one.
    pub fn children(&mut self, command: &str, dir: &Path, first: &mut Result<(), Errno>) -> Vec<PathBuf> {
        match self.fs.list(dir) {
            Ok(names) => names.iter().rev().map(|name| join(dir, name)).collect(),
            Err(e) => {
                self.complain(format_args!("lfs {command}: open {} failed: {e} ({})", dir.display(), e.0));
                *first = first.and(Err(e));
                Vec::new()
            }
        }
    }

    /// Returns the JSON value of the control attribute `name` from the mount that `path` lies on.
    pub fn ask<T: DeserializeOwned>(&self, path: &Path, name: &str) -> Result<T, Errno> {
        let value = self.fs.get(path, name).map_err(not_sheen)?;
        serde_json::from_slice(&value).map_err(|_| Errno::EPROTO)
    }

    /// Returns the mount that `path` lies on, following symbolic links. ENOTTY: not a Sheen mount.
    pub fn mount_of(&self, path: &Path) -> Result<MountInfo, Errno> {
        self.ask(&self.fs.resolve(path)?, control::MOUNT)
    }

    /// Returns the mount that `path` lies on. Without a path, returns all mounts that answer, as
    /// [`Tool::responding_mounts`].
    pub fn mounts(&mut self, command: &str, path: Option<&OsStr>, code: &mut i32) -> Result<Vec<PathBuf>, Errno> {
        match path {
            // The FID of the root needs no server. Requests to servers have timeouts of their own.
            None => Ok(self.responding_mounts(command, control::FID, None, code)),
            Some(path) => Ok(vec![PathBuf::from(self.mount_of(Path::new(path))?.mountpoint)]),
        }
    }

    /// Returns a mount of the file system `fsname`. Mounts that do not answer are reported.
    pub fn mount_named(&mut self, command: &str, fsname: &OsStr) -> Option<PathBuf> {
        let points = self.responding_mounts(command, control::MOUNT, Some(text(fsname)), &mut 0);
        points.into_iter().find(|mount| self.mount_of(mount).is_ok_and(|info| fsname == info.fsname.as_str()))
    }

    /// Returns the mounts of this host, or of one file system, that answer a request for the
    /// attribute `name` in time. A mount that does not answer is reported on
    /// stderr and sets `code`. It does not hide the other mounts.
    pub fn responding_mounts(
        &mut self,
        command: &str,
        name: &'static str,
        fsname: Option<&str>,
        code: &mut i32,
    ) -> Vec<PathBuf> {
        let mut mounts = self.fs.mounts();
        mounts.retain(|mount| fsname.is_none_or(|fsname| mount.fsname == fsname));
        let points: Vec<PathBuf> = mounts.into_iter().map(|mount| mount.point).collect();
        let limit = scaled(ANSWER_WAIT);
        let answers = self.fs.answers(&points, name, limit);
        let (answering, silent): (Vec<_>, Vec<_>) = points.into_iter().zip(answers).partition(|(_, answers)| *answers);
        for (point, _) in silent {
            self.complain(format_args!(
                "lfs {command}: '{}' does not answer within {} s and is left out: \
                 its process may be stopped, hang or wait for a server",
                point.display(),
                limit.as_secs()
            ));
            keep_first(code, Errno::ETIMEDOUT);
        }
        answering.into_iter().map(|(point, _)| point).collect()
    }
}

/// Stores the errno of the first failure as the exit code.
pub fn keep_first(code: &mut i32, e: Errno) {
    if *code == 0 {
        *code = e.0;
    }
}

/// Returns an operand as text for parsing. Invalid UTF-8 becomes U+FFFD, which the parsers of
/// numbers, FIDs and option values refuse.
pub fn text(arg: &OsStr) -> &str {
    std::str::from_utf8(arg.as_bytes()).unwrap_or("\u{fffd}")
}
