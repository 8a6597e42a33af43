//! Events of the kernel, recorded in an instance of tracefs of their own. Needs root.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

/// The directory of instances.
const INSTANCES: &str = "/sys/kernel/tracing/instances";
/// Size of the buffer of each processor in KiB.
const BUFFER_KIB: u32 = 16_384;

/// An instance. It is removed when it is dropped.
#[derive(Debug)]
pub struct Trace(PathBuf);

/// A recorded event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// Name of the thread.
    pub thread: String,
    /// Id of the thread.
    pub tid: u32,
    /// The text after the time, such as `fuse_request_send: connection 55 …`.
    pub text: String,
}

impl Trace {
    /// Creates an instance that records nothing yet. Removes one that a killed program has left.
    ///
    /// # Errors
    /// There is no tracefs, or this user may not use it.
    pub fn new(name: &str) -> io::Result<Trace> {
        let dir = Path::new(INSTANCES).join(name);
        let _ = fs::remove_dir(&dir);
        let failed = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", dir.display()));
        fs::create_dir(&dir).map_err(failed)?;
        let trace = Trace(dir);
        trace.set("tracing_on", "0")?;
        trace.set("buffer_size_kb", &BUFFER_KIB.to_string())?;
        Ok(trace)
    }

    /// Writes a file of the instance, such as `events/fuse/fuse_request_send/enable`.
    ///
    /// # Errors
    /// The kernel has no such file, or refuses the value.
    pub fn set(&self, file: &str, value: &str) -> io::Result<()> {
        let path = self.0.join(file);
        fs::write(&path, value).map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))
    }

    /// Records the begins of all system calls of these threads, and of threads that they create.
    ///
    /// # Errors
    /// As [`Trace::set`].
    pub fn system_calls(&self, tids: &[u32]) -> io::Result<()> {
        self.set("options/event-fork", "1")?;
        let tids: Vec<String> = tids.iter().map(u32::to_string).collect();
        self.set("set_event_pid", &tids.join(" "))?;
        for entry in fs::read_dir(self.0.join("events/syscalls"))?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("sys_enter_") {
                self.set(&format!("events/syscalls/{name}/enable"), "1")?;
            }
        }
        Ok(())
    }

    /// Records events while an action runs.
    ///
    /// # Errors
    /// That of the action; as [`Trace::set`]; the buffer was too small.
    pub fn record(&self, act: impl FnOnce() -> io::Result<()>) -> io::Result<Vec<Event>> {
        self.set("trace", "")?;
        self.set("tracing_on", "1")?;
        let acted = act();
        self.set("tracing_on", "0")?;
        acted?;
        events(&fs::read_to_string(self.0.join("trace"))?)
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// Reads the text of a trace.
fn events(text: &str) -> io::Result<Vec<Event>> {
    let numbers = text.lines().find_map(|line| line.strip_prefix("# entries-in-buffer/entries-written: "));
    let counts = numbers.and_then(|words| words.split_whitespace().next()?.split_once('/'));
    match counts {
        Some((read, written)) if read != written => {
            Err(io::Error::other(format!("the trace has {read} of {written} events: measure less")))
        }
        _ => Ok(text.lines().filter_map(event).collect()),
    }
}

/// Reads a line `THREAD-TID [CPU] FLAGS TIME: TEXT`.
fn event(line: &str) -> Option<Event> {
    let (task, rest) = line.split_once(" [").filter(|_| !line.starts_with('#'))?;
    let (thread, tid) = task.trim().rsplit_once('-')?;
    let (_, text) = rest.split_once(": ")?;
    Some(Event { thread: thread.to_owned(), tid: tid.parse().ok()?, text: text.trim().to_owned() })
}

/// Counts names.
pub fn count(names: impl Iterator<Item = String>) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    names.for_each(|name| *counts.entry(name).or_default() += 1);
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# tracer: nop
#
# entries-in-buffer/entries-written: 2/2   #P:2
#
#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
           mkdir-1234    [001] .....   234.567890: fuse_request_send: connection 55 req 4 opcode 9 (FUSE_MKDIR) len 43
    fuse-ring-12-77      [000] .....   234.567999: sys_writev(fd: 3, vec: 7f00, vlen: 1)
";

    #[test]
    fn events_have_thread_and_text() {
        let events = events(TEXT).unwrap();
        assert_eq!((events.len(), events[0].thread.as_str(), events[0].tid), (2, "mkdir", 1234));
        assert!(events[0].text.starts_with("fuse_request_send: ") && events[0].text.contains("(FUSE_MKDIR)"));
        assert_eq!((events[1].thread.as_str(), events[1].tid), ("fuse-ring-12", 77));
        assert!(events[1].text.starts_with("sys_writev("));
    }

    #[test]
    fn lost_events_are_an_error() {
        assert!(events(&TEXT.replace("2/2", "2/3")).is_err());
    }
}
