//! Transcripts: commands and their output, as text.
//!
//! ```text
//! # case NAME ; cwd=DIRECTORY ; …
//! ! REASON
//! $ COMMAND
//! [exit CODE]
//! --- stdout
//! …
//! --- stderr
//! …
//! ===
//! ```
//!
//! * A line `! REASON` stands only in lists of differences. `!2 REASON` means the second time that
//!   the command is given in its case.
//! * COMMAND may continue on further lines.
//! * A line `<no newline at end>` says that the line before it has no newline.

use std::path::PathBuf;

use crate::Ran;

/// Commands that run one after another in one directory.
#[derive(Debug, Clone)]
pub struct Case {
    /// Name, such as `013-getstripe-flags`.
    pub name: String,
    /// The working directory.
    pub cwd: PathBuf,
    /// The commands in order.
    pub steps: Vec<Step>,
}

/// A command and its output.
#[derive(Debug, Clone)]
pub struct Step {
    /// Why this output differs from the reference's. Empty in the reference.
    pub reason: String,
    /// Number of this command among equal commands of its case, from 1.
    pub time: usize,
    /// A shell script.
    pub command: String,
    /// Its output and exit code.
    pub ran: Ran,
}

const NO_NEWLINE: &str = "\n<no newline at end>\n";

/// Parses cases.
///
/// # Panics
/// If the text is not a transcript. Transcripts are part of the tests, not input.
pub fn parse(text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let mut rest = text;
    while !rest.trim().is_empty() {
        let line = rest.split_inclusive('\n').next().unwrap_or(rest);
        if let Some(head) = line.strip_prefix("# case ") {
            let mut fields = head.trim_end().split(" ; ");
            let name = fields.next().unwrap_or_default().to_owned();
            let cwd = fields.find_map(|f| f.strip_prefix("cwd=")).unwrap_or("/").into();
            cases.push(Case { name, cwd, steps: Vec::new() });
            rest = &rest[line.len()..];
        } else if line.starts_with('#') || line == "\n" {
            rest = &rest[line.len()..];
        } else {
            let end = rest.find("\n===\n").unwrap_or_else(|| panic!("no === after {line}"));
            let steps = &mut cases.last_mut().unwrap_or_else(|| panic!("no case before {line}")).steps;
            let mut step = parse_step(&rest[..=end]);
            if step.time == 0 {
                step.time = 1 + steps.iter().filter(|s| s.command == step.command).count();
            }
            steps.push(step);
            rest = &rest[end + 5..];
        }
    }
    cases
}

fn parse_step(text: &str) -> Step {
    let (mut reason, mut time) = (String::new(), 0);
    let mut text = text;
    while let Some(line) = text.strip_prefix('!') {
        let (line, rest) = line.split_once('\n').expect("a reason, then a command");
        let (number, words) = line.split_once(' ').expect("! REASON");
        if let Ok(number) = number.parse() {
            time = number;
        }
        reason = format!("{reason} {words}").trim().to_owned();
        text = rest;
    }
    let (command, rest) = text.split_once("\n[exit ").unwrap_or_else(|| panic!("no exit code: {text}"));
    let command = command.strip_prefix("$ ").unwrap_or_else(|| panic!("no command: {text}")).to_owned();
    let (code, rest) = rest.split_once("]\n").expect("[exit CODE]");
    let (before, err) = section(rest, "--- stderr\n");
    let (_, out) = section(before, "--- stdout\n");
    Step { reason, time, command, ran: Ran { code: code.parse().expect("a number"), out, err } }
}

/// Splits `text` at a section's title. Returns the text before the title and the section's body.
fn section<'a>(text: &'a str, title: &str) -> (&'a str, String) {
    let at = if text.starts_with(title) { Some(0) } else { text.find(&format!("\n{title}")).map(|at| at + 1) };
    match at {
        Some(at) => {
            let body = &text[at + title.len()..];
            (&text[..at], body.strip_suffix(NO_NEWLINE).unwrap_or(body).to_owned())
        }
        None => (text, String::new()),
    }
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.reason.is_empty() {
            let time = if self.time > 1 { self.time.to_string() } else { String::new() };
            writeln!(f, "!{time} {}", self.reason)?;
        }
        writeln!(f, "$ {}\n[exit {}]", self.command, self.ran.code)?;
        for (title, text) in [("stdout", &self.ran.out), ("stderr", &self.ran.err)] {
            if !text.is_empty() {
                write!(f, "--- {title}\n{text}{}", if text.ends_with('\n') { "" } else { NO_NEWLINE })?;
            }
        }
        writeln!(f, "===")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transcript_round_trips_through_parse_and_display() {
        let text = "! because\n$ a\n  b\n[exit 2]\n--- stdout\nx\n\n--- stderr\ny\n<no newline at end>\n===\n!2 again\n$ a\n[exit 0]\n===\n";
        let cases = parse(&format!("# case c ; cwd=/mnt ; x\n{text}"));
        let [case] = &cases[..] else { panic!("{cases:?}") };
        assert_eq!((case.name.as_str(), case.cwd.to_str()), ("c", Some("/mnt")));
        let [first, second] = &case.steps[..] else { panic!("{case:?}") };
        assert_eq!((first.command.as_str(), first.ran.code), ("a\n  b", 2));
        assert_eq!((first.ran.out.as_str(), first.ran.err.as_str()), ("x\n\n", "y"));
        assert_eq!((second.reason.as_str(), second.time), ("again", 2));
        assert_eq!(format!("{first}{second}"), text);
    }
}
