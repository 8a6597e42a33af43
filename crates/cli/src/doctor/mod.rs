//! `sheen doctor`: checks this machine for obstacles to speed and safety.
//!
//! * [`facts`]: all facts, read by [`read`] and [`ask`] from the texts that [`parse`] decodes;
//! * [`mounts`]: which paths may block;
//! * `fuse`, `limits`, `network`, `processor`, `memory`, `keys`, `directory`, `processes`, `tools`:
//!   the facts of a group, and its checks: functions of these facts alone;
//! * [`finding`]: the result of a check, and [`table`]: all results for people.
//!
//! Invariants:
//! * nothing is changed;
//! * no network or FUSE mount is accessed, because a process that waits for one cannot be killed;
//! * a process that does not answer costs a second, and leaves a warning.

mod ask;
mod directory;
mod facts;
mod finding;
mod fuse;
mod keys;
mod limits;
mod memory;
mod mounts;
mod network;
mod parse;
mod processes;
mod processor;
mod read;
mod table;
mod tools;

use std::path::Path;

use facts::Facts;
pub use finding::{Finding, Section, Severity, worst};
pub use table::render;

/// Checks this machine. `dir`: a directory of `sheen up` or of a server, which may not exist yet;
/// `None` stands for the default directory of `sheen up`, if it exists.
pub fn examine(dir: Option<&Path>) -> Vec<Section> {
    let dir = dir.map(|dir| std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned()));
    sections(&Facts::read(dir))
}

/// Checks the facts. A group without findings is left out.
fn sections(facts: &Facts) -> Vec<Section> {
    let of_directory =
        |directory: &Option<directory::Directory>| directory.as_ref().map(directory::checks).unwrap_or_default();
    let mut sections = vec![
        section("FUSE", facts.fuse.as_ref(), fuse::checks),
        section("Limits", facts.limits.as_ref(), limits::checks),
        section("Network", facts.network.as_ref(), network::checks),
        section("Processor", Some(&facts.processor), processor::checks),
        section("Memory", Some(&facts.memory), memory::checks),
        section("Keys", facts.keys.as_ref(), keys::checks),
        section("Directory", facts.directory.as_ref(), of_directory),
        section("Processes", facts.processes.as_ref(), processes::checks),
        section("Tools", facts.tools.as_ref(), tools::checks),
    ];
    sections.retain(|section| !section.findings.is_empty());
    sections
}

/// Checks the facts of a group, if they are known.
fn section<T>(name: &'static str, facts: Option<&T>, checks: impl FnOnce(&T) -> Vec<Finding>) -> Section {
    let unknown = || {
        vec![Finding::warning(
            "time_limit",
            "not checked: the facts could not be read in time",
            "try again; on a busy machine with SHEEN_TIMEOUT_FACTOR=10",
        )]
    };
    Section { name, findings: facts.map_or_else(unknown, checks) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_that_are_not_known_leave_a_warning() {
        let (lustre, unsearched) = ([tools::Found::This, tools::Found::This], Vec::new());
        let ready = tools::Tools { lustre, has_mount_helper: true, unsearched };
        let tools = |facts: Option<&tools::Tools>| section("Tools", facts, tools::checks);
        let unknown = tools(None);
        assert_eq!((unknown.name, unknown.findings.len()), ("Tools", 1));
        assert_eq!(unknown.findings[0].severity, Severity::Warning);
        let known = tools(Some(&ready));
        assert_eq!(worst(&[known]), Severity::Ok);
    }
}
