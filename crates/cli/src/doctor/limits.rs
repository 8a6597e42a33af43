//! Limits of this user's processes.

use sheen_oss::OPEN_FILES_MAX;

use super::finding::Finding;

/// Open files of a process besides those of its OSTs: connections, and devices and pipes of mounts.
const OTHER_FILES: u64 = 1024;
/// OSTs for whose files the limit should suffice: as many as `sheen up` has by default.
const OSTS: u64 = 4;
/// Threads of a process besides those for each processor: for blocking work, mounts, and `lctl`.
const OTHER_THREADS: u64 = 256;
/// Limits that the advice sets.
const OPEN_FILES_ADVISED: u64 = 65_536;
const THREADS_ADVISED: u64 = 16_384;

/// The limits.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Whether this user is root, whose threads are not limited.
    pub is_root: bool,
    /// Name of this user, or its number if the name is not known.
    pub user: String,
    /// Hard limit of open files of a process; Sheen raises its soft limit to it. `None`: unlimited.
    pub open_files: Option<u64>,
    /// Soft limit of this user's threads. `None`: unlimited.
    pub threads: Option<u64>,
    /// Processors that a process may use.
    pub processors: u64,
}

/// Checks the limits.
pub fn checks(limits: &Limits) -> Vec<Finding> {
    [Some(open_files(limits)), threads(limits)].into_iter().flatten().collect()
}

fn open_files(limits: &Limits) -> Finding {
    let check = "open_files";
    let Some(limit) = limits.open_files else { return Finding::ok(check, "open files are not limited") };
    let osts = limit.saturating_sub(OTHER_FILES) / OPEN_FILES_MAX as u64;
    let how = match limits.is_root {
        true => format!("before the start: ulimit -n {OPEN_FILES_ADVISED}"),
        false => advise(limits, &format!("hard nofile {OPEN_FILES_ADVISED}")),
    };
    let advice = format!("{how}; in a unit of systemd: LimitNOFILE={OPEN_FILES_ADVISED}");
    if osts == 0 {
        let text = format!("a process may open {limit} files: too few for an OST with many clients");
        Finding::warning(check, text, advice)
    } else if osts < OSTS {
        let text = format!("a process may open {limit} files: with {OSTS} busy OSTs it opens objects again and again");
        Finding::hint(check, text, advice)
    } else {
        Finding::ok(check, format!("a process may open {limit} files"))
    }
}

fn threads(limits: &Limits) -> Option<Finding> {
    let check = "threads";
    if limits.is_root {
        return None;
    }
    let wanted = limits.processors.saturating_mul(2).saturating_add(OTHER_THREADS);
    Some(match limits.threads {
        Some(limit) if limit < wanted => Finding::warning(
            check,
            format!("this user may have {limit} threads, and a Sheen process may need {wanted}"),
            advise(limits, &format!("- nproc {THREADS_ADVISED}")),
        ),
        Some(limit) => Finding::ok(check, format!("this user may have {limit} threads")),
        None => Finding::ok(check, "threads are not limited"),
    })
}

/// Returns how to set a limit for this user.
fn advise(limits: &Limits, limit: &str) -> String {
    // limits.conf(5): a number is that of a user only in a range.
    let is_number = limits.user.bytes().all(|byte| byte.is_ascii_digit());
    let user = format!("{}{}", if is_number { ":" } else { "" }, limits.user);
    format!("as root: echo '{user} {limit}' >>/etc/security/limits.d/sheen.conf, then log in again")
}

#[cfg(test)]
mod tests {
    use super::{super::finding::Severity, *};

    fn usual() -> Limits {
        let (is_root, user) = (false, "alice".to_owned());
        Limits { is_root, user, open_files: Some(1 << 20), threads: Some(95_000), processors: 8 }
    }

    #[test]
    fn open_files_limit_is_measured_in_osts() {
        let finding = |open_files| open_files_of(&Limits { open_files, ..usual() });
        let severities = [Some(1024), Some(8192), Some(20_000), None].map(|limit| finding(limit).severity);
        assert_eq!(severities, [Severity::Warning, Severity::Hint, Severity::Ok, Severity::Ok]);
        assert!(finding(Some(8192)).advice.unwrap().contains("echo 'alice hard nofile 65536'"));
        let unnamed = open_files_of(&Limits { user: "1000".into(), open_files: Some(8192), ..usual() });
        assert!(unnamed.advice.unwrap().contains("echo ':1000 hard nofile 65536'"));
        let root = open_files_of(&Limits { is_root: true, open_files: Some(8192), ..usual() });
        assert!(root.advice.unwrap().contains("ulimit -n 65536"));
    }

    fn open_files_of(limits: &Limits) -> Finding {
        checks(limits).into_iter().find(|f| f.check == "open_files").unwrap()
    }

    #[test]
    fn too_few_threads_for_the_processors_are_a_warning() {
        let severity = |threads, processors, is_root| {
            let found = checks(&Limits { is_root, threads, processors, ..usual() });
            found.iter().find(|f| f.check == "threads").map(|f| f.severity)
        };
        assert_eq!(severity(Some(500), 8, false), Some(Severity::Ok));
        assert_eq!(severity(Some(500), 128, false), Some(Severity::Warning));
        assert_eq!(severity(None, 128, false), Some(Severity::Ok));
        assert_eq!(severity(Some(10), 128, true), None);
    }
}
