//! `sheen doctor`: checks this machine for obstacles to speed and safety.

use std::io::{self, Write};

use serde::Serialize;

use crate::{
    args::DoctorArgs,
    doctor::{Finding, Section, Severity, examine, render, worst},
    error::{Context, Result},
    print::to_stdout,
};

/// Exit code if a part of Sheen does not work on this machine, or the findings cannot be printed.
const FAILED: i32 = 1;

/// A finding in the output for programs.
#[derive(Serialize)]
struct Line<'a> {
    group: String,
    #[serde(flatten)]
    finding: &'a Finding,
}

/// Runs the command. Returns the exit code: 1 if there is an error among the findings, else 0.
pub fn run(args: &DoctorArgs) -> i32 {
    let sections = examine(args.dir.as_deref());
    if let Err(failure) = print(args, &sections) {
        // Standard error may be closed as well.
        let _ = writeln!(io::stderr(), "sheen: {failure}");
        return FAILED;
    }
    if worst(&sections) == Severity::Error { FAILED } else { 0 }
}

fn print(args: &DoctorArgs, sections: &[Section]) -> Result {
    if !args.json {
        return to_stdout(&render(sections, args.verbose));
    }
    let pairs = sections.iter().flat_map(|section| section.findings.iter().map(move |finding| (section, finding)));
    let lines: Vec<Line<'_>> =
        pairs.map(|(section, finding)| Line { group: section.name.to_lowercase(), finding }).collect();
    let mut text = serde_json::to_string_pretty(&lines).context("cannot print the findings")?;
    text.push('\n');
    to_stdout(&text)
}
