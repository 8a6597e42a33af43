//! The `sheen` program as a user calls it. With a control directory of its own, `lctl` reaches only
//! the processes of this measurement, and no other Sheen processes on the machine.

use std::{
    ffi::OsStr,
    fs, io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::counters::Counters;

/// Exit code of `lctl get_param` if no parameter matches.
const NO_SUCH_PARAM: i32 = 2;
/// Exit code of `lctl get_param` if a parameter may belong to another user's process.
const PARAM_DENIED: i32 = 13;

/// The program, with the control directory of the processes that it starts. `None`: the user's.
#[derive(Clone, Debug)]
pub struct Sheen {
    program: PathBuf,
    run: Option<PathBuf>,
    keys: Option<PathBuf>,
}

impl Sheen {
    /// Returns the program `program`, whose processes have their control sockets in `run`.
    pub fn new(program: &Path, run: PathBuf) -> Sheen {
        Sheen { program: program.to_owned(), run: Some(run), keys: None }
    }

    /// Uses a directory of keys of its own, for a file system that is removed in the end.
    pub fn with_keys(self, dir: PathBuf) -> Sheen {
        Sheen { keys: Some(dir), ..self }
    }

    /// Returns this program. `lctl` reaches all processes of the user.
    ///
    /// # Errors
    /// The path of the program is not known.
    pub fn here() -> io::Result<Sheen> {
        Ok(Sheen { program: std::env::current_exe()?, run: None, keys: None })
    }

    /// Returns a command that runs the program with `words`.
    pub fn command(&self, words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
        let mut command = Command::new(&self.program);
        // Ctrl-C is for this program alone, which then ends what it has begun.
        command.args(words).process_group(0);
        if let Some(run) = &self.run {
            command.env("SHEEN_RUNTIME_DIR", run);
        }
        if let Some(keys) = &self.keys {
            command.env("SHEEN_KEY_DIR", keys);
        }
        command
    }

    /// Runs the program and returns its standard output.
    ///
    /// # Errors
    /// If it fails. The message contains its standard error.
    pub fn run(&self, words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> io::Result<String> {
        let mut command = self.command(words);
        let out = command.stdin(Stdio::null()).output()?;
        if out.status.success() {
            return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&out.stderr).trim().to_owned();
        Err(io::Error::other(format!("{command:?}: {}: {said}", out.status)))
    }

    /// Returns the values of the parameters that match. `None`: no parameter matches, or this user
    /// may not read it.
    ///
    /// # Errors
    /// `lctl` fails for another reason.
    pub fn get_param(&self, pattern: &str) -> io::Result<Option<String>> {
        let out = self.command(["lctl", "get_param", "-n", pattern]).stdin(Stdio::null()).output()?;
        match out.status.code() {
            Some(0) => Ok(Some(String::from_utf8_lossy(&out.stdout).into_owned())),
            Some(NO_SUCH_PARAM | PARAM_DENIED) => Ok(None),
            _ => Err(io::Error::other(format!("lctl get_param {pattern}: {}", out.status))),
        }
    }

    /// Returns the parameters that match, with their values. Multi-line values are cut.
    ///
    /// # Errors
    /// As [`Sheen::run`].
    pub fn values(&self, pattern: &str) -> io::Result<Vec<(String, String)>> {
        let text = self.run(["lctl", "get_param", pattern])?;
        let pair = |line: &str| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
        Ok(text.lines().filter_map(pair).collect())
    }

    /// Sets the matching parameters in all processes.
    pub fn set_param(&self, pattern: &str, value: impl std::fmt::Display) -> io::Result<()> {
        self.run(["lctl", "set_param", "-n", &format!("{pattern}={value}")]).map(drop)
    }

    /// Returns the counters of the matching parameters. Counters of the same name are added.
    pub fn counters(&self, patterns: &[&str]) -> io::Result<Counters> {
        let mut all = Counters::default();
        for pattern in patterns {
            all.read(&self.get_param(pattern)?.unwrap_or_default());
        }
        Ok(all)
    }

    /// Returns the processes of an own control directory that have not ended. Each has a control
    /// socket, and its command line contains a path next to the control directory. So a reused
    /// process id does not count, nor does a zombie.
    pub fn pids(&self) -> Vec<u32> {
        let Some(run) = &self.run else { return Vec::new() };
        let beside = run.parent().unwrap_or(run).to_string_lossy().into_owned();
        let ours = |pid: &u32| {
            fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| String::from_utf8_lossy(&line).contains(&beside))
        };
        let entries = fs::read_dir(run).into_iter().flatten().flatten();
        let pid = |entry: fs::DirEntry| entry.file_name().to_str()?.strip_suffix(".sock")?.parse().ok();
        entries.filter_map(pid).filter(ours).collect()
    }

    /// Creates an empty file with this layout, or sets a directory's default. `words` are arguments
    /// of `lfs setstripe`.
    ///
    /// # Errors
    /// As [`Sheen::run`].
    pub fn setstripe(&self, path: &Path, words: &[&str]) -> io::Result<()> {
        let path = path.to_string_lossy();
        let words = ["lfs", "setstripe"].iter().chain(words).copied().chain([path.as_ref()]);
        self.run(words).map(drop)
    }
}
