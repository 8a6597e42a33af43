//! The findings as a table for people: one line for all that is well in a group, and one line with
//! its command for each other finding.

use std::fmt::Write;

use super::finding::{Finding, Section, Severity};

/// Columns of the name of a group.
const NAME: usize = 12;
/// Columns of a mark.
const MARK: usize = 6;

/// Returns the table. `verbose`: with a line for each check.
pub fn render(sections: &[Section], verbose: bool) -> String {
    let mut text = String::new();
    for section in sections {
        let mut name = section.name;
        for (mark, fact, advice) in rows(&section.findings, verbose) {
            let _ = writeln!(text, "{name:NAME$}{mark:MARK$}{fact}");
            if let Some(advice) = advice {
                let _ = writeln!(text, "{:1$}{advice}", "", NAME + MARK);
            }
            name = "";
        }
    }
    text.push_str(&summary(sections));
    text
}

/// Mark, fact and advice of each line of a group.
fn rows(findings: &[Finding], verbose: bool) -> Vec<(&'static str, String, Option<&str>)> {
    let (well, others): (Vec<&Finding>, Vec<&Finding>) = findings.iter().partition(|f| f.severity == Severity::Ok);
    let row = |finding: &&Finding| (mark(finding.severity), finding.text.clone(), None);
    let mut rows: Vec<(&'static str, String, Option<&str>)> = match (verbose, well.len()) {
        (true, _) => well.iter().map(row).collect(),
        (false, 0) => Vec::new(),
        (false, count) => vec![(mark(Severity::Ok), format!("{} passed", counted(count, "check")), None)],
    };
    rows.extend(others.into_iter().map(|f| (mark(f.severity), f.text.clone(), f.advice.as_deref())));
    rows
}

fn mark(severity: Severity) -> &'static str {
    match severity {
        Severity::Ok => "ok",
        Severity::Hint => "hint",
        Severity::Warning => "warn",
        Severity::Error => "FAIL",
    }
}

/// The last line: how many findings of each kind there are.
fn summary(sections: &[Section]) -> String {
    let count = |severity| {
        let all = sections.iter().flat_map(|section| &section.findings);
        all.filter(|finding| finding.severity == severity).count()
    };
    let kinds = [(Severity::Error, "error"), (Severity::Warning, "warning"), (Severity::Hint, "hint")];
    let counts = kinds.map(|(severity, name)| (count(severity), name));
    let parts: Vec<String> = counts.iter().filter(|(n, _)| *n > 0).map(|(n, name)| counted(*n, name)).collect();
    match parts.is_empty() {
        true => "\nThis machine is ready for Sheen.\n".to_owned(),
        false => format!("\n{}\n", parts.join(", ")),
    }
}

/// A number of things: `1 check`, `2 checks`.
fn counted(count: usize, name: &str) -> String {
    format!("{count} {name}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sections() -> Vec<Section> {
        let fuse = vec![
            Finding::ok("a", "a works"),
            Finding::hint("b", "b is slow", "run b"),
            Finding::ok("c", "c works"),
            Finding::error("d", "d fails", "run d"),
        ];
        let keys = vec![Finding::warning("e", "e is public", "chmod e"), Finding::hint("f", "f is slow", "run f")];
        let limits = vec![Finding::ok("g", "g works")];
        [("FUSE", fuse), ("Limits", limits), ("Keys", keys)].map(|(name, findings)| Section { name, findings }).to_vec()
    }

    #[test]
    fn table_groups_what_is_well_and_shows_a_command_below_each_other_finding() {
        let expected = "\
FUSE        ok    2 checks passed
            hint  b is slow
                  run b
            FAIL  d fails
                  run d
Limits      ok    1 check passed
Keys        warn  e is public
                  chmod e
            hint  f is slow
                  run f

1 error, 1 warning, 2 hints
";
        assert_eq!(render(&sections(), false), expected);
    }

    #[test]
    fn verbose_table_shows_each_check() {
        let text = render(&sections()[..2], true);
        let expected = "\
FUSE        ok    a works
            ok    c works
            hint  b is slow
                  run b
            FAIL  d fails
                  run d
Limits      ok    g works

1 error, 1 hint
";
        assert_eq!(text, expected);
    }

    #[test]
    fn table_of_a_machine_without_problems_says_so() {
        assert_eq!(
            render(&sections()[1..2], false),
            "Limits      ok    1 check passed\n\nThis machine is ready for Sheen.\n"
        );
    }
}
