//! Memory: the space for servers and mounts, and for the kernel's caches.

use super::finding::Finding;

/// Available memory in bytes below which caches are small.
const AVAILABLE_SMALL: u64 = 512 << 20;
/// Available memory in bytes below which the kernel may kill a server.
const AVAILABLE_MIN: u64 = 128 << 20;

/// The memory.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Memory that programs can still get, in bytes.
    pub available: Option<u64>,
}

/// Checks the memory.
pub fn checks(memory: &Memory) -> Vec<Finding> {
    memory.available.map(available).into_iter().collect()
}

fn available(bytes: u64) -> Finding {
    let check = "memory";
    let text = format!("{} MiB of memory are available", bytes >> 20);
    let advice = "`ps -eo pid,rss,comm --sort=-rss | head` shows the largest programs; stop those that are not needed";
    if bytes < AVAILABLE_MIN {
        Finding::warning(check, format!("{text}: the kernel may kill a server or mount"), advice)
    } else if bytes < AVAILABLE_SMALL {
        Finding::hint(check, format!("{text}: caches are small"), advice)
    } else {
        Finding::ok(check, text)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::finding::Severity, *};

    #[test]
    fn scarce_memory_is_a_hint_and_very_little_a_warning() {
        let severity = |available| checks(&Memory { available }).first().map(|f| f.severity);
        let severities = [Some(8 << 30), Some(300 << 20), Some(50 << 20), None].map(severity);
        assert_eq!(severities, [Some(Severity::Ok), Some(Severity::Hint), Some(Severity::Warning), None]);
    }
}
