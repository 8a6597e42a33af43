//! `lctl` of ordinary users: they read public parameters of other users' processes, and set none.

use std::path::Path;

use sheen_tests::{Ran, sandbox::Sandbox};

/// Runs `lctl` as a user who is in no group.
const NOBODY: &str = "setpriv --reuid 65534 --regid 65534 --clear-groups env -u XDG_RUNTIME_DIR lctl";

fn root(s: &Sandbox, line: &str) -> Ran {
    s.sh(Path::new("/"), &format!("lctl {line}"))
}

fn nobody(s: &Sandbox, line: &str) -> Ran {
    s.sh(Path::new("/"), &format!("{NOBODY} {line}"))
}

#[test]
fn ordinary_users_read_public_parameters_of_roots_processes() {
    Sandbox::enter("public_params", |s| {
        s.up("sheen", "/mnt/here");
        s.mount_again("/mnt/there");
        for line in [
            "get_param version 'osc.*.max_rpcs_in_flight' 'llite.*.mount_point'",
            "get_param -F 'lod.*.qos_threshold_rr'",
            "get_param --json 'lod.*.qos_threshold_rr' 'mdt.*.uuid'",
            "get_param --fsname sheen -n 'lov.*.target_obd'",
            "list_param -F 'obdfilter.*.kbytes*'",
            "list_param 'llite.*'",
            "dl",
            "dl -t -y --fsname sheen",
        ] {
            assert_eq!(nobody(s, line).ok(), root(s, line).ok(), "{line}");
        }
        assert_eq!(root(s, "get_param -N 'llite.*.stats'").ok().lines().count(), 2, "both processes answer");
        let metrics = |user: &str| {
            let scrape = format!("{user} sheen metrics --fsname sheen | grep -E '^(lustre_capacity|sheen_max_rpcs)'");
            s.sh(Path::new("/"), &scrape).ok()
        };
        let of_root = metrics("");
        assert_eq!(metrics(NOBODY.trim_end_matches(" lctl")), of_root);
        assert!(of_root.contains("lustre_capacity_kilobytes{") && of_root.contains("OST0003"), "{of_root}");
        let modes = "stat -c '%a %U' /run/sheen-public /run/sheen-public/*.sock | sort -u";
        assert_eq!(s.sh(Path::new("/"), modes).ok(), "666 root\n755 root\n");
    });
}

#[test]
fn ordinary_users_are_refused_other_parameters_and_changes() {
    Sandbox::enter("public_params_refused", |s| {
        s.up("sheen", "/mnt/here");
        for hidden in [
            "mdt.*.job_stats",
            "mdt.*.exports.*.uuid",
            "*.*.waits",
            "nodemap.*.*",
            "srpc.*.*",
            "mgs.MGS.live.*",
            "mdd.*.changelog_users",
            "llite.*.extents_stats_per_process",
        ] {
            root(s, &format!("get_param '{hidden}'")).ok();
            let refused = nobody(s, &format!("get_param '{hidden}'"));
            assert_eq!((refused.code, refused.out.as_str()), (13, ""), "{hidden}");
        }
        let read = "get_param -n 'lod.*.qos_threshold_rr'";
        let set = nobody(s, "set_param 'lod.*.qos_threshold_rr=20'");
        let said = "\
error: set_param: setting lod/sheen-MDT0000-mdtlov/qos_threshold_rr=20: Permission denied
error: set_param: setting 'lod/*/qos_threshold_rr'='20': Permission denied\n";
        assert_eq!((set.code, set.out.as_str(), set.err.as_str()), (13, "", said));
        for line in ["set_param 'mdt.*.abort_recovery=1'", "set_param -P 'osc.*.max_dirty_mb=1'"] {
            let refused = nobody(s, line);
            assert!(refused.code != 0 && refused.out.is_empty(), "{line}: {}", refused.err);
        }
        assert_eq!(root(s, read).ok(), "17%\n");
        assert_eq!(root(s, "llog_print params").ok(), "");
        // Nobody can put a socket beside those of root.
        let made =
            s.sh(Path::new("/"), &format!("{} touch /run/sheen-public/1.sock", NOBODY.trim_end_matches(" lctl")));
        assert_ne!(made.code, 0);
    });
}

/// As a unit with `User=` and `RuntimeDirectory=` starts it (docs/install.md).
#[test]
fn ordinary_users_read_public_parameters_of_a_server_of_another_user() {
    Sandbox::enter("public_params_user", |s| {
        let script = format!(
            "
set -e
install -d -o 12345 -m 755 /mnt/home
install -d -m 755 /mnt/run
install -d -o 12345 -m 700 /mnt/run/servers /mnt/run/servers-public
export SHEEN_RUNTIME_DIR=/mnt/run/servers
setpriv --reuid 12345 --regid 12345 --clear-groups env HOME=/mnt/home SHEEN_KEY_DIR=/mnt/home/keys \
  sheen mgs --dir /mnt/home/mgs --listen 127.0.0.1:0@tcp >/mnt/home/log 2>&1 &
server=$!
trap 'kill $server; wait $server || true' EXIT
until [ -S /mnt/run/servers-public/$server.sock ]; do kill -0 $server; sleep 0.1; done
stat -c '%a %u' /mnt/run/servers /mnt/run/servers-public
{NOBODY} dl | awk '{{ print $3, $4 }}'
{NOBODY} get_param -n version
{NOBODY} get_param mgs.MGS.live.params || echo refused
"
        );
        let version = s.sh(Path::new("/"), "sheen --version").ok();
        let version = version.trim().rsplit(' ').next().unwrap().to_owned();
        let ran = s.sh(Path::new("/"), &script);
        assert_eq!(ran.ok(), format!("700 12345\n755 12345\nmgs MGS\n{version}\nrefused\n"));
    });
}
