//! The result of a check, and the results of a group of checks.

use serde::Serialize;

/// Weight of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Nothing to do.
    Ok,
    /// Sheen works, and could be faster or easier to use.
    Hint,
    /// Data, a secret or a running service is at risk.
    Warning,
    /// A part of Sheen does not work on this machine.
    Error,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Name of the check, for programs.
    pub check: &'static str,
    /// Its weight.
    pub severity: Severity,
    /// The fact, and its consequence.
    pub text: String,
    /// The command that mends it, or that nothing can be done. `None` only for [`Severity::Ok`].
    pub advice: Option<String>,
}

impl Finding {
    /// Nothing to do.
    pub fn ok(check: &'static str, text: impl Into<String>) -> Finding {
        Finding { check, severity: Severity::Ok, text: text.into(), advice: None }
    }

    /// Something that could be better.
    pub fn hint(check: &'static str, text: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding { check, severity: Severity::Hint, text: text.into(), advice: Some(advice.into()) }
    }

    /// A risk.
    pub fn warning(check: &'static str, text: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding { check, severity: Severity::Warning, text: text.into(), advice: Some(advice.into()) }
    }

    /// A part of Sheen does not work.
    pub fn error(check: &'static str, text: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding { check, severity: Severity::Error, text: text.into(), advice: Some(advice.into()) }
    }
}

/// The findings of a group of checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Name of the group.
    pub name: &'static str,
    /// Its findings, in the order of the checks.
    pub findings: Vec<Finding>,
}

/// Returns the largest weight of the findings.
pub fn worst(sections: &[Section]) -> Severity {
    let all = sections.iter().flat_map(|section| &section.findings);
    all.map(|finding| finding.severity).max().unwrap_or(Severity::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worst_severity_of_all_sections_counts() {
        let section = |findings| Section { name: "FUSE", findings };
        assert_eq!(worst(&[]), Severity::Ok);
        let (ok, hint) = (Finding::ok("a", "fine"), Finding::hint("b", "slow", "run c"));
        assert_eq!(worst(&[section(vec![ok.clone()])]), Severity::Ok);
        let error = Finding::error("d", "fails", "run e");
        assert_eq!(worst(&[section(vec![error, ok]), section(vec![hint])]), Severity::Error);
    }
}
