//! The `sheen` program as a user calls it, with a control directory of its own. So `lctl` reaches
//! only the processes of this measurement, and no other Sheen processes on the machine.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Exit code of `lctl get_param` if no parameter matches.
const NO_SUCH_PARAM: i32 = 2;

/// The program, with the control directory of the processes that it starts.
#[derive(Clone, Debug)]
pub struct Sheen {
    program: PathBuf,
    run: PathBuf,
}

impl Sheen {
    /// Returns the program `program`, whose processes have their control sockets in `run`.
    pub fn new(program: &Path, run: PathBuf) -> Sheen {
        Sheen { program: program.to_owned(), run }
    }

    /// Returns a command that runs the program with `words`.
    pub fn command(&self, words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words).env("SHEEN_RUNTIME_DIR", &self.run);
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

    /// Returns the values of the parameters that match, or `None` if no parameter matches.
    pub fn get_param(&self, pattern: &str) -> io::Result<Option<String>> {
        let out = self.command(["lctl", "get_param", "-n", pattern]).stdin(Stdio::null()).output()?;
        match out.status.code() {
            Some(0) => Ok(Some(String::from_utf8_lossy(&out.stdout).into_owned())),
            Some(NO_SUCH_PARAM) => Ok(None),
            _ => Err(io::Error::other(format!("lctl get_param {pattern}: {}", out.status))),
        }
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

    /// Returns the processes that were started and have not ended. Each has a control socket, and
    /// its command line contains a path next to the control directory. So a reused process id does
    /// not count, nor does a zombie.
    pub fn pids(&self) -> Vec<u32> {
        let beside = self.run.parent().unwrap_or(&self.run).to_string_lossy().into_owned();
        let ours = |pid: &u32| {
            fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| String::from_utf8_lossy(&line).contains(&beside))
        };
        let entries = fs::read_dir(&self.run).into_iter().flatten().flatten();
        let pid = |entry: fs::DirEntry| entry.file_name().to_str()?.strip_suffix(".sock")?.parse().ok();
        entries.filter_map(pid).filter(ours).collect()
    }
}

/// A counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counter {
    /// Number of samples.
    pub count: u64,
    /// Sum of the samples, in the counter's unit.
    pub sum: u64,
}

/// Counters by name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Counters(BTreeMap<String, Counter>);

impl Counters {
    /// Adds the counters in `text`. Its lines are `NAME COUNT samples [UNIT] MIN MAX SUM …` as in
    /// Lustre's `stats`, or `NAME COUNT`.
    fn read(&mut self, text: &str) {
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |i: usize| words.get(i).and_then(|w| w.parse::<u64>().ok());
            let (Some(name), Some(count)) = (words.first(), number(1)) else { continue };
            if words.len() > 2 && words[2] != "samples" {
                continue;
            }
            let counter = self.0.entry((*name).to_owned()).or_default();
            counter.count += count;
            counter.sum += number(6).unwrap_or(0);
        }
    }

    /// Returns the increase since `before`.
    pub fn since(&self, before: &Counters) -> Counters {
        let less = |(name, now): (&String, &Counter)| {
            let then = before.get(name);
            let left = Counter { count: now.count.saturating_sub(then.count), sum: now.sum.saturating_sub(then.sum) };
            (left.count > 0).then(|| (name.clone(), left))
        };
        Counters(self.0.iter().filter_map(less).collect())
    }

    /// Returns the counter `name`.
    pub fn get(&self, name: &str) -> Counter {
        self.0.get(name).copied().unwrap_or_default()
    }

    /// Returns whether there is a counter `name`, even if it is 0.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Returns the number of requests. Counters of bytes are left out, because they count the same
    /// requests again.
    pub fn requests(&self) -> u64 {
        self.kinds().map(|(_, c)| c.count).sum()
    }

    /// Formats the requests by kind, the most frequent first: `10000 open, 3 getattr`.
    pub fn render_requests(&self) -> String {
        let mut kinds: Vec<_> = self.kinds().map(|(name, c)| (c.count, name)).collect();
        kinds.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
        let words: Vec<String> = kinds.iter().map(|(count, name)| format!("{count} {name}")).collect();
        if words.is_empty() { "0".to_owned() } else { words.join(", ") }
    }

    fn kinds(&self) -> impl Iterator<Item = (&String, &Counter)> {
        self.0.iter().filter(|(name, _)| !name.ends_with("_bytes"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATS: &str = "\
snapshot_time                       1795290918.712480880 secs.nsecs
open                                2 samples [usecs] 365 32900 33265 1082543225
write                               3 samples [usecs] 1 2 5 9
write_bytes                         3 samples [bytes] 4096 4096 12288 0
grants                    7
open                                1 samples [usecs] 5 5 5 25
";

    #[test]
    fn counters_of_all_targets_are_added_and_bytes_are_not_requests() {
        let mut now = Counters::default();
        now.read(STATS);
        assert_eq!(now.get("open"), Counter { count: 3, sum: 33270 });
        assert_eq!((now.get("write_bytes").sum, now.get("grants").count), (12288, 7));
        assert_eq!(now.get("snapshot_time"), Counter::default());
        let mut before = Counters::default();
        before.read("open 1 samples [usecs] 1 1 1 1\ngrants 7\n");
        let new = now.since(&before);
        assert_eq!((new.requests(), new.render_requests().as_str()), (5, "3 write, 2 open"));
        assert_eq!(new.since(&new).render_requests(), "0");
    }
}
