//! `sheen doctor`: the form of its report, and findings that a test can cause on any machine. Other
//! findings depend on the machine, and decide nothing here.

use std::{
    collections::BTreeSet,
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;
use sheen_tests::{Ran, new_dir, run_command, sheen};

/// A directory for keys, and one for a server.
struct Place {
    base: PathBuf,
}

impl Place {
    fn new() -> Place {
        let place = Place { base: new_dir(&std::env::temp_dir()) };
        for dir in [place.keys(), place.server()] {
            fs::create_dir(&dir).expect("a directory of its own");
            chmod(&dir, 0o700);
        }
        place
    }

    fn keys(&self) -> PathBuf {
        self.base.join("keys")
    }

    fn server(&self) -> PathBuf {
        self.base.join("server")
    }

    fn doctor(&self, options: &[&str]) -> Ran {
        let mut command = Command::new(sheen());
        command.arg("doctor").args(options).arg("--dir").arg(self.server());
        command.env("SHEEN_KEY_DIR", self.keys());
        run_command(command)
    }

    /// Runs a command of the shell in which `$0` is the program, and `$1` the directory.
    fn shell(&self, text: &str) -> Ran {
        let mut command = Command::new("sh");
        command.args(["-c", text]).arg(sheen()).arg(self.server()).env("SHEEN_KEY_DIR", self.keys());
        run_command(command)
    }

    /// Returns the findings.
    fn findings(&self) -> Vec<Value> {
        let ran = self.doctor(&["--json"]);
        let findings: Value = serde_json::from_str(&ran.out).unwrap_or_else(|e| panic!("{e}: {}{}", ran.out, ran.err));
        let Value::Array(findings) = findings else { panic!("not an array: {findings}") };
        let fails = findings.iter().any(|finding| finding["severity"] == "error");
        assert_eq!(ran.code, i32::from(fails), "{}", ran.out);
        findings
    }

    /// Returns severity and advice of the findings of a check.
    fn of_check(&self, check: &str) -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let findings = self.findings().into_iter().filter(|finding| finding["check"] == check);
        findings.map(|finding| (text(&finding["severity"]), text(&finding["advice"]))).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.base);
    }
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("its owner may");
}

/// Fails unless there are findings of a check, and all are ok.
#[track_caller]
fn assert_ok(found: &[(String, String)]) {
    assert!(!found.is_empty() && found.iter().all(|(severity, _)| severity == "ok"), "{found:?}");
}

#[test]
fn doctor_reports_findings_as_json_and_fails_only_for_errors() {
    let place = Place::new();
    let findings = place.findings();
    let groups: BTreeSet<&str> = findings.iter().filter_map(|finding| finding["group"].as_str()).collect();
    let all = ["directory", "fuse", "keys", "limits", "memory", "network", "processes", "processor", "tools"];
    assert_eq!(groups, BTreeSet::from(all), "{findings:?}");
    for finding in &findings {
        let text = |name: &str| finding[name].as_str().unwrap_or_default();
        assert!(["group", "check", "text"].iter().all(|name| !text(name).is_empty()), "{finding}");
        assert!(["ok", "hint", "warning", "error"].contains(&text("severity")), "{finding}");
        assert_eq!(text("advice").is_empty(), text("severity") == "ok", "{finding}");
    }
}

#[test]
fn doctor_shows_each_check_only_if_verbose() {
    let place = Place::new();
    let (short, long) = (place.doctor(&[]), place.doctor(&["-v"]));
    for ran in [&short, &long] {
        assert!(ran.code == 0 || ran.code == 1, "{}{}", ran.out, ran.err);
    }
    assert!(short.out.contains(" passed\n") && !long.out.contains(" passed\n"), "{}{}", short.out, long.out);
}

#[test]
fn doctor_whose_output_cannot_be_written_fails_without_a_panic() {
    let place = Place::new();
    let full = place.shell("\"$0\" doctor --dir \"$1\" >/dev/full");
    assert!(full.code == 1 && full.err.contains("cannot write the output"), "{} {}", full.code, full.err);
    let closed = place.shell("\"$0\" doctor -v --dir \"$1\" | true");
    assert_eq!(closed.err, "", "a reader that ends early is no failure");
}

#[test]
fn doctor_warns_of_a_key_file_that_others_can_read() {
    let place = Place::new();
    let keys = place.of_check("keys");
    let [(severity, advice)] = &keys[..] else { panic!("one finding about the missing keys: {:?}", place.findings()) };
    assert!(severity == "hint" && advice.contains("sheen key issue --dir DIR"), "{keys:?}");
    assert!(place.of_check("key_file").is_empty(), "there is no key to judge");
    let key = place.keys().join("a.key");
    fs::write(&key, "a secret").expect("a file");
    chmod(&key, 0o644);
    let command = format!("chmod 600 {}", key.display());
    assert_eq!(place.of_check("key_file"), [("warning".to_owned(), command.clone())]);
    assert!(place.doctor(&[]).out.contains(&command));
    fs::remove_file(&key).expect("its own file");
    assert!(place.of_check("key_file").is_empty(), "there is no key to judge");
}

#[test]
fn doctor_warns_of_a_target_that_others_can_enter() {
    let place = Place::new();
    let target = place.server();
    assert!(place.of_check("directory_mode").is_empty(), "it holds no data of Sheen");
    fs::write(target.join("target"), "# A Sheen target; do not edit.\n").expect("a file");
    assert_ok(&place.of_check("directory_mode"));
    chmod(&target, 0o755);
    let command = format!("chmod 700 {}", target.display());
    assert_eq!(place.of_check("directory_mode"), [("warning".to_owned(), command)]);
    let names = fs::read_dir(&target).expect("readable").count();
    assert_eq!(names, 1, "the command changes nothing");
}
