//! The machine of a run, and the file system that is measured.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::size::human;

const GIB: f64 = 1_073_741_824.0;
const MI: f64 = 1_048_576.0;

/// Returns the name and release of the system: `Linux`, the host's name, the release.
pub fn system() -> [String; 3] {
    let name = rustix::system::uname();
    [name.sysname(), name.nodename(), name.release()].map(|part| part.to_string_lossy().into_owned())
}

/// Checks that the buffers of all tasks fit in memory.
///
/// # Errors
/// A message for the user.
pub fn check_memory(bytes: u64) -> Result<(), String> {
    match memory("MemAvailable:") {
        Some(available) if bytes > available => {
            let [bytes, available] = [bytes, available].map(human);
            Err(format!("the buffers of all tasks need {bytes} of memory, and {available} are available"))
        }
        _ => Ok(()),
    }
}

/// Returns the memory of this machine in bytes; `None`: it is unknown.
pub fn total_memory() -> Option<u64> {
    memory("MemTotal:")
}

/// Returns a quantity of /proc/meminfo in bytes.
fn memory(key: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let kilobytes = text.lines().find_map(|line| line.strip_prefix(key)?.split_whitespace().next())?;
    kilobytes.parse::<u64>().ok()?.checked_mul(1024)
}

/// Describes the machine, for a report: system, processors, memory.
pub fn describe() -> Value {
    let [system, host, release] = system();
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ").map(|(_, name)| name));
    json!({
        "system": system,
        "host": host,
        "release": release,
        "processors": std::thread::available_parallelism().map_or(1, usize::from),
        "processor": model.unwrap_or("unknown"),
        "memory_bytes": total_memory().unwrap_or(0),
        "sheen": env!("CARGO_PKG_VERSION"),
    })
}

/// Returns the line of IOR and mdtest about the space of the file system that contains `path`; it
/// may not exist yet.
pub fn space(path: &Path) -> Option<String> {
    let existing = path.ancestors().map(|dir| if dir.as_os_str().is_empty() { Path::new(".") } else { dir });
    let space = existing.map(rustix::fs::statvfs).find_map(Result::ok)?;
    let gib = (space.f_blocks * space.f_frsize) as f64 / GIB;
    let (size, unit) = if gib > 1024.0 { (gib / 1024.0, "TiB") } else { (gib, "GiB") };
    let used = |free: u64, all: u64| if all == 0 { 0.0 } else { (1.0 - free as f64 / all as f64) * 100.0 };
    Some(format!(
        "{size:.1} {unit}   Used FS: {:2.1}%   Inodes: {:.1} Mi   Used Inodes: {:2.1}%",
        used(space.f_bfree, space.f_blocks),
        space.f_files as f64 / MI,
        used(space.f_ffree, space.f_files)
    ))
}

/// Returns the type of the file system that contains `path`, and its source, as in /proc/mounts.
pub fn mount_of(path: &Path) -> Option<[String; 2]> {
    let path = path
        .ancestors()
        .find_map(|dir| fs::canonicalize(if dir.as_os_str().is_empty() { Path::new(".") } else { dir }).ok())?;
    let mounts = fs::read_to_string("/proc/mounts").ok()?;
    let words = mounts.lines().map(|line| line.split(' ').map(unescape).collect::<Vec<_>>());
    let inside = words.filter(|words| words.len() > 2 && path.starts_with(&words[1]));
    // The last of the longest mount points is on top.
    let best = inside.max_by_key(|words| words[1].len())?;
    Some([best[2].clone(), best[0].clone()])
}

/// /proc/mounts writes space, tab, newline and backslash as \ooo.
pub fn unescape(word: &str) -> String {
    word.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}
