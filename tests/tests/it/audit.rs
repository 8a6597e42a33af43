//! The audit trail of servers.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use serde_json::Value;
use sheen_tests::{Fs, Mount, new_dir, run_command, sh, sheen, wait::eventually_some};

/// A user of this machine who is not root.
const USER: &str = "nobody";

/// Waits for an event in a trail.
fn event(trail: &Path, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
    eventually_some(what, || {
        let text = fs::read_to_string(trail).expect("a trail");
        let mut events = text.lines().filter_map(|line| serde_json::from_str(line).ok());
        events.find(|event| is_it(event))
    })
}

#[test]
fn audit_trail_has_refused_connections_and_denied_operations() {
    let Some(fs) = Fs::up_as_root_or_skip(2) else { return };
    fs.stop().ok();
    let trail = fs.base.join("audit");
    fs.start(&["--audit", trail.to_str().expect("UTF-8")]).ok();
    fs.sh("echo secret > private; chmod 600 private").ok();
    let mode = fs::metadata(&trail).expect("a trail").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let (source, dir) = (fs.source(), fs.dir());

    // A key with the name of the true one, and another secret.
    let forged = fs.base.join("forged");
    fs::create_dir(&forged).expect("a directory");
    let file = fs::read_dir(dir.join("mgs/keys")).expect("it exists").next().expect("a key").expect("readable");
    let text = fs::read_to_string(file.path()).expect("a key file");
    let (heading, _) = text.split_once("secret = ").expect("it has a secret");
    let name = file.file_name().into_string().expect("UTF-8");
    let copy = forged.join(&name);
    fs::write(&copy, format!("{heading}secret = \"{}\"\n", "00".repeat(32))).expect("a copy");
    sh(&format!("chmod 600 {}", copy.display())).ok();
    let mut command = Command::new(sheen());
    command.args(["lctl", "ping", source.split(":/").next().expect("a NID")]).env("SHEEN_KEY_DIR", &forged);
    assert_ne!(run_command(command).code, 0);
    let (_, id) = name.strip_suffix(".key").and_then(|name| name.rsplit_once('-')).expect("CLUSTER-KEY.key");
    let refused = event(&trail, "the refused connection", |e| e["event"] == "refused_connection" && e["key"] == id);
    let reason = refused["reason"].as_str().expect("a text");
    assert!(reason.contains("it does not know the secret of key"), "{refused}");
    assert!(refused["nid"].as_str().expect("a text").ends_with("@tcp"), "{refused}");

    let keys = fs.base.join("their-keys");
    let program = sheen().display().to_string();
    let add = format!("SHEEN_KEY_DIR={} {program} key add -", keys.display());
    sh(&format!("{program} key issue --dir {} --user {USER} | {add}", dir.display())).ok();
    let mount = Mount { mnt: fs.base.join("theirs") };
    let mut command = Command::new(sheen());
    command.arg("mount").arg(&source).arg(&mount.mnt).env("SHEEN_KEY_DIR", &keys);
    run_command(command).ok();
    // This test runs as root, so its kernel denies nothing.
    let ran = sh(&format!("cat {}/private", mount.mnt.display()));
    assert!(ran.err.contains("ermission denied"), "{}", ran.err);
    let uid: u32 = sh(&format!("id -u {USER}")).ok().trim().parse().expect("a number");
    let denied = event(&trail, "the denied open", |e| e["event"] == "denied" && e["op"] == "open");
    assert_eq!(denied["target"], "sheen-MDT0000", "{denied}");
    assert_eq!(denied["uid"], uid, "{denied}");
    assert_eq!(denied["role"], format!("user {uid}"), "{denied}");
    assert_eq!(denied["error"], "EACCES", "{denied}");
    assert_eq!(denied["errno"], 13, "{denied}");
    assert_eq!(denied["fid"], fs.lfs("path2fid private").ok().trim(), "{denied}");
}

#[test]
fn server_does_not_start_without_its_audit_trail() {
    let base = new_dir(&std::env::temp_dir());
    for server in ["mgs", "up"] {
        let mut command = Command::new(sheen());
        command.args([server, "--listen", "127.0.0.1:0", "--dir"]).arg(base.join(server));
        let ran = run_command({
            command.arg("--audit").arg(base.join("missing/audit"));
            command
        });
        assert_eq!(ran.code, 1, "{}", ran.err);
        assert!(ran.err.contains("cannot open the audit trail"), "{}", ran.err);
    }
    let _ = fs::remove_dir_all(base);
}
